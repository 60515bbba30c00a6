"""Results at a terminal: they reach a file, a pipe and the terminal whole, whatever is drawn there."""

import io
import os
import pty
import sys
from pathlib import Path
from typing import TextIO

import pytest

from headway.cli import console, main
from headway.core.log import Progress
from tests.claims.toy_claims import packed
from tests.cli.test_shell import VERBS
from tests.conftest import Command, Reversal
from tests.docs.pages import ROOT
from tests.gate.loops import begun
from tests.terminal import KINDS, Kind, at_terminal, on_screen, received
from tests.tiers import thinned

# A command line of every verb that writes results, but for those in `OTHERS`. RUN and files are made by `folder`.
LINES = {
    "predict": "predict RUN",
    "predict with scores": "predict RUN --nbest 2 --beam 2",
    "predict to a file": "predict RUN --output predicted.txt",
    "predict from a file": "predict RUN --input words.txt",
    "score targets": "score RUN --source words.txt --target words.txt",
    "score files": "score --hypotheses words.txt --references words.txt --metric chrf",
    "data check": "data check reversal.yaml",
    "data split": "data split train.tsv --columns 1 2 --output split",
    "data filter": "data filter train.tsv --output filtered",
    "data make labels": "data make labels source=words.txt references=words.txt",
    "data make trees": "data make trees trees.txt",
    "compare": "compare --hypotheses a:1=words.txt b:1=words.txt --references words.txt --metric chrf",
    "gate plan": "gate plan loop.jsonl",
    "gate check": "gate check loop.jsonl",
    "gate page": "gate page loop.jsonl --output page.html",
    "gate simulate": "gate simulate --loops 10",
    "list": "list mixers",
    "check": "check 1 answer.py --allow-code",
    "recipes": "recipes --task parsing",
    "recipes, one": "recipes tanaka/teacher",
    "recipes, copied": "recipes tanaka/teacher --output copy.yaml",
    "inspect page": "inspect page RUN --text ab --output page.html",
    "inspect figures": "inspect figures RUN --text ab --output map.png",
    "inspect tables": "inspect tables parameters RUN",
    "inspect ablate": "inspect ablate RUN --what decoder.1.cross:heads --sentences 4",
    "augment": "augment distill RUN --input words.txt --output distilled",
    "export": "export --list RUN",
    "pack": "pack RUN pack.zip",
    "site": "site paper.zip",
}
# Verbs without results, or whose results are times, that need what is not here, or take long; they write as others do.
OTHERS = ["reproduce", "serve", "new", "train", "demo", "doctor", "data-annotate", "import"]
OTHERS += ["gate-new", "gate-propose", "gate-close"]
WORDS = "ab\nabc\ndcba\n"
ANSWER = (ROOT / "lessons" / "solutions" / "attention.py").read_text(encoding="utf-8")
TREES = "(S (NP (D a) (N b)) (V c))\n"


def made(folder: Path, reversal: Reversal) -> Path:
    """A folder with what the commands read."""
    folder.mkdir()
    for name, text in (("words.txt", WORDS), ("trees.txt", TREES), ("answer.py", ANSWER)):
        (folder / name).write_text(text, encoding="utf-8")
    for name in ("reversal.yaml", "train.tsv", "dev.tsv"):
        (folder / name).write_bytes((reversal.recipe.parent / name).read_bytes())
    begun(folder)
    packed(folder / "paper.zip")
    return folder


def test_every_verb_is_here() -> None:
    starts = [tuple(line.split()[: len(path)]) for line in LINES.values() for path in VERBS]
    tested = {"-".join(path) for path in VERBS if path in starts}
    assert not tested & set(OTHERS)
    assert tested | set(OTHERS) == {"-".join(path) for path in VERBS}


def run(arguments: list[str], out: TextIO, errors: TextIO, monkeypatch: pytest.MonkeyPatch) -> int:
    """The exit code of a command that is run while a bar is drawn from beginning to end."""
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(WORDS.encode())))
        patch.setattr(sys, "stdout", out)
        patch.setattr(sys, "stderr", errors)
        patch.setattr(console, "console", console.LogConsole(file=errors, highlight=False, soft_wrap=True))
        with console.view(Progress("working", 1, "")), pytest.raises(SystemExit) as ended:
            main(arguments)
        out.flush()
        errors.flush()
    return int(ended.value.code or 0)


@pytest.mark.parametrize("name", thinned(LINES, 5))
def test_results_are_whole_while_bars_are_drawn(
    name: str, reversal: Reversal, run_headway: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "400")  # tables are folded where a terminal is narrower
    arguments = LINES[name].replace("RUN", str(reversal.run)).split()
    monkeypatch.chdir(made(tmp_path / "plain", reversal))
    plain = run_headway(*arguments, stdin=WORDS)
    assert plain.code == 0, plain.err
    results = Path("predicted.txt").read_text(encoding="utf-8") if name == "predict to a file" else plain.out
    assert results.strip()

    monkeypatch.chdir(made(tmp_path / "file", reversal))
    with received(pty.openpty()) as (errors, drawn), Path("out").open("w", encoding="utf-8") as file:
        assert run(arguments, file, errors, monkeypatch) == 0
        assert Path("out").read_text(encoding="utf-8") == plain.out
        assert "working" in drawn()
    assert name != "predict to a file" or Path("predicted.txt").read_text(encoding="utf-8") == results

    monkeypatch.chdir(made(tmp_path / "pipe", reversal))
    with received(pty.openpty()) as (errors, _), received(os.pipe()) as (pipe, piped):
        assert run(arguments, pipe, errors, monkeypatch) == 0
        assert piped() == plain.out

    monkeypatch.chdir(made(tmp_path / "terminal", reversal))
    with received(pty.openpty()) as (screen, drawn):
        assert run(arguments, screen, screen, monkeypatch) == 0
        shown = on_screen(drawn())
    lines = iter(shown)
    assert all(
        line.rstrip() in lines for line in plain.out.rstrip().splitlines()
    )  # in this order; notices may be between
    assert not any("working" in line for line in shown)


@pytest.mark.parametrize("out", thinned(KINDS, 3))
def test_predict_at_a_terminal(out: Kind, reversal: Reversal, tmp_path: Path) -> None:
    ended = at_terminal("predict", reversal.run, out=out, folder=tmp_path, stdin=WORDS)
    assert ended.code == 0
    assert "decoding" in ended.drawn  # a bar was there, and is gone
    answers = ["ba", "cba", "abcd"]
    assert (ended.out.splitlines(), ended.screen) == (([], answers) if out == "terminal" else (answers, []))


@pytest.mark.slow
@pytest.mark.parametrize("out", ["file", "terminal"])
def test_who_types_has_a_prompt_and_no_bar(out: Kind, reversal: Reversal, tmp_path: Path) -> None:
    ended = at_terminal("predict", reversal.run, out=out, folder=tmp_path, typed=("ab", "abc"))
    assert ended.code == 0
    begin = "reading lines as they are typed; Ctrl-D ends"
    if out == "terminal":
        assert ended.screen == [begin, "> ab", "ba", "> abc", "cba", ">"]
    else:
        assert ended.out == "ba\ncba\n"
        assert ended.screen == [begin, "> ab", "> abc", ">"]
    assert "decoding" not in ended.drawn
