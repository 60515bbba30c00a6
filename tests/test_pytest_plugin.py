"""The plugin for pytest: an item a check, nothing where no mixer is named."""

import os
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

from tests.command_server import commands

ROOT = Path(__file__).parents[1]
MIXER = "tests.mixers.test_conformance_report:Own"


def run_pytest(folder: Path, *arguments: str, begin: Path | None = None) -> subprocess.CompletedProcess[str]:
    """pytest in a process of its own with this plugin alone, a copy of one that has imported headway or a new one."""
    (folder / "run.py").write_text("import pytest\n\nraise SystemExit(pytest.main())\n", encoding="utf-8")
    environment = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    return subprocess.run(
        [begin or commands() / "python", "run.py", "-p", "headway.pytest_plugin", "-p", "no:cacheprovider", *arguments],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=120,
    )  # fmt: skip


def test_an_item_a_check(tmp_path: Path) -> None:
    ended = run_pytest(tmp_path, "--headway-mixer", f"{MIXER} dim=6", "-k", "shapes or extend", "-v")
    assert ended.returncode == 0, ended.stdout
    lines = [
        line.partition(" [")[0].partition(" (")[0].strip()
        for line in ended.stdout.splitlines()
        if line.startswith("tests.")
    ]
    assert lines == [
        f"{MIXER} dim=6::shapes, causal PASSED",
        f"{MIXER} dim=6::shapes, both directions PASSED",
        f"{MIXER} dim=6::extend, causal PASSED",
        f"{MIXER} dim=6::extend, both directions SKIPPED",
    ]


def test_a_setting_names_mixers_and_failures_are_words(tmp_path: Path) -> None:
    fault = "'fault=select reads lines as columns'"
    (tmp_path / "pytest.ini").write_text(f"[pytest]\nheadway_mixer =\n    {MIXER} dim=6 {fault}\n", encoding="utf-8")
    (tmp_path / "test_else.py").write_text("def test_else(): pass\n", encoding="utf-8")
    ended = run_pytest(tmp_path, "-k", "rows or else")
    assert ended.returncode == 1
    assert "float64: select gives other rows than those that were asked for: the largest difference is" in ended.stdout
    assert "Traceback" not in ended.stdout
    assert "1 failed, 1 passed, 1 skipped" in ended.stdout
    assert "1 passed in" in run_pytest(tmp_path, "test_else.py").stdout


def test_a_mixer_that_is_not_there(tmp_path: Path) -> None:
    ended = run_pytest(tmp_path, "--headway-mixer", "no_such_module:Mixer")
    assert ended.returncode == pytest.ExitCode.USAGE_ERROR
    assert "ERROR: headway_mixer: cannot import the mixer (No module named 'no_such_module')" in ended.stderr


def test_other_runs_import_nothing_for_it(tmp_path: Path) -> None:
    (tmp_path / "test_else.py").write_text(
        "import sys\n\ndef test_else():\n    assert not {'torch', 'pydantic', 'headway.mixers'} & set(sys.modules)\n",
        encoding="utf-8",
    )
    ended = run_pytest(tmp_path, begin=Path(sys.executable))
    assert "1 passed" in ended.stdout, ended.stdout


def test_the_package_gives_it_to_pytest() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    plugin = import_module(project["entry-points"]["pytest11"]["headway"])
    assert plugin.pytest_addoption
