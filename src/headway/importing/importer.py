"""The interface of importers: formats of models that become runs.

An importer reads files, and returns the contents of a run: sections of its recipe, its vocabularies, its weights. The
run folder is written atomically by other code, and all commands accept it like any other run.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from torch import Tensor

from headway.core.config import Section
from headway.processing.text.vocabulary import Vocabulary

Weights = dict[str, Tensor]


class Imported(NamedTuple):
    """An imported model in headway's terms.

    Attributes:
        sections: the recipe's sections that the files determine: `model`, and usually `vocabulary`, `text` and
            `decoding`.
        vocabularies: of source and target; the same object if they are shared.
        weights: returns the weights by headway's names, from the model's tensors, which have shapes but no values.
            Missing weights, or weights of another shape, are errors.
        files: the files that were read.
        licence: as the hub names it, if the files state it.
        factors: of the integers in the files, by the names of the format; an export of the run keeps them.
        licences: of the data and the teacher, if the files state them; an export of the run states them.
        kept: the files that an export of the run writes again, unchanged.
    """

    sections: dict[str, Any]
    vocabularies: tuple[Vocabulary, Vocabulary]
    weights: Callable[[Mapping[str, Tensor]], Weights]
    files: Sequence[Path]
    licence: str | None = None
    factors: dict[str, float] | None = None
    licences: dict[str, str | None] | None = None
    kept: Sequence[Path] = ()


class Importer(ABC):
    """A format. A subclass takes its `Config`, or keyword-only options.

    Attributes:
        Config: the options of the format.
        name: its name in `IMPORTERS`.
        places: the arguments on the command line, such as `MODEL.npz VOCAB`.
        extra: the extra of headway that installs its packages.
        packages: the packages, by import name.
    """

    Config: ClassVar[type[Section]] = Section
    name: ClassVar[str]
    places: ClassVar[str]
    extra: ClassVar[str] = "export"
    packages: ClassVar[tuple[str, ...]] = ()

    def __init__(self, config: Any = None) -> None:
        self.config = self.Config() if config is None else config

    @abstractmethod
    def read(self, places: Sequence[str]) -> Imported:
        """Read the model of these files (or names, depending on the format).

        Raises:
            UserError: files are missing, damaged, too few or too many, or headway does not support the model.
        """
