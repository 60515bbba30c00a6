"""The release: what the package is built of, and the files that build, test and publish it elsewhere."""

import os
import re
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from headway.core.files import shipped
from headway.core.version import VERSION
from tools.release import IMAGE, WHEEL, notes, pages, source, starts

REPOSITORY = Path(__file__).parents[1]
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
WORKFLOWS = sorted((REPOSITORY / ".github" / "workflows").glob("*.yml"))


def steps(path: Path) -> list[dict[str, object]]:
    """All steps of a workflow's jobs."""
    jobs = yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"]
    return [step for job in jobs.values() for step in job["steps"]]


def test_the_version_is_one() -> None:
    citation = yaml.safe_load((REPOSITORY / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == VERSION


def test_pages_install_what_there_is() -> None:
    named = source()
    assert named == WHEEL or named.startswith("https://")
    first = re.compile(r"pip install (?:--quiet )?(headway\S*?)(?=[\\\"'`,\s])")
    for path in pages():
        text = path.read_text(encoding="utf-8")
        assert set(first.findall(text)) <= {named}, path
        assert not re.search(r"colab\.research|git clone REPOSITORY|github\.com/OWNER", text), path


def test_notes_are_those_of_the_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tools.release.ROOT", tmp_path)
    changes = tmp_path / "CHANGELOG.md"
    changes.write_text(f"# Changelog\n\n## {VERSION} (2026-01-01)\n\n- New.\n\n## 0.0.1\n\n- Old.\n", encoding="utf-8")
    assert notes() == "- New.\n"
    changes.write_text(f"## Unreleased\n\n- Newer.\n\n## {VERSION}\n\n- New.\n", encoding="utf-8")
    with pytest.raises(SystemExit, match="under Unreleased"):
        notes()


def test_the_context_of_the_image_is_complete() -> None:
    copied = re.findall(
        r"^COPY (.*) /packages/$", (REPOSITORY / "Dockerfile").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert [name for line in copied for name in line.split()] == ["constraints.txt", "dist/*.whl"]
    assert {"Dockerfile", "constraints.txt", f"dist/{WHEEL}"} == set(IMAGE)


def test_versions_of_python_that_are_named_are_tested() -> None:
    named = [match[1] for each in PROJECT["classifiers"] if (match := re.search(r"Python :: (3\.\d+)$", each))]
    tests = yaml.safe_load((REPOSITORY / ".github" / "workflows" / "test.yml").read_text(encoding="utf-8"))
    matrix = tests["jobs"]["test"]["strategy"]["matrix"]
    assert named == ["3.11", "3.12", "3.13", "3.14"] == matrix["python"]
    assert {name.partition("-")[0] for name in matrix["system"]} == {"ubuntu", "windows", "macos"}
    systems = {each.split(" :: ")[-1] for each in PROJECT["classifiers"] if each.startswith("Operating System")}
    assert systems == {"Linux", "Windows", "MacOS X"}


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_call_what_there_is(path: Path) -> None:
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    extras, called = PROJECT["optional-dependencies"], list[str]()
    for step in steps(path):
        assert ("run" in step) != ("uses" in step)
        if "uses" in step:
            assert re.fullmatch(r"[\w.-]+/[\w./-]+@\S+", str(step["uses"]))
        text = str(step.get("run", ""))
        called.append(text)
        for target in re.findall(r"\bmake ([\w-]+)", text):
            assert re.search(rf"^{target}:", makefile, re.MULTILINE)
        for names in re.findall(r"\.\[([\w,-]+)\]", text):
            assert set(names.split(",")) <= set(extras)
        for named in re.findall(r"\b(tests/[\w/.-]+)", text):
            assert (REPOSITORY / named).exists()
        assert "http" not in text
    assert any(called)


def test_only_the_job_that_publishes_may() -> None:
    jobs = yaml.safe_load((REPOSITORY / ".github" / "workflows" / "publish.yml").read_text(encoding="utf-8"))["jobs"]
    may = {name for name, job in jobs.items() if job.get("permissions", {}).get("id-token") == "write"}
    assert may == {"publish"}
    assert not any("password" in str(step) or "secrets" in str(step) for job in jobs.values() for step in job["steps"])


def test_the_image_installs_this_package() -> None:
    lines = (REPOSITORY / "Dockerfile").read_text(encoding="utf-8").splitlines()
    words = [line.split()[0] for line in lines if line and line[0].isupper()]
    assert words[0] == "FROM"
    assert set(words) <= {"FROM", "ARG", "ENV", "WORKDIR", "COPY", "RUN", "USER", "EXPOSE", "ENTRYPOINT", "CMD"}
    assert words.index("USER") < words.index("ENTRYPOINT")  # nothing runs as root
    (extras,) = [line.partition("=")[2] for line in lines if line.startswith("ARG EXTRAS=")]
    assert set(extras.split(",")) <= set(PROJECT["optional-dependencies"])


@pytest.mark.parametrize("name", ["recipes", "claims"])
def test_what_is_shipped_is_found_where_links_are_files(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert any(shipped(name).rglob("*.yaml"))
    package = tmp_path / "src" / "headway"
    (package / "experiments").mkdir(parents=True)
    (package / "experiments" / name).write_text(f"../../../{name}", encoding="utf-8")
    monkeypatch.setattr("headway.core.files.__file__", str(package / "core" / "files.py"))
    assert shipped(name) == tmp_path / name


def test_forms_of_issues_have_what_github_needs() -> None:
    forms = sorted((REPOSITORY / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
    assert {path.stem for path in forms} == {"bug", "question", "different-result"}
    for path in forms:
        form = yaml.safe_load(path.read_text(encoding="utf-8"))
        assert form["name"]
        assert form["description"]
        fields = [part for part in form["body"] if part["type"] != "markdown"]
        assert any(field.get("validations", {}).get("required") for field in fields)
        assert all(field["type"] in ("textarea", "input", "dropdown", "checkboxes") for field in fields)
        for names in ([field["id"] for field in fields], [field["attributes"]["label"] for field in fields]):
            assert len(names) == len(set(names)), path.name


@pytest.mark.skipif(os.name == "nt", reason="the name on PATH is a shell script")
def test_a_name_without_a_python_does_not_try_the_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "python3.98").write_text("#!/bin/sh\nexit 127\n")
    (tmp_path / "python3.98").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert [starts(python) for python in ("python3.98", "python3.99", sys.executable)] == [False, False, True]
