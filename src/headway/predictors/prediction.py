"""What a model makes of a line: outputs with their scores, and the attention behind the best one.

Shapes: L layers, K heads, S positions of the source, T target pieces with the end mark.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headway.models.model import Axes
from headway.predictors.captured_attention import (
    END,
    Attention,
    by_kind,
    column_tokens,
    row_tokens,
    stack_layers,
    to_bertviz,
)
from headway.processing.text.text_processor import Words

NO_WORDS = Words((), ())


@dataclass(frozen=True)
class Candidate:
    """One output for a line: its text, its score (see `Hypothesis`), its tokens and their log probabilities.

    `log_probabilities` has one entry more than `tokens`: the last is the end mark's. `written` is what the model wrote,
    of which its task made the text.
    """

    text: str
    score: float
    tokens: list[str]
    log_probabilities: list[float]
    written: str = ""


@dataclass(frozen=True)
class Prediction:
    """What a model makes of one line. `text`, `score` and `tokens` are those of the best candidate.

    `attention`, where it was asked for, maps names to weights: `decoder.0.cross` (K, T, S) over `tokens`, followed by
    the end mark, and `attended`; `rows` and `columns` say what the axes of each stand for. With it come the words that
    either's tokens are parts of. Speech has no source tokens but `seconds`: where each position of the model's memory
    begins. `truncated`: only the beginning of the source was read. `problem` says why a source was skipped
    (`Options.skip_broken`).
    """

    source: str
    source_tokens: list[str]
    candidates: list[Candidate]
    attention: dict[str, NDArray[np.float32]] = field(default_factory=dict)
    source_words: Words = NO_WORDS
    words: Words = NO_WORDS
    axes: dict[str, Axes] = field(default_factory=dict)
    seconds: list[str] = field(default_factory=list)
    truncated: bool = False
    problem: str | None = None

    @property
    def text(self) -> str:
        """The best output."""
        return self.candidates[0].text

    @property
    def written(self) -> str:
        """What the model wrote, of which its task made the text."""
        return self.candidates[0].written

    @property
    def score(self) -> float:
        """The best output's score."""
        return self.candidates[0].score

    @property
    def tokens(self) -> list[str]:
        """The best output's tokens."""
        return self.candidates[0].tokens

    @property
    def is_empty(self) -> bool:
        """Whether nothing was read: an empty line, or a source that was skipped."""
        return not self.candidates[0].log_probabilities

    @property
    def attended(self) -> list[str]:
        """What is read of the source: its tokens and the end mark or, of speech, the seconds."""
        return self.seconds or [*self.source_tokens, END]

    def rows(self, name: str) -> list[str]:
        """The tokens of the rows of an attention: those read at the source, those written at the target."""
        return row_tokens(self.axes[name], self.attended, self.tokens)

    def columns(self, name: str) -> list[str]:
        """The tokens of the columns of an attention: those that are read."""
        return column_tokens(self.axes[name], self.attended, self.tokens)

    @property
    def captured(self) -> dict[str, Attention]:
        """The attention of all layers by kind (`encoder.self`, `decoder.self`, `decoder.cross`), with its tokens.

        Raises:
            UserError: layers with different numbers of heads.
        """
        return {
            kind: Attention(
                tuple(layers),
                stack_layers(self.attention, layers),
                self.rows(first := next(iter(layers.values()))),
                self.columns(first),
            )
            for kind, layers in by_kind(list(self.attention)).items()
        }

    def to_bertviz(self) -> dict[str, Any]:
        """What bertviz shows: `bertviz.head_view(**prediction.to_bertviz())`.

        Raises:
            UserError: there is no attention, or its layers have different numbers of heads.
        """
        return to_bertviz(self.attention, self.axes, self.attended, self.tokens)
