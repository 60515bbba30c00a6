"""Backends: search for the outputs of encoded sources, by the run's own model or by an engine that runs its export."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from headway.core.errors import UserError, option
from headway.models.model import Memory, Seq2Seq
from headway.predictors.output import Output
from headway.predictors.predict_options import PredictOptions
from headway.predictors.predictor import Row
from headway.search.beam import Ensemble, Searchable, beam_search
from headway.search.decoding_options import SearchOptions
from headway.search.limits import Hypothesis, Limits
from headway.search.recorded_model import RecordedModel, few, recorder
from headway.search.sampling import sample
from headway.tensors.batch import PAD, collate


@dataclass(frozen=True)
class SearchRequest:
    """The rows of one batch, for a search.

    Attributes:
        search: the search options of the request and the recipe.
        contexts: the token ids that the decoder reads before the output of each row, all of the same length.
        mark: the token id between sentences, which outputs must not contain.
        uncounted: the number of first tokens of an output that are excluded from scores.
    """

    rows: Sequence[Row]
    options: PredictOptions
    search: SearchOptions
    contexts: Sequence[Sequence[int]] = ()
    mark: int | None = None
    uncounted: int = 0

    @property
    def sources(self) -> list[Any]:
        """The token ids, or frames, of the rows, without end-of-sentence tokens."""
        return [row.encoded.values for row in self.rows]

    @property
    def limits(self) -> Limits:
        """The limits of the outputs."""
        prefixes = [row.prefix for row in self.rows] if any(row.prefix for row in self.rows) else []
        return Limits(
            self.search.min_length, [row.longest for row in self.rows], prefixes, self.search.no_repeat_ngram,
            self.contexts, self.mark, self.uncounted,
        )  # fmt: skip

    def narrowed(self, indices: Sequence[int], search: SearchOptions, nbest: int) -> SearchRequest:
        """The request of the rows at `indices`, with other search options and another number of hypotheses."""
        return replace(
            self, rows=[self.rows[index] for index in indices], search=search,
            options=self.options.model_copy(update={"nbest": nbest}),
            contexts=[self.contexts[index] for index in indices] if self.contexts else [],
        )  # fmt: skip


class Backend(ABC):
    """The base class of backends, which search for the outputs of a batch.

    Attributes:
        name: the name in messages.
        lacks: the options of prediction that the backend does not support.
    """

    name: str
    lacks: ClassVar[tuple[str, ...]] = ()

    def longest(self, source_length: int) -> int | None:
        """The maximum length in tokens of an output, if only the backend knows it. None if the options determine it."""
        return None

    def width(self, options: PredictOptions, search: SearchOptions) -> int:
        """The number of hypotheses that search keeps of each input."""
        return options.nbest if options.sample else search.beam if search.kind == "beam" else search.samples

    def divisible(self) -> bool:
        """Whether several threads may search at once. False for engines, which have threads of their own."""
        return False

    @abstractmethod
    def hypotheses(self, request: SearchRequest) -> list[list[Hypothesis]]:
        """The hypotheses of each source, best first: as many as the options ask for, or all that the search has."""

    def annotated(self, row: Row, output: Output) -> Output:
        """Return the output of a row together with what the backend recorded about the row."""
        return output

    @classmethod
    def check(cls, options: PredictOptions, search: SearchOptions) -> None:
        """Raise UserError if an option, or a search option of the recipe, is not supported by this backend."""
        for name in cls.lacks:
            section = search if name in SearchOptions.model_fields else options
            value, usual = getattr(section, name), type(section).model_fields[name].default
            if value != usual:
                raise UserError(
                    f"the engine {cls.name} has no such option", where=option(name), received=value,
                    allowed=f"{usual!r}, or no {option('engine')}",
                )  # fmt: skip


class EncodingModel(Searchable, Protocol):
    """A model that encodes sources and can be searched."""

    def encode(self, source: Tensor, mask: Tensor) -> Memory:
        """Encode token ids (B, S), or frames (B, S, M). The mask (B, S) is False for padding."""
        ...


class TorchBackend(Backend):
    """Search with PyTorch, over a model or an ensemble."""

    name = "torch"

    def __init__(self, model: EncodingModel, device: torch.device) -> None:
        self.model, self.device = model, device
        record = recorder(device) if isinstance(model, Seq2Seq | Ensemble) else None
        self.recorded = None if record is None else RecordedModel(model, record)

    def divisible(self) -> bool:
        return self.device.type == "cpu" and not self._changed()

    def hypotheses(self, request: SearchRequest) -> list[list[Hypothesis]]:
        options, search = request.options, request.search
        model: Searchable = self.model
        turn: AbstractContextManager[Any, None] = nullcontext()
        batch = collate([np.asarray(source) for source in request.sources], None).to(self.device)
        source, mask = batch.source, batch.source_mask
        if self.recorded is not None and search.cuda_graphs and not self._changed():
            model, turn, more = self.recorded, self.recorded.turn, few(mask.shape[1]) - mask.shape[1]
            source, mask = F.pad(source, (0, 0) * (source.dim() - 2) + (0, more), value=PAD), F.pad(mask, (0, more))
        with torch.inference_mode():
            memory = self.model.encode(source, mask)
        with turn:
            if search.kind == "beam" and not options.sample:
                return beam_search(model, memory, request.limits, beam=search.beam, ranking=search.ranking)
            return sample(
                model, memory, request.limits,
                sampling=options.sampling, lines=[row.number for row in request.rows],
                count=options.nbest if options.sample else search.samples, ranking=search.ranking,
            )  # fmt: skip

    def _changed(self) -> bool:
        """Whether the model's step differs from a recorded one, because a method is patched or autocast is enabled."""
        models: Sequence[Any] = self.model.models if isinstance(self.model, Ensemble) else [self.model]
        steps = [step for model in models for step in model.steps()]
        return torch.is_autocast_enabled(self.device.type) or any(method in vars(module) for module, method in steps)
