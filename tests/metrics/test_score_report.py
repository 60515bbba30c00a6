"""Files in, tables and JSON out, with groups; what is refused."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from headway.core.errors import UserError
from headway.grids.compare import name_files
from headway.metrics import build_metric
from headway.metrics.intervals import linearise
from tests.conftest import Command
from tests.metrics.scored import score_files, values

REFERENCE = [f"sentence {number} has a few words in it" for number in range(12)]
WORSE = [line if number % 3 else "something else" for number, line in enumerate(REFERENCE)]
BETTER = [line if number % 6 else "sentence with a few" for number, line in enumerate(REFERENCE)]
GROUPS = ["3", "2", "1", "10", "2", "3", *["2"] * 6]


def write(path: Path, lines: list[str]) -> Path:
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return path


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    texts = {"worse": WORSE, "better": BETTER, "reference": REFERENCE, "groups": GROUPS}
    return {name: write(tmp_path / f"{name}.txt", lines) for name, lines in texts.items()}


def test_score_says_what_compare_says(files: dict[str, Path], run_headway: Command) -> None:
    given = ("--metric", "bleu", "ter", "--hypotheses", files["worse"], files["better"], "--references")
    scored, compared = (run_headway(verb, *given, files["reference"], "--json") for verb in ("score", "compare"))
    assert (scored.code, scored.out) == (0, compared.out)
    content = json.loads(scored.out)
    assert list(content["variants"]) == ["worse", "better"]
    for name, lines in (("worse", WORSE), ("better", BETTER)):
        metric = build_metric("ter")
        found, linear = content["variants"][name]["ter"], linearise(metric, [metric.statistics(lines, [REFERENCE])])
        assert found["seeds"] == [metric.score(lines, [REFERENCE]).value]
        assert (found["low"], found["high"]) == (linear.interval((0, 200)).low, linear.interval((0, 200)).high)
    assert [pair["verdict"] for pair in content["pairs"]] == ["none", "none"]
    text = run_headway("score", *given, files["reference"]).out
    assert "The interval holds 95 % over this test set alone." in text
    assert text == run_headway("compare", *given, files["reference"]).out


def test_one_system_has_scores_alone(files: dict[str, Path], run_headway: Command) -> None:
    given = ("--metric", "exact_match", "chrf:word_order=2", "--hypotheses", files["better"], "--references")
    header, row, *notes = run_headway("score", *given, files["reference"], files["worse"]).out.splitlines()
    assert header.split() == ["variant", "exact_match", "chrF2++"]
    assert row.split()[:3] == ["better", "83.33", "±"]
    assert notes[0].startswith("reference (12 segments, 2 reference sets); one seed; ±: half of the 95 % interval over")
    assert notes[1].startswith("exact_match: nrefs:")
    assert notes[2].startswith("chrF2++: nrefs:2|case:mixed|eff:yes|nc:6|nw:2")
    assert len(notes) == 3


def test_files_of_one_name_are_named_by_their_paths(tmp_path: Path) -> None:
    paths = [write(tmp_path / name, ["x"]) for name in ("a.out", "a.txt", "b.txt")]
    assert [name.variant for name in name_files([*map(str, paths)])] == [str(paths[0]), str(paths[1]), "b"]


def test_each_group_is_a_corpus_of_its_own(files: dict[str, Path], run_headway: Command) -> None:
    given = ("--metric", "exact_match", "--references", files["reference"], "--by", files["groups"], "--hypotheses")
    command = ("score", *given, files["worse"], files["better"])
    table = run_headway(*command).out.split("\n\n")[-1].splitlines()
    assert table[0] == "exact_match by group"
    assert [row.split()[:3] for row in table[2:-1]] == [
        ["1", "1", "100.00"], ["2", "8", "75.00"], ["3", "2", "50.00"], ["10", "1", "0.00"],
    ]  # fmt: skip
    assert ["±" in row for row in table[2:-1]] == [False, True, True, False]  # one segment has no interval
    (groups,) = json.loads(run_headway(*command, "--json").out)["groups"]
    assert [row[0] for row in groups["rows"]] == ["1", "2", "3", "10"]
    write(files["groups"], ["1", "2"])
    ended = run_headway(*command)
    assert (ended.code, f"{files['groups']}: 2 lines for 12 references" in ended.err) == (2, True)


def test_scores_by_length_are_drawn_and_printed(files: dict[str, Path], tmp_path: Path, run_headway: Command) -> None:
    sources = write(tmp_path / "source", [" ".join("a" * (1 + number % 6)) for number in range(12)])
    given = ("--metric", "exact_match", "--hypotheses", files["worse"], files["better"], "--references")
    drawn = ("--source", sources, "--by-length", tmp_path / "a.svg")
    ended = run_headway("score", *given, files["reference"], *drawn, "--length-bins", "3")
    assert ended.code == 0, ended.err
    table = ended.out.split("\n\n")[-1].splitlines()
    assert [row.split()[:3] for row in table[2:-1]] == [["1–3", "6", "66.67"], ["4–6", "6", "66.67"]]
    assert "<svg" in (tmp_path / "a.svg").read_text()
    ended = run_headway("score", *given, files["reference"], "--length-bins", "3")
    assert ended.err == "error: --length-bins: alone, this option does nothing; allowed: beside --by-length\n"
    ended = run_headway("score", *given, files["reference"], *drawn, "--length-bins", "3,x")
    assert "--length-bins: ends of bins are whole numbers" in ended.err


def test_one_segment_has_no_interval(tmp_path: Path) -> None:
    alone = [write(tmp_path / name, ["a b"]) for name in ("hypothesis", "reference")]
    report = score_files([build_metric("exact_match")], alone[:1], alone[1:])
    assert values(report) == [100]
    assert "100.00 ±" not in report.text()
    assert report.to_json()["variants"]["hypothesis"]["exact_match"]["low"] is None
    with pytest.raises(UserError, match="an interval needs two segments or more"):
        score_files([build_metric("exact_match")], alone, alone[1:])


def test_empty_lines_are_segments_and_compressed_files_are_read(tmp_path: Path) -> None:
    hypotheses = write(tmp_path / "out", ["", "a b", ""])
    references = tmp_path / "ref.gz"
    references.write_bytes(gzip.compress(b"a b\na b\n\n"))
    report = score_files([build_metric("exact_match")], [hypotheses], [references])
    assert len(report.tests[0]) == 3
    assert values(report) == [pytest.approx(200 / 3)]


def test_pipes_are_scored_by_several_metrics(
    files: dict[str, Path], pipe: Callable[[str, bytes], Path], run_headway: Command
) -> None:
    outputs, targets = (pipe(f"pipe-of-{name}", files[name].read_bytes()) for name in ("better", "reference"))
    command = ["score", "--metric", "exact_match", "chrf", "--json", "--hypotheses", outputs, "--references", targets]
    (found,) = json.loads(run_headway(*command).out)["variants"].values()
    assert [found[name]["mean"] for name in ("exact_match", "chrf")] == [
        build_metric(name).score(BETTER, [REFERENCE]).value for name in ("exact_match", "chrf")
    ]


def test_files_that_cannot_be_scored_are_named(files: dict[str, Path], tmp_path: Path) -> None:
    metrics, references = [build_metric("bleu")], [files["reference"]]
    invalid = tmp_path / "invalid"
    invalid.write_bytes(b"fine\n\xff\n")
    mistakes = {
        write(tmp_path / "empty", []): "empty, reference: 0 hypotheses for 12",
        tmp_path / "missing": "hypotheses: there is no such file or folder; received '.*missing'",
        invalid: f"{invalid}:2: invalid",
        write(tmp_path / "short", BETTER[:-1]): "short, reference: 11 hypotheses for 12 references",
    }
    for path, message in mistakes.items():
        with pytest.raises(UserError, match=message):
            score_files(metrics, [path], references)
    with pytest.raises(UserError, match="variants: there are no outputs to be scored"):
        score_files(metrics, [], references)
    with pytest.raises(UserError, match="hypotheses: files of outputs are scored by references"):
        score_files(metrics, [files["worse"]], [])


def test_metrics_that_see_other_segments_are_not_mixed(tmp_path: Path) -> None:
    """A file of labelled words has a sentence a block for one metric, and a line a word for another."""
    path = write(tmp_path / "labels.tsv", ["the\tc", "dog\ti", "", "it\tc"])
    assert len(score_files([build_metric("accuracy")], [path], [path]).tests[0]) == 2
    with pytest.raises(UserError, match="in different ways; received 'accuracy, exact_match'"):
        score_files([build_metric("accuracy"), build_metric("exact_match")], [path], [path])


def test_scores_before_texts_are_refused(files: dict[str, Path], tmp_path: Path) -> None:
    scored = write(tmp_path / "scored", [f"-0.5\t{line}" for line in BETTER])
    objects = write(tmp_path / "objects", [json.dumps({"text": line}) for line in BETTER])
    bleu = [build_metric("bleu")]
    for path, remedy in ((scored, "cut -f2"), (objects, "jq")):
        with pytest.raises(UserError, match=f"{path}: these are .*, and references has texts; .*{remedy}"):
            score_files(bleu, [files["worse"], path], [files["reference"]])
    score_files(bleu, [scored], [scored])
