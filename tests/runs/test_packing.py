"""A run in one file: it predicts the same elsewhere, and a hostile one does nothing."""

import copy
import json
import os
import py_compile
import shutil
import stat
import sys
import zipfile
from pathlib import Path

import pytest
import yaml

import headway
from headway.core.errors import UserError
from headway.core.files import sha256
from headway.core.registry import foreign_code
from headway.export.export_options import ExportOptions
from headway.export.exporting import export_run
from headway.runs import packing
from headway.runs.packing import pack_run, unpack_run
from headway.runs.run_folder import portable
from tests.conftest import Command, Reversal

CODE = "from headway.mixers.attention import Attention\n\n\nclass Mine(Attention):\n    '''Attention of our own.'''\n"


def test_a_pack_predicts_as_the_run(
    reversal: Reversal, tmp_path: Path, run_headway: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    pack = tmp_path / "model.zip"
    assert run_headway("pack", reversal.run, pack).code == 0
    expected = run_headway("predict", reversal.run, stdin="abcd\ncab\n").out
    assert run_headway("predict", pack, stdin="abcd\ncab\n").out == expected
    assert headway.load(pack).predict(["abcd"])[0].text == "dcba"
    unpack_run(pack, tmp_path / "run")
    assert run_headway("predict", tmp_path / "run", stdin="abcd\ncab\n").out == expected
    monkeypatch.chdir(tmp_path)
    assert run_headway("pack", "run").out.startswith("run.zip: ")
    assert run_headway("pack", "run", "--output", tmp_path / "named.zip").code == 0
    assert (tmp_path / "named.zip").read_bytes() == (tmp_path / "run.zip").read_bytes()
    pack_run(reversal.run, tmp_path / "new" / "again.zip")
    assert (tmp_path / "new" / "again.zip").read_bytes() == pack.read_bytes()


def test_a_pack_is_looked_into_and_shipped_as_the_run(
    reversal: Reversal, tmp_path: Path, run_headway: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    pack, page = tmp_path / "model.zip", tmp_path / "page.html"
    pack_run(reversal.run, pack)
    counted = run_headway("inspect", "tables", "parameters", pack, "--json")
    assert counted == run_headway("inspect", "tables", "parameters", reversal.run, "--json")
    ended = run_headway("inspect", pack, "--text", "abcd")
    assert (ended.code, "error: --output: the page of a pack needs a place" in ended.err) == (2, True)
    ended = run_headway("inspect", pack, "--text", "abcd", "--output", page)
    assert (ended.code, page.is_file()) == (0, True), ended.err
    assert "<title>Inside model</title>" in page.read_text(encoding="utf-8")
    given = tmp_path / "given.txt"
    given.write_text("abcd\n", encoding="utf-8")
    ended = run_headway("export", "huggingface", pack, "--output", tmp_path / "marian", "--input", given)
    assert ended.code == 0, ended.err
    card = (tmp_path / "marian" / "README.md").read_text(encoding="utf-8")
    assert "| 400 | exact_match |" in card
    assert "\n# model\n" in card


def test_no_folder_of_this_machine_is_in_it(reversal: Reversal, tmp_path: Path) -> None:
    pack_run(reversal.run, tmp_path / "model.zip")
    with zipfile.ZipFile(tmp_path / "model.zip") as archive:
        texts = [archive.read(name) for name in archive.namelist() if not name.endswith((".safetensors", ".model"))]
    assert not any(str(reversal.run.parent).encode() in text for text in texts)
    assert portable({"a": ["/x/y.ja", "z.ja"], "b": 3}) == {"a": ["y.ja", "z.ja"], "b": 3}
    assert portable({"from": "hf:/x/opus"}) == {"from": "hf:opus"}


def test_files_of_segmenters_are_no_part_of_it(
    reversal: Reversal, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = shutil.copytree(reversal.run, tmp_path / "run")
    recipe = yaml.safe_load((run / "recipe.yaml").read_text(encoding="utf-8"))
    recipe["text"] = {"source": {"segment": {"kind": "kytea", "model": "/models/jp.bin"}}}
    (run / "recipe.yaml").write_text(yaml.safe_dump(recipe), encoding="utf-8")
    pack_run(run, tmp_path / "run.zip")
    assert "text.source.segment.model: /models/jp.bin is not in the pack; jp.bin has to lie in" in caplog.text
    with zipfile.ZipFile(tmp_path / "run.zip") as archive:
        assert b"model: jp.bin" in archive.read("recipe.yaml")


def of_own_mixer(run: Path, folder: Path, mixer: str) -> Path:
    """The run `run` in `folder`, as if its mixer had been one of its user's own."""
    pack_run(run, folder / "plain.zip")
    unpack_run(folder / "plain.zip", folder / "run")
    recipe, manifest_file = folder / "run" / "recipe.yaml", folder / "run" / "manifest.json"
    recipe.write_text(recipe.read_text(encoding="utf-8").replace("kind: attention", f"kind: {mixer}"), encoding="utf-8")
    manifest = json.loads(manifest_file.read_text(encoding="utf-8"))
    manifest.pop("trained", None)
    manifest_file.write_text(json.dumps(manifest), encoding="utf-8")
    return folder / "run"


def test_code_that_a_run_names_is_no_part_of_its_pack(
    reversal: Reversal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_headway: Command
) -> None:
    home, pack, lines = tmp_path / "home", tmp_path / "foreign.zip", tmp_path / "lines.txt"
    home.mkdir()
    (home / "mine_packed.py").write_text(CODE, encoding="utf-8")
    lines.write_text("ab\n", encoding="utf-8")
    packed = run_headway("pack", of_own_mixer(reversal.run, tmp_path, "mine_packed:Mine"), pack)
    assert "code that the run names is no part of the pack, and is needed where it is used: mine_packed" in packed.err
    monkeypatch.delitem(sys.modules, "mine_packed", raising=False)
    refused = run_headway("predict", pack, stdin="abcd\n")
    assert (refused.code, "allowed: --allow-code where you trust that code" in refused.err) == (2, True)
    missing = run_headway("predict", pack, "--allow-code", stdin="abcd\n")
    assert (missing.code, "No module named 'mine_packed'" in missing.err) == (2, True), missing.err
    monkeypatch.syspath_prepend(home)
    assert run_headway("predict", pack, "--allow-code", stdin="abcd\n").out == "dcba\n"
    options = ExportOptions(output=tmp_path / "model", input=lines)
    with foreign_code(True):
        assert export_run("huggingface", pack, options, {}).passed
    card = (tmp_path / "model" / "README.md").read_text(encoding="utf-8")
    assert 'headway.load(FOLDER, allow_code=True).predict(["..."])' in card


def test_nothing_in_a_run_folder_is_imported(
    reversal: Reversal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_headway: Command
) -> None:
    """Neither source that an older pack has brought, nor what Python compiled of it."""
    run, trap = of_own_mixer(reversal.run, tmp_path, "mine_hidden:Mine"), tmp_path / "executed"
    (run / "source").mkdir()
    file = run / "source" / "mine_hidden.py"
    file.write_text(f"import pathlib\npathlib.Path({str(trap)!r}).touch()\n{CODE}", encoding="utf-8")
    py_compile.compile(str(file))
    (run / "source.json").write_text(json.dumps({file.name: sha256(file)}), encoding="utf-8")
    monkeypatch.delitem(sys.modules, "mine_hidden", raising=False)
    ended = run_headway("predict", run, "--allow-code", stdin="abcd\n")
    assert (ended.code, "No module named 'mine_hidden'" in ended.err) == (2, True)
    assert not trap.exists()


def hostile(path: Path, members: dict[str, str], compression: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, text in members.items():
            archive.writestr(name, text)
    return path


def check_refused(pack: Path, message: str) -> None:
    """Nothing is written of a pack that is refused."""
    place = pack.parent / "in"
    with pytest.raises(UserError, match=message):
        unpack_run(pack, place / "run")
    assert not list(place.iterdir())


@pytest.mark.parametrize(
    ("members", "compression", "message"),
    [
        ({"recipe.yaml": "a" * 10_000}, zipfile.ZIP_DEFLATED, "not compressed"),
        ({"manifest.json": "{}"}, zipfile.ZIP_STORED, "it has no recipe.yaml"),
        ({"recipe.yaml": "a", "vocabulary/A": "x", "vocabulary/a": "x"}, zipfile.ZIP_STORED, "a file twice"),
        ({"recipe.yaml": "a", "vocabulary/\u00e9": "x", "vocabulary/e\u0301": "x"}, zipfile.ZIP_STORED, "a file twice"),
        ({"recipe.yaml": "a", "vocabulary/a": "x", "vocabulary/a/b": "x"}, zipfile.ZIP_STORED, "a file in a file"),
        (
            {"recipe.yaml": "a"} | {f"vocabulary/{n:0100}": "" for n in range(9000)}, zipfile.ZIP_STORED,
            "too many files",
        ),
    ],
    ids=str,
)  # fmt: skip
def test_hostile_packs(tmp_path: Path, members: dict[str, str], compression: int, message: str) -> None:
    check_refused(hostile(tmp_path / "bad.zip", members, compression), message)


@pytest.mark.parametrize(
    "name",
    [
        "../evil", "vocabulary/../../evil", "vocabulary/..", "vocabulary/.", "vocabulary/", "vocabulary//a", "/evil",
        "vocabulary/C:evil", "C:/evil", "vocabulary\\evil", "setup.py", "engines/onnx/model.onnx",
        "source/__pycache__/a.pyc", "vocabulary/\x1b[2J", "vocabulary/" + "\u00e9" * 200, "Recipe.yaml",
    ],
)  # fmt: skip
def test_names_that_no_run_has(tmp_path: Path, name: str) -> None:
    check_refused(hostile(tmp_path / "bad.zip", {"recipe.yaml": "a", name: "x"}), "a run has no such file")
    assert not (tmp_path / "evil").exists()


def test_a_name_that_is_not_utf8(tmp_path: Path) -> None:
    pack = hostile(tmp_path / "bad.zip", {"recipe.yaml": "a", "vocabulary/\u00e9": "x"})
    pack.write_bytes(pack.read_bytes().replace("\u00e9".encode(), b"\xff\xff"))
    check_refused(pack, "this pack cannot be read")


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFIFO, stat.S_IFDIR])
def test_entries_that_are_no_files(tmp_path: Path, kind: int) -> None:
    entry = zipfile.ZipInfo("vocabulary/link")
    entry.external_attr = (kind | 0o777) << 16
    with zipfile.ZipFile(tmp_path / "bad.zip", "w") as archive:
        archive.writestr("recipe.yaml", "a")
        archive.writestr(entry, "/etc/passwd")
    check_refused(tmp_path / "bad.zip", "a run has no such file")


@pytest.mark.parametrize("shift", [0, 1000, -50_000])
def test_entries_that_overlap(tmp_path: Path, shift: int) -> None:
    """A file that is listed many times would become many files of its size."""
    names = ["recipe.yaml", *(f"vocabulary/{number:02}" for number in range(40))]
    with zipfile.ZipFile(tmp_path / "bad.zip", "w") as archive:
        for name in names[:2]:
            archive.writestr(name, "a" * 100_000)
        listed = archive.filelist[1]
        for name in names[2:]:
            again = copy.copy(listed)
            again.filename = again.orig_filename = name
            again.header_offset += shift
            archive.filelist.append(again)
    check_refused(tmp_path / "bad.zip", "lie one in the other")


def test_a_large_pack_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reversal: Reversal) -> None:
    """The end of a zip file above 2 GB is another one."""
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", 1000)
    pack_run(reversal.run, tmp_path / "run.zip")
    monkeypatch.undo()
    assert b"PK\6\7" in (tmp_path / "run.zip").read_bytes()[-98:]
    unpack_run(tmp_path / "run.zip", tmp_path / "run")
    large = {"recipe.yaml": "a"} | {f"vocabulary/{n:0100}": "" for n in range(9000)}
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", 1000)
    check_refused(hostile(tmp_path / "bad.zip", large), "too many files")


def test_what_a_killed_pack_left_is_removed_by_the_next(reversal: Reversal, tmp_path: Path) -> None:
    child = os.fork()
    if child == 0:
        packing.sync = lambda path: os.kill(os.getpid(), 9)
        try:
            pack_run(reversal.run, tmp_path / "run.zip")
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 9
    assert [path.suffix for path in tmp_path.iterdir()] == [".tmp"]
    pack_run(reversal.run, tmp_path / "run.zip")
    assert [path.name for path in tmp_path.iterdir()] == ["run.zip"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("model.safetensors", None, r"bad\.zip: model\.safetensors: .* the weights of this run are missing"),
        ("model.safetensors", b"-", r"bad\.zip: model\.safetensors: this is no pack of a whole run"),
        ("vocabulary", None, "bad.zip: .*this file is missing"),
        ("vocabulary", b"-", "bad.zip: .*this file is not the one that training used"),
    ],
)
def test_a_pack_that_is_no_whole_run_is_not_unpacked(
    tmp_path: Path, reversal: Reversal, name: str, content: bytes | None, message: str
) -> None:
    pack_run(reversal.run, tmp_path / "run.zip")
    with zipfile.ZipFile(tmp_path / "run.zip") as good, zipfile.ZipFile(tmp_path / "bad.zip", "w") as bad:
        changed = next(entry for entry in good.namelist() if entry.startswith(name))
        for entry in good.namelist():
            if entry != changed or content is not None:
                bad.writestr(entry, good.read(entry) + (content or b"") * (entry == changed))
    with pytest.raises(UserError, match=message):
        unpack_run(tmp_path / "bad.zip", tmp_path / "in" / "run")
    assert not list((tmp_path / "in").iterdir())


