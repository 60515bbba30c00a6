"""Standard input as it comes, and standard output that a terminal can show or nobody can read."""

import io
import os
import queue
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TextIO

import pytest

from headway.cli import main
from headway.cli.prediction_options import WriterOptions
from headway.cli.prediction_stream import predict_sequences
from headway.cli.standard_streams import CHUNK, StandardInput, windows, write
from headway.core.errors import UserError
from headway.core.system import WINDOWS
from headway.predictors.predict_options import PredictOptions
from headway.predictors.sequence_predictor import SequencePredictor
from tests.conftest import Command, Reversal


def given(monkeypatch: pytest.MonkeyPatch, content: bytes) -> StandardInput:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    return StandardInput()


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[bytes], None]]:
    """Writes to standard input, which an empty text closes."""
    reading, writing = os.pipe()
    file, stdin = os.fdopen(writing, "wb"), os.fdopen(reading, encoding="utf-8")
    monkeypatch.setattr(sys, "stdin", stdin)

    def send(content: bytes) -> None:
        if content:
            file.write(content)
            file.flush()
        else:
            file.close()

    with stdin:
        yield send
    file.close()


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"", []), (b"\n", [""]), (b"a", ["a"]), (b"a\n", ["a"]), (b"a\n\nb", ["a", "", "b"]),
        (b"\xef\xbb\xbfa\r\nb\r\n", ["a", "b"]), ("é\u2028x\n".encode(), ["é\u2028x"]),
        (b"x" * 200_000 + b"\n" + b"y" * 70_000, ["x" * 200_000, "y" * 70_000]),
    ],
)  # fmt: skip
def test_lines(monkeypatch: pytest.MonkeyPatch, content: bytes, lines: list[str]) -> None:
    assert list(given(monkeypatch, content)) == lines
    source = given(monkeypatch, content)
    assert [line for window in windows(source, 2, source) for line in window] == lines


def test_a_line_that_is_not_utf8_has_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    first, wrong, last = given(monkeypatch, b"a\n\xff\nb\n")
    assert (first, last) == ("a", "b")
    assert str(wrong).startswith("standard input:2: invalid UTF-8")


@pytest.mark.parametrize("end", [b"", b"\n", b"\nc\n"])
def test_a_line_that_is_too_long_is_refused_before_it_is_read_whole(
    monkeypatch: pytest.MonkeyPatch, end: bytes
) -> None:
    monkeypatch.setattr("headway.formats.lines.LONGEST_LINE", CHUNK)
    source = given(monkeypatch, b"a\n" + b"b" * 5 * CHUNK + end)
    lines = windows(source, 2, source)
    assert next(lines) == ["a"]
    with pytest.raises(UserError, match="standard input:2: this line is longer than 65,536 bytes"):
        next(lines)
    assert len(sys.stdin.buffer.read()) > 2 * CHUNK  # the rest of the line
    source = given(monkeypatch, b"b" * CHUNK + b"\r\nc")
    assert list(source) == ["b" * CHUNK, "c"]


def test_who_types_is_told_that_lines_are_waited_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    for typed, messages in ((True, ["reading lines as they are typed; Ctrl-D ends"]), (False, [])):
        stdin = io.TextIOWrapper(io.BytesIO(b"ab\ncd"))
        monkeypatch.setattr(stdin, "isatty", lambda typed=typed: typed, raising=False)
        monkeypatch.setattr(sys, "stdin", stdin)
        assert list(StandardInput()) == ["ab", "cd"]
        assert (capsys.readouterr().out, caplog.messages) == ("", messages)
        caplog.clear()


@pytest.mark.skipif(WINDOWS, reason="Windows does not tell whether a pipe has more")
def test_bulk_fills_windows(pipe: Callable[[bytes], None]) -> None:
    def feed() -> None:
        for start in range(0, 9000, 30):
            pipe(b"".join(b"%d\n" % number for number in range(start, start + 30)))
        pipe(b"")

    threading.Thread(target=feed).start()
    source = StandardInput()
    assert [len(window) for window in windows(source, 2000, source)] == [2000, 2000, 2000, 2000, 1000]


def test_a_window_ends_where_no_further_line_waits(pipe: Callable[[bytes], None]) -> None:
    source = StandardInput()
    stream = windows(source, 2000, source)
    pipe(b"a\nb\n")
    assert next(stream) == ["a", "b"]
    pipe(b"c\nhalf")  # the half is no line yet
    assert next(stream) == ["c"]
    pipe(b" d\n")
    assert next(stream) == ["half d"]
    pipe(b"")
    assert list(stream) == []


