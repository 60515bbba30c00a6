"""Predict a label for each word of a sentence, with a run's tagger.

Shapes: N words of a sentence, V labels, J heads over layers, L layers, K heads, P tokens of the encoder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from headway.core.documents import read_json, shaped
from headway.core.errors import UserError, memory_named, option
from headway.core.files import sha256, write_json
from headway.core.forks import Work
from headway.core.log import say
from headway.corpora.word_corpus import collate_windows
from headway.formats.lines import WORDS, check_texts, line_place
from headway.metrics.label_metrics import best_threshold
from headway.models.tagger import LAYERS, Tagger
from headway.predictors.captured_attention import ALL, AttentionWeights, layer_titles
from headway.predictors.output import Example, LabelledWords
from headway.predictors.predict_options import Capture, LabelOptions
from headway.predictors.predictor import SMALLER_BATCHES, WEIGHTS, Predictor, Request, Row, Run, batches
from headway.processing.pretrained import LabelProcessor, Window, WordProcessor
from headway.processing.processor import Encoded
from headway.processing.text.text_processor import prepare
from headway.search.limits import check_scores
from headway.tensors.batch import TokenBatch

RED, RESET = "\x1b[4;31m", "\x1b[0m"  # escape codes of a terminal
THRESHOLD = "threshold.json"  # in the folder of a run
Floats = NDArray[np.float32]
Scored = list[tuple[Window, Floats]]
Sentence = str | Sequence[str]
LabelledSentence = tuple[Sequence[str], Sequence[str]]


class KeptThreshold(BaseModel):
    """The content of `THRESHOLD`: the threshold that was chosen for the weights of a run."""

    model_config = ConfigDict(strict=True, protected_namespaces=())

    model_sha256: str
    threshold: float = Field(ge=0, le=1)


STORED = TypeAdapter(KeptThreshold)


class LabelPredictor(Predictor[Sentence, LabelledWords]):
    """A tagger, or an ensemble of taggers whose probabilities are averaged.

    Args:
        runs: the loaded runs.
        device: the device of the models.
        positive: the label that a threshold applies to. None if words get the most probable label.
        dev: returns the words and labels of the recipe's dev set, on which the threshold `dev` is chosen.

    Raises:
        UserError: the runs have different labels.
    """

    Options: ClassVar[type[LabelOptions]] = LabelOptions

    def __init__(
        self,
        runs: Sequence[Run],
        device: torch.device,
        positive: str | None = None,
        dev: Callable[[], Sequence[LabelledSentence]] | None = None,
    ) -> None:
        super().__init__(runs, device)
        self.positive, self._dev = positive, dev
        self._threshold: float | None = None  # the cached result of `best_threshold`
        self.labels = _labels(runs[0])
        for number, run in enumerate(runs[1:], start=2):
            if _labels(run) != self.labels:
                raise UserError("runs that label together need the same labels", where=f"run {number}",
                                received=", ".join(_labels(run)), allowed=self.labels)  # fmt: skip

    def request(self, inputs: Sequence[Any], options: LabelOptions, first_line: int) -> Request:
        chosen, source = self.settled(options), self.recipe.text.source
        if chosen.capture and chosen.capture != ALL:
            what = "a tagger captures all or nothing"
            raise UserError(what, where=option("capture"), received=chosen.capture, allowed=ALL)
        raw = [(each.words or each.source) if isinstance(each, Example) else each for each in inputs]
        texts = [text for text in raw if isinstance(text, str)]
        check_texts(texts, frozenset(), line_place(first_line), rows_of=WORDS)
        cut = source.model_copy(
            update={"segment": "moses"} if chosen.raw else {"segment": "whitespace", "clean": False}
        )
        sentences = [tuple(prepare(text, cut).split() if isinstance(text, str) else text) for text in raw]
        rows = [
            Row(line, raw, encoded=Encoded(words), longest=len(words))
            for line, (raw, words) in enumerate(zip(inputs, sentences, strict=True), start=first_line)
        ]
        return Request(rows, chosen)

    def jobs(self, request: Request) -> list[Work]:
        options, sentences = request.options, [row.encoded.values for row in request.rows]
        size = options.given().get("batch_tokens", self.recipe.decoding.batch_tokens)
        found = list[Work]()
        for run in self.runs:
            windows = self._windows(run, sentences)
            for chosen in batches([len(window.ids) for window in windows], size):
                found.append(partial(self._probabilities, run, [windows[index] for index in chosen]))
        return found

    def joined(self, request: Request, results: Iterable[Scored]) -> list[LabelledWords]:
        options, sentences = request.options, [row.encoded.values for row in request.rows]
        assert isinstance(options, LabelOptions)
        totals = [np.zeros((len(words), len(self.labels)), dtype=np.float32) for words in sentences]
        for window, probabilities in chain.from_iterable(results):
            total = totals[window.sentence][window.start : window.start + len(window.first)]
            total[:] = probabilities[: len(window.first)] / len(self.runs) + total
        return [
            LabelledWords.of(
                words,
                self._labels(probabilities, options.threshold),
                probabilities,
                self.labels,
                tuple(self.capture(words)) if options.capture else (),
                row.raw if isinstance(row.raw, Example) else None,
            )
            for row, words, probabilities in zip(request.rows, sentences, totals, strict=True)
        ]

    def force(
        self, inputs: Sequence[Sentence], targets: Sequence[Sentence], *, capture: Capture = ()
    ) -> list[LabelledWords]:
        """Sentences with the labels in `targets`, and the log probabilities of these labels.

        Raises:
            UserError: the model does not have a label, or the number of labels differs from the number of words.
        """
        forced = []
        predicted = self.predict(inputs, capture=capture)
        for number, (sentence, target) in enumerate(zip(predicted, targets, strict=True), start=1):
            labels = tuple(target.split() if isinstance(target, str) else target)
            if len(labels) != len(sentence.words):
                received = f"{len(labels)} labels for {len(sentence.words)} words"
                raise UserError("each word needs one label", where=f"line {number}", received=received)
            LabelProcessor(self.labels).encode(labels)
            windows, example = sentence.windows, sentence.example
            forced.append(
                LabelledWords.of(sentence.words, labels, sentence.probabilities, self.labels, windows, example)
            )
        return forced

    def alone(self, words: Sequence[str]) -> Iterator[tuple[Window, TokenBatch]]:
        """Yield the windows of a sentence, each with a batch for the first run's model. Its labels are arbitrary."""
        for window in self._windows(self.runs[0], [tuple(words)]):
            labels = [[0] * len(window.first)]
            yield window, collate_windows([window], _processor(self.runs[0]).padding, labels).to(self.device)

    @torch.inference_mode()
    def capture(self, words: Sequence[str]) -> list[AttentionWeights]:
        """The attention of the first run's model, for each window of a sentence."""
        run, captures = self.runs[0], []
        processor = _processor(run)
        for window, batch in self.alone(words):
            output = run.model(batch, capture=("*",)).attention
            weights = {name: output[name][0].float().cpu().numpy() for name in output if name.startswith("encoder.")}
            rows = dict.fromkeys(weights, processor.tokens(window.ids))
            columns = dict(rows)
            if LAYERS in output:
                weights[LAYERS] = output[LAYERS][0].float().cpu().numpy()
                rows[LAYERS] = list(words[window.start : window.start + len(window.first)])
                columns[LAYERS] = layer_titles(weights[LAYERS].shape[2])
            captures.append(AttentionWeights(weights, rows, columns, tuple(window.first), window.start))
        return captures

    @property
    def special_tokens(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The ids of the special tokens before and after the words of a window."""
        return _processor(self.runs[0]).special_tokens

    def best_threshold(self) -> float:
        """The threshold with the best F0.5 on the recipe's dev set, cached in the folder of a single stored run.

        Raises:
            UserError: the run has no dev set.
        """
        if self._threshold is not None:
            return self._threshold
        run, kept = self.runs[0], None
        if len(self.runs) == 1 and run.path is not None and run.as_stored:
            kept, digest = run.path / THRESHOLD, sha256(run.path / WEIGHTS)
            if kept.is_file():
                stored = shaped(read_json(kept), STORED, str(kept))
                if stored.model_sha256 == digest:
                    self._threshold = stored.threshold
                    return self._threshold
        if self._dev is None or self.recipe.data.dev is None:
            raise UserError("the run has no dev to choose it on", where=option("threshold"), received="dev")
        self._threshold, score = self.choose_threshold(self._dev())
        say(f"threshold {self._threshold:.4f}: F0.5 {score:.2f} on dev")
        if kept is not None:
            write_json(kept, {"model_sha256": digest, "threshold": self._threshold, "dev_f0.5": score})
        return self._threshold

    def choose_threshold(self, sentences: Sequence[LabelledSentence]) -> tuple[float, float]:
        """The threshold with the best F0.5 on sentences with known labels, and this F0.5."""
        assert self.positive is not None
        sought = self.labels.index(self.positive)
        predicted = self.predict([words for words, _ in sentences])
        scores = np.concatenate([sentence.probabilities[:, sought] for sentence in predicted])
        wanted = [label == self.positive for _, labels in sentences for label in labels]
        return best_threshold(scores, np.array(wanted))

    @torch.inference_mode()
    def _probabilities(self, run: Run, windows: list[Window]) -> Scored:
        """The label probabilities (N, V) of each window, in one batch, by one model."""
        with memory_named(f"in labelling {len(windows)} sentences together", SMALLER_BATCHES):
            inputs = collate_windows(windows, _processor(run).padding).to(self.device)
            scores = run.model(inputs).logits.float().softmax(-1)
            check_scores(scores.isnan().any(keepdim=True))
            return list(zip(windows, scores.cpu().numpy(), strict=True))

    def _windows(self, run: Run, sentences: Sequence[Sequence[str]]) -> list[Window]:
        longest, processor = run.recipe.data.max_length, _processor(run)
        return [window for index, words in enumerate(sentences) for window in processor.windows(words, longest, index)]

    def settled(self, options: LabelOptions) -> LabelOptions:
        """The options, with the threshold `dev` replaced by the best threshold on the dev set.

        Raises:
            UserError: the task has no label for a threshold, or the run has no dev set.
        """
        if options.threshold is None:
            return options
        if self.positive is None:
            raise UserError("this task seeks no label that a threshold could be about", where=option("threshold"))
        if options.threshold == "dev":
            return options.model_copy(update={"threshold": self.best_threshold()})
        return options

    def _labels(self, probabilities: Floats, threshold: float | str | None) -> tuple[str, ...]:
        if self.positive is None or not isinstance(threshold, float):
            return tuple(self.labels[best] for best in probabilities.argmax(1))
        sought = self.labels.index(self.positive)
        others = probabilities.copy()
        others[:, sought] = -1
        positive = probabilities[:, sought] >= threshold
        return tuple(self.labels[sought if hit else best] for hit, best in zip(positive, others.argmax(1), strict=True))


def _processor(run: Run) -> WordProcessor:
    assert isinstance(run.source, WordProcessor)
    return run.source


def _labels(run: Run) -> tuple[str, ...]:
    assert isinstance(run.target, LabelProcessor)
    assert isinstance(run.model, Tagger)
    return run.target.names


def mark(words: tuple[str, ...], labels: tuple[str, ...], positive: str | None, *, colour: bool = False) -> str:
    """The words in one line, those with the label `positive` in brackets or red. If it is None, `word/LABEL`."""
    pairs = zip(words, labels, strict=True)
    if positive is None:
        return " ".join(f"{word}/{label}" for word, label in pairs)
    before, after = (RED, RESET) if colour else ("[", "]")
    return " ".join(f"{before}{word}{after}" if label == positive else word for word, label in pairs)