def test_what_is_no_pack(tmp_path: Path, reversal: Reversal) -> None:
    (tmp_path / "bad.zip").write_bytes(b"PK no zip")
    with pytest.raises(UserError, match="cannot be read"):
        headway.load(tmp_path / "bad.zip")
    with pytest.raises(UserError, match="something there already"):
        unpack_run(tmp_path / "bad.zip", tmp_path)
    with pytest.raises(UserError, match="not a run folder"):
        pack_run(tmp_path, tmp_path / "x.zip")
    before = (reversal.run / "model.safetensors").read_bytes()
    for output in (reversal.run / "model.safetensors", reversal.run / "x.zip", tmp_path):
        with pytest.raises(UserError, match="a pack is no part of what it packs"):
            pack_run(reversal.run, output)
    assert (reversal.run / "model.safetensors").read_bytes() == before
    with pytest.raises(UserError, match=r"a pack is a zip file; received '.*notes.txt'; allowed: a name.zip"):
        pack_run(reversal.run, tmp_path / "notes.txt")
    with pytest.raises(UserError, match="there is something else there already"):
        pack_run(reversal.run, tmp_path / "bad.zip")
    assert (tmp_path / "bad.zip").read_bytes() == b"PK no zip"


def test_a_pack_that_is_not_there(tmp_path: Path, run_headway: Command) -> None:
    ended = run_headway("predict", tmp_path / "none.zip")
    assert ended.code == 2
    assert f"error: {tmp_path / 'none.zip'}: this is not a run folder" in ended.err


