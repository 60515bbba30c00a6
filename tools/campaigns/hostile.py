"""Runs, packs, tokenizers, corpora and sentences that a stranger made to execute code, or to reach what is ours."""

from __future__ import annotations

import io
import json
import pickle
import shutil
import sys
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import yaml
from hypothesis.strategies import SearchStrategy

from headway.core.device import machine
from tools.campaigns.campaign import Campaign, unharmed
from tools.campaigns.command_line import Ended, run_command
from tools.campaigns.damage import Damage, damages, files_of, forge, places_of, share
from tools.campaigns.runs import LINES
from tools.campaigns.sample_files import prepared_files

CANARY = "canary"  # the name of the file that code writes where it is executed, in the folder of the case
CODE = f"open({CANARY!r}, 'w').close()\nclass Evil:\n    def __init__(self, *a, **k): pass\n"
# What is opened, imported or started by code that must not run, as Python's audit hooks see it.
EVENTS = ("pickle.find_class", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "subprocess.Popen")


class _Bomb:
    """Writes the canary when it is unpickled."""

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return exec, (CODE,)


BOMB = pickle.dumps(_Bomb())
NAMES = ("evil:Evil", "source.evil:Evil", "vocabulary.evil:Evil", "evil", "run.evil:Evil", "builtins:exec", "os:system",
         "pickle:loads", "torch:load", "headway.mixers.attention:Attention", "..evil:Evil", "evil.py:Evil")  # fmt: skip
TEXTS = (
    "<script>evil()</script>", "</script><script>evil()</script>", "<img src=x onerror=evil()>", "<!--<script>", "]]>",
    "\"><evil a='b'>", "{{data}}", "{{title}}", "javascript:evil()", "&lt;evil&gt;", "\\u003cevil>", "${evil}",
    "`evil`", "\x1b]0;evil\x07", "\x1b[2J\x1b[31m", "\x9b31m", "\u202eevil", "a\nb", "a\x85b", "\x00", "%s%n",
    "../../evil", "/etc/passwd", "=cmd|' /C calc'!A0", "a" * 3000, "\ud800", "日本語" * 500,
)  # fmt: skip
ENTRIES = (
    "../evil.py", "/tmp/evil-of-a-pack", "vocabulary/../../evil.py", "vocabulary/../evil.py", "source/../../../evil.py",
    "vocabulary/a/../../../../evil.py", "vocabulary/..", "vocabulary/./a", "vocabulary/evil.py", "source/evil.py",
    "evil.py",
    "vocabulary\\..\\evil", "./recipe.yaml", "recipe.yaml/", "vocabulary/", "source/../recipe.yaml", "C:evil", "a\x00b",
    "vocabulary/" + "a/" * 200 + "b", "vocabulary/" + "a" * 300, "\x1b]0;x\x07", "source.json", "checkpoints/x", "",
    "manifest.json", "recipe.yaml", "model.safetensors", "README.md", "vocabulary/source/spm.model", "SOURCE/x",
)  # fmt: skip
HARMLESS = (
    "README.md",
    "vocabulary/evil.py",
    "source/evil.py",
    "vocabulary/" + "a/" * 200 + "b",
)  # names that a pack may have
KINDS = (
    "name",
    "name",
    "tokenizer",
    "pickle",
    "zip",
    "zip",
    "text",
    "text",
    "page",
    "huge",
    "damage",
    "source",
    "entity",
)


@dataclass(frozen=True)
class HostileCase:
    """What a stranger does to a run: a `kind` of attack at a share of what can be attacked, with one of its values."""

    kind: str
    run: str
    at: int  # thousandths
    value: int
    damages: tuple[Damage, ...] = ()


