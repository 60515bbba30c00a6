"""Write files atomically, check output paths, and hash files."""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Literal

from headway.core.errors import UserError, option
from headway.core.system import give_name, move, open_unnamed, sync

COMPRESSED = (".gz", ".xz")  # suffixes of files that can be read, but not written
FIGURES = (".png", ".svg", ".pdf", ".eps", ".jpg", ".webp")  # suffixes of figures

# Characters that JSON does not escape, but that end a line for some readers or control a terminal.
CONTROLS = re.compile("[\x7f-\x9f\u2028\u2029]")


def json_line(value: Any) -> str:
    """The JSON of a value on a single line, with all characters escaped that a reader may take for a line end."""
    text = json.dumps(value, ensure_ascii=False)
    return CONTROLS.sub(lambda control: f"\\u{ord(control[0]):04x}", text)


def exists(path: Path, kind: Literal["any", "file", "folder"] = "any") -> bool:
    """Whether the file or folder exists; False for a name that no file can have.

    `pathlib` raises OSError for such names, so names from users are checked by this function.
    """
    return {"any": os.path.exists, "file": os.path.isfile, "folder": os.path.isdir}[kind](path)


def shipped(name: str) -> Path:
    """A folder that is distributed with headway. In a checkout it is a link, or a file on systems without links."""
    package = Path(__file__).parents[1]
    folder = package / "experiments" / name
    return folder if folder.is_dir() else package.parents[1] / name


def first_existing(path: Path, folders: Sequence[Path], kind: Literal["any", "file", "folder"] = "any") -> Path:
    """The absolute path in the first of `folders` that contains it, or else in the first folder."""
    places = [folder / path for folder in folders]
    return next((place for place in places if exists(place, kind)), places[0]).absolute()


@contextmanager
def named_in_errors(path: Path, temporary: Path | None = None) -> Iterator[None]:
    """Within this context, an OSError without a file name, such as for a full disk, gets the name `path`.

    The name is also replaced if it is `temporary`, which will be renamed to `path`, or a file in it.
    """
    try:
        yield
    except OSError as error:
        named = error.filename if error.filename is None else Path(str(error.filename))
        if error.errno and (named is None or (temporary is not None and named.is_relative_to(temporary))):
            error.filename = str(path)
        raise


def check_output_file(path: Path | None) -> Path | None:
    """The output file, with links resolved. Raises ValueError if it cannot be written, before the work begins."""
    if path is None or _standard_stream(path) is not None:
        return path
    if exists(path, "folder"):
        raise ValueError("this is a folder; give the name of a file")
    if path.suffix in COMPRESSED:
        raise ValueError("nothing that is written is compressed; give a name without .gz or .xz")
    if not exists(path.parent, "folder"):
        raise ValueError("there is no such folder to write to")
    if path.is_symlink() and (not exists(path) or exists(path, "file")):
        return check_output_file(path.resolve())  # the target is replaced, not the link: /dev/stdout may be a link
    replaced = not exists(path) or exists(path, "file")  # written by replacing it, unlike a device
    if (exists(path) and not os.access(path, os.W_OK)) or (replaced and not os.access(path.parent, os.W_OK)):
        raise ValueError("no file can be written there")
    return path


def check_apart(outputs: Mapping[str, Path | None], inputs: Sequence[Path]) -> None:
    """Raise UserError if an output is also an input, or is the same file as another output.

    Args:
        outputs: the output files, by the key of their option.
        inputs: the input files.
    """
    taken = {path.resolve() for path in inputs if exists(path, "file")}
    for key, path in outputs.items():
        if path is None or (exists(path) and not exists(path, "file")):  # a device may have several outputs
            continue
        if path.resolve() in taken:
            what = "this file is read, or another output is written to it"
            raise UserError(what, where=option(key), received=str(path), allowed="a file of its own")
        taken.add(path.resolve())


def check_figure(path: Path | None) -> Path | None:
    """As `check_output_file`. Raises ValueError if the suffix is not a format of figures."""
    if path is not None and path.suffix not in FIGURES:
        raise ValueError(f"a figure's format is the suffix of its name: {', '.join(FIGURES)}")
    return check_output_file(path)


def check_output_folder(path: Path | None) -> Path | None:
    """Raise ValueError if the folder cannot be created or written to."""
    if path is None:
        return None
    above = next(folder for folder in (path, *path.absolute().parents) if exists(folder))
    if not exists(above, "folder"):
        raise ValueError("a folder is needed there, and there is a file" if above == path else f"{above} is no folder")
    if not os.access(above, os.W_OK):
        raise ValueError("no folder can be written there")
    return path


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file atomically: readers, even after a crash, see the old content or the new content.

    Devices, pipes, and the files behind standard output and standard error are written directly.
    """
    with whole_file(path) as file:
        file.write(content)


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """As `write_bytes`, for content that is written in parts. The file appears when the context ends normally."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with named_in_errors(path, temporary):
        stream = _standard_stream(path)
        if stream is not None or (path.exists() and not path.is_file()):
            with path.open("wb") if stream is None else os.fdopen(os.dup(stream), "wb") as device:
                yield device
            return
        try:
            temporary.unlink(missing_ok=True)  # another user may have created a link with this name
            unnamed = open_unnamed(path.parent)
            with unnamed or temporary.open("xb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
                if unnamed is not None:
                    give_name(unnamed, temporary)
            move(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
        sync(path.parent)


def _standard_stream(path: Path) -> int | None:
    """The descriptor of standard output (also called `-`) or standard error if it writes to this file, else None."""
    for stream in (1, 2):
        with suppress(OSError):
            if str(path) == "-" or os.path.samestat(path.stat(), os.fstat(stream)):
                return stream
    return None


def write_text(path: Path, content: str) -> None:
    """As `write_bytes`, for UTF-8 text."""
    write_bytes(path, content.encode())


def write_new_texts(texts: Mapping[Path, str]) -> None:
    """As `write_text`, for several files. Missing folders are created.

    Raises UserError, before anything is written, if a file exists with another text.
    """
    for path, text in texts.items():
        if exists(path) and (not path.is_file() or path.read_bytes() != text.encode()):
            what = "there is a file of this name already, with another text"
            raise UserError(what, where=option("output"), received=str(path), allowed="another folder")
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, text)


def write_json(path: Path, content: Any) -> None:
    """As `write_bytes`, for a value as JSON."""
    write_text(path, json.dumps(content, ensure_ascii=False, indent=1) + "\n")


def remove_leftovers(folder: Path, names: str) -> None:
    """Remove the temporary files and folders of killed processes from `folder`.

    Args:
        folder: the folder.
        names: a regular expression of the names; only `.NAME.tmp` and `.NAME.PROCESS.tmp` are removed.
    """
    temporary = re.compile(rf"\.(?:{names})(?:\.\d+)?\.tmp")
    for path in folder.iterdir():
        if temporary.fullmatch(path.name):
            remove(path)


def remove(path: Path) -> None:
    """Remove a file, a folder with its contents, or a link without its target."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def sha256(path: Path) -> str:
    """The SHA-256 hash of a file, in hexadecimal."""
    with path.open("rb") as file:
        # A memory map is no faster, and would crash the process if another one truncates the file.
        return hashlib.file_digest(file, "sha256").hexdigest()
