"""Command lines of every verb with odd values, flags and files, and with odd standard input and output."""

from __future__ import annotations

import importlib
import os
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

import hypothesis.strategies as st
from hypothesis.strategies import SearchStrategy

from tools.campaigns.campaign import Campaign, unharmed
from tools.campaigns.command_line import Ended, run_command
from tools.campaigns.sample_files import copy_to, prepared_files


@dataclass(frozen=True)
class CommandCase:
    """The arguments of a verb, of `SOUND`; and what standard input and standard output are.

    `@NAME@` in arguments stands for a path: that of a copy of one of `write_files`, or one where nothing is.
    """

    arguments: tuple[str, ...]
    verb: str
    stdin: str = "text"
    stdout: str = "file"


# A command line of each verb that is sound, with as little work as it can have. Those of `BOUNDED` work longer:
# a second of it shows that the arguments were understood.
SOUND = {
    "train": "@recipe@ training.updates=1 --output @new@",
    "train (resume)": "@run@ training.updates=401 --resume",
    "train (dry)": "@recipe@ --dry-run",
    "predict": "@run@ --device cpu",
    "predict (labels)": "@tagger@ --device cpu",
    "predict (trees)": "@parser@ --device cpu",
    "predict (speech)": "@speech@ @wav@ --device cpu",
    "list": "mixers",
    "demo": "--output @new@",
    "doctor": "",
    "data check": "@recipe@",
    "data split": "@tsv@ --output @new@",
    "data annotate": "@text@ --parser conllu:@conllu@ --processes 1",
    "data make (labels)": "labels source=@text@ references=@text@",
    "data make (treebanks)": "treebanks @text@ --output @new@",
    "data make (dates)": "dates --output @new@ train_size=5 dev_size=2 test_size=2",
    "data make (lengths)": "lengths copy --output @new@ train_size=5 dev_size=2 test_size=2",
    "data make (trees)": "trees @trees@",
    "score": "--hypotheses @text@ --references @text@",
    "score (targets)": "@run@ --source @text@ --target @text@ --device cpu",
    "inspect page": "@run@ --output @new@.html --sentences 1 --device cpu",
    "inspect figures (one)": "@run@ --output @new@.png --text abc --device cpu",
    "inspect figures": "@run@ --output @new@ --device cpu",
    "inspect tables (parameters)": "parameters @run@",
    "inspect tables (layers)": "layers @tagger@ --data @tsv@",
    "inspect tables (dependencies)": "dependencies @dependency@",
    "export": "onnx @run@ --output @new@",
    "import": "hf @folder@ --output @new@",
    "recipes": "",
    "recipes (copied)": "dates/transformer --output @new@",
    "pack": "@run@ @new@.zip",
    "compare": "one=@run@ two=@run@ --device cpu",
    "gate new": "@new@ --baseline base --scores @tsv@",
    "gate simulate": "--loops 10",
    "reproduce": "",
}
BOUNDED = ("train", "demo", "doctor", "export", "compare", "reproduce", "inspect", "data annotate")
# The lines above ask for what there is not: a corpus of its own, a model.
REFUSED = ("data make (treebanks)", "import")
PLACE = re.compile(r"@(\w+)@")
FILES = ("run", "other", "tagger", "parser", "speech", "dependency", "recipe", "text", "empty", "odd", "binary", "tsv",
         "wav", "conllu", "trees", "zip", "json", "grid", "folder", "loop", "new")  # fmt: skip
VALUES = (
    "", "0", "1", "2", "-1", "3", "1.5", "1e9", "1e308", "1e999", "nan", "inf", "-inf", "99999999999", "-99999999999",
    "10" * 20, "9" * 5000, "a", "all", "*", "**", ",", "0,1", "0,a", "-", "--", "=", "a=b", ":", "a:b", "os:system",
    "true", "none", "null", "[]", "{}", "[", "\\", "%s", "{0}", "é", "日本語", "\u202e", "\x1b[31m", "\x1b]0;x\x07",
    "a\nb", "\t", " ", "a" * 300, "a" * 5000, "/dev/null", "/dev/zero", "/dev/full", "/dev/stdin", ".", "..",
    "nosuch/file", "x.png", "x.zip", "x.html", "x.jsonl", "cpu", "meta", "cuda", "cuda:7", "mps", "float32",
    "int8", "bf16", "auto", "bleu", "chrf", "nosuch", "tsv", "json", "marked", "attention", "encoder.*", "*.cross",
    "8-words", "99999999999-words", "3-sentences", "drawing", "linear", "1,2,3", "\udcff",
)  # fmt: skip
STDIN = {
    "text": b"a dog .\nhaus 12\n", "empty": b"", "blank": b"\n\n \n", "binary": b"\xff\xfe\x00\n\x80",
    "no end": b"a dog", "odd": "a\u2028b\x85c\x1b[31m\r\n\ufeff日本語\u202e\n".encode(), "long": b"a " * 50_000 + b"\n",
    "json": b'{"a": [1]}\n',
    "many": b"a b c\n" * 300, "word": b"a" * 30_000 + b"\n", "brackets": b"(S (NP a)) ) ((\n", "tabs": b"\ta\t\tb\n",
}  # fmt: skip
STDOUTS = ("file",) * 6 + ("full", "closed", "broken")


