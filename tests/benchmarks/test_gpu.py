"""The whole measurement of a GPU, at a size of seconds, on a processor and in this process."""

import json
import time
from functools import partialmethod
from pathlib import Path
from typing import Literal

import bench_decode
import gpu
import pytest
import torch
from rounds import Measurement
from shapes import corpus_of, paddings

from headway.claims.reproduce import read_record
from headway.core.errors import RunError, UserError
from headway.core.tables import Table
from headway.recipe import TrainingConfig
from headway.training.checkpoints import TrainingState
from headway.training.parallel import Parallel
from headway.training.updates import TrainingStep, prepared_updates


def compete(size, setting, contenders, rounds) -> list[Measurement]:
    """What `rounds.compete` does, without processes."""
    found = []
    for contender in contenders:
        play, facts = contender.setup(*contender.arguments)
        measurement = Measurement(size, setting, contender.name, facts, contender.baseline or contenders[-1].name)
        for number in range(rounds):
            began = time.perf_counter()
            measurement.tokens.append(play(number))
            measurement.seconds.append(time.perf_counter() - began)
            measurement.cpu_seconds.append(measurement.seconds[-1])
        found.append(measurement)
    return found


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a made corpus, which stands for one of the known."""
    lines = [f"{'ab ' * (number % 7 + 1)}{number}" for number in range(60)]
    (tmp_path / "train.tsv").write_text("".join(f"{line}\t{line}\n" for line in lines))
    (tmp_path / "made.yaml").write_text(
        "data: {train: {tsv: train.tsv}}\nvocabulary: {kind: char}\ntraining: {updates: 1}\n"
    )
    monkeypatch.setattr(gpu, "RECIPES", {"made": tmp_path / "made.yaml"})
    return tmp_path


@pytest.mark.slow
def test_the_whole_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, corpus: Path, capsys) -> None:
    monkeypatch.setattr(gpu, "compete", compete)
    monkeypatch.setattr(bench_decode, "_records", lambda device: True)
    monkeypatch.setattr(bench_decode, "recorder", lambda device: lambda run: run)
    monkeypatch.setattr("rounds.PEAK_SHAPES", ((64, 64, 64),))
    monkeypatch.setattr(TrainingStep, "compile", partialmethod(TrainingStep.compile, backend="eager"))
    output = tmp_path / "gpu.json"
    arguments = [str(output), "--sizes", "tiny", "--rounds", "2", "--device", "cpu", "--data", f"made={corpus}"]
    monkeypatch.setattr("sys.argv", ["gpu.py", *arguments])
    gpu.main()
    record = read_record(output)
    tables = {table.title: table for table in map(Table.from_json, record.tables)}
    rows = dict(tables["Summary"].rows)
    assert rows["tiny, headway bf16: share of the matrix peak measured here"] > 0
    assert rows["tiny: bf16, times tf32"] > 0
    assert rows["tiny, plain tf32: headway, times the plain loop"] > 0
    assert rows["tiny: n-grams at 9 tokens, times attention"] > 0
    assert rows["tiny, headway bf16, captured: times without"] > 0
    assert rows["tiny, headway bf16: compiled, times without"] > 0
    assert 0 < rows["made: padding, 4,096 tokens a batch, any shapes"] < 1
    decoded = tables["decoding, output tokens a second"].rows
    assert {row[2]: row[-1] for row in decoded}["headway float32, recorded"] == 1  # equal outputs
    assert list(tables["Training, target tokens a second"].rows[0])[:2] == ["tiny", "headway bf16"]
    assert {row[0] for row in tables["Padding of real batches"].rows} == {"made"}
    assert record.text[0] == "This device has no TF32: what is called tf32 is exact."
    assert "python benchmarks/gpu.py" in record.measured.commands[0]
    assert "tiny: n-grams at 17 tokens, times attention" in capsys.readouterr().out
    assert json.loads(output.read_text())["title"] == record.title


@pytest.mark.parametrize("kind", ["any", "few"])
def test_padding_is_that_of_the_batches(corpus: Path, kind: Literal["any", "few"]) -> None:
    encoded = corpus_of(corpus / "made.yaml", [f"data.folder={corpus}"])
    config = TrainingConfig(updates=1, batch_tokens=128, shapes=kind)
    places = tokens = examples = 0
    for update in prepared_updates(encoded, Parallel(0, 1, torch.device("cpu"), config), TrainingState()):
        (batch,) = update.batches
        examples += len(update.plan.indices[0])
        places += batch.source_mask.numel() + batch.target_mask.numel()
        tokens += int(batch.source_mask[: update.plan.sentences].sum() + batch.target_mask.sum())
        if update.plan.ends_epoch:
            break
    assert examples == 60
    found = {row[2]: row[-1] for row in paddings({"made": encoded}, [128]).rows}
    assert found[kind] == pytest.approx(1 - tokens / places)


def measured(scale: gpu.Scale = gpu.SCALES["tiny"]) -> gpu.Measured:
    return gpu.Measured(scale, {}, 1, torch.device("cpu"))


def test_what_is_not_installed_is_left_out_with_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_decode, "find_spec", lambda name: None)
    everything = measured()
    monkeypatch.setattr(everything, "training", everything.padding)
    monkeypatch.setattr(everything, "by_length", everything.padding)
    monkeypatch.setattr(everything, "compiled", everything.padding)
    assert not list(everything.parts())
    assert everything.said[-1].startswith("decoding is left out: bench decode measures beside CTranslate2 and Hugging")


def test_a_contender_that_fails_is_left_out_and_the_others_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(size, setting, contenders, rounds) -> list[Measurement]:
        if contenders[0].name.endswith("captured") or contenders[0].name == "headway tf32":
            raise RunError(f"{contenders[0].name}: Traceback\nRuntimeError: this operation is not permitted\n")
        facts = {"precision": "bf16", "flops_per_token": 1.0}
        return [Measurement(size, setting, contenders[0].name, facts, "", [1], [1.0], [1.0])]

    monkeypatch.setattr(gpu, "compete", failing)
    monkeypatch.setattr(gpu, "matrix_peak", lambda *given: 1.0)
    some = measured()
    assert [row[:2] for row in some.training().rows] == [
        ("tiny", "headway bf16"), ("tiny", "plain bf16"), ("tiny", "plain tf32"),
    ]  # fmt: skip
    assert "tiny, headway bf16, captured is left out: RuntimeError: this operation is not permitted" in some.said
    assert [name for name, _ in some.summary] == [
        "tiny, headway bf16: share of the matrix peak measured here",
        "tiny, plain bf16: headway, times the plain loop",
    ]
    assert Table.from_json(some.record("command").tables[0]).rows


@pytest.mark.parametrize(
    ("name", "bf16"),
    [
        ("cuda (NVIDIA H100 80GB HBM3)", 989e12),
        ("cuda (NVIDIA H100 PCIe)", 756e12),
        ("cuda (NVIDIA A100-SXM4-80GB)", 312e12),
        ("cuda (NVIDIA L40)", None),
        (None, None),
    ],
)
def test_peaks_of_known_cards(name: str | None, bf16: float | None) -> None:
    assert gpu.on_paper(name).get("bf16") == bf16


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["out.json", "--data", "wmt=x"], "data: there is no such corpus"),
        (["missing/out.json"], "output: this folder does not exist"),
        (["out.json", "--device", "cpu"], "sizes: the sizes of papers would take a processor hours"),
    ],
)
def test_mistakes_come_before_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments, message: str) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["gpu.py", *arguments])
    with pytest.raises(UserError, match=message):
        gpu.main()
