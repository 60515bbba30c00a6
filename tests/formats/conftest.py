"""Text files and text processors, as for the tests of corpora."""

from tests.corpora.conftest import parallel, sides

__all__ = ["parallel", "sides"]
