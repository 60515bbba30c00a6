"""Files are written whole or not at all."""

import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal

import pytest

from headway.core.files import (
    check_figure,
    check_output_file,
    check_output_folder,
    exists,
    json_line,
    write_bytes,
    write_json,
    write_text,
)
from headway.core.system import WINDOWS

KINDS: tuple[Literal["any", "file", "folder"], ...] = ("any", "file", "folder")


def test_content_is_written_and_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for content in (b"first, the longer one", b"second", b""):
        write_bytes(path, content)
        assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path]


def test_text_and_json_are_utf8_with_unix_line_ends(tmp_path: Path) -> None:
    write_text(tmp_path / "text", "日本\r\né\n")
    assert (tmp_path / "text").read_bytes() == "日本\r\né\n".encode()
    write_json(tmp_path / "json", {"name": "日本", "values": [1, None]})
    content = (tmp_path / "json").read_text(encoding="utf-8")
    assert "日本" in content
    assert content.endswith("}\n")
    assert json.loads(content) == {"name": "日本", "values": [1, None]}


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_a_failure_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    path = tmp_path / "file"
    write_bytes(path, b"old")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(*((os, "fsync", full) if failing == "fsync" else (Path, "replace", full)))
    with pytest.raises(OSError, match="No space left"):
        write_bytes(path, b"new and longer")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


HALF = """
import os, signal, sys
from pathlib import Path
from headway.core.files import whole_file

with whole_file(Path("file")) as file:
    file.write(b"x" * 10**6)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(not hasattr(os, "O_TMPFILE"), reason="only Linux has files without a name")
def test_a_killed_process_leaves_no_temporary_file(tmp_path: Path) -> None:
    assert subprocess.run([sys.executable, "-c", HALF], cwd=tmp_path, check=False).returncode == -signal.SIGKILL
    assert list(tmp_path.iterdir()) == []


def test_without_proc_the_content_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_such_file(*_: object, **__: object) -> None:
        raise FileNotFoundError

    monkeypatch.setattr(os, "link", no_such_file)
    write_bytes(tmp_path / "file", b"content")
    assert (tmp_path / "file").read_bytes() == b"content"
    assert list(tmp_path.iterdir()) == [tmp_path / "file"]


@pytest.mark.parametrize("named", [True, False])
def test_a_full_disk_is_told_by_the_name_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: bool
) -> None:
    whole = Path.open

    def full(path: Path, *given: Any, **options: Any) -> Any:
        if path.parent != tmp_path:
            return whole(path, *given, **options)
        raise OSError(errno.ENOSPC, "No space left on device", *[str(path)][:named])

    monkeypatch.setattr("headway.core.files.open_unnamed", lambda folder: None)
    monkeypatch.setattr(Path, "open", full)
    with pytest.raises(OSError, match="No space left") as ended:
        write_bytes(tmp_path / "file", b"content")
    assert ended.value.filename == str(tmp_path / "file")


def test_content_is_on_disk_before_the_name_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Renaming before the content is synced could leave an empty file after a power cut."""
    done: list[str] = []
    sync, replace = os.fsync, Path.replace
    monkeypatch.setattr(os, "fsync", lambda descriptor: (done.append("sync"), sync(descriptor)))
    monkeypatch.setattr(Path, "replace", lambda path, target: (done.append("rename"), replace(path, target)))
    write_bytes(tmp_path / "file", b"content")
    assert done == [
        "sync",
        "rename",
        *(() if WINDOWS else ("sync",)),
    ]  # the content, the name, the folder that holds the name


