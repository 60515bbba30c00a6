"""Read and write YAML and JSON; every mistake in a document is a UserError with the file and the line.

Documents hold mappings, lists, text, numbers, booleans and null. Values that YAML 1.1 reads in a surprising way are
refused or read as text: `010` (8), `1:30` (90), dates, and all other tags. Keys of a mapping must be unique. Nesting,
size, and the expansion of aliases are limited.
"""

import json
import os
import re
import stat
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import TypeAdapter, ValidationError

from headway.core.errors import UserError

LARGEST_YAML = 1 << 18  # bytes; a recipe has a few thousand, and reading a megabyte takes seconds
LARGEST_JSON = 1 << 26
DEEPEST = 100
# The size with all aliases expanded.
LONGEST_EXPANDED = 4 * LARGEST_YAML

Value = TypeVar("Value")

NULL, BOOL, INT, FLOAT, TEXT, LIST, MAPPING = (
    f"tag:yaml.org,2002:{name}" for name in ("null", "bool", "int", "float", "str", "seq", "map")
)
MERGE = "tag:yaml.org,2002:merge"
NUMBERS = {
    INT: r"[-+]?(?:0b[0-1_]+|0x[0-9a-fA-F_]+|[0-9][0-9_]*)",
    FLOAT: r"[-+]?(?:[0-9][0-9_]*\.[0-9_]*(?:[eE][-+]?[0-9]+)?|\.[0-9][0-9_]*(?:[eE][-+]?[0-9]+)?|\.(?:inf|Inf|INF))"
    r"|\.(?:nan|NaN|NAN)",
}


class _Refused(yaml.MarkedYAMLError):
    """The document is valid YAML, but violates the limits of headway."""


