"""The decoder of a recurrent model.

Shapes: B batch, T target, S source, D embedding, E encoder state, H decoder state, O readout, N sentences, R rows: the
hypotheses of all sentences, those of one sentence one after the other.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import torch
from torch import Tensor, nn

from headway.mixers import State
from headway.models.model_config import RecurrentConfig
from headway.models.recurrent.cells import States, build_cells, run
from headway.models.recurrent.choices import Choice, joined
from headway.models.recurrent.recurrent_encoder import Encoded
from headway.models.recurrent.source_attention import SourceAttention, SourceView
from headway.models.sharing import sentences_of


@dataclass(frozen=True)
class RecurrentState(State):
    """The state of a recurrent decoder. What it sees of the source is kept once a sentence, not once a hypothesis.

    `cells` have their rows second; `fed` (R, O) is the last readout and `place` (R,) the last source position chosen,
    where the next step needs them.
    """

    cells: States
    fed: Tensor | None
    place: Tensor | None
    source: SourceView | None
    position: int
    width: int  # hypotheses a sentence

    def select(self, index: Tensor) -> Self:
        """Rows `index`; an index (N, W) keeps the source shared among the W hypotheses of each sentence."""
        rows = index.reshape(-1)
        count = self.cells[0].shape[1] // self.width
        width, sentences = sentences_of(index, self.width, count)
        source = self.source
        if source is not None and sentences is not None:
            source = SourceView(*(part.index_select(0, sentences) for part in source))
        return replace(
            self,
            cells=tuple(each.index_select(1, rows) for each in self.cells),
            fed=None if self.fed is None else self.fed.index_select(0, rows),
            place=None if self.place is None else self.place.index_select(0, rows),
            source=source,
            width=width,
        )


class Decoded(NamedTuple):
    """A whole target: readouts (B, T, O), and what attention chose, if there is any."""

    readouts: Tensor
    choice: Choice | None


class Readout(nn.Module):
    """What words are predicted from: the state, an attentional vector (Luong et al. 2015, equation 5), or a maxout.

    The maxout (Bahdanau et al. 2015, A.2.2) reads the new state, as their equation 4 has it.
    """

    def __init__(self, config: RecurrentConfig, context: int) -> None:
        super().__init__()
        hidden, dim = config.decoder.hidden, config.dim
        self.kind = config.readout
        self.size = hidden if self.kind == "state" else dim
        if self.kind != "state":
            inputs = context + hidden + (dim if self.kind == "maxout" else 0)
            self.weight = nn.Linear(inputs, 2 * dim if self.kind == "maxout" else dim, bias=False)
            nn.init.xavier_uniform_(self.weight.weight)

    def forward(self, state: Tensor, context: Tensor | None, word: Tensor) -> Tensor:
        """(..., O) from the state (..., H), the context (..., E) and the last word (..., D)."""
        if self.kind == "state":
            return state
        parts = [state] if context is None else [context, state]
        if self.kind == "tanh":
            return self.weight(torch.cat(parts, -1)).tanh()  # type: ignore[no-any-return]
        return self.weight(torch.cat([*parts, word], -1)).unflatten(-1, (-1, 2)).amax(-1)  # type: ignore[no-any-return]


class Start(nn.Module):
    """The decoder's first state: the encoder's last ones, or a projection of its top layer's."""

    def __init__(self, config: RecurrentConfig) -> None:
        super().__init__()
        self.layers, self.project = config.decoder.layers, config.decoder.start == "project"
        self.size = config.encoder.hidden // (2 if config.encoder.bidirectional else 1)
        if self.project:
            count = 2 if config.cell == "lstm" else 1
            self.maps = nn.ModuleList(nn.Linear(self.size, self.layers * config.decoder.hidden) for _ in range(count))

    def forward(self, encoded: Encoded) -> States:
        """States (layers, B, H); an LSTM's memory cells, which have no bounds, are projected without tanh."""
        if not self.project:
            return encoded.last
        tops = [each[-1, :, -self.size :] for each in encoded.last]
        projected = [layer(top) for layer, top in zip(self.maps, tops, strict=True)]
        projected[0] = projected[0].tanh()
        return tuple(each.unflatten(1, (self.layers, -1)).transpose(0, 1).contiguous() for each in projected)


