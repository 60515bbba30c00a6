"""The cache folder, work in progress and growing arrays."""

import errno
import os
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest

from headway.core.errors import HeadwayError, RunError, UserError
from headway.core.storage import (
    GrowingArray,
    cache_folder,
    check_new,
    hashes_of,
    keep_first,
    keep_folder,
    kept_folder,
    kept_value,
    put_in_place,
    read_array,
    workspace,
)


def test_a_link_to_nothing_is_something(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("nowhere")
    check_new(tmp_path / "free", "output")
    with pytest.raises(UserError, match=r"output: there is something there already; received .*link"):
        check_new(tmp_path / "link", "output")


def test_cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HEADWAY_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.delenv("HEADWAY_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "headway"


@pytest.mark.parametrize("dtype", [np.uint16, np.int32, np.int64])
def test_growing_array(tmp_path: Path, dtype: type[np.integer]) -> None:
    path = tmp_path / "array.npy"
    with GrowingArray(path, dtype):
        pass
    assert len(read_array(path)) == 0
    with GrowingArray(path, dtype) as array:
        for end in (0, 3, 12_345):
            array.append(np.arange(end))
    grown = read_array(path)
    assert (type(grown), grown.dtype, grown.flags.writeable) == (np.ndarray, dtype, False)
    np.testing.assert_array_equal(grown, np.r_[0:3, 0:12_345].astype(dtype))
    np.testing.assert_array_equal(np.load(path, allow_pickle=False), grown)


def test_an_array_goes_on_after_what_was_synced(tmp_path: Path) -> None:
    path = tmp_path / "array.npy"
    with pytest.raises(KeyError), GrowingArray(path, np.int32) as array:  # noqa: PT012
        array.append(np.arange(7))
        array.sync()
        array.append(np.arange(1000))
        raise KeyError
    with GrowingArray(path, np.int32, 7) as array:
        array.append(np.array([70, 71]))
        assert array.length == 9
    assert read_array(path).tolist() == [*range(7), 70, 71]
    assert path.stat().st_size == 128 + 9 * 4


def test_a_folder_of_a_killed_process_is_gone_on_with_by_one_other(tmp_path: Path) -> None:
    kept, seen = tmp_path / "kept", list[list[str]]()

    def make(folder: Path) -> None:
        seen.append([path.name for path in folder.iterdir()])
        (folder / "whole").write_text("x", encoding="utf-8")
        if len(seen) == 1:
            raise KeyboardInterrupt
        if len(seen) == 2:  # while this one works, another begins anew, and is the first to be ready
            assert kept_folder(kept, make, read_whole, resumable=True) == "x"

    with pytest.raises(KeyboardInterrupt):
        kept_folder(kept, make, read_whole, resumable=True)
    assert kept_folder(kept, make, read_whole, resumable=True) == "x"
    assert seen == [[], ["whole"], []]
    assert {path.name for path in tmp_path.iterdir()} == {"kept", ".kept.lock"}


@pytest.mark.parametrize(("error", "left"), [(RunError, ["kept.unfinished"]), (OSError, []), (UserError, [])])
def test_errors_that_would_come_again_leave_no_unfinished_folder(
    tmp_path: Path, error: type[Exception], left: list[str]
) -> None:
    def make(folder: Path) -> None:
        raise error("no")

    with pytest.raises(HeadwayError):
        kept_folder(tmp_path / "kept", make, read_whole, resumable=True)
    assert [path.name for path in tmp_path.iterdir() if path.name[0] != "."] == left


def test_a_failed_array_is_not_taken_for_a_whole_one(tmp_path: Path) -> None:
    def fail() -> None:
        with GrowingArray(tmp_path / "array.npy", np.int64) as array:
            array.append(np.arange(9))
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert len(read_array(tmp_path / "array.npy")) == 0


def test_workspace_is_removed(tmp_path: Path) -> None:
    with workspace(tmp_path / "new" / "folder") as one, workspace(tmp_path / "new" / "folder") as other:
        assert one != other
        (one / "file").touch()
        assert one.is_dir()
        assert other.is_dir()
    assert list((tmp_path / "new" / "folder").iterdir()) == []


def test_files_that_libraries_keep_to_their_owner_are_as_readable_as_the_folder(tmp_path: Path) -> None:
    built = tmp_path / "built"
    (built / "below").mkdir(parents=True)
    built.chmod(0o755)
    for name, mode in (("weights", 0o600), ("below/open", 0o644), ("run", 0o700)):
        (built / name).touch()
        (built / name).chmod(mode)
    put_in_place(built, tmp_path / "made")
    modes = {name: (tmp_path / "made" / name).stat().st_mode & 0o777 for name in ("weights", "below/open", "run")}
    assert modes == {"weights": 0o644, "below/open": 0o644, "run": 0o744}


def test_workspaces_of_killed_processes_are_removed(tmp_path: Path) -> None:
    child = os.fork()
    if child == 0:
        try:
            with workspace(tmp_path) as work:
                (work / "file").touch()
                os.kill(os.getpid(), signal.SIGKILL)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    (left,) = tmp_path.iterdir()
    others = [tmp_path / "a-corpus", tmp_path / left.name.replace("@", "x@", 1)]
    for other in others:  # a finished corpus, and the work of another machine
        other.mkdir()
    with workspace(tmp_path) as first:
        assert f"@{os.getpid()}@" in first.name
        assert not left.exists()
        with workspace(tmp_path):
            assert sorted(path for path in tmp_path.iterdir() if path in (first, *others)) == sorted([first, *others])


def test_a_folder_takes_its_name_or_another_was_there_first(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name, encoding="utf-8")
    (tmp_path / "link").symlink_to("nowhere")
    keep_first(tmp_path / "two", tmp_path / "one")
    with pytest.raises(UserError, match="link: a folder is needed there"):
        keep_first(tmp_path / "two", tmp_path / "link")
    for taken in ("one", "link"):
        with pytest.raises(UserError, match=f"{taken}: something was made there while this worked"):
            put_in_place(tmp_path / "two", tmp_path / taken)
    assert (tmp_path / "one" / "file").read_text(encoding="utf-8") == "one"
    assert (tmp_path / "two" / "file").is_file()
    put_in_place(tmp_path / "two", tmp_path / "new")
    assert (tmp_path / "new" / "file").read_text(encoding="utf-8") == "two"


def test_a_user_without_a_home_folder_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("HEADWAY_CACHE")
    monkeypatch.setattr(Path, "home", homeless)
    with pytest.raises(UserError, match=r"HOME: this user has no home folder .*allowed: HEADWAY_CACHE=FOLDER"):
        cache_folder()


def test_a_folder_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        (folder / "part").write_text("x", encoding="utf-8")
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space left"):
        keep_folder(tmp_path / "new", fail)
    assert not list(tmp_path.iterdir())


def read_whole(folder: Path) -> str:
    return (folder / "whole").read_text(encoding="utf-8")


def test_what_is_kept_is_made_once_and_again_where_it_is_damaged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made: list[Path] = []

    def make(folder: Path) -> None:
        made.append(folder)
        (folder / "whole").write_text("x", encoding="utf-8")

    kept = tmp_path / "kinds" / "kept"
    assert [kept_folder(kept, make, read_whole) for _ in range(2)] == ["x", "x"]
    assert (len(made), caplog.messages) == (1, [])

    def swap(file: Path) -> None:
        size, times = file.stat().st_size, (file.stat().st_atime_ns, file.stat().st_mtime_ns)
        file.write_text("y" * size, encoding="utf-8")
        os.utime(file, ns=times)  # as a disk does that loses a bit

    for number, damage in enumerate((swap, Path.unlink), start=2):
        damage(kept / "whole")
        caplog.clear()
        assert [kept_folder(kept, make, read_whole) for _ in range(2)] == ["x", "x"]
        assert len(made) == number
        assert len(caplog.messages) == 1
        assert f"{kept} is damaged" in caplog.text
    shutil.rmtree(kept)
    kept.mkdir()  # of an older version, without hashes
    assert kept_folder(kept, make, read_whole) == "x"


def test_another_process_that_made_it_again_is_not_undone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept, reads = tmp_path / "kept", list[Path]()

    def make(folder: Path) -> None:
        (folder / "whole").write_text("x", encoding="utf-8")

    kept_folder(kept, make, read_whole)

    def read(folder: Path) -> str:
        reads.append(folder)
        if len(reads) == 1:
            raise ValueError("it was damaged, and is made again by another process now")
        return read_whole(folder)

    monkeypatch.setattr("headway.core.storage.shutil.rmtree", None)  # would fail if called
    assert kept_folder(kept, make, read) == "x"


def test_values_are_made_once_and_again_where_they_are_damaged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file, made = tmp_path / "kind" / "value.json", list[int]()

    def make() -> dict[str, int]:
        made.append(1)
        return {"a": 1}

    assert [kept_value(file, make) for _ in range(2)] == [{"a": 1}] * 2
    assert len(made) == 1
    for text in (file.read_text().replace('"a": 1', '"a": 2'), "{", "[]"):
        file.write_text(text)
        caplog.clear()
        assert [kept_value(file, make) for _ in range(2)] == [{"a": 1}] * 2
        assert len(caplog.messages) == 1
    assert kept_value(tmp_path / "kind" / "value.json" / "below.json", make) == {"a": 1}  # which cannot be written


def test_files_are_hashed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWAY_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("headway.core.storage.SETTLED", -1e6)  # the files of this test are new
    files, read = [tmp_path / "a", tmp_path / "b"], list[str]()
    for file in files:
        file.write_text(file.name)

    def digest(path: Path) -> str:
        read.append(path.name)
        return path.read_text()

    assert [hashes_of(files, digest) for _ in range(2)] == [["a", "b"]] * 2
    assert read == ["a", "b"]
    times = files[0].stat().st_atime_ns, files[0].stat().st_mtime_ns
    files[0].write_text("c")
    os.utime(files[0], ns=times)  # the same size, and the times of before
    assert hashes_of(files, digest) == ["c", "b"]
    files[0].replace(files[1])
    assert hashes_of(files[1:], digest) == ["c"]
    files[0].symlink_to(files[1])
    assert hashes_of(files[:1], digest) == ["c"]


def test_the_hash_of_a_file_that_changed_a_moment_ago_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWAY_CACHE", str(tmp_path / "cache"))
    (tmp_path / "a").write_text("a")
    hashes_of([tmp_path / "a"])
    assert not (tmp_path / "cache").exists()


def test_what_is_damaged_and_cannot_be_removed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def make(folder: Path) -> None:
        (folder / "value").write_text("1", encoding="utf-8")

    def read(folder: Path) -> str:
        return (folder / "value").read_text(encoding="utf-8")

    assert kept_folder(tmp_path / "kept", make, read) == "1"
    (tmp_path / "kept" / "value").write_text("2", encoding="utf-8")
    monkeypatch.setattr(shutil, "rmtree", lambda *given, **options: None)  # as where a program has it open
    with pytest.raises(UserError, match="damaged, and a program has it open"):
        kept_folder(tmp_path / "kept", make, read)


def test_an_error_of_work_in_progress_names_what_is_made(tmp_path: Path) -> None:
    for names, output in ((tmp_path, None), (tmp_path / "pack.zip", tmp_path / "pack.zip")):
        with pytest.raises(OSError, match="No space left") as ended, workspace(tmp_path, output) as place:
            raise OSError(errno.ENOSPC, "No space left on device", str(place / "run" / "recipe.yaml"))
        assert ended.value.filename == str(names)
    with pytest.raises(OSError, match="denied") as ended, workspace(tmp_path, tmp_path / "pack.zip"):
        raise OSError(errno.EACCES, "Permission denied", "input.txt")
    assert ended.value.filename == "input.txt"
