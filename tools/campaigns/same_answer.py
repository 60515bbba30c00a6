"""The same lines in other batches, orders and company, with other threads, packed, and by the command line."""

from __future__ import annotations

import copy
import json
import os
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import torch
from hypothesis.strategies import SearchStrategy

from headway.predictors.backend import SearchRequest, TorchBackend
from headway.predictors.label_predictor import LabelPredictor
from headway.predictors.output import LabelledWords, Output, TextHypothesis
from headway.predictors.sequence_predictor import SequencePredictor
from headway.runs.load import load
from headway.runs.packing import pack_run
from headway.search.limits import Hypothesis, Limits
from headway.tensors.batch import collate
from tests.rounding import rounding
from tests.runs.old_runs import CASES, copied
from tests.search.test_reference_search import one_sentence
from tools.campaigns.campaign import Campaign
from tools.campaigns.campaign import Limits as CaseLimits
from tools.campaigns.kills import run_here

RUN = "translation-transformer"
SPEECH = "speech_recognition"
LABELS = ("error_detection", "tagging")
LONG = 16  # words of the line that pads the others
BUDGETS = (10**6, 1, 7, 64, 512)
WINDOWS = (2000, 60, 3)


@dataclass(frozen=True)
class SameCase:
    """Lines, each as the numbers of its words, and what is changed between two predictions of them.

    Attributes:
        run: a committed run.
        lines: the words of each line; for speech the first number is that of the recording.
        batch_tokens: the budget of a batch.
        order: of the shuffled lines; 0 leaves them as they are.
        padded: whether a long line is among them.
        many: how many lines there are, which go round those of `lines`; 0 for these alone.
        beam, nbest: of search.
        sample: whether outputs are drawn; then the order stays.
        threads: of torch.
        way: `python`, `pack` (the run packed into one file), `cli` (the command line) or `parts` (two calls).
        window: the lines that the command line reads together.
    """

    run: str
    lines: tuple[tuple[int, ...], ...]
    batch_tokens: int = BUDGETS[0]
    order: int = 0
    padded: bool = False
    many: int = 0
    beam: int = 1
    nbest: int = 1
    sample: bool = False
    threads: int = 1
    way: str = "python"
    window: int = WINDOWS[0]


