"""Property tests: the same examples in every run, and no limit on the time of the first, which builds tables."""

from hypothesis import settings

settings.register_profile("headway", deadline=None, derandomize=True)
settings.load_profile("headway")