def test_what_exists(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert [exists(tmp_path / "file", kind) for kind in KINDS] == [True, True, False]
    assert [exists(tmp_path, kind) for kind in KINDS] == [True, False, True]
    assert not any(exists(tmp_path / name, kind) for name in ("nothing", "a" * 300, "a\0b") for kind in KINDS)


def test_places_that_cannot_be_written_are_found(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path, tmp_path / "no" / "x", tmp_path / "file" / "x", Path("n" * 300) / "x"):
        with pytest.raises(ValueError, match="folder"):
            check_output_file(path)
    for path in (tmp_path / "file", tmp_path / "file" / "x"):
        with pytest.raises(ValueError, match="folder"):
            check_output_folder(path)
    with pytest.raises(ValueError, match="nothing that is written is compressed"):
        check_output_file(tmp_path / "out.gz")
    with pytest.raises(ValueError, match="a figure's format is the suffix of its name"):
        check_figure(tmp_path / "x.gif")
    for path in (tmp_path / "new", tmp_path / "file", Path("/dev/null"), Path("-")):
        assert check_output_file(path) == path
    for path in (tmp_path / "new" / "deep", tmp_path):
        assert check_output_folder(path) == path


def test_a_file_is_replaced_in_its_folder_which_must_be_writable_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    shut = {tmp_path, Path("/dev")}
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) not in shut)
    for path in (tmp_path / "file", tmp_path / "new"):
        with pytest.raises(ValueError, match="no file can be written there"):
            check_output_file(path)
    assert check_output_file(Path("/dev/null")) == Path("/dev/null")


def test_a_device_stays_one_and_a_full_disk_has_its_name() -> None:
    write_bytes(Path("/dev/null"), b"x")
    assert not Path("/dev/null").is_file()
    with pytest.raises(OSError, match="No space left") as error:
        write_bytes(Path("/dev/full"), b"x")
    assert error.value.filename == "/dev/full"


@pytest.mark.skipif(WINDOWS, reason="Windows has no such names")
def test_standard_output_is_written_to_by_any_of_its_names(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # as where another user has opened it
    monkeypatch.chdir(tmp_path)
    for name in ("-", "/dev/stdout", "/dev/fd/1"):
        path = check_output_file(Path(name))
        assert path is not None
        write_bytes(path, b"x")
    assert capfdbinary.readouterr().out == b"xxx"
    assert not list(tmp_path.iterdir())


def test_json_is_one_line_for_every_reader() -> None:
    text = "".join(map(chr, range(0x100))) + "\u2028\u2029é日"
    line = json_line({text: [text]})
    assert len(line.splitlines()) == 1
    assert not any(ord(character) < 0x20 or 0x7F <= ord(character) < 0xA0 for character in line)
    assert json.loads(line) == {text: [text]}
    assert "é日" in line


def test_the_file_of_a_link_is_written_and_the_link_stays(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "old").write_text("old", encoding="utf-8")
    (tmp_path / "there").symlink_to("old")
    (tmp_path / "latest").symlink_to("below/new")
    (tmp_path / "nowhere").symlink_to("none/new")
    for link in ("there", "latest"):
        path = check_output_file(tmp_path / link)
        assert path is not None
        write_bytes(path, b"new")
        assert (tmp_path / link).is_symlink()
        assert (tmp_path / link).read_bytes() == b"new"
    with pytest.raises(ValueError, match="there is no such folder"):
        check_output_file(tmp_path / "nowhere")


def test_what_standard_output_goes_to_is_written_on(tmp_path: Path) -> None:
    """A new file in its place would be without what others wrote, and theirs would be lost with the old one."""
    code = "from pathlib import Path; from headway.core.files import *; write_text(Path('out'), 'b\\n'); print('c')"
    with (tmp_path / "out").open("wb", buffering=0) as file:
        file.write(b"a\n")
        subprocess.run([sys.executable, "-c", code], stdout=file, cwd=tmp_path, check=True)
    assert (tmp_path / "out").read_bytes().split() == [b"a", b"b", b"c"]


def test_no_link_is_followed_where_a_file_is_written_first(tmp_path):
    (tmp_path / "precious").write_text("mine")
    (tmp_path / f".page.html.{os.getpid()}.tmp").symlink_to(tmp_path / "precious")
    write_text(tmp_path / "page.html", "text")
    assert (tmp_path / "precious").read_text() == "mine"
    assert (tmp_path / "page.html").read_text() == "text"
