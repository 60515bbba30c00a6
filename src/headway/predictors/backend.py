"""Backends: search for the outputs of encoded sources, by the run's own model or by an engine that runs its export."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from torch import Tensor

from headway.core.errors import UserError, option
from headway.models.model import Memory
from headway.predictors.predict_options import PredictOptions
from headway.search.beam import Searchable, beam_search
from headway.search.decoding_options import SearchOptions
from headway.search.limits import Hypothesis, Limits
from headway.search.sampling import sample
from headway.tensors.batch import collate


@dataclass(frozen=True)
class SearchRequest:
    """Some encoded sources, and how outputs are found for them.

    Attributes:
        sources: ids, or frames, without end marks.
        texts: what was encoded, for backends that read text.
        lines: the number of each line, which random streams hang on.
        search: those of search, with those of the recipe.
    """

    sources: Sequence[Any]
    texts: Sequence[Any]
    limits: Limits
    lines: Sequence[int]
    options: PredictOptions
    search: SearchOptions


class Backend(ABC):
    """Finds outputs.

    Attributes:
        name: what messages call it.
        lacks: the options of prediction that it does not have.
    """

    name: str
    lacks: ClassVar[tuple[str, ...]] = ()

    def longest(self, source_length: int) -> int | None:
        """The most tokens of an output for a source of so many, where options do not say it; None where they do."""
        return None

    @abstractmethod
    def hypotheses(self, request: SearchRequest) -> list[list[Hypothesis]]:
        """The outputs for each source, best first: as many as are asked for, or all that there are."""

    @classmethod
    def check(cls, options: PredictOptions, search: SearchOptions) -> None:
        """Raise UserError for an option, also one of the recipe's search, that this backend does not have."""
        for name in cls.lacks:
            section = search if name in SearchOptions.model_fields else options
            value, usual = getattr(section, name), type(section).model_fields[name].default
            if value != usual:
                raise UserError(
                    f"the engine {cls.name} has no such option", where=option(name), received=value,
                    allowed=f"{usual!r}, or no {option('engine')}",
                )  # fmt: skip


class EncodingModel(Searchable, Protocol):
    """A model that encodes sources, and that search can ask."""

    def encode(self, source: Tensor, mask: Tensor) -> Memory:
        """Encode token ids (B, S), or frames (B, S, M), real where mask (B, S) is True."""
        ...


class TorchBackend(Backend):
    """headway's own search over a model, or over whatever has its methods."""

    name = "torch"

    def __init__(self, model: EncodingModel, device: torch.device) -> None:
        self.model, self.device = model, device

    def hypotheses(self, request: SearchRequest) -> list[list[Hypothesis]]:
        batch = collate([np.asarray(source) for source in request.sources], None).to(self.device)
        with torch.inference_mode():
            memory = self.model.encode(batch.source, batch.source_mask)
        options, search = request.options, request.search
        if search.kind == "beam" and not options.sample:
            return beam_search(self.model, memory, request.limits, beam=search.beam, alpha=search.length_penalty)
        return sample(
            self.model, memory, request.limits,
            sampling=options.sampling, lines=request.lines,
            count=options.nbest if options.sample else search.samples, alpha=search.length_penalty,
        )  # fmt: skip
