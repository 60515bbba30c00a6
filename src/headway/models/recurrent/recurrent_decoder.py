"""The decoder of a recurrent model.

Shapes: B batch, T target, S source, D embedding, E encoder state, H decoder state, O readout, N sentences, R rows: the
hypotheses of all sentences, grouped by sentence.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, NamedTuple, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from headway.core.config import Layers, Probability, Section, Width
from headway.core.errors import nearest
from headway.core.registry import is_foreign
from headway.mixers import State
from headway.models.components import CROSS_ATTENTIONS
from headway.models.cross_attention import CrossMixer, Read, View
from headway.models.model import sentences_of
from headway.models.recurrent.cells import States, build_cells, run
from headway.models.recurrent.recurrent_encoder import EncodedSource, RecurrentEncoderConfig
from headway.models.scored_attention import joined
from headway.tensors.linear import Linear


class RecurrentDecoderConfig(Section):
    """The decoder of a recurrent model.

    `layers`: the number of layers. `hidden`: the size of the states. `start`: the initial state; `copy` takes the final
    states of the encoder, layer by layer, `project` tanh of a linear map of the final state of the encoder's top layer,
    of the backward direction if it has both (Bahdanau et al. 2015, A.2.2).
    """

    layers: Layers = 2
    hidden: Width = 512
    start: Literal["copy", "project"] = "copy"


class RecurrentAttentionConfig(Section):
    """How the decoder of a recurrent model reads the source; may be written as its kind alone.

    `kind`: `soft` takes the weighted sum of all positions, `hard` one position, `monotonic` one position that never
    moves back, `last` the final state of the encoder's top layer, the same at every step (Cho et al. 2014, section
    2.2), `none` nothing: the source is known only from the initial state. `score`: of kinds that weigh positions; dot,
    general, concat or location (Luong et al. 2015), additive (Bahdanau et al. 2015), the same function as concat; or a
    kind of cross-attention with its options, such as `{kind: multi_head, heads: 4}`, which is soft and global.
    `scaled`: divide dot, general and location scores, which are sums over `decoder.hidden`, by its root (Vaswani et al.
    2017), so that attention is soft initially. `timing`: attention before the update of the state, whose input then
    includes the context (`bahdanau`), or after it (`luong`). `window`: `global`, or positions around a centre:
    the target's own position (`local-m`) or a predicted one (`local-p`). `width`: the largest distance from the centre.
    `input_feeding`: with Luong's timing, whether the last readout is an input of the recurrence. `estimator`: how
    the gradient of `hard` and `monotonic` is estimated. `entropy`: the weight of the entropy bonus of `reinforce`.
    `baseline_decay`: the weight of the old moving average of rewards in the new one, for `reinforce`.
    """

    kind: Literal["soft", "hard", "monotonic", "last", "none"] = "soft"
    score: str | dict[str, Any] = "general"
    scaled: bool = False
    timing: Literal["bahdanau", "luong"] = "luong"
    window: Literal["global", "local-m", "local-p"] = "global"
    width: Width = 10
    input_feeding: bool = False
    estimator: Literal["reinforce", "straight_through"] = "reinforce"
    entropy: Annotated[float, Field(ge=0, le=1e6)] = 0.01
    baseline_decay: Probability = 0.9

    @model_validator(mode="after")
    def _coherent(self) -> Self:
        if self.scaled and self.score in ("concat", "additive"):
            raise ValueError(f"scaled is for scores that are products; {self.score} has bounds: set scaled: false")
        if self.timing == "bahdanau" and self.input_feeding:
            raise ValueError("input_feeding belongs to timing luong: with bahdanau the context is fed as it is")
        if not self.weighs and self.input_feeding:
            raise ValueError(f"input_feeding feeds what attention found, and kind is {self.kind}")
        if self.kind in ("hard", "monotonic") and self.window == "local-p":
            raise ValueError(
                f"window local-p weighs positions, and {self.kind} attention takes one: use soft attention"
            )
        self._check_score()
        return self

    def _check_score(self) -> None:
        name = self.score_kind()
        if name not in CROSS_ATTENTIONS and not is_foreign(name):
            raise ValueError(
                f"unknown score {name!r}{nearest(name, CROSS_ATTENTIONS)}; allowed: {', '.join(CROSS_ATTENTIONS)}"
            )
        usual = {"scaled": False, "window": "global", "choice": "soft"}
        has = CROSS_ATTENTIONS.options(name)
        for option, value in usual.items() if self.weighs else ():
            if self._shared_options()[option] != value and option not in has:
                key = "kind" if option == "choice" else option
                raise ValueError(f"{key} does nothing with score {name}, which has no such option")

    @property
    def weighs(self) -> bool:
        """Whether the attention scores source positions."""
        return self.kind not in ("last", "none")

    def score_kind(self) -> str:
        return self.score if isinstance(self.score, str) else str(self.score.get("kind"))

    def _shared_options(self) -> dict[str, Any]:
        options = {name: getattr(self, name) for name in ("scaled", "window", "width", "estimator")}
        return options | {"choice": self.kind}

    def build(self, dim: int, memory_dim: int, positions: int) -> CrossMixer | None:
        """Build the attention, or None if no positions are scored. Raises UserError for options that it does not have.

        Args:
            dim: H.
            memory_dim: E.
            positions: the longest source in training.
        """
        if not self.weighs:
            return None
        return CROSS_ATTENTIONS.build(
            self.score, dim, memory_dim, positions, defaults=self._shared_options(), where="model.attention.score"
        )


@dataclass(frozen=True)
class RecurrentState(State):
    """The state of a recurrent decoder. The source view is stored per sentence, not per hypothesis.

    The second axis of `cells` are the rows. `fed` (R, O) is the last readout, `chosen` (R,) the last source position
    chosen and `constant` (R, E) the context of every step; each is None if the next step does not need it. `lengths`
    (R,) counts the tokens so far.
    """

    cells: States
    fed: Tensor | None
    chosen: Tensor | None
    constant: Tensor | None
    source: View | None
    lengths: Tensor
    width: int  # hypotheses per sentence

    def select(self, index: Tensor) -> Self:
        """Select rows by `index`. With an index (N, W), the W hypotheses of each sentence share its source view."""
        rows = index.reshape(-1)
        width, sentences = sentences_of(index, self.width, len(self.lengths) // self.width)
        source = self.source
        return replace(
            self,
            cells=tuple(cell.index_select(1, rows) for cell in self.cells),
            fed=None if self.fed is None else self.fed.index_select(0, rows),
            chosen=None if self.chosen is None else self.chosen.index_select(0, rows),
            constant=None if self.constant is None else self.constant.index_select(0, rows),
            source=source if source is None or sentences is None else source.select(sentences),
            lengths=self.lengths.index_select(0, rows),
            width=width,
        )


class ReadoutConfig(Section):
    """The readout of a recurrent model, the vector from which words are predicted; may be written as its kind alone.

    `kind`: `state` is the decoder's state h, `tanh` is tanh(W [c; h]) with the context c (Luong et al. 2015, equation
    5), `maxout` the larger of each pair in W [c; h; y], y being the last word (Bahdanau et al. 2015, A.2.2). `size`: of
    the last two, by default `model.dim`. `state`: the h that a maxout reads, the `new` one, as in equation 4 of
    Bahdanau et al., or the `previous` one, which attention before the update has read, as in their appendix.
    """

    kind: Literal["state", "tanh", "maxout"] = "tanh"
    size: Width | None = None
    state: Literal["new", "previous"] = "new"

    @model_validator(mode="after")
    def _coherent(self) -> Self:
        if self.kind == "state" and self.size is not None:
            raise ValueError("readout state is of the size decoder.hidden: leave out size, or set tanh or maxout")
        if self.kind != "maxout" and self.state == "previous":
            raise ValueError(f"readout {self.kind} of the previous state would not know the last word: set maxout")
        return self


class Readout(nn.Module):
    """The vector from which words are predicted.

    Args:
        config: its kind and size.
        hidden: H.
        dim: D.
        context: E, or 0 without context.
    """

    def __init__(self, config: ReadoutConfig, hidden: int, dim: int, context: int) -> None:
        super().__init__()
        self.kind, self.previous = config.kind, config.state == "previous"
        self.size = hidden if self.kind == "state" else config.size or dim
        if self.kind != "state":
            inputs = context + hidden + (dim if self.kind == "maxout" else 0)
            self.weight = Linear(inputs, 2 * self.size if self.kind == "maxout" else self.size, bias=False)
            nn.init.xavier_uniform_(self.weight.weight)

    def forward(self, state: Tensor, context: Tensor | None, word: Tensor) -> Tensor:
        """The readout (..., O) from the state (..., H), the context (..., E) and the last word (..., D)."""
        if self.kind == "state":
            return state
        parts = [state] if context is None else [context, state]
        if self.kind == "tanh":
            return self.weight(torch.cat(parts, -1)).tanh()  # type: ignore[no-any-return]
        return self.weight(torch.cat([*parts, word], -1)).unflatten(-1, (-1, 2)).amax(-1)  # type: ignore[no-any-return]


class Start(nn.Module):
    """The initial state of the decoder: the encoder's final states, or a projection of those of its top layer."""

    def __init__(self, config: RecurrentDecoderConfig, encoder: RecurrentEncoderConfig, cell: str) -> None:
        super().__init__()
        self.layers, self.project = config.layers, config.start == "project"
        self.size = encoder.hidden // (2 if encoder.bidirectional else 1)
        if self.project:
            count = 2 if cell == "lstm" else 1
            self.maps = nn.ModuleList(Linear(self.size, self.layers * config.hidden) for _ in range(count))

    def forward(self, encoded: EncodedSource) -> States:
        """The initial states (layers, B, H). An LSTM's memory cells are projected without tanh: they are unbounded."""
        if not self.project:
            return encoded.last
        tops = [states[-1, :, -self.size :] for states in encoded.last]
        projected = [layer(top) for layer, top in zip(self.maps, tops, strict=True)]
        projected[0] = projected[0].tanh()
        return tuple(states.unflatten(1, (self.layers, -1)).transpose(0, 1).contiguous() for states in projected)