class _Tags(HTMLParser):
    """The elements of a page, and their attributes."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found = set[str]()

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.found |= {tag, *(f"{tag}.{name}" for name, _ in attrs)}


def _tags(page: Path) -> set[str]:
    parser = _Tags()
    parser.feed(page.read_text(encoding="utf-8"))
    return parser.found


class HostileCampaign(Campaign[HostileCase]):
    """Uses what strangers made; code that is executed leaves a file, or is seen by an audit hook."""

    name = "hostile"
    about = "runs, packs, tokenizers, treebanks, sentences and labels made to execute code, escape, inject or exhaust"
    quick, together = 34, 17

    def prepare(self, folder: Path) -> None:
        """Make runs, use each once, and note the elements of pages of harmless sentences."""
        self.shared, self.paths = prepared_files(folder)
        self.executed: list[str] = []
        for name in LINES:
            place = folder / f"use-{name}"
            place.mkdir()
            assert self._predict(name, self.paths[name], place, LINES[name]).code == 0
        self.tags = dict[str, set[str]]()
        for name in ("run", "tagger"):
            page = folder / f"{name}.html"
            self._inspect(name, self.paths[name], page, ["a dog ."], folder / f"use-{name}").check()
            self.tags[name] = _tags(page)
        machine()  # which asks `uname` once
        sys.addaudithook(self._heard)

    def _heard(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in EVENTS or (event == "import" and str(arguments[0]).rpartition(".")[2] == "evil"):
            self.executed.append(f"{event} {arguments[0]}")

    def first(self) -> list[HostileCase]:
        """Packs that climb or grow, code that is named or comes with a tokenizer, markup, and orders to terminals."""
        climbs = [index for index, entry in enumerate(ENTRIES) if ".." in entry]
        packs = [HostileCase("zip", "run", at, value) for value in climbs for at in (0, 1)]
        recipe = yaml.load((self.paths["run"] / "recipe.yaml").read_text(encoding="utf-8"), yaml.CSafeLoader)
        places = list(places_of(recipe))
        mixer = share(places.index((recipe["model"]["encoder"]["mixer"], "kind")), len(places))
        named = next(at for at in self._of_recipe((".yaml", ".json")) if (at + mixer) % len(NAMES) == 0)
        key = next(at for at in self._of_recipe((".yaml", ".json", ".jsonl")) if at % 4 == 0)
        title = next(index for index, text in enumerate(TEXTS) if text.startswith("\x1b]"))
        return [
            *packs, HostileCase("zip", "run", 2, ENTRIES.index(HARMLESS[1])), HostileCase("name", "run", named, mixer),
            HostileCase("tokenizer", "tagger", 0, 1), HostileCase("page", "run", 2, 0),
            HostileCase("text", "run", key, title),
        ]  # fmt: skip

    def _of_recipe(self, suffixes: Sequence[str]) -> Iterator[int]:
        """The shares at which the recipe stands among the files with these suffixes."""
        names = [path.name for path in files_of(self.paths["run"]) if path.suffix in suffixes]
        return (at for at in range(1000) if names[at * len(names) // 1000] == "recipe.yaml")

    def cases(self) -> SearchStrategy[HostileCase]:
        return st.builds(
            HostileCase, st.sampled_from(KINDS), st.sampled_from(sorted(LINES)), st.integers(0, 999),
            st.integers(0, 999), damages(least=0, most=2),
        )  # fmt: skip

    def check(self, case: HostileCase, folder: Path) -> None:
        run = folder / "run"
        shutil.copytree(self.paths[case.run], run)
        for place in (folder, run, run / "vocabulary", run / "source"):
            place.mkdir(exist_ok=True)
            (place / "evil.py").write_text(CODE, encoding="utf-8")
        use = folder / "use"
        use.mkdir()
        self.executed.clear()
        sys.path.insert(0, str(folder))
        try:
            with unharmed(self.shared):
                getattr(self, f"_{case.kind}")(case, run, use)
        finally:
            sys.path.remove(str(folder))
            left = [str(path) for path in folder.rglob(CANARY)]
            assert not left, "code was executed"
            assert not self.executed, f"code was executed: {self.executed[0]}"
            there = sorted(path.name for path in folder.iterdir() if path.name[0] != ".")
            assert there == ["evil.py", "run", "use"], f"files that nobody asked for: {there}"

    def _predict(self, name: str, run: Path, folder: Path, lines: bytes) -> Ended:
        recordings = [str(self.paths["wav"])] if name == "speech" else []
        return run_command(["predict", str(run), *recordings, "--device", "cpu"], folder, stdin=lines)

    def _inspect(self, name: str, run: Path, page: Path, sentences: list[str], folder: Path) -> Ended:
        source = folder / "sentences.txt"
        source.write_bytes("".join(f"{line}\n" for line in sentences).encode("utf-8", "surrogatepass"))
        arguments = ["inspect", "page", str(run), "--output", str(page), "--input", str(source), "--device", "cpu"]
        return run_command(arguments, folder)

    def _used(self, case: HostileCase, run: Path, use: Path, lines: bytes | None = None) -> Ended:
        """Predict, and see that each line has one answer, which says nothing to a terminal that is not text."""
        lines = LINES[case.run] if lines is None else lines
        ended = self._predict(case.run, run, use, lines)
        ended.check()
        if case.run in ("run", "other", "dependency", "recurrent", "parser") and not ended.code:
            assert ended.out.count("\n") == lines.count(b"\n") == len(ended.out.splitlines()), "lines are shifted"
        return ended

    def _name(self, case: HostileCase, run: Path, use: Path) -> None:
        """The name of foreign code in the place of some text of the run."""
        files = [path for path in files_of(run) if path.suffix in (".yaml", ".json")]
        path = files[case.at * len(files) // 1000]
        Damage("value", 0, case.value, NAMES[(case.at + case.value) % len(NAMES)])._edit(path)
        forge(run, ["recipe.yaml"])
        self._used(case, run, use)

    def _damage(self, case: HostileCase, run: Path, use: Path) -> None:
        """Any damage, with hashes that fit."""
        for damage in case.damages:
            damage.apply(run, self.paths["run"])
        forge(run, ["recipe.yaml"])
        self._used(case, run, use)

    def _tokenizer(self, case: HostileCase, run: Path, use: Path) -> None:
        """Files of a pretrained tokenizer or encoder that ask for code of their own."""
        run = self._of_tagger(case, run)
        name = "detector" if case.at % 2 else "tagger"
        auto = {f"Auto{kind}": f"evil.Evil{kind}" for kind in ("Tokenizer", "Config", "Model")} | {
            "AutoTokenizer": ["evil.Evil", "evil.Evil"], "AutoModel": "evil--evil.Evil",
        }  # fmt: skip
        changes: list[dict[str, Any]] = [
            {"auto_map": auto}, {"tokenizer_class": "Evil", "auto_map": auto}, {"tokenizer_class": "evil.Evil"},
            {"tokenizer_class": "Evil"}, {"model_type": "evil", "auto_map": auto}, {"architectures": ["Evil"]},
            {"trust_remote_code": True, "auto_map": auto}, {"model_type": "../evil"}, {"_name_or_path": "../evil"},
            {"chat_template": "{{ ''.__class__.__mro__[1].__subclasses__() }}"}, {"custom_pipelines": {"x": auto}},
            {"quantization_config": {"quant_method": "evil"}}, {"model_type": NAMES[case.value % len(NAMES)]},
            {"hidden_size": 10**9}, {"num_hidden_layers": 10**6}, {"vocab_size": 10**12}, {"model_max_length": -1},
            {"dtype": "evil.Evil"}, {"attn_implementation": "evil/evil:Evil"}, {"experts_implementation": "evil"},
            {"_attn_implementation": "kernels-community/evil"}, {"tokenizer_file": "/etc/passwd"},
        ]  # fmt: skip
        names = ("tokenizer_config.json", "config.json", "tokenizer.json", "special_tokens_map.json")
        path = run / "vocabulary" / names[case.at % len(names)]
        content = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        path.write_text(json.dumps(content | changes[case.value % len(changes)]), encoding="utf-8")
        if case.value % 3 == 0:
            (run / "vocabulary" / "tokenizer.json").unlink()
            (run / "vocabulary" / "pytorch_model.bin").write_bytes(BOMB)
        forge(run, [])
        self._predict(name, run, use, b"1\ny\nyes\nA dog .\n").check()

    def _of_tagger(self, case: HostileCase, run: Path) -> Path:
        shutil.rmtree(run)
        shutil.copytree(self.paths["detector" if case.at % 2 else "tagger"], run)
        (run / "vocabulary" / "evil.py").write_text(CODE, encoding="utf-8")
        return run

    def _pickle(self, case: HostileCase, run: Path, use: Path) -> None:
        """A pickle, or torch's zip of one, in the place of a file, or beside it under a name that readers look for."""
        files = files_of(run)
        path = files[case.at * len(files) // 1000]
        content = BOMB
        if case.value % 2:
            buffer = io.BytesIO()
            with zipfile.ZipFile(buffer, "w") as archive:
                archive.writestr("archive/data.pkl", BOMB)
                archive.writestr("archive/version", "3")
            content = buffer.getvalue()
        names = (path.name, "model.pt", "pytorch_model.bin", "model.bin", "data.pkl", "optimizer.pt", "vocab.pickle")
        target = path.with_name(names[case.value % len(names)])
        target.write_bytes(content)
        if case.value % 5 == 0 and path.suffix == ".safetensors":
            path.unlink(missing_ok=True)
        forge(run, [])
        if case.at % 3:
            self._used(case, run, use)
        else:
            recipe = str(run / "recipe.yaml")
            run_command(["train", recipe, "--output", str(run), "--resume"], use).check()

    def _zip(self, case: HostileCase, run: Path, use: Path) -> None:
        """A pack with entries that no pack has, or that are more than they seem."""
        pack = use / "pack.zip"
        shutil.copy(self.paths["zip"], pack)
        entry = zipfile.ZipInfo(ENTRIES[case.value % len(ENTRIES)])
        kind = case.at % 6
        if kind == 1:
            entry.external_attr = 0o120777 << 16  # a symbolic link
        content = {0: CODE.encode(), 1: b"../../evil.py", 2: b"\0" * 3_000_000, 3: BOMB}.get(kind, b"{}")
        with zipfile.ZipFile(pack, "a") as archive:
            archive.writestr(entry, content, zipfile.ZIP_DEFLATED if kind == 2 else zipfile.ZIP_STORED)
        refused = entry.filename not in HARMLESS or kind == 2
        if kind > 3:
            raw = pack.read_bytes()
            at = case.value * len(raw) // 1000
            pack.write_bytes(raw[:at] + bytes([case.at % 256, 255, 0, 255]) + raw[at + 4 :])
            refused = False  # unless the damage says so
        if kind % 2:
            ended = run_command(["inspect", "tables", "parameters", str(pack)], use)
            assert all(path.resolve().is_relative_to(use) for path in use.rglob("*")), "a link out of the run"
        else:
            ended = run_command(["predict", str(pack), "--device", "cpu"], use, stdin=b"a dog .\n")
        ended.check()
        assert not refused, f"a pack with {entry.filename!r} is accepted"
        assert not Path("/tmp/evil-of-a-pack").exists()

    def _source(self, case: HostileCase, run: Path, use: Path) -> None:
        """Code that comes with a pack, and a list of hashes that says where it is."""
        listed: list[Any] = [
            {"evil.py": "0"}, {"../evil.py": "0"}, {"/etc/passwd": "0"}, {"evil.py": None}, {"evil.py": [1]}, [],
            "evil", {"": ""}, {"a\x00": "b"}, {"evil.py": {"a": 1}}, {"evil.py" * 100: "0"},
        ]  # fmt: skip
        (run / "source.json").write_text(json.dumps(listed[case.value % len(listed)]), encoding="utf-8")
        self._name(case, run, use)

    def _text(self, case: HostileCase, run: Path, use: Path) -> None:
        """Sentences, labels and names that terminals and readers of lines act on."""
        text = TEXTS[case.value % len(TEXTS)]
        if case.at % 2:
            line = (text.replace("\n", " ") + "\n").encode("utf-8", "surrogatepass")
            self._used(case, run, use, line * 2)
            return
        files = [path for path in files_of(run) if path.suffix in (".yaml", ".json", ".jsonl")]
        path = files[case.at * len(files) // 1000]
        Damage("value" if case.at % 4 else "key", 0, case.at, text)._edit(path)
        forge(run, [])
        self._used(case, run, use)

    def _page(self, case: HostileCase, run: Path, use: Path) -> None:
        """Sentences and names in a page that is to show them."""
        name = "tagger" if case.at % 2 else "run"
        shutil.rmtree(run)
        named = run.parent / "use" / TEXTS[case.at % len(TEXTS)].translate({0: None, 47: None})[:100].encode(
            "utf-8", "ignore").decode()  # fmt: skip
        shutil.copytree(self.paths[name], run)
        if case.at % 3 == 0 and not named.exists():
            shutil.copytree(self.paths[name], named)
            run = named
        sentences = [TEXTS[(case.value + index) % len(TEXTS)].replace("\n", " ") for index in range(1 + case.at % 3)]
        page = use / "page.html"
        self._inspect(name, run, page, sentences, use).check()
        if page.exists():
            assert not _tags(page) - self.tags[name], f"elements of a stranger: {_tags(page) - self.tags[name]}"

    def _huge(self, case: HostileCase, run: Path, use: Path) -> None:
        """Numbers and lengths that ask for more than there is."""
        numbers = (65536, 10**6, 2**31, 2**40, 10**30)
        path = run / ("recipe.yaml", "manifest.json", "vocabulary/sides.json", "vocabulary/config.json")[case.at % 4]
        if case.at % 5 == 0:
            header = json.dumps({"x": {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 2**42]}}).encode()
            sizes = (len(header), 2**40, 2**63, 0)
            weights = sizes[case.value % 4].to_bytes(8, "little") + header
            (run / "model.safetensors").write_bytes(weights)
        elif case.at % 7 == 0:
            path.write_text("[" * 100_000 + "]" * 100_000, encoding="utf-8")
        else:
            Damage("value", 0, case.value, numbers[case.value % len(numbers)])._edit(path)
        forge(run, ["recipe.yaml"])
        lines = b"a " * 20_000 + b"\n" if case.at % 11 == 0 else None
        self._used(case, run, use, lines)

    def _entity(self, case: HostileCase, run: Path, use: Path) -> None:
        """A treebank whose XML names other files, or grows."""
        secret = use / "secret.txt"
        secret.write_text("hidden-treasure", encoding="utf-8")
        heads = (
            f'<!DOCTYPE c [<!ENTITY e SYSTEM "file://{secret}">]>', f'<!DOCTYPE c SYSTEM "file://{secret}">',
            "<!DOCTYPE c [" + '<!ENTITY a0 "a">' + "".join(
                f'<!ENTITY a{n} "{f"&a{n - 1};" * 10}">' for n in range(1, 12)) + '<!ENTITY e "&a11;">]>',
            f'<!DOCTYPE c [<!ENTITY % p SYSTEM "file://{secret}"> %p; <!ENTITY e "x">]>',
            '<?xml version="1.0"?><!DOCTYPE c [<!ENTITY e "' + "a" * 100_000 + '">]>',
        )  # fmt: skip
        word = ("&e;", "&e;" * 2000, "a")[case.value % 3]
        text = (
            f"{heads[case.at % len(heads)]}<corpus id='c'><body><s id='s1'><graph root='s1_500'><terminals>"
            f"<t id='s1_1' word='{word}' pos='NN'/></terminals><nonterminals><nt id='s1_500' cat='NP'>"
            "<edge idref='s1_1' label='--'/></nt></nonterminals></graph></s></body></corpus>"
        )
        (use / "trees.xml").write_text(text, encoding="utf-8")
        ended = run_command(["data", "make", "trees", str(use / "trees.xml"), "format=words"], use)
        assert "hidden-treasure" not in ended.out + ended.err, "another file was read"
        ended.check()