class _Loader(yaml.SafeLoader):
    """A YAML loader for plain values within limits."""

    yaml_constructors = {  # noqa: RUF012 - as yaml has it
        tag: constructor
        for tag, constructor in yaml.SafeLoader.yaml_constructors.items()
        if tag in (NULL, BOOL, INT, FLOAT, TEXT, LIST, MAPPING, None)
    }
    yaml_implicit_resolvers = {  # noqa: RUF012 - as yaml has it
        first: [(tag, pattern) for tag, pattern in resolvers if tag in (NULL, BOOL, MERGE)]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Compose a node with its children. Raises _Refused if it is nested too deeply."""
        self.depth += 1
        if self.depth > DEEPEST:
            raise _Refused(problem=f"nested deeper than {DEEPEST}", problem_mark=self.peek_event().start_mark)  # type: ignore[no-untyped-call]
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def compose_document(self) -> Any:
        """Compose the root of the document. Raises _Refused for repeated keys, and for aliases that expand too much."""
        root = super().compose_document()
        _check_nodes(root)
        return root

    def construct_number(self, node: Any) -> int | float:
        """Parse a number. Raises _Refused if it is too long, or if it may be read as an octal number."""
        text, kind = str(self.construct_scalar(node)), node.tag
        problem = f"{text[:20]!r} is no number that can be read"
        if kind == INT and re.match(r"[-+]?0[0-9_]", text):
            problem = f"{text} may be an octal number: write it without the 0 that it begins with, or in quotes"
        elif re.fullmatch(NUMBERS[kind], text):
            try:
                return self.construct_yaml_int(node) if kind == INT else self.construct_yaml_float(node)
            except ValueError:  # no digits, or too many
                pass
        raise _Refused(problem=problem, problem_mark=node.start_mark)


for _tag, _pattern in NUMBERS.items():
    _Loader.add_implicit_resolver(_tag, re.compile(f"^(?:{_pattern})$"), list("-+0123456789."))
    _Loader.add_constructor(_tag, _Loader.construct_number)


class _Dumper(yaml.SafeDumper):
    """A YAML dumper that quotes text with characters that YAML reads as line ends."""

    def analyze_scalar(self, scalar: str) -> Any:
        """The possible styles of a text. With such a character, only double quotes are allowed."""
        analysis = super().analyze_scalar(scalar)
        if re.search("[\x85\u2028\u2029\ufeff]", scalar):
            analysis.allow_flow_plain = analysis.allow_block_plain = False
            analysis.allow_single_quoted = analysis.allow_block = False
        return analysis

    def ignore_aliases(self, data: Any) -> bool:
        """Always True: repeated values are written out."""
        return True


for _tag, _pattern in NUMBERS.items():  # quotes texts that would be read as numbers
    _Dumper.add_implicit_resolver(_tag, re.compile(f"^(?:{_pattern})$"), list("-+0123456789."))


def dump_yaml(value: Any, *, flow: bool = False) -> str:
    """The YAML of a value, which `parse_yaml` reads as an equal value. Keys keep their order; `flow` is compact."""
    style = None if flow else False
    text: str = yaml.dump(
        value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, default_flow_style=style, width=100
    )
    return text


def _check_nodes(root: Any) -> None:
    """Raise _Refused for repeated keys in a mapping, and for aliases that expand too much."""
    known: dict[int, tuple[int, int] | None] = {}

    def weigh(node: Any) -> tuple[int, int]:
        """The size of a node with all aliases expanded, and its depth."""
        if id(node) in known:
            if (weight := known[id(node)]) is None:
                raise _Refused(problem="an alias stands for itself", problem_mark=node.start_mark)
            return weight
        known[id(node)] = None
        size, depth, inside = 1, 0, node.value
        if isinstance(node, yaml.ScalarNode):
            size, inside = 1 + len(node.value), ()
        elif isinstance(node, yaml.MappingNode):
            _check_keys(node)
            inside = [part for pair in node.value for part in pair]
        for inner in inside:
            more, deeper = weigh(inner)
            size, depth = size + more, max(depth, deeper)
            if size > LONGEST_EXPANDED or depth >= DEEPEST:
                raise _Refused(problem="aliases stand for too much", problem_mark=node.start_mark)
        known[id(node)] = size, depth + 1
        return size, depth + 1

    if root is not None:
        weigh(root)


def _check_keys(node: Any) -> None:
    lines: dict[tuple[str, str], int] = {}
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode):
            raise _Refused(problem="a key is text or a number", problem_mark=key.start_mark)
        name, line = (key.tag, key.value), key.start_mark.line + 1
        if name in lines:
            problem = f"the key {key.value!r} stands here again, first in line {lines[name]}"
            raise _Refused(problem=problem, problem_mark=key.start_mark)
        lines[name] = line


def read_bytes(path: Path, most: int, what: str = "file", *, piped: bool = False) -> bytes:
    """The content of a file of at most `most` bytes.

    Args:
        path: the file.
        most: the maximum size in bytes.
        what: the name of the file in messages, as in `the recipe`.
        piped: whether the file may be a pipe, which may block forever.

    Raises:
        UserError: the file does not exist, cannot be read, is too large, or is a device or pipe.
    """
    try:
        wait = 0 if piped else getattr(os, "O_NONBLOCK", 0)
        descriptor = os.open(path, os.O_RDONLY | wait)
        try:
            kind = os.fstat(descriptor).st_mode
            if not (stat.S_ISREG(kind) or (piped and stat.S_ISFIFO(kind))):
                reason = "it is a folder" if stat.S_ISDIR(kind) else "it is no regular file"
                raise UserError(f"cannot read the {what} ({reason})", where=str(path))
            with open(descriptor, "rb", closefd=False) as file:
                content = file.read(most + 1)
        finally:
            os.close(descriptor)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UserError(f"cannot read the {what} ({reason})", where=str(path)) from error
    if len(content) > most:
        raise UserError(f"the {what} is too large", where=str(path), allowed=f"up to {most:,} bytes")
    return content


def read_text(path: Path, most: int, what: str = "file", *, piped: bool = False) -> str:
    """As `read_bytes`, decoded as UTF-8 without a byte order mark. Raises UserError with the line if that fails."""
    content = read_bytes(path, most, what, piped=piped)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise UserError(f"cannot read the {what} (this is not UTF-8)", where=f"{path}:{line}") from error


def read_yaml(path: Path, what: str = "file", *, piped: bool = False) -> Any:
    """Parse a YAML file. Raises UserError as `read_bytes` and `parse_yaml` do."""
    return parse_yaml(read_text(path, LARGEST_YAML, what, piped=piped), str(path))


def parse_yaml(text: str, where: str, what: str = "this", *, numbered: bool = True) -> Any:
    """Parse a YAML text.

    Args:
        text: the text.
        where: the file or other source of the text, for messages.
        what: the name of the text in messages.
        numbered: whether messages have the line number, after `where`.

    Raises:
        UserError: the text is not YAML, has types that JSON lacks, repeats a key, or is too large.
    """
    try:
        return yaml.load(text, _Loader)  # noqa: S506 - a safe loader
    except yaml.YAMLError as error:
        mark, position = getattr(error, "problem_mark", None), getattr(error, "position", None)
        line = mark.line + 1 if mark else None if position is None else text.count("\n", 0, position) + 1
        problem = str(getattr(error, "problem", None) or getattr(error, "reason", "syntax error"))
        message = problem if isinstance(error, _Refused) else f"{what} is not YAML ({problem})"
        raise UserError(message, where=f"{where}:{line}" if numbered and line else where) from error
    except (ValueError, TypeError, LookupError, ArithmeticError, RecursionError, MemoryError) as error:
        raise UserError(f"{what} cannot be read as YAML ({type(error).__name__}: {error})", where=where) from error


def read_json(path: Path, kind: type | tuple[type, ...] = dict, what: str = "file", *, most: int = LARGEST_JSON) -> Any:
    """Parse a JSON file. Raises UserError as `read_bytes` and `parse_json` do."""
    return parse_json(read_text(path, most, what), str(path), kind, what=f"the {what}")


def parse_json(text: str, where: str, kind: type | tuple[type, ...] = (dict, list), *, what: str = "this") -> Any:
    """Parse a JSON text.

    Args:
        text: the text.
        where: the file, for messages.
        kind: the type or types that the value may have.
        what: the name of the text in messages.

    Raises:
        UserError: the text is not JSON, repeats a key, or has another type.
    """

    def read_object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
        values = dict(pairs)
        if len(values) < len(pairs):
            twice = next(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
            raise UserError(f"{what} is damaged: the key {twice!r} stands twice", where=where)
        return values

    try:
        value = json.loads(text, object_pairs_hook=read_object)
    except json.JSONDecodeError as error:
        raise UserError(f"{what} is damaged: not JSON ({error.msg})", where=f"{where}:{error.lineno}") from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise UserError(f"{what} is damaged: it cannot be read as JSON ({error})", where=where) from error
    if not isinstance(value, kind):
        kinds = kind if isinstance(kind, tuple) else (kind,)
        names = " or ".join(_NAMES.get(name, name.__name__) for name in kinds)
        raise UserError(f"{what} is damaged: it should hold {names}", where=where, received=value)
    return value


def shaped(value: Any, shape: TypeAdapter[Value], where: str, what: str = "this") -> Value:
    """Validate a parsed value against a type.

    Args:
        value: the value.
        shape: the type.
        where: the file, for messages.
        what: the name of the value in messages.

    Raises:
        UserError: the value does not have this type.
    """
    try:
        return shape.validate_python(value)
    except ValidationError as error:
        first = error.errors()[0]
        key = "".join(f"{part}: " for part in (".".join(map(str, first["loc"])),) if part)
        raise UserError(f"{what} is damaged ({key}{first['msg']})", where=where) from error


_NAMES: dict[type, str] = {dict: "an object", list: "a list", str: "text", int: "a number", float: "a number"}