class Decoded(NamedTuple):
    """Readouts (R, n, O), the result of attention, or None without attention, and the new state."""

    readouts: Tensor
    read: Read | None
    state: RecurrentState


class Decoder(nn.Module):
    """Recurrent layers over the embedded target that read the source by attention, as one state, or not at all.

    If no step depends on the attention of an earlier step, all positions are computed in one call of each module.

    Args:
        config: layers, sizes and first state.
        attention: how the source is read.
        encoder: the encoder's section.
        dim: D.
        cell: the kind of the layers.
        readout: the vector that words are predicted from.
        dropout: between layers.
        max_position: the longest source in training.

    Raises:
        UserError: options of the attention that do not exist or do not fit.
    """

    def __init__(
        self,
        config: RecurrentDecoderConfig,
        attention: RecurrentAttentionConfig,
        encoder: RecurrentEncoderConfig,
        *,
        dim: int,
        cell: str,
        readout: ReadoutConfig,
        dropout: float,
        max_position: int,
    ) -> None:
        super().__init__()
        self.attention = attention.build(config.hidden, encoder.hidden, max_position)
        self.constant = attention.kind == "last"
        context = self.attention.size if self.attention is not None else encoder.hidden if self.constant else 0
        self.before = context > 0 and attention.timing == "bahdanau"
        self.feeding = attention.input_feeding
        self.start = Start(config, encoder, cell)
        self.readout = Readout(readout, config.hidden, dim, context)
        fed = context if self.before else self.readout.size if self.feeding else 0
        self.cells = build_cells(cell, dim + fed, config.hidden, config.layers, dropout)
        self.handed_on, self.context = nn.Identity(), nn.Identity()  # points of interventions

    @property
    def sequential(self) -> bool:
        """Whether the context or readout of a step is an input of the next, so steps must be computed in turn."""
        return self.attention is not None and (self.before or self.feeding)

    def initial(self, encoded: EncodedSource) -> RecurrentState:
        """The state before the first word, one row per source."""
        cells, attention = self.start(encoded), self.attention
        nothing = torch.zeros(len(encoded.mask), dtype=torch.long, device=encoded.mask.device)
        return RecurrentState(
            cells=cells,
            fed=cells[0].new_zeros(len(nothing), self.readout.size) if self.feeding else None,
            chosen=nothing if attention is not None and attention.ordered else None,
            constant=encoded.last[0][-1] if self.constant else None,
            source=None if attention is None else attention.project(encoded.values, encoded.mask),
            lengths=nothing,
            width=1,
        )

    def forward(self, words: Tensor, encoded: EncodedSource, *, need_weights: bool = False) -> Decoded:
        """Read whole targets: `words` (B, T, D) are the embedded words before each position."""
        return self.extend(words, self.initial(encoded), need_weights=need_weights)

    def extend(self, words: Tensor, state: RecurrentState, *, need_weights: bool = False) -> Decoded:
        """Read n more words (R, n, D). The attention has the W * n queries of a sentence instead of T."""
        if self.sequential:
            return self._one_by_one(words, state, need_weights)
        constant = None if state.constant is None else state.constant[:, None].expand(-1, words.shape[1], -1)
        inputs = words if constant is None or not self.before else torch.cat([words, constant], 2)
        hidden, cells = run(self.cells, inputs, state.cells)
        hidden = self.handed_on(hidden)
        read = self._read(hidden, state, need_weights)
        readouts = self.readout(hidden, constant if read is None else read.values, words)
        return Decoded(readouts, read, self._after(state, read, words.shape[1], cells=cells))

    def _one_by_one(self, words: Tensor, state: RecurrentState, need_weights: bool) -> Decoded:
        readouts, reads = [], []
        for word in torch.split(words, 1, dim=1):
            readout, read, state = self.step(word, state, need_weights)
            readouts.append(readout)
            reads.append(read)
        return Decoded(torch.cat(readouts, 1), _joined(reads), state)

    def step(self, word: Tensor, state: RecurrentState, need_weights: bool) -> tuple[Tensor, Read, RecurrentState]:
        """Read one more word (R, 1, D), and return its readout (R, 1, O), its attention and the new state."""
        previous = state.cells[0][-1][:, None]
        before = self._read(previous, state, need_weights) if self.before else None
        fed = before.values if before is not None else None if state.fed is None else state.fed[:, None]
        inputs = word if fed is None else torch.cat([word, fed], 2)
        hidden, cells = run(self.cells, inputs, state.cells)
        top = self.handed_on(previous if self.readout.previous else hidden)
        read = before if before is not None else self._read(top, state, need_weights)
        assert read is not None
        readout = self.readout(top, read.values, word)
        return readout, read, self._after(state, read, 1, cells=cells, fed=readout[:, 0] if self.feeding else None)

    def _read(self, queries: Tensor, state: RecurrentState, need_weights: bool) -> Read | None:
        if self.attention is None:
            return None
        assert state.source is not None
        read = self.attention.extend(
            queries, state.source, state.width, state.lengths, state.chosen, need_weights=need_weights
        )
        return read._replace(values=self.context(read.values))

    def _after(self, state: RecurrentState, read: Read | None, count: int, **changes: Any) -> RecurrentState:
        if state.chosen is not None and read is not None and read.choice is not None:
            assert read.choice.position is not None
            changes["chosen"] = read.choice.position.reshape(-1, count)[:, -1]
        return replace(state, lengths=state.lengths + count, **changes)


def _joined(reads: list[Read]) -> Read:
    """Combine the attention of n steps, (B, W) queries each, into that of W * n queries, grouped by hypothesis."""
    weights = [read.weights for read in reads if read.weights is not None]
    choices = [read.choice for read in reads if read.choice is not None]
    return Read(
        torch.cat([read.values for read in reads], 1),
        torch.stack(weights, 3).flatten(2, 3) if weights else None,
        joined(choices) if choices else None,
    )
