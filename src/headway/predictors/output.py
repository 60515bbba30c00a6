"""Examples, test sets of them, and outputs: all that goes into a model and comes out of it."""

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

LEAST = 1e-45  # of a probability whose logarithm is taken


@dataclass(frozen=True)
class Example:
    """One example as raw text.

    Attributes:
        source: the text, or the path of a recording.
        target: the output that a model can be given for it; None where none is known.
        references: the wanted outputs, as metrics compare them; none where they are not known.
        words: the words of the source, where the corpus has them apart.
        context: sources and targets before it in its document, where a model reads such; a target may be empty.
    """

    source: str
    target: str | None = None
    references: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    context: tuple[tuple[str, str], ...] = ()

    def as_written(self, config: PreparationConfig) -> Example:
        """The same with references as a model can write them."""
        return replace(self, references=tuple(as_written(self.references, config)))


def in_documents(
    lines: Iterable[Any], count: int, before: Sequence[tuple[str, str]] = (), targets: Iterable[str] = ()
) -> Iterator[Example]:
    """Lines as examples, each with the `count` before it; a blank line ends a document. Examples stay as they are.

    Args:
        lines: texts, and examples.
        count: how many earlier ones an example knows.
        before: the sources and targets before the first line.
        targets: those of the lines, where they are known.
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
    """How many of the `count` sentences before each example come right before it here, and the sources of the others.

    Args:
        examples: those that are read together, in their order.
        before: the sources and targets before the first.
        count: of earlier sentences.
    """
    sources = [*(source for source, _ in before), *(example.source for example in examples)]
    for place, example in enumerate(examples, start=len(before)):
        wanted, own = [source for source, _ in example.context[-count:]], 0
        while own < min(len(wanted), place) and sources[place - 1 - own] == wanted[-1 - own]:
            own += 1
        yield own, wanted[: len(wanted) - own]


@dataclass(frozen=True)
class TestSet:
    """So many examples; one at a time is in memory where their origin allows it."""

    __test__: ClassVar[bool] = False  # for pytest, which would take it for tests

    size: int
    examples: Iterable[Example]


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
class Output:
    """The outputs of a model for one input. `text`, `score` and `tokens` are those of the best hypothesis.

    Attributes:
        example: what was read.
        hypotheses: best first.
        attention: where it was asked for, the weights behind the best hypothesis.
        problem: why there is no output, where there is none.
        source_tokens: the tokens of a text, without the end mark.
        source_words: with attention, the words that the source's tokens are parts of.
        target_words: with attention, those of the best hypothesis.
        attended: the labels of what is read of the source: tokens and the end mark, or seconds of a recording.
        truncated: whether only the beginning of the source was read.
        at_limit: whether the best output has as many tokens as it may have, so that its end may be missing.
        terms: how many terms with a wanted translation the source has, and how many of these the output has.
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
    def log_probabilities(self) -> list[float]:
        """Those of the best output's tokens and, last, of the end mark; a tagger's labels have none."""
        return self.hypotheses[0].log_probabilities

    @property
    def is_empty(self) -> bool:
        """Whether nothing was read: an empty line, or a source that was skipped."""
        return not self.log_probabilities

    @property
    def captured(self) -> dict[str, CapturedAttention]:
        """The attention by kind, as `AttentionWeights.captured` has it."""
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
        """A picture of attention, as `AttentionWeights.plot` draws it."""
        return self.attention.plot(name, layer, head, ax, stretch=stretch)

    def to_bertviz(self) -> dict[str, Any]:
        """The arguments of bertviz, as `AttentionWeights.to_bertviz` gives them."""
        return self.attention.to_bertviz()


@dataclass(frozen=True, repr=False)
class LabelledWords(Output):
    """A sentence of N words with a label for each.

    Attributes:
        probabilities: (N, V).
        names: the V labels that there are.
        windows: where it was asked for, attention window by window; `attention` is that of the first one.
    """

    probabilities: NDArray[np.float32] = field(kw_only=True)
    names: tuple[str, ...] = field(kw_only=True)
    windows: tuple[AttentionWeights, ...] = field(default=(), kw_only=True)

    @classmethod
    def of(
        cls, words: tuple[str, ...], labels: tuple[str, ...], probabilities: NDArray[np.float32],
        names: tuple[str, ...], windows: tuple[AttentionWeights, ...] = (), example: Example | None = None,
    ) -> LabelledWords:  # fmt: skip
        """Words with their labels."""
        chosen = probabilities[np.arange(len(labels)), [names.index(label) for label in labels]]
        values: list[float] = np.log(np.maximum(chosen, LEAST)).tolist()
        text, tokens = " ".join(labels), list(labels)
        best = TextHypothesis(text, sum(values), tokens, values, text)
        example = replace(example or Example(" ".join(words)), words=words)
        attention = windows[0] if windows else AttentionWeights()
        return cls(example, [best], attention, probabilities=probabilities, names=names, windows=windows)

    @property
    def words(self) -> tuple[str, ...]:
        """The words of the sentence."""
        return self.example.words

    @property
    def labels(self) -> tuple[str, ...]:
        """The label of each word."""
        return tuple(self.tokens)

    def __repr__(self) -> str:
        tagged = " ".join(f"{word}/{label}" for word, label in zip(self.words, self.labels, strict=True))
        parts = [shortened(tagged)] + ([f"windows={len(self.windows)}"] if self.windows else [])
        return f"LabelledWords({', '.join(parts)})"

    def _repr_html_(self) -> str:
        probabilities = self.probabilities.max(1, initial=0)
        rows = zip(self.words, self.labels, (f"{value:.4f}" for value in probabilities), strict=True)
        return table_of(list(rows), ("word", "label", "highest probability"))