class Decoder(nn.Module):
    """Recurrent layers over the embedded target that read the source by attention, or not at all.

    Where no step needs what attention found before it, a whole target is one call of every part.
    """

    def __init__(self, config: RecurrentConfig) -> None:
        super().__init__()
        attention, encoder, decoder = config.attention, config.encoder.hidden, config.decoder.hidden
        self.attention: SourceAttention | None = None
        if attention.kind != "none":
            self.attention = SourceAttention(attention, encoder, decoder, config.max_position)
        self.before = self.attention is not None and attention.timing == "bahdanau"
        self.feeding, self.monotonic = attention.input_feeding, attention.kind == "monotonic"
        self.start = Start(config)
        self.readout = Readout(config, encoder if self.attention is not None else 0)
        fed = encoder if self.before else self.readout.size if self.feeding else 0
        self.cells = build_cells(config.cell, config.dim + fed, decoder, config.decoder.layers, config.dropout)

    @property
    def sequential(self) -> bool:
        """Whether what attention finds reaches later steps through the recurrence."""
        return self.before or self.feeding

    def initial(self, encoded: Encoded) -> RecurrentState:
        """The state before the first word, one row a source."""
        count = len(encoded.mask)
        cells = self.start(encoded)
        view = None if self.attention is None else self.attention.view(encoded.values, encoded.mask)
        fed = cells[0].new_zeros(count, self.readout.size) if self.feeding else None
        place = torch.zeros(count, dtype=torch.long, device=encoded.mask.device) if self.monotonic else None
        return RecurrentState(cells, fed, place, view, position=0, width=1)

    def forward(self, words: Tensor, encoded: Encoded) -> Decoded:
        """Read a whole target, words (B, T, D) being those before each position."""
        state = self.initial(encoded)
        if self.sequential:
            return self._one_by_one(words, state)
        hidden, _ = run(self.cells, words, state.cells)
        if self.attention is None:
            return Decoded(self.readout(hidden, None, words), None)
        assert state.source is not None
        context, choice = self.attention.in_order(hidden, state.source)
        return Decoded(self.readout(hidden, context, words), choice)

    def _one_by_one(self, words: Tensor, state: RecurrentState) -> Decoded:
        readouts, choices = [], []
        for word in words.unbind(1):
            readout, choice, state = self.step(word, state)
            assert choice is not None
            readouts.append(readout)
            choices.append(choice)
        return Decoded(torch.stack(readouts, 1), joined(choices))

    def step(self, word: Tensor, state: RecurrentState) -> tuple[Tensor, Choice | None, RecurrentState]:
        """Readouts (R, O) after one more word (R, D), the choice (N, W, ...) of attention, and the new state."""
        context, choice, parts = None, None, [word]
        if self.before:
            context, choice = self._attend(state.cells[0][-1], state)
            parts.append(context)
        if state.fed is not None:
            parts.append(state.fed)
        output, cells = run(self.cells, torch.cat(parts, 1)[:, None], state.cells)
        hidden = output[:, 0]
        if self.attention is not None and not self.before:
            context, choice = self._attend(hidden, state)
        readout = self.readout(hidden, context, word)
        place = choice.place.flatten() if self.monotonic and choice is not None and choice.place is not None else None
        fed = readout if self.feeding else None
        return readout, choice, replace(state, cells=cells, fed=fed, place=place, position=state.position + 1)

    def _attend(self, query: Tensor, state: RecurrentState) -> tuple[Tensor, Choice]:
        """Contexts (R, E) for queries (R, H); the hypotheses of a sentence are its queries."""
        assert self.attention is not None
        assert state.source is not None
        shape = len(state.source.mask), state.width
        position = torch.tensor([state.position], device=query.device)
        place = None if state.place is None else state.place.view(shape)
        context, choice = self.attention(query.view(*shape, -1), state.source, position, place)
        return context.flatten(0, 1), choice