class SameAnswerCampaign(Campaign[SameCase]):
    """Compares with each line alone: equal texts and lists, scores as close as float32 is, forced scores as those.

    One line of each case is searched by a slow search, too, which knows nothing of batches.
    """

    name = "same-answer"
    about = "ten committed runs of all tasks: other batches, orders, padding, beams, threads, packs, the command line"
    quick, together = 30, 10
    limits = CaseLimits(seconds=60)  # each line of a case is searched three times

    def prepare(self, folder: Path) -> None:
        os.environ["HEADWAY_CACHE"] = str(folder / "cache")
        self.runs, self.inputs, self.folders = dict[str, Any](), dict[str, list[str]](), dict[str, Path]()
        for name in CASES:
            case = copied(name, folder / name)
            self.folders[name], self.runs[name] = case.run, load(case.run, device="cpu")
            words = (word for line in case.lines() for word in (line.split() if " " in line else list(line)))
            self.inputs[name] = case.lines() if name == SPEECH else list(dict.fromkeys(words))
            self.runs[name].predict(self._texts(name, [(0,), (1, 0)]))

    def _texts(self, run: str, lines: Sequence[tuple[int, ...]]) -> list[str]:
        known = self.inputs[run]
        if run == SPEECH:
            return [known[(line[0] if line else 0) % len(known)] for line in lines]
        between = "" if "".join(known).isascii() and max(map(len, known)) == 1 and run.endswith("transformer") else " "
        return [between.join(known[number % len(known)] for number in line) for line in lines]

    def first(self) -> list[SameCase]:
        lines = tuple((number, number + 1, number + 2) for number in range(8))
        beams = [SameCase(run, lines[:3], order=1, padded=True, beam=4, nbest=3) for run in CASES]
        written = [SameCase(run, lines, many=120, way="cli") for run in (RUN, *LABELS)]
        return [
            *written, *beams, SameCase(RUN, lines, many=120, window=60, way="cli"), SameCase(RUN, lines, many=120),
            SameCase(RUN, lines, sample=True, nbest=3),
        ]  # fmt: skip

    def cases(self) -> SearchStrategy[SameCase]:
        lines = st.lists(st.lists(st.integers(0, 40), max_size=9).map(tuple), min_size=1, max_size=10).map(tuple)
        return st.builds(
            SameCase, st.sampled_from(CASES), lines, st.sampled_from(BUDGETS), st.integers(0, 5), st.booleans(),
            st.sampled_from((0, 0, 10, 120)), st.sampled_from((1, 4)), st.sampled_from((1, 1, 3)),
            st.sampled_from((False,) * 4 + (True,)), st.sampled_from((1, 1, 1, 2)),
            st.sampled_from(("python", "cli", "parts", "pack", "cli")), st.sampled_from(WINDOWS),
        )  # fmt: skip

    def check(self, case: SameCase, folder: Path) -> int:
        torch.set_num_threads(1)
        texts = self._texts(case.run, case.lines)
        if case.run in LABELS:
            return self._check_labels(case, texts, folder)
        options: dict[str, Any] = (
            {"sample": True, "seed": 3, "temperature": 2.0} if case.sample else {"beam": case.beam}
        )
        options["nbest"] = case.nbest if case.sample else min(case.nbest, case.beam)
        predictor: SequencePredictor = self.runs[case.run]
        alone = [predictor.predict([text], first_line=row, **options)[0] for row, text in enumerate(texts, start=1)]
        rows = self._rows(case)
        together = [self._texts(case.run, [tuple(range(LONG))])[0] if row < 0 else texts[row] for row in rows]
        if case.way == "cli":
            self._check_written(case, together, options, [row if row < 0 else alone[row] for row in rows], folder)
        found = self._predict(case, together, options, folder)
        for row, prediction in zip(rows, found, strict=True):
            if row >= 0:
                assert_same_prediction(prediction, alone[row])
        check_forced(predictor, texts, alone)
        if not case.sample:
            check_search(predictor, texts[0], alone[0], options)
        return len(rows)

    def _rows(self, case: SameCase) -> list[int]:
        """The numbers of the lines as they are predicted; -1 is the long one."""
        rows = list(range(len(case.lines)))
        if case.sample:  # what is drawn depends on the number of the line
            return rows + [-1] * case.padded
        rows = [number % len(rows) for number in range(case.many or len(rows))] + [-1] * case.padded
        if case.order:
            random.Random(case.order).shuffle(rows)
        return rows

    def _predict(self, case: SameCase, texts: list[str], options: dict[str, Any], folder: Path) -> list[Output]:
        predictor: SequencePredictor = self.runs[case.run]
        torch.set_num_threads(case.threads)
        if case.way == "pack":
            pack_run(self.folders[case.run], folder / "run.zip")
            packed = load(folder / "run.zip", device="cpu")
            assert isinstance(packed, SequencePredictor)
            predictor = packed
        options = options | {"batch_tokens": case.batch_tokens}
        if case.way == "parts":
            half = len(texts) // 2
            first = predictor.predict(texts[:half], **options)
            return first + predictor.predict(texts[half:], first_line=half + 1, **options)
        return predictor.predict(texts, **options)

    def _check_written(
        self, case: SameCase, texts: list[str], options: dict[str, Any], alone: list[Any], folder: Path
    ) -> None:
        """The command line writes the same texts, as many lines as outputs are asked for."""
        flags = ["--scores", "--nbest", str(options["nbest"])]
        flags += ["--sample", "--seed", "3", "--temperature", "2"] if case.sample else ["--beam", str(case.beam)]
        written = self._written(case, texts, flags, folder).split("\n")
        assert written.pop() == ""
        count = options["nbest"]
        assert len(written) == count * len(texts), "lines are lost"
        for number, prediction in enumerate(alone):
            if isinstance(prediction, Output):  # a line that is too long has none
                found = [row.partition("\t") for row in written[count * number : count * (number + 1)]]
                assert [text for _, _, text in found] == [each.text for each in prediction.hypotheses], "other texts"
                for (score, _, _), each in zip(found, prediction.hypotheses, strict=True):
                    assert abs(float(score) - each.score) < 1e-4 + tolerance(each)

    def _written(self, case: SameCase, texts: list[str], flags: list[str], folder: Path) -> str:
        """The standard output of `predict`."""
        for kind in (SequencePredictor, LabelPredictor):
            assert kind.together > 0
            kind.together = case.window
        (folder / "input").write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
        flags = ["--batch-tokens", str(case.batch_tokens), "--device", "cpu", *flags]
        with (folder / "input").open("rb") as source, (folder / "output").open("wb") as target:
            os.dup2(source.fileno(), 0)
            os.dup2(target.fileno(), 1)
            assert run_here("predict", str(self.folders[case.run]), *flags) == 0
            sys.stdout.flush()
        return (folder / "output").read_text(encoding="utf-8")

    def _check_labels(self, case: SameCase, texts: list[str], folder: Path) -> int:
        """Equal labels, and probabilities as close as float32 is."""
        predictor: LabelPredictor = self.runs[case.run]
        alone = [predictor.predict([text])[0] for text in texts]
        torch.set_num_threads(case.threads)
        rows = [row for row in self._rows(case) if row >= 0]
        found = predictor.predict([texts[row] for row in rows], batch_tokens=case.batch_tokens)
        for row, labelled in zip(rows, found, strict=True):
            assert_same_labels(labelled, alone[row])
        if case.way == "cli":
            written = self._written(case, [texts[row] for row in rows], ["--format", "json"], folder).splitlines()
            shown = [(sentence["words"], sentence["labels"]) for sentence in map(json.loads, written)]
            assert shown == [(list(alone[row].words), list(alone[row].labels)) for row in rows], "other lines"
        return len(rows)


