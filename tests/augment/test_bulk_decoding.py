"""A corpus decoded into a new one: pairs, filters, provenance; killed, it goes on and ends with the same bytes."""

import json
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

import headway
from headway.augment import bulk_decoding
from headway.augment.bulk_decoding import decode_corpus
from headway.augment.bulk_input import lines_of_file
from headway.augment.bulk_options import BulkOptions
from headway.augment.outputs_teacher import OutputsTeacher
from headway.augment.run_teacher import RunTeacher
from headway.core.errors import UserError
from headway.core.storage import locked
from headway.runs.load import AnyPredictor
from tests.command_server import commands
from tests.conftest import Command, Reversal


def made(folder: Path) -> tuple[list[str], list[str], dict[str, Any]]:
    source, target = (
        (folder / f"{side}.txt").read_text(encoding="utf-8").splitlines() for side in ("source", "target")
    )
    return source, target, json.loads((folder / "manifest.json").read_text(encoding="utf-8"))


def decoded(predictor: AnyPredictor, lines: Path, options: BulkOptions, loaded: dict[str, Any]) -> dict[str, Any]:
    return decode_corpus("distill", RunTeacher(predictor, options, loaded), lines_of_file(lines), options)


def test_backtranslation_has_outputs_as_sources(reversal: Reversal, tmp_path: Path, run_headway: Command) -> None:
    (tmp_path / "mono.txt").write_text("abcd\n\ndacb\nzzzz\n", encoding="utf-8")
    ended = run_headway(
        "augment",
        "backtranslate",
        reversal.run,
        "--input",
        tmp_path / "mono.txt",
        "--output",
        tmp_path / "new",
        "beam=2",
    )
    assert (ended.code, json.loads(ended.out)["kept"]) == (0, 3)
    source, target, manifest = made(tmp_path / "new")
    assert target == ["abcd", "dacb", "zzzz"]
    assert source[:2] == ["dcba", "bcad"]
    assert manifest["counts"] == {"read": 4, "kept": 3, "at_limit": 0, "dropped": {"empty": 1}}
    assert "3 of 4 pairs are kept; left out: empty (1)" in ended.err
    assert manifest["first_dropped"] == {"empty": [2]}
    known = json.loads((reversal.run / "manifest.json").read_text(encoding="utf-8"))["model_sha256"]
    assert manifest["runs"] == [{"run": str(reversal.run), "model_sha256": known}]
    assert (manifest["command"], manifest["decoding"]["beam"]) == ("headway augment backtranslate", 2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mono.txt", "new"]
    again = run_headway(
        "augment", "backtranslate", reversal.run, "--input", tmp_path / "mono.txt", "--output", tmp_path / "new"
    )
    assert again.code == 2
    assert "--output: there is something there already" in again.err


def test_distillation_reads_the_training_corpus(reversal: Reversal, tmp_path: Path, run_headway: Command) -> None:
    assert run_headway("augment", "distill", reversal.run, "--output", tmp_path / "new", "beam=1").code == 0
    source, target, manifest = made(tmp_path / "new")
    rows = (reversal.recipe.parent / "train.tsv").read_text(encoding="utf-8").splitlines()
    assert source == [row.split("\t")[0] for row in rows]
    assert sum(read[::-1] == written for read, written in zip(source, target, strict=True)) > 0.9 * len(rows)
    assert manifest["files"] == [str(reversal.recipe.parent / "train.tsv")]


def test_filters_leave_out_and_count(reversal: Reversal, tmp_path: Path) -> None:
    predictor = headway.load(reversal.run, device="cpu")
    lines = ["abcd", "aaaaaaaaaaaaaaaaaaaaaaaa", "xyxyxyxy", "cb"]
    (tmp_path / "in.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    scores = []
    for line in predictor.predict(lines):
        values = line.hypotheses[0].log_probabilities
        scores.append(sum(values) / len(values))
    limit = (scores[0] + min(scores)) / 2
    options = BulkOptions(output=tmp_path / "new", min_score=limit, chunk=2)
    manifest = decoded(predictor, tmp_path / "in.txt", options, {})
    source, _, stored = made(tmp_path / "new")
    assert source == [line for line, score in zip(lines, scores, strict=True) if score >= limit]
    assert manifest["counts"]["dropped"] == {"min_score": 4 - len(source)} == stored["counts"]["dropped"]
    ratio = BulkOptions(output=tmp_path / "ratio", max_ratio=1.0)
    decoded(predictor, tmp_path / "in.txt", ratio, {})
    source, target, _ = made(tmp_path / "ratio")
    assert all(len(read) == len(written) for read, written in zip(source, target, strict=True))
    nothing = BulkOptions(output=tmp_path / "none", min_score=0)
    with pytest.raises(UserError, match=r"min_score: no pair is left; received .*min_score.*a weaker filter"):
        decoded(predictor, tmp_path / "in.txt", nothing, {})
    assert not (tmp_path / "none").exists()
    (tmp_path / "blank.txt").write_text("\n\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"input: no pair is left; received {'empty': 2}$"):
        decoded(predictor, tmp_path / "blank.txt", BulkOptions(output=tmp_path / "blank"), {})


def test_outputs_whose_ends_may_be_missing_are_counted(
    reversal: Reversal, tmp_path: Path, run_headway: Command
) -> None:
    (tmp_path / "in.txt").write_text("abcd\n\ncb\n", encoding="utf-8")
    given = ["--input", tmp_path / "in.txt", "max_length=4"]
    ended = run_headway("augment", "distill", reversal.run, *given, "--output", tmp_path / "new")
    assert ended.code == 0
    _, target, manifest = made(tmp_path / "new")
    assert target == ["dcb", "bc"]
    assert manifest["counts"] == {"read": 3, "kept": 2, "at_limit": 1, "dropped": {"empty": 1}}
    assert "1 of the outputs that are kept are as long as they may be: their ends may be missing" in ended.err


def test_a_killed_process_goes_on(reversal: Reversal, tmp_path: Path) -> None:
    lines = "".join(f"{word}\n" for word in reversal.words * 6)
    (tmp_path / "in.txt").write_text(lines, encoding="utf-8")
    given = ["--input", tmp_path / "in.txt", "sample=true", "seed=3", "--chunk", "40"]

    command = [commands() / "headway", "augment", "distill", reversal.run, *given, "--output", tmp_path / "new"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
    work, deadline = tmp_path / ".new.work", time.monotonic() + 100
    while len(list(work.glob("0*.json"))) < 3:
        assert process.poll() is None, "it ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.005)
    process.kill()
    process.communicate()
    kept = {file: file.stat().st_mtime_ns for file in sorted(work.glob("0*.json"))[:3]}
    assert not (tmp_path / "new").exists()
    predictor = headway.load(reversal.run, device="cpu")
    loaded = {"average": None, "engine": None, "precision": "float32"}
    options = {"sample": True, "seed": 3, "chunk": 40}
    with pytest.raises(UserError, match=r"output: another work was begun here; it differs in decoding"):
        decoded(predictor, tmp_path / "in.txt", BulkOptions(output=tmp_path / "new", chunk=40), loaded)
    assert all(file.stat().st_mtime_ns == time_of for file, time_of in kept.items())
    for name in ("new", "whole"):
        decoded(predictor, tmp_path / "in.txt", BulkOptions(output=tmp_path / name, **options), loaded)
    for file in ("source.txt", "target.txt", "manifest.json"):
        assert (tmp_path / "new" / file).read_bytes() == (tmp_path / "whole" / file).read_bytes()
    assert not work.exists()


def test_what_was_decoded_is_kept_where_the_folder_was_made_meanwhile(
    reversal: Reversal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_headway: Command
) -> None:
    (tmp_path / "in.txt").write_text("abc\nbcd\n", encoding="utf-8")
    given = ["--input", tmp_path / "in.txt", "--output", tmp_path / "new"]
    place = bulk_decoding.put_in_place

    def beaten(built: Path, folder: Path) -> None:
        (tmp_path / "new").mkdir()
        (tmp_path / "new" / "other").touch()
        place(built, folder)

    monkeypatch.setattr(bulk_decoding, "put_in_place", beaten)
    ended = run_headway("augment", "distill", reversal.run, *given)
    assert (ended.code, "new: something was made there while this worked" in ended.err) == (2, True)
    assert list((tmp_path / ".new.work").glob("0*.json"))
    shutil.rmtree(tmp_path / "new")
    monkeypatch.undo()
    assert run_headway("augment", "distill", reversal.run, *given).code == 0
    assert not (tmp_path / ".new.work").exists()


def test_a_corpus_that_is_whole_is_not_made_again(reversal: Reversal, tmp_path: Path, run_headway: Command) -> None:
    """Whatever of the work a killed process left behind, the same command ends well; another one does not."""
    (tmp_path / "in.txt").write_text("abc\nbcd\n", encoding="utf-8")
    given = ["augment", "distill", reversal.run, "--input", tmp_path / "in.txt", "--output", tmp_path / "new"]
    first = run_headway(*given)
    content = {path: path.read_bytes() for path in (tmp_path / "new").iterdir()}
    left = tmp_path / ".new.work"
    for names in ((), ("work.json", "00000000.json"), ("00000000.json",)):
        left.mkdir(exist_ok=True)
        for name in names:
            (left / name).write_text("{}")
        again = run_headway(*given)
        assert (again.code, again.out) == (0, first.out), again.err
        assert f"{tmp_path / 'new'}: this is made already" in again.err
        assert not left.exists()
    assert {path: path.read_bytes() for path in (tmp_path / "new").iterdir()} == content
    for other in (["beam=2"], ["--max-ratio", "2"]):
        assert "there is something there already" in run_headway(*given, *other).err
    (tmp_path / "new" / "target.txt").write_text("changed\n")
    changed = run_headway(*given)
    assert (changed.code, "there is something there already" in changed.err) == (2, True)
    assert not left.exists()


def test_chunks_of_an_unknown_work_are_not_taken(reversal: Reversal, tmp_path: Path, run_headway: Command) -> None:
    """A process that was killed while it removed its work may have removed the name of that work first."""
    (tmp_path / "in.txt").write_text("abc\n", encoding="utf-8")
    (tmp_path / ".new.work").mkdir()
    (tmp_path / ".new.work" / "00000000.json").write_text('[["x", "y", 0.0, [1, 1], false, false]]')
    assert (
        run_headway(
            "augment", "distill", reversal.run, "--input", tmp_path / "in.txt", "--output", tmp_path / "new"
        ).code
        == 0
    )
    assert made(tmp_path / "new")[0] == ["abc"]


def test_mistakes_are_told_before_any_work(reversal: Reversal, tmp_path: Path, run_headway: Command) -> None:
    missing = run_headway(
        "augment", "backtranslate", reversal.run, "--input", tmp_path / "none.txt", "--output", tmp_path / "new"
    )
    assert (missing.code, "none.txt" in missing.err) == (2, True)
    without = run_headway("augment", "distill", reversal.run)
    assert (without.code, "--output: a new corpus needs a folder" in without.err) == (2, True)
    bound = run_headway("augment", "distill", reversal.run, "--output", tmp_path / "new", "--min-score", "1")
    assert (bound.code, "--min-score" in bound.err) == (2, True)
    assert list(tmp_path.iterdir()) == []


def test_two_commands_do_not_work_in_one_folder(reversal: Reversal, tmp_path: Path, run_headway: Command) -> None:
    (tmp_path / "mono.txt").write_text("abcd\n", encoding="utf-8")
    with locked(tmp_path / ".new.work" / ".lock"):
        ended = run_headway(
            "augment", "backtranslate", reversal.run, "--input", tmp_path / "mono.txt", "--output", tmp_path / "new"
        )
    assert ended.code == 2
    assert "another process is at work here" in " ".join(ended.err.split())
    assert not (tmp_path / "new").exists()


def test_another_system_is_a_teacher(tmp_path: Path, run_headway: Command) -> None:
    (tmp_path / "read.txt").write_text("a b c\n\nd e\nf g\n", encoding="utf-8")
    (tmp_path / "written.txt").write_text("A B\nC\nD E F G H\nF G\n", encoding="utf-8")
    command = ["augment", "distill", "--input", tmp_path / "read.txt", "--outputs", tmp_path / "written.txt"]
    command += ["--max-ratio", "2", "--output", tmp_path / "new"]
    refused = run_headway(*command, "--teacher", "a system")
    assert refused.code == 2
    assert "error: --licence: outputs of another system are paired" in refused.err
    assert "--licence" in refused.err
    ended = run_headway(*command, "--teacher", "a system", "--licence", "cc-by-4.0")
    assert (ended.code, json.loads(ended.out)["kept"]) == (0, 2)
    source, target, manifest = made(tmp_path / "new")
    assert (source, target) == (["a b c", "f g"], ["A B", "F G"])
    assert manifest["counts"]["dropped"] == {"empty": 1, "max_ratio": 1}
    assert manifest["teacher"] == {"name": "a system", "licence": "cc-by-4.0"}
    (tmp_path / "written.txt").write_text("A B\n", encoding="utf-8")
    assert run_headway(*command[:-1], tmp_path / "other", "--teacher", "a", "--licence", "b").code == 2


def test_probabilities_of_another_system_are_not_known(tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("a\n", encoding="utf-8")
    teacher = OutputsTeacher(tmp_path / "lines.txt", "a system", "cc0")
    options = BulkOptions(output=tmp_path / "new", min_score=-1)
    with pytest.raises(UserError, match="probabilities of another system"):
        decode_corpus("distill", teacher, lines_of_file(tmp_path / "lines.txt"), options)
