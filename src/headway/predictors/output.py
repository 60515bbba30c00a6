"""Examples, test sets, and outputs: the data that goes into a model and comes out of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from headway.core.errors import UserError
from headway.formats.terms import NO_TERMS, TermCount
from headway.predictors.captured_attention import END, AttentionWeights, CapturedAttention, shortened, table_of
from headway.processing.processor import NO_WORDS, Words
from headway.processing.text.line_ends import on_one_line
from headway.processing.text.text_processor import PreparationConfig, as_written

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Plot

LEAST = 1e-45  # the lower bound of probabilities in a logarithm


@dataclass(frozen=True)
class Example:
    """One example as raw text.

    Attributes:
        source: the text, or the path of a recording.
        target: the target that the model can be forced to; None if it is unknown.
        references: the references for metrics; empty if they are unknown.
        words: the words of the source, if the corpus has them separately.
        context: earlier sources and targets of the document, for models that read context. A target may be empty.
    """

    source: str
    target: str | None = None
    references: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    context: tuple[tuple[str, str], ...] = ()

    def as_written(self, config: PreparationConfig) -> Example:
        """The example, with its references normalised to what a model can write."""
        return replace(self, references=tuple(as_written(self.references, config)))


def in_documents(
    lines: Iterable[Any], count: int, before: Sequence[tuple[str, str]] = (), targets: Iterable[str] = ()
) -> Iterator[Example]:
    """Yield examples, with the `count` earlier lines of the document as context. A blank line ends a document.

    Args:
        lines: texts, or examples, which are not changed.
        count: the number of earlier lines in a context.
        before: the sources and targets before the first line.
        targets: the targets of the lines, if they are known.
    """
    earlier = list(before)
    for line, target in zip_longest(lines, targets, fillvalue=""):
        example = line if isinstance(line, Example) else Example(on_one_line(line))
        known = () if line is example else tuple(earlier[max(0, len(earlier) - count) :])
        yield replace(example, context=known) if known else example
        earlier = [*earlier, (example.source, target)][-max(1, count) :] if example.source.strip() else []


def earlier_inputs(
    examples: Sequence[Example], before: Sequence[tuple[str, str]], count: int
) -> Iterator[tuple[int, list[str]]]:
    """For each example, how many of its context sentences directly precede it here, and the sources of the others.

    Args:
        examples: the examples of a request, in order.
        before: the sources and targets before the first example.
        count: the largest number of context sentences.
    """
    sources = [*(source for source, _ in before), *(example.source for example in examples)]
    for place, example in enumerate(examples, start=len(before)):
        wanted, own = [source for source, _ in example.context[-count:]], 0
        while own < min(len(wanted), place) and sources[place - 1 - own] == wanted[-1 - own]:
            own += 1
        yield own, wanted[: len(wanted) - own]


@dataclass(frozen=True)
class TestSet:
    """A test set of `size` examples. If the source allows it, only one example at a time is in memory."""

    __test__: ClassVar[bool] = False  # pytest must not collect this class

    size: int
    examples: Iterable[Example]


@dataclass(frozen=True)
class TextHypothesis:
    """One output for an input.

    Attributes:
        score: see `headway.search.limits.Hypothesis`.
        log_probabilities: the log probabilities of the tokens and of the end-of-sentence token.
        written: the raw text of the model, from which the task made `text`.
        repairs: the number of repairs of the raw text, by kind; None if outputs are never repaired.
        ids: the ids of the tokens in the target vocabulary.
    """

    text: str
    score: float
    tokens: list[str]
    log_probabilities: list[float]
    written: str = ""
    repairs: Mapping[str, int] | None = None
    ids: tuple[int, ...] = ()


@dataclass(frozen=True, repr=False)
class Output:
    """The outputs of a model for one input. `text`, `score` and `tokens` belong to the best hypothesis.

    Attributes:
        example: the input.
        hypotheses: the hypotheses, best first.
        attention: the attention weights of the best hypothesis, if they were requested.
        problem: the reason why there is no output; None if there is one.
        source_tokens: the tokens of a text, without the end-of-sentence token.
        source_words: the words of the source tokens, if attention was requested.
        target_words: the words of the best hypothesis, if attention was requested.
        attended: the labels of the source positions: tokens and the end-of-sentence token, or seconds of a recording.
        truncated: whether only the beginning of the source was read.
        at_limit: whether the best output has the maximum length, so that its end may be missing.
        terms: the number of glossary terms in the source, and of their translations in the output.
    """

    example: Example
    hypotheses: list[TextHypothesis]
    attention: AttentionWeights = field(default_factory=AttentionWeights)
    problem: UserError | None = None
    source_tokens: list[str] = field(default_factory=list)
    source_words: Words = NO_WORDS
    target_words: Words = NO_WORDS
    attended: list[str] = field(default_factory=lambda: [END])
    truncated: bool = False
    at_limit: bool = False
    terms: TermCount = NO_TERMS

    @property
    def source(self) -> str:
        """The input: a text, or the name of a recording."""
        return self.example.source

    @property
    def text(self) -> str:
        """The best output."""
        return self.hypotheses[0].text

    @property
    def written(self) -> str:
        """The raw text of the model, from which the task made the output."""
        return self.hypotheses[0].written

    @property
    def score(self) -> float:
        """The score of the best output."""
        return self.hypotheses[0].score

    @property
    def tokens(self) -> list[str]:
        """The tokens of the best output."""
        return self.hypotheses[0].tokens

    @property
    def log_probabilities(self) -> list[float]:
        """The log probabilities of the best output's tokens and of its end-of-sentence token (a tagger has none)."""
        return self.hypotheses[0].log_probabilities

    @property
    def is_empty(self) -> bool:
        """Whether there is no output: the line is empty, or the source was skipped."""
        return not self.log_probabilities

    @property
    def captured(self) -> dict[str, CapturedAttention]:
        """The attention by kind, as in `AttentionWeights.captured`."""
        return self.attention.captured

    def __repr__(self) -> str:
        parts = [f"{shortened(self.source)} -> {shortened(self.text)}", f"score={self.score:.4f}"]
        parts += [f"{len(self.hypotheses)} hypotheses"] if len(self.hypotheses) > 1 else []
        parts += [f"attention={len(self.attention)}"] if self.attention else []
        parts += [f"problem={shortened(str(self.problem))}"] if self.problem else []
        return f"Output({', '.join(parts)})"

    def _repr_html_(self) -> str:
        rows = [(f"{hypothesis.score:.4f}", hypothesis.text) for hypothesis in self.hypotheses]
        return table_of([("", self.source), *rows], ("score", "text"))

    def plot(
        self, name: str | None = None, layer: int | None = None, head: int | None = None, ax: Plot | None = None,
        *, stretch: bool = False,
    ) -> Plot:  # fmt: skip
        """Draw the attention, as `AttentionWeights.plot` does."""
        return self.attention.plot(name, layer, head, ax, stretch=stretch)

    def to_bertviz(self) -> dict[str, Any]:
        """The arguments of bertviz, as in `AttentionWeights.to_bertviz`."""
        return self.attention.to_bertviz()


