"""Exports travel to a hub and back, whole, and what is no export does not leave the machine."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import headway
from tests.conftest import Command, Reversal
from tests.export.local_hub import LocalHub, local_hub

pytest.importorskip("huggingface_hub")


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[LocalHub]:
    """A hub on this machine, which no token of the user is sent to."""
    with local_hub() as server:
        monkeypatch.setenv("HF_ENDPOINT", server.address)
        monkeypatch.setenv("HF_TOKEN", "hf_of_this_test_alone")
        monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
        yield server


@pytest.fixture(scope="module")
def folder(reversal: Reversal, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An export that headway loads: the run itself, in safetensors."""
    from headway.export.exporting import open_run
    from headway.export.run_copy import copy_run

    folder = tmp_path_factory.mktemp("hub") / "export"
    copy_run(open_run(reversal.run), folder)
    (folder / "README.md").write_text("---\nlicense: other\n---\n\n# A model\n", encoding="utf-8")
    (folder / "parity.json").write_text("{}\n", encoding="utf-8")
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    """The files of a folder."""
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_what_was_pushed_is_pulled_and_loaded(
    run_headway: Command, hub: LocalHub, folder: Path, tmp_path: Path
) -> None:
    code, out, err = run_headway("push", folder, "someone/reversal")
    assert (code, out.startswith(f"{hub.address}/someone/reversal/commit/")) == (0, True), err
    assert hub.repositories["someone/reversal"] == contents(folder)
    assert hub.commits == ["someone/reversal"]
    code, _, err = run_headway("pull", "someone/reversal", "--output", tmp_path / "pulled")
    assert code == 0, err
    assert contents(tmp_path / "pulled") == contents(folder)
    assert headway.load(tmp_path / "pulled", device="cpu").predict(["abcd"])[0].text == "dcba"


def test_no_such_repository(run_headway: Command, hub: LocalHub, tmp_path: Path) -> None:
    code, _, err = run_headway("pull", "someone/nothing", "--output", tmp_path / "pulled")
    assert (code, "the hub has no such repository" in err) == (2, True), err
    assert not (tmp_path / "pulled").exists()


def test_no_such_revision(run_headway: Command, hub: LocalHub, folder: Path, tmp_path: Path) -> None:
    assert run_headway("push", folder, "someone/reversal").code == 0
    code, _, err = run_headway("pull", "someone/reversal", "--output", tmp_path / "pulled", "--revision", "v9")
    assert (code, err.startswith("error: --revision: the repository has no such revision (")) == (2, True), err
    assert not (tmp_path / "pulled").exists()


def test_no_such_name(run_headway: Command, hub: LocalHub, folder: Path) -> None:
    code, _, err = run_headway("push", folder, "no such name")
    assert (code, "the hub has no such repository" in err) == (2, True), err
    assert not hub.commits


def test_a_hub_out_of_order(
    run_headway: Command, hub: LocalHub, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    hub.broken = True
    code, _, err = run_headway("push", folder, "someone/reversal")
    assert (code, "did not answer as it should" in err) == (1, True), err
    code, _, err = run_headway("pull", "someone/reversal", "--output", tmp_path / "pulled")
    assert (code, "the hub" in err) == (1, True), err
    assert not (tmp_path / "pulled").exists()


@pytest.mark.parametrize("endpoint", ["http://127.0.0.1:9", "nonsense"])
def test_no_hub_there(
    run_headway: Command, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, endpoint: str
) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    monkeypatch.setenv("HF_ENDPOINT", endpoint)
    for command in (("push", folder, "a/b"), ("pull", "a/b", "--output", tmp_path / "pulled")):
        code, _, err = run_headway(*command)
        assert (code, f"the hub (HF_ENDPOINT={endpoint}) did not answer as it should" in err) == (1, True), err


def test_a_folder_that_is_no_export(run_headway: Command, hub: LocalHub, reversal: Reversal) -> None:
    code, _, err = run_headway("push", reversal.run, "someone/reversal")
    assert (code, "this folder is no export: it has no parity.json" in err) == (2, True), err
    assert not hub.repositories


def test_what_is_there_is_kept(run_headway: Command, hub: LocalHub, tmp_path: Path) -> None:
    code, _, err = run_headway("pull", "someone/reversal", "--output", tmp_path)
    assert (code, "there is something there already" in err) == (2, True), err
