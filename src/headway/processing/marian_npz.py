"""Marian's own files: models in .npz, and vocabularies as SentencePiece models or lines `token: id`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from io import BytesIO
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headway.core.archives import opened_zip
from headway.core.documents import LARGEST_JSON, dump_yaml, parse_yaml, read_text
from headway.core.errors import UserError
from headway.core.files import json_line, whole_file, write_bytes, write_text
from headway.processing.marian_files import MarianVocabulary, check_round_trip
from headway.processing.text.subwords import SubwordVocabulary
from headway.processing.text.vocabulary import Vocabulary, WordVocabulary
from headway.tensors.batch import BOS, EOS, PAD, SPECIALS, UNKNOWN

CONFIG = "special:model.yml"
TYPES = {"<f4", "|u1", "|i1"}  # of arrays; the last two hold text as bytes
LONGEST_CONFIG = 1 << 16  # bytes
TABLES = (".yml", ".yaml")
TOKEN = re.compile(r"""(?:"((?:[^"\\]|\\.)*)"|'((?:[^']|'')*)'|(.+))""")  # in double quotes, single quotes, or plain
ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)")
ESCAPED = {"0": "\0", "a": "\a", "b": "\b", "t": "\t", "n": "\n", "v": "\v", "f": "\f", "r": "\r", "e": "\x1b",
           "N": "\x85", "_": "\xa0", "L": "\u2028", "P": "\u2029"}  # fmt: skip
Arrays = dict[str, NDArray[Any]]


def read_npz(file: Path) -> Arrays:
    """Read the arrays of a model. No entry can allocate more memory than it has bytes.

    Raises:
        UserError: the file is missing or damaged, or has arrays of types that Marian does not write.
    """
    arrays: Arrays = {}
    with opened_zip(file, ".npz file") as archive:
        for entry in archive.infolist():
            name = entry.filename.removesuffix(".npy")
            if name in arrays:
                raise UserError("this .npz file has an array twice", where=str(file), received=name)
            try:
                arrays[name] = _array(archive.read(entry))
            except ValueError as error:
                raise UserError(f"this array cannot be read ({error})", where=f"{file}: {name}") from error
    return arrays


def _array(content: bytes) -> NDArray[Any]:
    """Decode a .npy file. Raises ValueError if its header does not match its data."""
    stream = BytesIO(content)
    if np.lib.format.read_magic(stream) != (1, 0):
        raise ValueError("another version than Marian writes")
    shape, by_columns, kind = np.lib.format.read_array_header_1_0(stream)
    if kind.str not in TYPES:
        raise ValueError(f"it holds {kind.str}, not one of {', '.join(sorted(TYPES))}")
    if by_columns or min(shape, default=0) < 0 or prod(shape) * kind.itemsize != len(content) - stream.tell():
        raise ValueError(f"{list(shape)} elements are not {len(content) - stream.tell()} bytes, row after row")
    return np.frombuffer(content, kind, offset=stream.tell()).reshape(shape)


def read_options(arrays: Mapping[str, NDArray[Any]], file: Path) -> dict[str, Any]:
    """Read the options stored in a model. Raises UserError if there are none."""
    stored, where = arrays.get(CONFIG), f"{file}: {CONFIG}"
    if stored is None or stored.itemsize != 1 or stored.size > LONGEST_CONFIG:
        raise UserError("this is no model of Marian: it has no options", where=where)
    text = stored.tobytes().removesuffix(b"\0").decode("utf-8", "replace")
    options = parse_yaml(text, where, "this text of options")
    if not isinstance(options, dict):
        raise UserError("these are no options of a model", where=where, received=options)
    return options


def write_npz(file: Path, arrays: Mapping[str, NDArray[Any]], options: Mapping[str, Any]) -> None:
    """Write a model, with its options, to `file`."""
    text = dump_yaml(dict(options)).encode() + b"\0"
    with whole_file(file) as opened:
        np.savez(opened, allow_pickle=False, **{CONFIG: np.frombuffer(text, np.uint8), **arrays})


class MarianTokens(NamedTuple):
    """The vocabulary of a side, and for each of its ids the row in the model's embedding (-1 if it has no row)."""

    vocabulary: Vocabulary
    rows: list[int]


def read_vocabularies(files: Sequence[Path]) -> tuple[MarianTokens, MarianTokens]:
    """Read the vocabularies of source and target.

    There is one file of a kind for both sides, or one per side. A SentencePiece model segments the text; if there is
    also a table `token: id`, it determines the ids. A table without a model has words separated by spaces.

    Raises:
        UserError: there are too many or too few files, or a file is damaged.
    """
    tables = [file for file in files if file.suffix in TABLES]
    models = [file for file in files if file.suffix not in TABLES]
    if not files or max(len(tables), len(models)) > 2:
        what, allowed = "a model has a vocabulary, or one a side", "VOCAB.spm or VOCAB.yml, each once or twice"
        raise UserError(what, where="vocabulary", received=" ".join(map(str, files)) or None, allowed=allowed)
    none = [None, None]
    source, target = zip((models * 2)[:2] or none, (tables * 2)[:2] or none, strict=True)
    first = _tokens(*source)
    return first, first if target == source else _tokens(*target)