def tolerance(hypothesis: TextHypothesis) -> float:
    """How far scores may be apart: rounding of each token's log probability, which adds up over the tokens."""
    return rounding() * max(1.0, abs(sum(hypothesis.log_probabilities)))


def assert_same_prediction(found: Output, expected: Output) -> None:
    """Equal texts and tokens, best first, and close scores."""
    assert [each.text for each in found.hypotheses] == [each.text for each in expected.hypotheses], "other texts"
    assert found.source == expected.source
    for one, other in zip(found.hypotheses, expected.hypotheses, strict=True):
        assert one.tokens == other.tokens, "other tokens"
        assert abs(one.score - other.score) <= tolerance(other), f"scores {one.score} and {other.score}"


def assert_same_labels(found: LabelledWords, expected: LabelledWords) -> None:
    """Equal labels and close probabilities."""
    assert found.words == expected.words
    assert found.labels == expected.labels, "other labels"
    assert np.abs(found.probabilities - expected.probabilities).max(initial=0) <= rounding(), "other probabilities"


class SlowBackend(TorchBackend):
    """Searches one sentence after the other, over lists."""

    def hypotheses(self, request: SearchRequest) -> list[list[Hypothesis]]:
        found, limits = list[list[Hypothesis]](), request.limits
        for source, longest in zip(request.sources, limits.longest, strict=True):
            batch = collate([np.asarray(source)], None)
            with torch.inference_mode():
                state = self.model.start(self.model.encode(batch.source, batch.source_mask), longest + 1)
                alone = Limits(limits.shortest, [longest], (), limits.no_repeat)
                found.append(one_sentence(self.model, state, 0, alone, request.search.beam, request.search.ranking))
        return found


def check_search(predictor: SequencePredictor, text: str, expected: Output, options: dict[str, Any]) -> None:
    """A slow search finds the same outputs."""
    assert isinstance(predictor.backend, TorchBackend)
    slow = copy.copy(predictor)
    slow.backend = SlowBackend(predictor.backend.model, predictor.device)
    assert_same_prediction(slow.predict([text], **options)[0], expected)


def check_forced(predictor: SequencePredictor, texts: Sequence[str], found: Sequence[Output]) -> None:
    """What search has found has the same probabilities where it is given, unless it would be written otherwise."""
    best = [prediction.hypotheses[0] for prediction in found]
    written = [each.written or each.text for each in best]
    for forced, searched in zip(predictor.score(texts, written), best, strict=True):
        if searched.log_probabilities and forced.tokens == searched.tokens:
            pairs = zip(forced.log_probabilities, searched.log_probabilities, strict=False)
            assert max(abs(one - other) for one, other in pairs) <= 10 * tolerance(searched), "forced scores differ"
