"""The contract of an importer: a format of other people's models that becomes a run.

An importer reads files, and says what run they make: the sections of its recipe, its vocabularies, its weights. The run
folder is written elsewhere, whole or not at all, and every command takes it like any other run.
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
    """A model of other people, as headway has it.

    Attributes:
        sections: those of a recipe that the files decide: `model`, and mostly `vocabulary`, `text` and `decoding`.
        vocabularies: of source and target; one for both is one object.
        weights: gives the weights under the names of headway's model. It gets the tensors of that model, which have
            shapes and no values. Whatever it leaves out, or gives in another shape, is an error.
        files: those that were read.
        licence: as the hub names it, where the files tell.
    """

    sections: dict[str, Any]
    vocabularies: tuple[Vocabulary, Vocabulary]
    weights: Callable[[Mapping[str, Tensor]], Weights]
    files: Sequence[Path]
    licence: str | None = None


class Importer(ABC):
    """A format. A subclass takes its `Config`, or keyword-only options.

    Attributes:
        Config: the options of the format.
        name: its name in `IMPORTERS`.
        places: what is given on the command line, such as `MODEL.npz VOCAB`.
        extra: the extra of headway whose packages it needs.
        packages: these packages, as they are imported.
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
        """The model of these files, or of what else they name.

        Raises:
            UserError: places that are not there or too few or many, files that are damaged, or a model that headway's
                cannot compute.
        """
