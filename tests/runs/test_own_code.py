"""Code that a run names by import path: its source is found, and a change of it is told."""

import json
import sys
import sysconfig
from importlib import metadata
from pathlib import Path

import pytest
import yaml

from headway.core.files import sha256
from headway.runs.packing import changed_code, code_hashes, code_versions
from tests.conftest import Command

SCHEDULE = "from headway.optimizers.schedules import Constant\n\n\nclass Saw(Constant):\n    'Of our own.'\n"


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A recipe whose schedule stands in `saw_schedule.py` beside it."""
    (tmp_path / "saw_schedule.py").write_text(SCHEDULE, encoding="utf-8")
    (tmp_path / "data.tsv").write_text("a b\tb a\n" * 8, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "saw_schedule", raising=False)
    tree = {
        "data": {"train": {"tsv": str(tmp_path / "data.tsv")}},
        "vocabulary": {"kind": "whitespace"},
        "model": {"dim": 8, "heads": 2, "feed_forward": 8, "encoder": {"layers": 1}, "decoder": {"layers": 1}},
        "optimizer": {"schedule": "saw_schedule:Saw"},
        "training": {"updates": 2, "checkpoint_every": 1, "batch_tokens": 32, "precision": "float32"},
    }
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(tree), encoding="utf-8")
    return tmp_path / "recipe.yaml"


def test_sources_are_found_once_without_importing_them(recipe: Path) -> None:
    tree = yaml.safe_load(recipe.read_text(encoding="utf-8"))
    tree["model"] = [{"kind": "saw_schedule:Other"}, {"columns": {"x": "dc:title"}}]
    source = recipe.parent / "saw_schedule.py"
    assert code_hashes(tree) == {"saw_schedule.py": sha256(source)}
    assert "saw_schedule" not in sys.modules


def test_the_source_of_a_package_is_its_own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "mine_package"
    package.mkdir()
    for name in ("__init__.py", "parts.py"):
        (package / name).write_text("", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    found = code_hashes(["mine_package:Mine", "mine_package.parts:Part"])
    assert list(found) == ["mine_package/__init__.py", "mine_package/parts.py"]


def test_what_code_imports_from_beside_itself_is_a_part_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {
        "mine_top.py": "import json, torch, headway, mine_helper\n",
        "mine_helper.py": "def late():\n    from mine_parts.deep import inner\n",
        "mine_other.py": "",
        "mine_parts/__init__.py": "",
        "mine_parts/deep/__init__.py": "from . import inner\nfrom ..shared import nothing\n",
        "mine_parts/deep/inner.py": "from mine_parts.shared import nothing\n",
        "mine_parts/shared.py": "nothing = 0\n",
        "mine_parts/unused.py": "",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    expected = sorted(files.keys() - {"mine_other.py", "mine_parts/unused.py"})
    assert code_hashes("mine_top:Mine") == {name: sha256(tmp_path / name) for name in expected}
    inner = code_hashes("mine_parts.deep.inner:Mine")
    assert sorted(inner) == [name for name in expected if name.startswith("mine_parts/")]


def test_installed_packages_are_no_part_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in {"mine_plug.py": "import mine_library\n", "mine_library.py": ""}.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sysconfig, "get_paths", lambda: {"purelib": str(tmp_path)})
    assert list(code_hashes("mine_plug:Mine")) == ["mine_plug.py"]
    assert list(code_hashes("torch.optim.radam:RAdam")) == ["torch/optim/radam.py"]
    assert code_versions("torch.optim.radam:RAdam") == {"torch": metadata.version("torch")}


def test_code_without_a_file_has_no_hash() -> None:
    for name in ("__main__:Mine", "no_such_module:Mine", "sys:Mine", "array:Mine"):
        assert code_hashes({"kind": name}) == {}


def test_files_that_are_gone_have_changed_and_new_ones_have_not() -> None:
    assert changed_code({"a.py": "1", "b.py": "2", "c.py": "3"}, {"a.py": "1", "b.py": "4", "d.py": "5"}) == [
        "b.py", "c.py",
    ]  # fmt: skip


def test_code_that_has_changed_is_told_where_a_run_goes_on_or_predicts(recipe: Path, run_headway: Command) -> None:
    run, source = recipe.parent / "run", recipe.parent / "saw_schedule.py"
    assert run_headway("train", recipe, "--output", run).code == 0
    manifest = json.loads((run / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["code"] == {"saw_schedule.py": sha256(source)}
    going_on = ("train", recipe, "training.updates=3", "--output", run, "--resume")
    predicting = ("predict", run, "--allow-code")
    for changed in (False, True):
        if changed:
            source.write_text(f"{SCHEDULE}\n# another version\n", encoding="utf-8")
        predicted = run_headway(*predicting, stdin="a b\n")
        assert predicted.code == 0, predicted.err
        assert (f"{run}: saw_schedule.py is not as it was in training" in predicted.err) == changed
        resumed = run_headway(*going_on)
        assert resumed.code == 0, resumed.err
        assert ("saw_schedule.py has changed since this run began" in resumed.err) == changed
