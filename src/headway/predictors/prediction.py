"""A prediction: outputs with their scores, and the attention behind the best one.

Shapes: L layers, K heads, S positions of the source, T target tokens with the end mark.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headway.models.model import Axes
from headway.predictors.captured_attention import (
    END,
    CapturedAttention,
    by_kind,
    chosen_layer,
    column_tokens,
    plot_weights,
    row_tokens,
    shortened,
    stack_layers,
    table_of,
    to_bertviz,
)
from headway.processing.processor import NO_WORDS, Words

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Plot


@dataclass(frozen=True)
class TextHypothesis:
    """One output for an input.

    Attributes:
        score: see `headway.search.limits.Hypothesis`.
        log_probabilities: of each token and, last, of the end mark.
        written: the text that the model wrote, of which its task made `text`.
        repairs: how often what had to be repaired in it, by kind; None where nothing can need repair.
        ids: of the tokens, in the target vocabulary.
    """

    text: str
    score: float
    tokens: list[str]
    log_probabilities: list[float]
    written: str = ""
    repairs: Mapping[str, int] | None = None
    ids: tuple[int, ...] = ()


@dataclass(frozen=True, repr=False)
class Prediction:
    """The outputs of a model for one input. `text`, `score` and `tokens` are those of the best hypothesis.

    Attributes:
        source: the name of the input; a text names itself.
        source_tokens: the tokens of a text, without the end mark.
        hypotheses: best first.
        attention: where it was asked for, weights by name: `decoder.1.cross` (K, T, S) over `tokens`, followed by the
            end mark, and `attended`. `rows` and `columns` name the axes of each.
        source_words: with attention, the words that the source's tokens are parts of.
        words: with attention, those of the best hypothesis.
        axes: with attention, what the axes of each stand for.
        attended: the labels of what is read of the source: tokens and the end mark, or seconds of a recording.
        truncated: whether only the beginning of the source was read.
        at_limit: whether the best output has as many tokens as it may have, so that its end may be missing.
        problem: why a source was skipped, where it was.
    """

    source: str
    source_tokens: list[str]
    hypotheses: list[TextHypothesis]
    attention: dict[str, NDArray[np.float32]] = field(default_factory=dict)
    source_words: Words = NO_WORDS
    words: Words = NO_WORDS
    axes: dict[str, Axes] = field(default_factory=dict)
    attended: list[str] = field(default_factory=lambda: [END])
    truncated: bool = False
    at_limit: bool = False
    problem: str | None = None

    @property
    def text(self) -> str:
        """The best output."""
        return self.hypotheses[0].text

    @property
    def written(self) -> str:
        """The text that the model wrote, of which its task made the output."""
        return self.hypotheses[0].written

    @property
    def score(self) -> float:
        """The best output's score."""
        return self.hypotheses[0].score

    @property
    def tokens(self) -> list[str]:
        """The best output's tokens."""
        return self.hypotheses[0].tokens

    @property
    def is_empty(self) -> bool:
        """Whether nothing was read: an empty line, or a source that was skipped."""
        return not self.hypotheses[0].log_probabilities

    def rows(self, name: str) -> list[str]:
        """The tokens of the rows of an attention: those read at the source, those written at the target."""
        return row_tokens(self.axes[name], self.attended, self.tokens)

    def columns(self, name: str) -> list[str]:
        """The tokens of the columns of an attention: those that are read."""
        return column_tokens(self.axes[name], self.attended, self.tokens)

    @property
    def captured(self) -> dict[str, CapturedAttention]:
        """The attention of all layers by kind (`encoder.self`, `decoder.self`, `decoder.cross`), with its tokens.

        Raises:
            UserError: layers with different numbers of heads.
        """
        return {
            kind: CapturedAttention(
                tuple(layers),
                stack_layers(self.attention, layers),
                self.rows(first := next(iter(layers.values()))),
                self.columns(first),
            )
            for kind, layers in by_kind(list(self.attention)).items()
        }

    def __repr__(self) -> str:
        parts = [f"{shortened(self.source)} -> {shortened(self.text)}", f"score={self.score:.4f}"]
        parts += [f"{len(self.hypotheses)} hypotheses"] if len(self.hypotheses) > 1 else []
        parts += [f"attention={len(self.attention)}"] if self.attention else []
        parts += [f"problem={shortened(self.problem)}"] if self.problem else []
        return f"Prediction({', '.join(parts)})"

    def _repr_html_(self) -> str:
        rows = [(f"{hypothesis.score:.4f}", hypothesis.text) for hypothesis in self.hypotheses]
        return table_of([("", self.source), *rows], ("score", "text"))

    def plot(
        self, name: str | None = None, layer: int | None = None, head: int | None = None, ax: Plot | None = None,
        *, stretch: bool = False,
    ) -> Plot:  # fmt: skip
        """A picture of attention, rows attending to columns.

        Args:
            name: `decoder.cross` and the like, or a whole name such as `decoder.1.cross`; by default the attention to
                the source.
            layer: counted from 1; by default the last.
            head: counted from 1; by default the mean of all.
            ax: matplotlib's axes to draw on; new ones by default.
            stretch: let the scale end at the largest weight, not at 1.

        Raises:
            UserError: that attention was not captured.
        """
        chosen = chosen_layer(self.attention, name, layer)
        stack, index, kind = chosen.split(".")
        title = f"{stack}.{kind}, layer {index}"
        return plot_weights(
            self.attention[chosen], self.rows(chosen), self.columns(chosen), head, title, ax, stretch=stretch
        )

    def to_bertviz(self) -> dict[str, Any]:
        """The arguments of bertviz: `bertviz.head_view(**prediction.to_bertviz())`.

        Raises:
            UserError: there is no attention, or its layers have different numbers of heads.
        """
        return to_bertviz(self.attention, self.axes, self.attended, self.tokens)
