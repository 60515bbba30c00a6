"""The corpus of an imported model. It is not available, and nothing reads it."""

from typing import ClassVar

from headway.formats.corpus_format import CorpusFormat

ABSENT = "absent"


class Absent(CorpusFormat):
    """The corpus of an imported run."""

    products: ClassVar[tuple[str, ...]] = ()
    fault = "the corpus of an imported run is not here; a new recipe goes on from such a run by training.from: RUN"
