"""The files of Firefox's translation engine, their metadata, and the records by which a Firefox finds them.

A pair of languages has a model, a vocabulary of both sides or one of each side, and a shortlist if there are links. A
record per file names its hash and its attachment: the file itself, or a zstd frame in records of version 3.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple
from uuid import NAMESPACE_URL, uuid5

from pydantic import BaseModel, Field, NonNegativeInt, TypeAdapter

from headway.core.documents import read_json, shaped
from headway.core.errors import UserError, require_installed
from headway.core.files import write_bytes, write_json

SHARED, SPLIT = "vocab", ("srcvocab", "trgvocab")
PARTS = ("model", SHARED, *SPLIT, "lex")  # prefixes of the file names, and types of the records; lex is optional
METADATA = "metadata.json"
SHORTLIST = ".s2t.bin"  # the end of the name of a shortlist
SETTINGS = "remote-settings"  # the folder with the records and their attachments
RECORDS = "records.json"
LEVEL = 10  # of compression
ARCHITECTURES = {256: "tiny", 384: "base-memory"}  # by the largest width; wider models are base


class Form(NamedTuple):
    """How the records of a major version are written.

    Attributes:
        collection: the name of the collection.
        languages: the keys of the source and the target language.
        majors: the versions of models that belong to it.
        compressed: whether attachments are zstd frames.
    """

    collection: str
    languages: tuple[str, str]
    majors: tuple[int, ...]
    compressed: bool


FORMS = {
    3: Form("translations-models-v2", ("sourceLanguage", "targetLanguage"), (3,), True),
    1: Form("translations-models", ("fromLang", "toLang"), (1, 2), False),
}


def files_of(folder: Path) -> dict[str, bytes]:
    """The files of a firefox export, by `PARTS`."""
    return {part: path.read_bytes() for part in PARTS for path in folder.glob(f"{part}.*")}


def vocabularies_of(files: Mapping[str, bytes]) -> tuple[bytes, bytes]:
    """The vocabularies of source and target among the files of an export, which are equal if the sides share one."""
    source, target = (files.get(part, files.get(SHARED, b"")) for part in SPLIT)
    return source, target


def check_parts(parts: Sequence[str], where: str) -> None:
    """Raise UserError unless the parts are those of one model: each once, and vocabularies of one kind."""
    allowed = f"model, {SHARED} or both {' and '.join(SPLIT)}, and lex if there are links, each once"
    needed = ("model", *(() if SHARED in parts else SPLIT))
    if SHARED in parts and not {*SPLIT}.isdisjoint(parts):
        what = "these files have a vocabulary of both sides beside one of a side"
    elif missing := [part for part in needed if part not in parts]:
        what = f"these files of a model lack {' and '.join(missing)}"
    elif len(set(parts)) < len(parts):
        what = "these files of a model have one of a kind twice"
    else:
        return
    raise UserError(what, where=where, received=", ".join(parts), allowed=allowed)


def architecture_of(width: int) -> str:
    """The name of the smallest of Mozilla's sizes whose vectors have at least `width` elements."""
    return next((name for most, name in ARCHITECTURES.items() if width <= most), "base")


class Attachment(BaseModel):
    """The file of a record, as it is downloaded."""

    filename: str
    location: str
    hash: str
    size: NonNegativeInt


class Record(BaseModel):
    """A record of a file: the keys that are checked. It has others, which are served unchanged."""

    id: str
    name: str
    version: str
    last_modified: NonNegativeInt
    attachment: Attachment
    fileType: str = ""  # noqa: N815 - the name in the records
    decompressedHash: str | None = None  # noqa: N815
    decompressedSize: NonNegativeInt = 0  # noqa: N815


class Collection(NamedTuple):
    """The records of a collection, and the files of their attachments by location."""

    name: str
    records: list[dict[str, Any]]
    files: dict[str, Path]

    @property
    def modified(self) -> int:
        """The time, in milliseconds, at which the last record was written."""
        return max(int(record["last_modified"]) for record in self.records)


