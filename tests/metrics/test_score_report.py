"""Files in, table and JSON out; what is refused."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from headway.errors import UserError
from headway.metrics import approximate_randomisation, build_metric, paired_bootstrap
from headway.metrics.score_report import score_files
from tests.conftest import Command

REFERENCE = [f"sentence {number} has a few words in it" for number in range(12)]
WORSE = [line if number % 3 else "something else" for number, line in enumerate(REFERENCE)]
BETTER = [line if number % 6 else "sentence with a few" for number, line in enumerate(REFERENCE)]


def write(path: Path, lines: list[str]) -> Path:
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return path


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    texts = {"worse": WORSE, "better": BETTER, "reference": REFERENCE}
    return {name: write(tmp_path / name, lines) for name, lines in texts.items()}


@pytest.mark.parametrize(
    ("significance", "test", "samples"),
    [("bootstrap", paired_bootstrap, 1000), ("randomisation", approximate_randomisation, 10000)],
)
def test_systems_are_scored_and_compared_with_the_first(files, significance, test, samples) -> None:  # type: ignore[no-untyped-def]
    metrics = [build_metric("bleu"), build_metric("ter")]
    systems = [files["worse"], files["better"], files["worse"]]
    report = score_files(metrics, systems, [files["reference"]], significance=significance)
    assert (report.segments, report.references) == (12, (str(files["reference"]),))
    for metric, column in zip(metrics, report.scores, strict=True):
        assert [row.system for row in column] == [str(path) for path in systems]
        statistics = [metric.statistics(lines, [REFERENCE]) for lines in (WORSE, BETTER, WORSE)]
        assert [row.score for row in column] == [metric.score(lines, [REFERENCE]) for lines in (WORSE, BETTER, WORSE)]
        assert all(row.interval.low < row.score.value < row.interval.high for row in column)
        assert column[0].comparison is None
        assert column[1].comparison == test(metric, statistics[0], statistics[1], samples)
        assert column[2].comparison == test(metric, statistics[0], statistics[2], samples)


def test_table(files: dict[str, Path], tmp_path: Path) -> None:
    metrics = [build_metric("exact_match"), build_metric("chrf", word_order=2)]
    options = {"significance": "randomisation", "samples": 99, "seed": 7}
    report = score_files(metrics, [files["worse"], files["better"]], [files["reference"]], **options)  # type: ignore[arg-type]
    header, worse, better, blank, *notes = report.text().splitlines()
    assert header.split() == ["system", "exact_match", "p", "chrF2++", "p"]
    row = report.scores[0][0]
    cells = worse.split()
    assert cells[:4] == [str(files["worse"]), "66.67", "±", f"{(row.interval.high - row.interval.low) / 2:.2f}"]
    assert len(cells) == 7
    assert len(better.split()) == 9
    assert better.index(" 83.33 ") == worse.index(" 66.67 ")
    assert blank == ""
    assert notes[0].startswith("exact_match: nrefs:1|")
    assert notes[1].startswith("chrF2++: nrefs:1|case:mixed|eff:yes|nc:6|nw:2")
    assert notes[2:] == [
        "12 segments, 1 reference set",
        "±: half of the 95% interval of 1000 bootstrap samples, seed 7",
        "segments are few: intervals of the bootstrap are too narrow, and its p is too small",
        f"p: against {files['worse']} (approximate randomisation, 99 samples, seed 7)",
    ]


def test_table_of_one_system_has_no_p(files: dict[str, Path]) -> None:
    text = score_files([build_metric("bleu")], [files["better"]], [files["reference"]] * 2).text()
    assert text.splitlines()[0].split() == ["system", "BLEU"]
    assert "12 segments, 2 reference sets" in text
    assert "p:" not in text


def test_many_segments_are_not_few(tmp_path: Path) -> None:
    lines = write(tmp_path / "lines", ["a b c"] * 20)
    assert "segments are few" not in score_files([build_metric("bleu")], [lines], [lines]).text()


def test_one_segment_has_no_interval(files: dict[str, Path], tmp_path: Path) -> None:
    groups = write(tmp_path / "groups", ["a"] * 11 + ["b"])
    report = score_files([build_metric("exact_match")], [files["better"]], [files["reference"]], by=groups)
    table = report.group_tables()[0].text().splitlines()
    assert [line.split()[:2] for line in table[-2:]] == [["a", "11"], ["b", "1"]]
    assert ["±" in line for line in table[-2:]] == [True, False]
    alone = [write(tmp_path / name, ["a b"]) for name in ("hypothesis", "reference")]
    assert "100.00 ±" not in score_files([build_metric("exact_match")], alone[:1], alone[1:]).text()


def test_json_holds_everything(files: dict[str, Path]) -> None:
    options = {"significance": "bootstrap", "samples": 50}
    report = score_files([build_metric("ter")], [files["worse"], files["better"]], [files["reference"]], **options)  # type: ignore[arg-type]
    content = json.loads(report.to_json())
    assert content["segments"] == 12
    _, better = content["scores"][0]
    assert better["system"] == str(files["better"])
    assert better["score"]["metric"] == "TER"
    assert better["score"]["value"] == report.scores[0][1].score.value
    assert "version:" in better["score"]["signature"]
    assert set(better["interval"]) == {"mean", "low", "high", "level"}
    assert better["comparison"]["method"] == "paired bootstrap, centred"
    assert (better["comparison"]["samples"], better["comparison"]["seed"]) == (50, 12345)


def test_empty_lines_are_segments_and_compressed_files_are_read(tmp_path: Path) -> None:
    hypotheses = write(tmp_path / "out", ["", "a b", ""])
    references = tmp_path / "ref.gz"
    references.write_bytes(gzip.compress(b"a b\na b\n\n"))
    report = score_files([build_metric("exact_match")], [hypotheses], [references])
    assert report.segments == 3
    assert report.scores[0][0].score.value == pytest.approx(200 / 3)


def test_pipes_are_scored_by_several_metrics(
    files: dict[str, Path], pipe: Callable[[str, bytes], Path], run_headway: Command
) -> None:
    outputs, targets = (pipe(f"pipe-of-{name}", files[name].read_bytes()) for name in ("better", "reference"))
    command = ["score", "--metric", "exact_match", "chrf", "--json", "--by-length", files["better"].with_suffix(".svg")]
    ended = run_headway(*command, "--source", targets, "--hypotheses", outputs, "--references", targets)
    scores = [column[0]["score"]["value"] for column in json.loads(ended.out)["scores"]]
    metrics = [build_metric("exact_match"), build_metric("chrf")]
    assert scores == [metric.score(BETTER, [REFERENCE]).value for metric in metrics]


def test_different_numbers_of_lines_name_both_files(files: dict[str, Path], tmp_path: Path) -> None:
    short = write(tmp_path / "short", BETTER[:-1])
    with pytest.raises(UserError, match=rf"{short}: 11 segments, but {files['reference']} has 12"):
        score_files([build_metric("bleu")], [files["worse"], short], [files["reference"]])
    with pytest.raises(UserError, match=rf"{short}: 11 segments, but {files['reference']} has 12"):
        score_files([build_metric("bleu")], [files["worse"]], [files["reference"], short])


def test_files_that_cannot_be_scored_are_named(files: dict[str, Path], tmp_path: Path) -> None:
    metrics, references = [build_metric("bleu")], [files["reference"]]
    empty = write(tmp_path / "empty", [])
    invalid = tmp_path / "invalid"
    invalid.write_bytes(b"fine\n\xff\n")
    missing = tmp_path / "missing"
    mistakes = {
        empty: f"{empty}: this file is empty",
        missing: f"{missing}: cannot read",
        invalid: f"{invalid}:2: invalid",
    }
    for path, message in mistakes.items():
        with pytest.raises(UserError, match=message):
            score_files(metrics, [path], references)


def test_one_system_is_not_compared(files: dict[str, Path]) -> None:
    metrics, hypotheses, references = [build_metric("bleu")], [files["worse"]], [files["reference"]]
    with pytest.raises(UserError, match="compares two or more systems"):
        score_files(metrics, hypotheses, references, significance="bootstrap")


def test_metrics_that_see_other_segments_are_not_mixed(tmp_path: Path) -> None:
    """A file of labelled words has a sentence a block for one metric, and a line a word for another."""
    path = write(tmp_path / "labels.tsv", ["the\tc", "dog\ti", "", "it\tc"])
    assert score_files([build_metric("accuracy")], [path], [path]).segments == 2
    with pytest.raises(UserError, match="exact_match finds 4 segments in these files, and accuracy 2") as error:
        score_files([build_metric("accuracy"), build_metric("exact_match")], [path], [path])
    assert error.value.where == "metrics"


def test_scores_before_texts_are_refused(files: dict[str, Path], tmp_path: Path) -> None:
    scored = write(tmp_path / "scored", [f"-0.5\t{line}" for line in BETTER])
    objects = write(tmp_path / "objects", [json.dumps({"text": line}) for line in BETTER])
    bleu = [build_metric("bleu")]
    for path, remedy in ((scored, "cut -f2"), (objects, "jq")):
        with pytest.raises(UserError, match=f"{path}: these are .*, and {files['reference']} has texts; .*{remedy}"):
            score_files(bleu, [files["worse"], path], [files["reference"]])
    score_files(bleu, [scored], [scored])