def test_predict_answers_each_line_as_it_comes(
    pipe: Callable[[bytes], None], monkeypatch: pytest.MonkeyPatch, predictor: SequencePredictor
) -> None:
    answers: queue.Queue[str] = queue.Queue()

    class Screen(io.StringIO):
        def flush(self) -> None:
            if self.getvalue():
                answers.put(self.getvalue())
            self.seek(0)
            self.truncate()

    received = []

    def converse() -> None:
        for word in (b"ab\n", b"abc\n", b"dcba\n"):
            pipe(word)
            received.append(answers.get())
        pipe(b"")

    monkeypatch.setattr(sys, "stdout", Screen())
    user = threading.Thread(target=converse, daemon=True)
    user.start()
    source = StandardInput()
    predict_sequences(predictor, PredictOptions(beam=1), WriterOptions(), source, source)
    user.join()
    expected = [f"{prediction.text}\n" for prediction in predictor.predict(["ab", "abc", "dcba"], beam=1)]
    assert received == expected


@pytest.mark.parametrize(
    ("typed", "shown"),
    [
        ("\x1b[31mred\x1b[0m \x07\ta\n", "\\x1b[31mred\\x1b[0m \\x07\ta\n"),
        ("\x1b]0;title\x07\x9b\x7f\r\x00", "\\x1b]0;title\\x07\\x9b\\x7f\\r\\x00"),
        ("\u202eabc\u2066\u2028", "\\u202eabc\\u2066\\u2028"),
        ("é 日本 🙂\u200d\u0301", "é 日本 🙂\u200d\u0301"),
    ],
)
def test_a_terminal_gets_no_control_characters(monkeypatch: pytest.MonkeyPatch, typed: str, shown: str) -> None:
    for terminal, expected in ((True, shown), (False, typed)):
        screen = io.StringIO()
        monkeypatch.setattr(screen, "isatty", lambda terminal=terminal: terminal)
        monkeypatch.setattr(sys, "stdout", screen)
        write(typed, end="")
        assert screen.getvalue() == expected


ESCAPE = "\x1b]0;title\x07"


@pytest.mark.parametrize(
    "arguments",
    [
        [f"no{ESCAPE}such"], ["train", f"{ESCAPE}.yaml"], ["train", "r.yaml"], ["train", "r.yaml", f"{ESCAPE}=1"],
        ["predict", ESCAPE], ["predict", ".", f"--{ESCAPE}"], ["list", ESCAPE],
        ["score", "--hypotheses", ESCAPE, "--references", ESCAPE], ["inspect", "tables", "parameters", ESCAPE],
        ["data", "split", ESCAPE, "--output", ESCAPE],
    ],
)  # fmt: skip
def test_no_error_has_control_characters(
    run_headway: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("r.yaml").write_text('"\\e[31mtask": 1\n"a\\nb": 2\n', encoding="utf-8")
    ended = run_headway(*arguments)
    assert ended.code == 2
    assert "\x1b" not in ended.err
    assert "\x07" not in ended.err
    assert "\\x1b" in ended.err


def test_a_key_stays_in_its_line(run_headway: Command, tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text('"a\\nb\\ec": 2\n', encoding="utf-8")
    ended = run_headway("train", tmp_path / "r.yaml")
    assert sum(line.startswith("a\\nb\\x1bc: unknown key") for line in ended.err.splitlines()) == 1


@pytest.mark.parametrize("command", [["list"], ["list", "mixers"], ["--version"], ["recipes"]])
def test_a_closed_or_full_standard_output_is_one_error(
    command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended_with(None, command, monkeypatch) == 2
    assert (
        capsys.readouterr().err
        == "error: standard output is closed; allowed: a file, a pipe, a terminal or /dev/null\n"
    )
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        assert ended_with(full, command, monkeypatch) == 1
    assert capsys.readouterr().err == "error: a file or a pipe cannot be read or written (No space left on device)\n"


def ended_with(stdout: TextIO | None, command: list[str], monkeypatch: pytest.MonkeyPatch) -> object:
    """The exit code of a command with another standard output."""
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", stdout)
        with pytest.raises(SystemExit) as ended:
            main(command)
    return ended.value.code


def test_a_closed_standard_input_is_one_error(
    monkeypatch: pytest.MonkeyPatch, reversal: Reversal, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(SystemExit) as ended:
        main(["predict", str(reversal.run)])
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("error: standard input is closed")


def test_memory_that_is_not_there_is_one_error(
    monkeypatch: pytest.MonkeyPatch, reversal: Reversal, run_headway: Command
) -> None:
    def fail(*paths: Path, **options: object) -> None:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes.")

    monkeypatch.setattr("headway.cli.streams.load", fail)
    ended = run_headway("predict", reversal.run, stdin="ab\n")
    assert ended.code == 1
    assert ended.err.startswith("error: out of memory (")