class CliCampaign(Campaign[CommandCase]):
    """Runs each command line in the process, as the shell would start it."""

    name = "cli"
    about = "command lines of every verb: odd values, flags and files, odd standard input and output"
    quick, together = 12, 24

    def prepare(self, folder: Path) -> None:
        """Make the files, import the modules of the verbs, and look at the options that they have."""
        from headway.cli.verbs import app

        importlib.import_module("matplotlib.axes")  # a signal that stops its import leaves it broken
        self.shared, self.paths = prepared_files(folder)
        self.flags: dict[str, list[str]] = {}
        for verb in SOUND:
            found = app
            for name in (word for word in verb.split() if word[0] != "("):
                found = found[name]
            flags = {flag for one in found.assemble_argument_collection() for flag in one.names if flag[:2] == "--"}
            self.flags[verb] = sorted(flags) or ["--nosuch"]
        with tempfile.TemporaryDirectory() as place:
            for verb in ("predict", "score"):  # which import most of what others need
                self._run(sound_case(verb), Path(tempfile.mkdtemp(dir=place)))

    def first(self) -> list[CommandCase]:
        """Quick commands as they should be, and a recipe with a mistake."""
        bad = CommandCase((*sound_case("train (dry)").arguments, "model.heads=none"), "train (dry)")
        return [bad, *map(sound_case, ("data split", "predict", "score"))]

    def cases(self) -> SearchStrategy[CommandCase]:
        return st.sampled_from(sorted(SOUND)).flatmap(self._cases_of)

    def _cases_of(self, verb: str) -> SearchStrategy[CommandCase]:
        values = st.one_of(
            st.sampled_from(VALUES), st.sampled_from(FILES).map("@{}@".format), st.integers(-3, 300).map(str)
        )
        change = st.tuples(
            st.sampled_from(("flag", "flag", "flag", "replace", "replace", "alone", "delete", "append", "twice")),
            st.integers(0, 99), st.sampled_from(self.flags[verb]), values,
        )  # fmt: skip
        arguments = st.lists(change, max_size=3).map(lambda changes: _changed(SOUND[verb].split(), changes))
        stdin = st.sampled_from(("text",) * 6 + (*STDIN, "closed"))
        changed = st.builds(CommandCase, arguments, st.just(verb), stdin, st.sampled_from(STDOUTS))
        return st.one_of(st.just(sound_case(verb)), changed, changed, changed)

    def check(self, case: CommandCase, folder: Path) -> None:
        with unharmed(self.shared):
            ended = self._run(case, folder)
        if case == sound_case(case.verb):
            refused = case.verb in REFUSED
            assert (ended.code != 0) == refused, f"exit code {ended.code}: {ended.err}"
        ended.check()

    def _run(self, case: CommandCase, folder: Path) -> Ended:
        verb = " ".join(word for word in case.verb.split() if word[0] != "(")
        arguments = [*verb.split(), *(self._filled(argument, folder) for argument in case.arguments)]
        seconds = 2.0 if verb.startswith(BOUNDED) else 0.0
        stdin = STDIN.get(case.stdin)
        return run_command(arguments, folder, stdin=stdin, stdout=case.stdout, seconds=seconds)

    def _filled(self, argument: str, folder: Path) -> str:
        """The argument with paths in the place of their names; files are copied for the case."""
        for name in PLACE.findall(argument):
            if name in self.paths and not os.path.lexists(folder / name):
                copy_to(self.paths[name], folder / name)
        return PLACE.sub(lambda found: str(folder / found[1]), argument)


def sound_case(verb: str) -> CommandCase:
    """The command line of `SOUND` as it stands there."""
    return CommandCase(tuple(SOUND[verb].split()), verb)


def _changed(arguments: list[str], changes: list[tuple[str, int, str, str]]) -> tuple[str, ...]:
    """A command line after some changes, each at an argument."""
    for kind, at, flag, value in changes:
        index = at % (len(arguments) + 1)
        match kind:
            case "flag":
                arguments = [*arguments, flag, value]
            case "alone":
                arguments = [*arguments, flag]
            case "append":
                arguments = [*arguments, value]
            case "replace":
                arguments = [*arguments[:index], value, *arguments[index + 1 :]]
            case "delete":
                arguments = [*arguments[:index], *arguments[index + 1 :]]
            case "twice":
                arguments = [*arguments, *arguments[index : index + 2]]
    return tuple(arguments)