def _tokens(model: Path | None, table: Path | None) -> MarianTokens:
    where, pieces = str(table or model), read_table(table) if table else []
    special = {id: pieces.index(name) if name in pieces else -1 for id, name in enumerate(SPECIALS)}
    try:
        content = model.read_bytes() if model else b""
        if model and not table:
            known = SubwordVocabulary(content)
            pieces, special = [known.token(id) for id in range(len(known))], known.special_ids()
        if min(special[EOS], special[UNKNOWN]) < 0:
            what = f"this vocabulary has no {SPECIALS[EOS]} or no {SPECIALS[UNKNOWN]}"
            raise UserError(what, where=where)
        first = [special[id] for id in (PAD, BOS, EOS, UNKNOWN)]
        rows = [*first, *(row for row in range(len(pieces)) if row not in first)]
        tokens = [*SPECIALS, *(pieces[row] for row in rows[len(SPECIALS) :])]
        if not model:
            return MarianTokens(WordVocabulary(tokens[len(SPECIALS) :]), rows)
        vocabulary = MarianVocabulary(content, tokens)
    except (OSError, ValueError, RuntimeError) as error:
        raise UserError(f"this vocabulary cannot be read ({error})", where=where) from error
    assert model is not None
    check_round_trip(vocabulary, model)
    return MarianTokens(vocabulary, rows)


def read_table(file: Path) -> list[str]:
    """Read the tokens of a file with lines `token: id`, ordered by id. Raises UserError for any other line."""
    tokens: dict[int, str] = {}
    ids: dict[str, int] = {}
    for number, line in enumerate(read_text(file, LARGEST_JSON, "vocabulary").split("\n"), start=1):
        if line.strip() in ("", "---"):
            continue
        named, _, id = line.rpartition(":")
        entry = TOKEN.fullmatch(named.rstrip())
        if entry is None or named[0].isspace() or not re.fullmatch(r" *[0-9]{1,8}\s*", id):
            raise UserError("a line of a vocabulary is `token: id`", where=f"{file}:{number}", received=line[:100])
        double, single, plain = entry.groups()
        token = plain if plain is not None else single.replace("''", "'") if single is not None else _unescaped(double)
        if "\n" in token or token in ids or int(id) in tokens:
            raise UserError("this token, or its id, cannot be had twice", where=f"{file}:{number}", received=line)
        tokens[int(id)], ids[token] = token, int(id)
    if not tokens or max(tokens) >= len(tokens):
        what, received = "each id from 0 on needs a token", f"{len(tokens)} tokens"
        raise UserError(what, where=str(file), received=received, allowed=f"ids up to {len(tokens) - 1}")
    return [tokens[id] for id in range(len(tokens))]


def _unescaped(text: str) -> str:
    """Resolve the escapes of a double-quoted string of YAML or JSON."""

    def character(escape: re.Match[str]) -> str:
        sign, digits = escape[1][0], escape[1][1:]
        return chr(min(int(digits, 16), 0x10FFFF)) if digits else ESCAPED.get(sign, sign)

    halves = ESCAPE.sub(character, text)  # JSON writes characters beyond U+FFFF as surrogate pairs
    return halves.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def write_vocabularies(folder: Path, sides: Sequence[tuple[Vocabulary, list[int]]]) -> list[list[int]]:
    """Write the vocabularies of both sides, restricted to the model's ids.

    Returns, for each side, the id of each row.
    """
    (first, _), (second, _) = sides
    orders: list[list[int]] = []
    for (vocabulary, kept), name in zip(sides, ("vocab",) if first is second else ("source", "target"), strict=False):
        order, told = _order(vocabulary, kept)
        if isinstance(vocabulary, SubwordVocabulary):
            write_bytes(folder / f"{name}.spm", vocabulary.serialised)
        if not told:
            tokens = [json_line(vocabulary.token(id)) for id in order]
            lines = "".join(f"{token}: {row}\n" for row, token in enumerate(tokens))
            write_text(folder / f"{name}.yml", lines)
        orders.append(order)
    return [orders[0], orders[-1]]


def vocabulary_files(folder: Path) -> list[Path]:
    """The existing files that `write_vocabularies` wrote."""
    files = (folder / f"{name}{suffix}" for name in ("vocab", "source", "target") for suffix in (".spm", ".yml"))
    return [file for file in files if file.is_file()]


def _order(vocabulary: Vocabulary, kept: Sequence[int]) -> tuple[list[int], bool]:
    """The `kept` ids in Marian's order, and whether the SentencePiece model alone determines this order."""
    if isinstance(vocabulary, SubwordVocabulary):
        model = SubwordVocabulary(vocabulary.serialised)
        places = {model.token(place): place for place in range(len(model))}
        own = {id: places.get(vocabulary.token(id), -1) for id in kept} | {
            id: place for id, place in model.special_ids().items() if id in kept
        }
        if sorted(own.values()) == list(range(len(model))):
            return sorted(kept, key=own.__getitem__), True
    ordinary = [id for id in kept if id >= len(SPECIALS)]
    return [EOS, UNKNOWN, *ordinary, *(id for id in (PAD, BOS) if id in kept)], False