def write_records(folder: Path, names: Mapping[str, str], languages: Sequence[str], width: int, major: int) -> None:
    """Write the records of the files of an export, and their attachments, beside the files.

    Args:
        folder: the export.
        names: the file names, by `PARTS`; a file may be missing.
        languages: the codes of source and target.
        width: the number of elements of the model's vectors.
        major: the version of the records, one of `FORMS`.
    """
    form, now, data = FORMS[major], time.time_ns() // 10**6, list[dict[str, Any]]()
    (folder / SETTINGS / "main" / form.collection).mkdir(parents=True)
    for part, name in names.items():
        if not (folder / name).exists():
            continue
        content = (folder / name).read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        id = str(uuid5(NAMESPACE_URL, f"{digest}/{name}"))
        attached = _compressed(content) if form.compressed else content
        suffix, kind = (".zst", "zstd") if form.compressed else (".bin", "octet-stream")
        location = f"main/{form.collection}/{id}{suffix}"
        write_bytes(folder / SETTINGS / location, attached)
        attachment = {
            "filename": f"{name}.zst" if form.compressed else name, "location": location,
            "hash": hashlib.sha256(attached).hexdigest(), "size": len(attached), "mimetype": f"application/{kind}",
        }  # fmt: skip
        record = {
            "name": name, "fileType": part, **dict(zip(form.languages, languages, strict=True)),
            "architecture": architecture_of(width), "version": f"{major}.0", "filter_expression": "",
            "decompressedSize": len(content), "decompressedHash": digest, "id": id, "schema": now,
            "last_modified": now + len(data), "attachment": attachment,
        }  # fmt: skip
        left_out = () if form.compressed else ("architecture", "decompressedSize", "decompressedHash")
        data.append({key: value for key, value in record.items() if key not in left_out})
    write_json(folder / SETTINGS / RECORDS, {"data": data})


def _compressed(content: bytes) -> bytes:
    import zstandard

    compressed: bytes = zstandard.ZstdCompressor(level=LEVEL).compress(content)
    return compressed


def _decompressed(content: bytes, size: int, where: str) -> bytes:
    """The content of a zstd frame. Raises UserError if the frame is damaged, or its content has another size."""
    require_installed("the check of compressed files", ["zstandard"], "export", where)
    import zstandard

    try:
        if (stated := zstandard.frame_content_size(content)) != size:
            raise zstandard.ZstdError(f"{stated} bytes where the record has {size}")
        found: bytes = zstandard.ZstdDecompressor().decompress(content)
    except zstandard.ZstdError as error:
        raise UserError(f"the attachment of this record cannot be decompressed ({error})", where=where) from error
    return found


def read_models(folder: Path) -> Collection:
    """Read the records of an export, or of all exports in a folder, and check them against their files.

    Raises:
        UserError: there are no records, an attachment is missing or has another hash, the version is one that no
            Firefox takes, or the records of a pair are not those of one model.
    """
    places = [place for place in (folder, *sorted(folder.glob("*"))) if (place / SETTINGS / RECORDS).is_file()]
    if not places:
        what, allowed = "there are no records", "a folder of `headway export firefox`, or a folder of such folders"
        raise UserError(what, where=str(folder / SETTINGS / RECORDS), allowed=allowed)
    read = [_read(place / SETTINGS) for place in places]
    form = next((form for form in FORMS.values() if form.languages[0] in read[0].records[0]), FORMS[3])
    pairs: dict[str, list[str]] = {}
    for place, collection in zip(places, read, strict=True):
        where = str(place / SETTINGS / RECORDS)
        for record in collection.records:
            if record["version"].partition(".")[0] not in map(str, form.majors):
                allowed = " or ".join(f"{major}.x" for major in form.majors)
                what = f"no Firefox takes models of this version from {form.collection}"
                raise UserError(what, where=f"{where}: {record['name']}", received=record["version"], allowed=allowed)
            pair = "-".join(str(record.get(key)) for key in form.languages)
            pairs.setdefault(f"{pair} {record['version']}", []).append(record.get("fileType", ""))
    for pair, parts in pairs.items():
        check_parts(parts, f"{folder}: {pair}")
    records = [record for collection in read for record in collection.records]
    return Collection(form.collection, records, {key: file for each in read for key, file in each.files.items()})


def read_engine(folder: Path) -> Collection:
    """Read a copy of the record of the engine, and its file. Raises UserError if either is missing or damaged."""
    return _read(folder)._replace(name="translations-wasm-v2")


def _read(folder: Path) -> Collection:
    """The records in `records.json`, with the files of their attachments in the same folder."""
    file = folder / RECORDS
    data = read_json(file).get("data")
    records = shaped(data, TypeAdapter(Annotated[list[Record], Field(min_length=1)]), f"{file}: data")
    files: dict[str, Path] = {}
    for record in records:
        attachment, where = record.attachment, f"{file}: {record.name}"
        places = (folder / attachment.location, folder / Path(attachment.location).name)
        found = next((place for place in places if place.is_file()), None)
        if found is None or not found.resolve().is_relative_to(folder.resolve()):
            raise UserError("the attachment of this record is missing", where=where, received=attachment.location)
        content = found.read_bytes()
        _check_hash(content, attachment.hash, where, "attachment")
        if record.decompressedHash is not None:
            whole = _decompressed(content, record.decompressedSize, where)
            _check_hash(whole, record.decompressedHash, where, "file in the attachment")
        files[attachment.location] = found
    return Collection("", data, files)


def _check_hash(content: bytes, wanted: str, where: str, what: str) -> None:
    if (received := hashlib.sha256(content).hexdigest()) != wanted:
        raise UserError(f"the {what} of this record has another hash", where=where, received=received, allowed=wanted)
