"""The check that an export and its run have the same outputs: both decode the same lines, and all are compared."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from headway.core.errors import UserError, option
from headway.export.exporter import Answer, Answering, Search
from headway.formats.lines import check_texts, read_lines
from headway.models import Seq2Seq
from headway.models.model import log_probabilities
from headway.predictors.input_account import InputAccount, accounted
from headway.predictors.label_predictor import LabelPredictor
from headway.predictors.output import Example
from headway.predictors.predictor import Predictor, Run
from headway.predictors.sequence_predictor import SequencePredictor
from headway.processing.pretrained import Window
from headway.processing.text.text_processor import TextProcessor
from headway.tasks import build_task
from headway.tensors.batch import UNKNOWN, collate

TOLERANCE = 1e-3  # for log probabilities; reordered float32 sums differ by less
SHOWN = 5  # differences shown in a text


@dataclass(frozen=True)
class Difference:
    """A line whose best outputs differ, with both outputs and their scores.

    `run_of_export` is the run's log probability of the export's output.
    """

    line: int
    source: str
    run: tuple[str, float]
    export: tuple[str, float]
    run_of_export: float


@dataclass(frozen=True)
class ParityReport:
    """The comparison of an export with its run.

    Attributes:
        exact: whether all best outputs and scores have to be equal.
        lines: the number of decoded lines.
        equal: the number of lines whose best outputs are equal.
        equal_lists: the number of lines whose n-best lists are equal, in order.
        unknown: the number of lines whose best output has an unknown token, which libraries write differently.
        score_difference: the largest difference between a score of the export and the run's score of this output.
        differences: the lines whose best outputs differ.
        outputs: the texts of the best outputs of both for every line, which are not stored.
    """

    format: str
    exact: bool
    search: Search
    lines: int
    equal: int
    equal_lists: int
    unknown: int
    score_difference: float
    differences: list[Difference] = field(default_factory=list)
    outputs: list[tuple[str, str]] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """Whether the export is as exact as its format promises."""
        return not self.exact or (self.equal == self.lines and self.score_difference <= TOLERANCE)

    def to_json(self) -> dict[str, Any]:
        """The report as a JSON object."""
        values = {key: value for key, value in vars(self).items() if key not in ("differences", "outputs")}
        return values | {
            "search": self.search._asdict(),
            "passed": self.passed,
            "differences": [vars(each) for each in self.differences],
        }

    def text(self) -> str:
        """The report as a few lines of text."""
        share = f"{self.equal} of {self.lines} best outputs equal those of the run"
        lists = f"{self.equal_lists} whole lists of {self.search.beam}" if self.search.beam > 1 else ""
        parts = [share, lists, f"all scores equal to {self.score_difference:.1e}"]
        lines = [f"{self.format}: " + ", ".join(filter(None, parts))]
        if better := sum(each.run_of_export > each.run[1] + TOLERANCE for each in self.differences):
            lines.append(
                f"  {better} differ by the end of the search: to the run the export's output is the likelier one"
            )
        for each in self.differences[:SHOWN]:
            lines.append(f"  line {each.line}: {each.source}")
            lines.append(f"    run     {each.run[1]:.4f}  {each.run[0]}")
            lines.append(f"    export  {each.export[1]:.4f}  {each.export[0]}  ({each.run_of_export:.4f} by the run)")
        if len(self.differences) > SHOWN:
            lines.append(f"  and {len(self.differences) - SHOWN} more")
        return "\n".join(lines)


def parity_examples(run: Run, source: Path | None, count: int) -> list[Example]:
    """The first `count` examples of a file, or else of the recipe's dev set, that are neither empty nor too long.

    Raises:
        UserError: there is neither a file nor a dev set, or they have no such line.
    """
    recipe = run.recipe
    if source is None and recipe.data.dev is None:
        what = "the run has no dev to compare the export on"
        raise UserError(what, where="data.dev", allowed=f"{option('input')} FILE, lines to decode")
    if source is not None and isinstance(run.source, TextProcessor):
        check_texts([*islice(read_lines(source), count)], run.source.characters, str(source))
    corpus = build_task(recipe.task).given_test_set(recipe, () if source is None else (source,))
    predictor = predictor_of(run)
    read: Callable[[str], str] = str
    if isinstance(predictor, SequencePredictor):  # exports read the formatted text of the model
        read = predictor.formatter(predictor.Options()).source
    found = (replace(each, source=read(each.source)) for each in corpus.examples if each.source.strip())
    examples = list(islice((example for example in found if _fits(run, example.source)), count))
    if not examples:
        raise UserError("there is no line to decode", where=option("input"), received=source and str(source))
    return examples


def parity_lines(run: Run, source: Path | None, count: int) -> list[str]:
    return [example.source for example in parity_examples(run, source, count)]


def predictor_of(run: Run) -> Predictor[Any, Any]:
    """The predictor of one loaded run, on the device of its model."""
    return build_task(run.recipe.task).predictor([run], next(run.model.parameters()).device)


def _fits(run: Run, line: str) -> bool:
    """Whether the run can read a line completely: it has a token, and leaves half of the capacity to the output."""
    model, source = run.model, run.source.encode(line, run.recipe.data.truncation()).values
    if isinstance(source, Window):  # a tagger reads longer inputs in windows
        return len(source.ids) <= run.recipe.data.max_length
    assert isinstance(model, Seq2Seq)
    room, most = model.longest_target(run.source.length(source)), model.longest_target(1)
    return 0 < len(source) <= model.longest_source() and (room is None or most is None or 2 * room >= most)


def answering_of(run: Run) -> Answering:
    """A function that decodes lines with the run."""
    predictor = predictor_of(run)
    if isinstance(predictor, LabelPredictor):

        def label(lines: Sequence[str], search: Search) -> list[list[Answer]]:
            return [[label_answer(each.labels, each.log_probabilities)] for each in predictor.predict(lines)]

        return label
    assert isinstance(predictor, SequencePredictor)
    return answering_by(predictor)


def answering_by(predictor: SequencePredictor) -> Answering:
    """A function that decodes lines with a predictor, for any backend."""

    def answer(lines: Sequence[str], search: Search) -> list[list[Answer]]:
        predictions = predictor.predict(
            lines, kind="beam", beam=search.beam, nbest=search.beam, length_penalty=0.0, truncate=True,
            no_repeat_ngram=0, max_length_ratio=search.ratio, max_length_offset=search.longest,
            min_length=0, unknown_words="keep",
        )  # fmt: skip
        return [
            [
                Answer(tuple(each.tokens), sum(each.log_probabilities), each.written, each.ids)
                for each in prediction.hypotheses
            ]
            for prediction in predictions
        ]

    return answer


def label_answer(labels: Sequence[str], log_probabilities: Iterable[float]) -> Answer:
    return Answer(tuple(labels), sum(log_probabilities), " ".join(labels))


def longest_output(run: Run, lines: Sequence[str]) -> int:
    """A maximum output length above that of any sound output of these lines, which every engine supports."""
    model, decoding = run.model, run.recipe.decoding
    if not isinstance(model, Seq2Seq):
        return 1
    lengths = [run.source.length(run.source.encode(line, run.recipe.data.truncation()).values) for line in lines]
    length = decoding.longest(max(lengths))
    room = model.longest_target(max(lengths))
    return min(length, 255 if room is None else room)


def compare(
    name: str, run: Run, answering: Answering, lines: Sequence[str], search: Search, *, exact: bool
) -> ParityReport:
    """Decode `lines` with the run and with its export, and compare all outputs.

    The score of each output of the export is compared with the run's log probability of the same output.
    """
    with accounted(InputAccount()):  # warnings about these inputs are not needed here
        ours, theirs = answering_of(run)(lines, search), answering(lines, search)
        assert len(ours) == len(theirs) == len(lines)
        scores = _scores_by_run(run, lines, theirs)
    differences, lists, largest, unknown = list[Difference](), 0, 0.0, 0
    for number, (line, own, other, scored) in enumerate(zip(lines, ours, theirs, scores, strict=True), start=1):
        gaps = [abs(answer.score - score) for answer, score in zip(other, scored, strict=True)]
        largest = float(np.max([largest, *gaps]))  # NaN if any is NaN
        lists += [(answer.tokens, answer.ids) for answer in own] == [(answer.tokens, answer.ids) for answer in other]
        has_unknown = UNKNOWN in own[0].ids
        unknown += has_unknown
        same_text = own[0].text == other[0].text or has_unknown
        if (own[0].tokens, own[0].ids) != (other[0].tokens, other[0].ids) or not same_text:
            pairs = (own[0].text, own[0].score), (other[0].text, other[0].score)
            differences.append(Difference(number, line, *pairs, scored[0]))
    equal = len(lines) - len(differences)
    outputs = [(own[0].text, other[0].text) for own, other in zip(ours, theirs, strict=True)]
    return ParityReport(name, exact, search, len(lines), equal, lists, unknown, largest, differences, outputs)


@torch.inference_mode()
def _scores_by_run(run: Run, lines: Sequence[str], answers: Sequence[Sequence[Answer]]) -> list[list[float]]:
    """The run's log probability of each answer; for labels, the score of the run's own answer."""
    if not (isinstance(run.model, Seq2Seq) and isinstance(run.target, TextProcessor)):
        own = answering_of(run)(lines, Search(1, 1))
        return [[first.score] for (first, *_) in own]
    truncation, scores = run.recipe.data.truncation(), []
    for line, outputs in zip(lines, answers, strict=True):
        source = np.asarray(run.source.encode(line, truncation).values)
        targets = [np.array(answer.ids, dtype=np.int64) for answer in outputs]
        batch = collate([source] * len(targets), targets).to(next(run.model.parameters()).device)
        chosen = log_probabilities(run.model(batch).logits).gather(2, batch.target_output[..., None]).squeeze(2)
        scores.append([float(each) for each in (chosen * batch.target_mask).sum(1)])
    return scores
