"""The whole measurement of a GPU, at a size of seconds, on a processor and in this process."""

import json
import time
from pathlib import Path

import bench_decode
import gpu
import pytest
from rounds import Measurement

from headway.comparison.reproduce import read_record
from headway.core.errors import UserError
from headway.core.tables import Table


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
    monkeypatch.setattr(bench_decode, "compete", compete)
    monkeypatch.setattr("rounds.PEAK_SHAPES", ((64, 64, 64),))
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
    assert 0 < rows["made: padding, 4,096 tokens a batch, any shapes"] < 1
    assert list(tables["Training, target tokens a second"].rows[0])[:2] == ["tiny", "headway bf16"]
    assert {row[0] for row in tables["Padding of real batches"].rows} == {"made"}
    assert record.text[0] == "This device has no TF32: what is called tf32 is exact."
    assert "python benchmarks/gpu.py" in record.measured.commands[0]
    assert "tiny: n-grams at 17 tokens, times attention" in capsys.readouterr().out
    assert json.loads(output.read_text())["title"] == record.title


def test_padding_is_that_of_the_batches(corpus: Path) -> None:
    (row, *_) = gpu.paddings({"made": str(corpus)}, [128]).rows
    batches = list(gpu.prepared(gpu.load_recipe(corpus / "made.yaml"), gpu.TrainingConfig(updates=1, batch_tokens=128)))
    assert sum(len(batch.indices) for batch in batches) == 60  # an epoch
    places = sum(batch.source_mask.numel() + batch.target_mask.numel() for batch in batches)
    tokens = sum(int(batch.source_mask.sum() + batch.target_mask.sum()) for batch in batches)
    assert list(row)[:3] == ["made", 128, "any"]
    assert row[-1] == pytest.approx(1 - tokens / places)


def test_what_is_not_installed_is_left_out_with_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_decode, "find_spec", lambda name: None)
    said = gpu.decoding(gpu.SCALES["tiny"], 1, gpu.CPU)
    assert isinstance(said, str)
    assert said.startswith("Decoding is left out: bench decode measures beside CTranslate2 and Hugging Face")


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