@dataclass(frozen=True, repr=False)
class LabelledWords(Output):
    """A sentence of N words with a label for each.

    Attributes:
        probabilities: the probabilities (N, V) of all labels.
        names: the V labels of the model.
        windows: the attention of each window, if it was requested; `attention` is that of the first window.
    """

    probabilities: NDArray[np.float32] = field(kw_only=True)
    names: tuple[str, ...] = field(kw_only=True)
    windows: tuple[AttentionWeights, ...] = field(default=(), kw_only=True)

    @classmethod
    def of(
        cls, words: tuple[str, ...], labels: tuple[str, ...], probabilities: NDArray[np.float32],
        names: tuple[str, ...], windows: tuple[AttentionWeights, ...] = (), example: Example | None = None,
    ) -> LabelledWords:  # fmt: skip
        """Build the output of a sentence from its words, their labels, and the probabilities (N, V) of all labels."""
        chosen = probabilities[np.arange(len(labels)), [names.index(label) for label in labels]]
        values: list[float] = np.log(np.maximum(chosen, LEAST)).tolist()
        text, tokens = " ".join(labels), list(labels)
        best = TextHypothesis(text, sum(values), tokens, values, text)
        example = replace(example or Example(" ".join(words)), words=words)
        attention = windows[0] if windows else AttentionWeights()
        return cls(example, [best], attention, probabilities=probabilities, names=names, windows=windows)

    @property
    def words(self) -> tuple[str, ...]:
        return self.example.words

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(self.tokens)

    def __repr__(self) -> str:
        tagged = " ".join(f"{word}/{label}" for word, label in zip(self.words, self.labels, strict=True))
        parts = [shortened(tagged)] + ([f"windows={len(self.windows)}"] if self.windows else [])
        return f"LabelledWords({', '.join(parts)})"

    def _repr_html_(self) -> str:
        probabilities = self.probabilities.max(1, initial=0)
        rows = zip(self.words, self.labels, (f"{value:.4f}" for value in probabilities), strict=True)
        return table_of(list(rows), ("word", "label", "highest probability"))
