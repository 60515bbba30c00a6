"""A run in one file: it predicts the same elsewhere, and a hostile one does nothing."""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import pytest
import yaml

import headway
from headway.errors import UserError
from headway.export.export_options import ExportOptions
from headway.export.exporting import export_run
from headway.runs.packing import pack_run, unpack_run
from headway.runs.portable import portable
from tests.conftest import Command, Reversal

CODE = "from headway.mixers.attention import Attention\n\n\nclass Mine(Attention):\n    '''Attention of our own.'''\n"


def test_a_pack_predicts_as_the_run(reversal: Reversal, tmp_path: Path, run_headway: Command) -> None:
    pack = tmp_path / "model.zip"
    assert run_headway("pack", reversal.run, pack).code == 0
    expected = run_headway("predict", reversal.run, stdin="abcd\ncab\n").out
    assert run_headway("predict", pack, stdin="abcd\ncab\n").out == expected
    assert headway.load(pack).predict(["abcd"])[0].text == "dcba"
    assert run_headway("unpack", pack, tmp_path / "run").code == 0
    assert run_headway("predict", tmp_path / "run", stdin="abcd\ncab\n").out == expected
    first = pack.read_bytes()
    pack_run(reversal.run, pack)
    assert pack.read_bytes() == first


def test_a_pack_is_looked_into_and_shipped_as_the_run(
    reversal: Reversal, tmp_path: Path, run_headway: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    pack, page = tmp_path / "model.zip", tmp_path / "page.html"
    pack_run(reversal.run, pack)
    counted = run_headway("inspect", "--parameters", pack, "--json")
    assert counted == run_headway("inspect", "--parameters", reversal.run, "--json")
    ended = run_headway("inspect", pack, "--text", "abcd")
    assert (ended.code, "error: --output: the page of a pack needs a place" in ended.err) == (2, True)
    ended = run_headway("inspect", pack, "--text", "abcd", "--output", page)
    assert (ended.code, page.is_file()) == (0, True), ended.err
    assert "<title>Inside model</title>" in page.read_text(encoding="utf-8")
    given = tmp_path / "given.txt"
    given.write_text("abcd\n", encoding="utf-8")
    ended = run_headway("export", "onnx", pack, "--output", tmp_path / "onnx", "--input", given)
    assert ended.code == 0, ended.err
    card = (tmp_path / "onnx" / "README.md").read_text(encoding="utf-8")
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


@pytest.fixture
def with_code(reversal: Reversal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A pack of a run whose mixer stands in a file that the reader does not have."""
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "mine_packed.py").write_text(CODE, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path / "home")
    pack_run(of_own_mixer(reversal.run, tmp_path, "mine_packed:Mine"), tmp_path / "foreign.zip")
    return tmp_path / "foreign.zip"


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


def predict(pack: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Predict in a process that does not find the code of the fixture."""
    command = [sys.executable, "-m", "headway", "predict", str(pack), *options]
    return subprocess.run(command, input="abcd\n", capture_output=True, text=True, timeout=120, check=False)


def test_code_travels_and_is_asked_for(with_code: Path) -> None:
    refused = predict(with_code)
    assert refused.returncode == 2
    assert "mine_packed:Mine" in refused.stderr
    allowed = predict(with_code, "--allow-code")
    assert (allowed.returncode, allowed.stdout) == (0, "dcba\n"), allowed.stderr


def test_code_is_in_an_export_that_is_a_run(with_code: Path, tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("ab\n", encoding="utf-8")
    options = ExportOptions(output=tmp_path / "model", input=tmp_path / "lines.txt")
    assert export_run("huggingface", with_code, options, {}, allow_code=True).passed
    card = (tmp_path / "model" / "README.md").read_text(encoding="utf-8")
    assert 'headway.load(FOLDER, allow_code=True).predict(["..."])' in card
    allowed = predict(tmp_path / "model", "--allow-code")
    assert (allowed.returncode, allowed.stdout) == (0, "dcba\n"), allowed.stderr


def test_changed_code_is_not_imported(with_code: Path, tmp_path: Path) -> None:
    unpack_run(with_code, tmp_path / "changed")
    (tmp_path / "changed" / "source" / "mine_packed.py").write_text("raise SystemExit(7)\n", encoding="utf-8")
    with pytest.raises(UserError, match="not the code that was packed"):
        headway.load(tmp_path / "changed", allow_code=True)


def test_a_module_of_the_same_name_is_not_taken_for_that_of_a_pack(with_code: Path, tmp_path: Path) -> None:
    other = tmp_path / "other" / "mine_packed.py"
    other.parent.mkdir()
    other.write_text(f"{CODE}\nFACTOR = 2\n", encoding="utf-8")
    unpack_run(with_code, tmp_path / "unpacked")
    sys.modules["mine_packed"] = ModuleType("mine_packed")
    sys.modules["mine_packed"].__file__ = str(other)
    try:
        with pytest.raises(UserError, match="another module of this name is imported already"):
            headway.load(tmp_path / "unpacked", allow_code=True)
    finally:
        del sys.modules["mine_packed"]


def test_an_installed_package_does_not_take_the_place_of_code_in_a_pack(
    reversal: Reversal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, other, pack = tmp_path / "home", tmp_path / "other", tmp_path / "run.zip"
    for folder, text in ((home, CODE), (other, "raise SystemExit(7)\n")):
        (folder / "mine_room").mkdir(parents=True)
        (folder / "mine_room" / "__init__.py").write_text("", encoding="utf-8")
        (folder / "mine_room" / "mixing.py").write_text(text, encoding="utf-8")
    with monkeypatch.context() as here:
        here.syspath_prepend(home)
        pack_run(of_own_mixer(reversal.run, tmp_path, "mine_room.mixing:Mine"), pack)
    monkeypatch.setenv("PYTHONPATH", f"{other}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    allowed = predict(pack, "--allow-code")
    assert (allowed.returncode, allowed.stdout) == (0, "dcba\n"), allowed.stderr
    unpack_run(pack, tmp_path / "unpacked")
    hashes = json.loads((tmp_path / "unpacked" / "source.json").read_text(encoding="utf-8"))
    del hashes["mine_room/__init__.py"]
    (tmp_path / "unpacked" / "source" / "mine_room" / "__init__.py").unlink()
    (tmp_path / "unpacked" / "source.json").write_text(json.dumps(hashes), encoding="utf-8")
    refused = predict(tmp_path / "unpacked", "--allow-code")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "another module of this name would be imported" in refused.stderr


def test_code_that_is_not_found_is_named(with_code: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "home" / "mine_packed.py").unlink()
    sys.modules.pop("mine_packed", None)
    with pytest.raises(UserError, match="the source of mine_packed"):
        pack_run(tmp_path / "run", tmp_path / "again.zip")
    assert not (tmp_path / "again.zip").exists()


def hostile(path: Path, members: dict[str, str], compression: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, text in members.items():
            archive.writestr(name, text)
    return path


@pytest.mark.parametrize(
    ("members", "compression", "message"),
    [
        ({"recipe.yaml": "a", "../evil": "x"}, zipfile.ZIP_STORED, "a run has no such file"),
        ({"recipe.yaml": "a", "vocabulary/../../evil": "x"}, zipfile.ZIP_STORED, "a run has no such file"),
        ({"recipe.yaml": "a", "/evil": "x"}, zipfile.ZIP_STORED, "a run has no such file"),
        ({"recipe.yaml": "a", "setup.py": "x"}, zipfile.ZIP_STORED, "a run has no such file"),
        ({"recipe.yaml": "a" * 10_000}, zipfile.ZIP_DEFLATED, "not compressed"),
        ({"manifest.json": "{}"}, zipfile.ZIP_STORED, "it has no recipe.yaml"),
    ],
)
def test_hostile_packs(tmp_path: Path, members: dict[str, str], compression: int, message: str) -> None:
    pack = hostile(tmp_path / "bad.zip", members, compression)
    with pytest.raises(UserError, match=message):
        unpack_run(pack, tmp_path / "in" / "run")
    assert not list((tmp_path / "in").iterdir())
    assert not (tmp_path / "evil").exists()


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
    with pytest.raises(UserError, match="no such folder"):
        pack_run(reversal.run, tmp_path / "none" / "x.zip")
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


def test_names_of_columns_are_no_code(reversal: Reversal, tmp_path: Path) -> None:
    run = Path(shutil.copytree(reversal.run, tmp_path / "run"))
    tree = yaml.safe_load((run / "recipe.yaml").read_text(encoding="utf-8"))
    tree["data"]["train"] = {"jsonl": "train.jsonl", "columns": ["dc:title", "dc:description"]}
    (run / "recipe.yaml").write_text(yaml.safe_dump(tree), encoding="utf-8")
    assert not [name for name in pack_run(run, tmp_path / "x.zip") if name.startswith("source")]


def test_a_pack_that_is_not_there(tmp_path: Path, run_headway: Command) -> None:
    ended = run_headway("unpack", tmp_path / "none.zip", tmp_path / "run")
    assert ended.code == 2
    assert f"error: FILE.zip: there is no such file; received '{tmp_path / 'none.zip'}'" in ended.err


@pytest.mark.parametrize("kind", ["base", "link"])
def test_no_file_from_outside_of_the_run_is_packed(tmp_path: Path, reversal: Reversal, kind: str) -> None:
    run, secret = shutil.copytree(reversal.run, tmp_path / "run"), tmp_path / "secret.yaml"
    secret.write_text("secret: hunter2\n", encoding="utf-8")
    if kind == "base":
        recipe = (run / "recipe.yaml").read_text(encoding="utf-8")
        (run / "recipe.yaml").write_text(f"base: {secret}\n{recipe}", encoding="utf-8")
    else:
        (run / "vocabulary" / "notes.txt").symlink_to(secret)
    with pytest.raises(
        UserError, match={"base": "base", "link": r"notes\.txt: a run that is packed has no links"}[kind]
    ):
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
