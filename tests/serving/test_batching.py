"""Requests that are computed together get what each gets alone, take turns, and are dropped when nobody waits."""

from typing import Any

import pytest

from headway.core.errors import UserError
from headway.core.processes import AbandonedError
from headway.serving.batching import Batcher, Job
from tests.serving.conftest import Gate, wait

LINES = ["one two", "", "three", "four five six one", "two"]


def texts(job: Job) -> list[str]:
    return [output.text for output in job.outputs.result()]


@pytest.fixture
def batcher(loaded: dict[str, Any]):
    made = Batcher(loaded["en-de"], 200)
    yield made
    made.close()


def submit(batcher: Batcher, inputs: list[str], **options: Any) -> list[Job]:
    jobs = batcher.encoded(inputs, batcher.predictor.Options(**options))
    batcher.submit(jobs)
    return jobs


@pytest.mark.parametrize(
    "options",
    [
        {}, {"beam": 1}, {"nbest": 3}, {"capture": "decoder.*.cross"}, {"sample": True, "seed": 3},
        {"kind": "mbr", "samples": 4, "temperature": 4.0, "seed": 3},
    ],
    ids=str,
)  # fmt: skip
def test_together_is_as_alone(batcher: Batcher, gate: Gate, options: dict[str, Any]) -> None:
    before = submit(batcher, ["one"])
    wait(gate.begun.is_set)
    jobs = [job for line in LINES for job in submit(batcher, [line, line], **options)]
    gate.opened.set()
    texts(before[0])
    for job, line in zip(jobs, LINES, strict=True):
        alone = batcher.predictor.predict([line, line], **options)
        for output, expected in zip(job.outputs.result(), alone, strict=True):
            assert [each.text for each in output.hypotheses] == [each.text for each in expected.hypotheses]
            assert output.score == pytest.approx(expected.score, abs=1e-4)
            assert output.attention.keys() == expected.attention.keys()
            assert output.source_tokens == expected.source_tokens
    assert sorted(gate.read[1]) == sorted([*LINES, *LINES])


def test_prefixes_go_with_their_lines(batcher: Batcher, gate: Gate) -> None:
    before = submit(batcher, ["one"])
    wait(gate.begun.is_set)
    first = submit(batcher, ["one two", "three"], prefixes=("zwei", "vier"))
    second = submit(batcher, ["five"], prefixes=("eins",))
    gate.opened.set()
    texts(before[0])
    assert [text.split()[0] for text in texts(first[0]) + texts(second[0])] == ["zwei", "vier", "eins"]
    assert sorted(gate.read[1]) == ["five", "one two", "three"]


def test_other_options_are_another_batch(batcher: Batcher, gate: Gate) -> None:
    jobs = submit(batcher, ["one"]) + submit(batcher, ["two"], beam=1) + submit(batcher, ["three"])
    gate.opened.set()
    assert list(map(texts, jobs)) == [["eins"], ["zwei"], ["drei"]]
    assert not any({"two", "three"} <= set(batch) for batch in gate.read)


def test_requests_take_turns(batcher: Batcher, gate: Gate) -> None:
    long = submit(batcher, ["one two three four"] * 100)
    wait(gate.begun.is_set)
    assert len(long) > 2
    short = submit(batcher, ["two"])
    gate.opened.set()
    assert texts(short[0]) == ["zwei"]
    assert [text for job in long for text in texts(job)] == [texts(long[0])[0]] * 100
    at = next(number for number, batch in enumerate(gate.read) if "two" in batch)
    assert at <= 2
    tokens = len(batcher.predictor.read("one two three four").values) + 1
    assert all(len(batch) * tokens <= 200 + tokens for batch in gate.read)


def test_a_request_that_was_given_up_is_not_computed(batcher: Batcher, gate: Gate) -> None:
    first = submit(batcher, ["one"])
    wait(gate.begun.is_set)
    gone, kept = submit(batcher, ["two"]), submit(batcher, ["three"])
    assert gone[0].outputs.cancel()
    gate.opened.set()
    assert texts(first[0]) + texts(kept[0]) == ["eins", "drei"]
    assert gate.read == [["one"], ["three"]]


def test_a_request_that_nobody_waits_for_is_not_computed(batcher: Batcher, gate: Gate) -> None:
    first = submit(batcher, ["one"])
    wait(gate.begun.is_set)
    late = batcher.encoded(["two"], batcher.predictor.Options())
    late[0].waited_for = lambda: False
    batcher.submit(late)
    gate.opened.set()
    with pytest.raises(AbandonedError):
        late[0].outputs.result()
    assert texts(first[0]) == ["eins"]
    assert gate.read == [["one"]]


def test_an_error_is_that_of_its_request(batcher: Batcher, gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    held = batcher.predictor.answer

    def answer(request: Any) -> Any:
        outputs = held(request)
        if "two" in [row.raw for row in request.rows]:
            raise RuntimeError("two")
        return outputs

    monkeypatch.setattr(batcher.predictor, "answer", answer)
    first = submit(batcher, ["one"])
    wait(gate.begun.is_set)
    jobs = submit(batcher, ["three"]) + submit(batcher, ["two"]) + submit(batcher, ["four"])
    gate.opened.set()
    texts(first[0])
    with pytest.raises(RuntimeError):
        jobs[1].outputs.result()
    assert texts(jobs[0]) + texts(jobs[2]) == ["drei", "vier"]


def test_lines_that_cannot_be_read_are_named(batcher: Batcher) -> None:
    with pytest.raises(UserError, match=r"^line 2: this line is too long"):
        submit(batcher, ["one", "one " * 50], max_source_length=10)


def test_taggers_and_parsers_are_batched_as_well(loaded: dict[str, Any]) -> None:
    for name, lines in (("tagging", ["they goes home .", "they"]), ("parsing", ["d n v .", "n v"])):
        batcher = Batcher(loaded[name], 500)
        jobs = [job for line in lines for job in submit(batcher, [line])]
        assert [texts(job)[0] for job in jobs] == [output.text for output in loaded[name].predict(lines)]
        batcher.close()
        assert not batcher.thread.is_alive()