LINKS = ("README.md", "metrics.jsonl", "model.safetensors", "manifest.json", "recipe.yaml", "vocabulary",
         "vocabulary/notes.txt")  # fmt: skip


def test_a_base_is_no_part_of_a_run(tmp_path: Path, reversal: Reversal) -> None:
    run, secret = Path(shutil.copytree(reversal.run, tmp_path / "run")), tmp_path / "secret.yaml"
    secret.write_text("secret: hunter2\n", encoding="utf-8")
    recipe = (run / "recipe.yaml").read_text(encoding="utf-8")
    (run / "recipe.yaml").write_text(f"base: {secret}\n{recipe}", encoding="utf-8")
    with pytest.raises(UserError, match="base"):
        pack_run(run, tmp_path / "run.zip")
    assert not (tmp_path / "run.zip").exists()


@pytest.mark.parametrize("name", LINKS)
def test_no_file_from_outside_of_the_run_is_packed(tmp_path: Path, reversal: Reversal, name: str) -> None:
    run, elsewhere = Path(shutil.copytree(reversal.run, tmp_path / "run")), tmp_path / "elsewhere"
    if (run / name).exists():
        (run / name).rename(elsewhere)
    else:
        elsewhere.write_text("hunter2\n", encoding="utf-8")
    (run / name).symlink_to(elsewhere)
    with pytest.raises(UserError, match=f"{name}: a run that is packed has no links"):
        pack_run(run, tmp_path / "run.zip")
    assert not (tmp_path / "run.zip").exists()


def test_a_run_without_its_vocabulary_is_not_packed(tmp_path: Path, reversal: Reversal) -> None:
    run = Path(shutil.copytree(reversal.run, tmp_path / "run"))
    missing = next(path for path in (run / "vocabulary").rglob("*") if path.is_file())
    missing.unlink()
    with pytest.raises(UserError, match=f"{missing.name}: this file is missing"):
        pack_run(run, tmp_path / "x.zip")
    shutil.rmtree(run / "vocabulary")
    with pytest.raises(UserError, match="no vocabulary yet"):
        pack_run(run, tmp_path / "x.zip")
    assert not (tmp_path / "x.zip").exists()
