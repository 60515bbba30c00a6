"""Teachers that are no runs: commands, files of outputs, a column of a table instead of its source."""

import json
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from headway.augment.bulk_decoding import decode_corpus
from headway.augment.bulk_input import lines_of_file
from headway.augment.bulk_options import DecodedOptions
from headway.augment.command_teacher import CommandTeacher
from headway.augment.marks import Unmarked, unmarked
from headway.augment.teacher import without_scores
from headway.core.errors import RunError
from tests.conftest import Command, Reversal

UPPER = "import sys\nfor line in sys.stdin:\n    print(line.strip().upper())\n"
SPA_AST = Path("/usr/share/apertium/modes/spa-ast.mode")


def program(file: Path, text: str) -> str:
    """A command that runs a program in Python, which reads and writes UTF-8."""
    file.write_text(f"import sys\nsys.stdin.reconfigure(encoding='utf-8')\n{text}", encoding="utf-8")
    return shlex.join([sys.executable, "-X", "utf8", str(file)])


def sides(folder: Path) -> tuple[list[str], list[str]]:
    source, target = (
        (folder / f"{side}.txt").read_text(encoding="utf-8").splitlines() for side in ("source", "target")
    )
    return source, target


def manifest_of(folder: Path) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    return manifest


def test_a_command_that_holds_back_its_outputs_is_a_teacher(tmp_path: Path, run_headway: Command) -> None:
    (tmp_path / "in.txt").write_text("a\n\nñ b\u2028c\nd\n", encoding="utf-8")
    command = program(tmp_path / "upper.py", UPPER)
    given = ["augment", "distill", "--teacher", f"command: {command}", "--input", tmp_path / "in.txt"]
    given += ["--output", tmp_path / "new", "--chunk", "3", "--yes"]
    refused = run_headway(*given)
    assert (refused.code, "--licence: outputs of another system" in refused.err) == (2, True)
    ended = run_headway(*given, "--licence", "cc0")
    assert ended.code == 0, ended.err
    assert sides(tmp_path / "new") == (["a", "ñ b c", "d"], ["A", "Ñ B C", "D"])
    manifest = manifest_of(tmp_path / "new")
    told = f"Python {sys.version.split()[0]}"
    name = Path(sys.executable).stem
    assert manifest["teacher"] == {"name": name, "licence": "cc0", "command": command, "version": told}
    assert manifest["counts"]["dropped"] == {"empty": 1}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.txt", "new", "upper.py"]
    assert "this is made already" in run_headway(*given, "--licence", "cc0").err


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("pass", "it has written fewer lines than it has read"),
        ("print('C'); print('C')", "it has written more lines than it has read"),
        ("sys.exit('full')", "it has ended with exit code 1 after 0 outputs for 2 lines; its last message: full"),
        ("sys.stdout.flush(); time.sleep(60)", "it has written nothing for 5 seconds"),
        ("sys.stdout.flush(); os.close(1); time.sleep(60)", "it has closed its output"),
        ("sys.stdout.flush(); sys.stdout.buffer.write(bytes([255, 10]))", "it has written bytes that are not UTF-8"),
    ],
)  # fmt: skip
def test_an_error_names_the_lines_and_the_same_command_goes_on(
    tmp_path: Path, fault: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headway.augment.command_teacher.PATIENCE", 1)
    (tmp_path / "in.txt").write_text("a\nb\nc\nd\ne\n", encoding="utf-8")
    broken = "import os, sys, time\nfor line in sys.stdin:\n    if line == 'c\\n':\n        FAULT\n        continue\n"
    words = shlex.split(
        program(tmp_path / "it.py", broken.replace("FAULT", fault) + "    print(line.strip().upper())\n")
    )
    options = DecodedOptions(output=tmp_path / "new", chunk=2)
    # A slow start of the program is not silence, except for the program that is silent.
    teacher = CommandTeacher(words, "cc0", 5 if "nothing" in message else 60)
    with pytest.raises(RunError, match=f": lines 3 to 4: {message}"):
        decode_corpus("distill", teacher, lines_of_file(tmp_path / "in.txt"), options)
    assert not (tmp_path / "new").exists()
    assert [file.name for file in (tmp_path / ".new.work").glob("0*.json")] == ["00000000.json"]
    program(tmp_path / "it.py", UPPER.replace("upper()", "upper() * 2"))
    decode_corpus("distill", CommandTeacher(words, "cc0"), lines_of_file(tmp_path / "in.txt"), options)
    assert sides(tmp_path / "new")[1] == ["A", "B", "CC", "DD", "EE"]


def test_a_line_behind_the_last_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("a\nb\n", encoding="utf-8")
    words = shlex.split(program(tmp_path / "it.py", UPPER + "print('done')\n"))
    options = DecodedOptions(output=tmp_path / "new")
    with pytest.raises(RunError, match="lines 1 to 2: it has written more lines than it has read"):
        decode_corpus("distill", CommandTeacher(words, "cc0"), lines_of_file(tmp_path / "in.txt"), options)
    assert not list((tmp_path / ".new.work").glob("0*.json"))


def test_more_lines_than_pipes_hold_pass_through_a_command(tmp_path: Path) -> None:
    lines = [f"{number} {'x' * 90}" for number in range(30_000)]
    (tmp_path / "in.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    words = shlex.split(program(tmp_path / "it.py", UPPER))
    options = DecodedOptions(output=tmp_path / "new")
    decode_corpus("distill", CommandTeacher(words, "cc0"), lines_of_file(tmp_path / "in.txt"), options)
    assert sides(tmp_path / "new")[1] == [line.upper() for line in lines]


@pytest.mark.parametrize("allowed", [True, False])
def test_a_command_runs_after_a_question_at_a_terminal(
    tmp_path: Path, run_headway: Command, monkeypatch: pytest.MonkeyPatch, allowed: bool
) -> None:
    (tmp_path / "in.txt").write_text("a\n", encoding="utf-8")
    command = program(tmp_path / "it.py", f"open({str(tmp_path / 'ran')!r}, 'w')\n{UPPER}")
    given = ["augment", "distill", "--teacher", f"command: {command}", "--input", tmp_path / "in.txt"]
    given += ["--output", tmp_path / "new", "--licence", "cc0"]
    unasked = run_headway(*given)
    assert (unasked.code, "--teacher: this command was not allowed" in unasked.err) == (2, True)
    question = Mock(return_value=allowed)
    monkeypatch.setattr("headway.cli.console.confirmed", question)
    assert run_headway(*given).code == (0 if allowed else 2)
    assert (tmp_path / "ran").exists() == (tmp_path / "new").exists() == allowed
    assert question.call_args.args[0].rows == ((command,),)


@pytest.mark.parametrize(
    ("header", "column"), [("", "2"), ("English\tSpanish\tnote\n", "Spanish")], ids=["number", "name"]
)
def test_another_column_than_the_source_is_translated(
    tmp_path: Path, run_headway: Command, header: str, column: str
) -> None:
    (tmp_path / "in.tsv").write_text(f"{header}house\tcasa\tx\ndog\tperro\ty\n", encoding="utf-8")
    (tmp_path / "out.txt").write_text("casa\nperru\n", encoding="utf-8")
    given = ["augment", "distill", "--input", tmp_path / "in.tsv", "--through", column, "--licence", "cc0"]
    command = program(tmp_path / "upper.py", UPPER)
    for teacher, made in (
        (["--teacher", f"command: {command}", "--yes"], ["CASA", "PERRO"]),
        (["--teacher", "a system", "--outputs", tmp_path / "out.txt"], ["casa", "perru"]),
    ):
        shutil.rmtree(tmp_path / "new", ignore_errors=True)
        ended = run_headway(*given, *teacher, "--output", tmp_path / "new")
        assert ended.code == 0, ended.err
        assert sides(tmp_path / "new") == (["house", "dog"], made)
        assert manifest_of(tmp_path / "new")["through"] == column
    absent = run_headway(*given[:-3], "4", *given[-2:], *teacher, "--output", tmp_path / "other")
    assert (absent.code, "--through: the table has no such column" in absent.err) == (2, True)


def test_a_run_is_a_teacher_by_name_and_through_a_column(
    reversal: Reversal, tmp_path: Path, run_headway: Command
) -> None:
    (tmp_path / "in.tsv").write_text("one\tabcd\ntwo\tdacb\n", encoding="utf-8")
    given = ["--teacher", reversal.run, "--input", tmp_path / "in.tsv", "--through", "2", "--output", tmp_path / "new"]
    ended = run_headway("augment", "distill", "beam=2", *given)
    assert ended.code == 0, ended.err
    assert sides(tmp_path / "new") == (["one", "two"], ["dcba", "bcad"])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--teacher", "none"], "--teacher: there is no such run"),
        (["--teacher", "command: no-such-program"], "--teacher: there is no such program"),
        (["--teacher", "command: 'cat"], "--teacher: this is no command (No closing quotation)"),
        (["--teacher", "command: python", "--outputs", "in.txt"], "--outputs: outputs of another system"),
        (["--teacher", "a", "--outputs", "in.txt", "--yes"], "--yes: alone, this option does nothing"),
        (["--teacher", "a", "--outputs", "two.txt"], "each line needs one output; received '1 line and 2 outputs'"),
    ],
)
def test_mistakes_leave_nothing(
    tmp_path: Path, run_headway: Command, monkeypatch: pytest.MonkeyPatch, given: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("in.txt").write_text("a\n", encoding="utf-8")
    Path("two.txt").write_text("a\nb\n", encoding="utf-8")
    licence = ["--licence", "cc0"] if "none" not in given else []
    ended = run_headway("augment", "distill", *given, "--input", "in.txt", "--output", "new", *licence)
    assert (ended.code, message in " ".join(ended.err.split())) == (2, True), ended.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.txt", "two.txt"]


@pytest.mark.parametrize(
    ("read", "written", "expected", "marked"),
    [
        ("xyz casa", "*xyz casa", "xyz casa", ["xyz"]),
        ("xyz, «qwe»", "*xyz, «*qwe»", "xyz, «qwe»", ["xyz", "qwe"]),
        ("2*tres es #1 * xyz", "2*tres ye #1 * *xyz", "2*tres ye #1 * xyz", ["xyz"]),
        ("va a comer", "@va #comer", "va comer", ["va", "comer"]),
        ("SF_Array 32bit", "SF_*Array 32*bit", "SF_Array 32bit", ["Array", "bit"]),
        ("foo#bar #etiqueta 5*x a@b.es", "*foo##bar #*etiqueta 5**x a@b.es", "foo#bar #etiqueta 5*x a@b.es",
         ["foo", "bar", "etiqueta", "x"]),
    ],
)  # fmt: skip
def test_marks_are_removed_and_signs_of_the_line_stay(
    read: str, written: str, expected: str, marked: list[str]
) -> None:
    assert unmarked(read, written) == (expected, marked)


def test_capitalised_words_may_be_unknown() -> None:
    lines = Unmarked(without_scores(["a b", "a b", "a b"], ["*Xyz *Qwe", "*xyz *Qwe", "*xyz *qwe"]))
    assert [line.unknown for line in lines] == [False, False, True]
    assert lines.record() == {"unknown_words": 1}


def test_lines_with_unknown_words_are_left_out(tmp_path: Path, run_headway: Command) -> None:
    (tmp_path / "in.txt").write_text("a\nb\n", encoding="utf-8")
    (tmp_path / "out.txt").write_text("*x *y\nb *c\n", encoding="utf-8")
    given = ["augment", "distill", "--input", tmp_path / "in.txt", "--outputs", tmp_path / "out.txt"]
    given += ["--teacher", "apertium", "--licence", "gpl-2.0"]
    assert run_headway(*given, "--output", tmp_path / "new", "--marks", "apertium").code == 0
    assert sides(tmp_path / "new") == (["b"], ["b c"])
    manifest = manifest_of(tmp_path / "new")
    assert (manifest["counts"]["dropped"], manifest["unknown_words"]) == ({"unknown words": 1}, 0.75)
    assert run_headway(*given, "--output", tmp_path / "raw").code == 0
    assert sides(tmp_path / "raw") == (["a", "b"], ["*x *y", "b *c"])


@pytest.mark.skipif(not SPA_AST.exists(), reason="apertium-spa-ast is not installed")
def test_apertium_translates_each_line_by_itself(tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("sin\nembargo viene\nHola xyzzyx\nxyzzyx qwerty\n", encoding="utf-8")
    teacher = CommandTeacher(["apertium", "spa-ast"], "GPL-2.0-only")
    manifest = decode_corpus(
        "distill", teacher, lines_of_file(tmp_path / "in.txt"), DecodedOptions(output=tmp_path / "new")
    )
    assert sides(tmp_path / "new")[1] == ["ensin", "embargu vien", "Hola xyzzyx"]
    assert manifest["teacher"]["version"].startswith("Apertium 3")
    assert manifest["counts"]["dropped"] == {"unknown words": 1}
