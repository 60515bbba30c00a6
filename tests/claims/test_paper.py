"""A paper in one file: packed where it was trained, and decided again elsewhere from its outputs."""

import json
import shutil
import zipfile
from pathlib import Path

import pytest

from headway.claims.claims import ClaimPath
from headway.claims.paper import PAPER, pack_paper
from headway.claims.reproduce import reproduce
from headway.comparison.options import ReproduceOptions
from tests.conftest import Command


@pytest.fixture(scope="module")
def paper(place: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pack of a claim file with its runs."""
    made = tmp_path_factory.mktemp("paper")
    claims, data = place / "claims", place / "data"
    options = ReproduceOptions(claims=claims, data=data, output=made / "out", yes=True)
    assert reproduce(ClaimPath.parse("nobody2024/words"), options)[1] == 0
    pack_paper(claims / "nobody2024-words.yaml", made / "out", made / "paper.zip")
    return made / "paper.zip"


def test_a_paper_is_replayed_elsewhere(
    paper: Path, place: Path, tmp_path: Path, run_headway: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert str(place) not in paper.read_bytes().decode(errors="ignore"), "no folder of the other machine"
    ended = run_headway("reproduce", paper, "--data", place / "data", "--output", "new", "--yes")
    assert ended.code == 0, ended.err
    assert "replayed: same verdicts" in ended.out
    cells = tmp_path / "new" / "nobody2024-words" / "cells"
    assert sorted(path.name for path in cells.iterdir() if path.is_dir()) == ["narrow-1", "ngram-1", "wide-1"]
    assert not list(cells.rglob("*.safetensors")), "nothing was trained"
    with zipfile.ZipFile(paper) as old, zipfile.ZipFile(tmp_path / "other.zip", "w") as new:
        for name in reversed(old.namelist()):
            new.writestr(name, old.read(name))
    ended = run_headway(
        "reproduce", tmp_path / "other.zip", "--data", place / "data", "--output", tmp_path / "new", "--yes"
    )
    assert (ended.code, "another pack was replayed" in ended.err) == (2, True)


def test_what_is_missing_is_trained(paper: Path, place: Path, tmp_path: Path, run_headway: Command) -> None:
    with zipfile.ZipFile(paper) as old, zipfile.ZipFile(tmp_path / "part.zip", "w") as new:
        for name in old.namelist():
            if "/wide-1/" not in name:
                new.writestr(name, old.read(name))
    ended = run_headway("reproduce", tmp_path / "part.zip", "--data", place / "data", "--output", tmp_path, "--yes")
    assert ended.code in (0, 1), ended.err  # another machine may train other weights
    trained = (tmp_path / "nobody2024-words" / "cells").glob("*/model.safetensors")
    assert [path.parent.name for path in trained] == ["wide-1"]


def test_outputs_of_other_test_sets_decide_nothing(
    paper: Path,
    place: Path,
    tmp_path: Path,
    run_headway: Command,
) -> None:
    shutil.copytree(place / "data", tmp_path / "data")
    with (tmp_path / "data" / "test.tsv").open("a", encoding="utf-8") as file:
        file.write("ab\tba\n")
    ended = run_headway("reproduce", paper, "--data", tmp_path / "data", "--output", tmp_path / "new", "--yes")
    assert (ended.code, "other test sets" in ended.err, "test.tsv" in ended.err) == (2, True, True)


@pytest.mark.parametrize("name", ["../out", "/out", "runs/../../out", ".bashrc"])
def test_no_file_leaves_the_folder(name: str, tmp_path: Path, run_headway: Command) -> None:
    with zipfile.ZipFile(tmp_path / "bad.zip", "w") as archive:
        archive.writestr(PAPER, json.dumps({}))
        archive.writestr(name, "x")
    ended = run_headway("reproduce", tmp_path / "bad.zip", "--output", tmp_path / "new", "--yes")
    assert (ended.code, name in ended.err) == (2, True)
    assert not list((tmp_path / "new").glob("paper-*"))
