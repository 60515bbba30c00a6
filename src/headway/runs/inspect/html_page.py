"""HTML pages that need nothing else: a template of `page/` with its styles, scripts and data in it.

All text goes into a page as data and is set as text there, never as markup.
"""

from __future__ import annotations

import base64
import html
import json
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from headway.files import write_text


def write_page(
    path: Path,
    template: str,
    *,
    title: str,
    styles: Sequence[str],
    scripts: Sequence[str],
    data: Mapping[str, Any],
    assets: Traversable | None = None,
) -> None:
    """Write a page whole.

    Args:
        path: the page.
        template: the name of its HTML file, with places for `{{title}}`, `{{style}}`, `{{data}}` and `{{script}}`.
        title: its title, as text.
        styles: names of style sheets, in their order.
        scripts: names of scripts, in their order.
        data: values that JSON can hold, each in an element of its own with that id, so that a script reads what it
            needs when it needs it.
        assets: a folder of files that are not in `page/`.
    """
    folders = [resources.files(__package__).joinpath("page"), *([] if assets is None else [assets])]
    parts = {
        "title": html.escape(title),
        "style": _joined(styles, folders),
        "data": "\n".join(data_element(name, value) for name, value in data.items()),
        "script": _joined(scripts, folders),
    }
    # In one pass, so that text that looks like a placeholder stays text.
    write_text(path, re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], _read(template, folders)))


def data_element(name: str, value: Any) -> str:
    """The element of a page that holds a value as JSON, under an id."""
    content = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    # Within a script element only `<` could end it (</script>) or change how it is read (<!--).
    content = content.replace("<", "\\u003c")
    return f'<script type="application/json" id="{name}">{content}</script>'


def _joined(names: Iterable[str], folders: Sequence[Traversable]) -> str:
    return "\n".join(_read(name, folders) for name in names)


def _read(name: str, folders: Sequence[Traversable]) -> str:
    found = next(folder.joinpath(name) for folder in folders if folder.joinpath(name).is_file())
    return found.read_text(encoding="utf-8")


def pack_integers(values: npt.NDArray[np.integer[Any]]) -> str:
    """The bytes of integers, little end first, deflated, in base64."""
    little = values.astype(values.dtype.newbyteorder("<"), copy=False)
    return base64.b64encode(zlib.compress(little.tobytes(), level=6)).decode()


def quantise(
    values: npt.NDArray[np.floating[Any]], most: float, bits: int, signed: bool
) -> npt.NDArray[np.integer[Any]]:
    """Values as integers: the square root of their share of `most`, with the sign where there are signs.

    A value v comes back within sqrt(v * most) / (2^bits - 1), twice that with signs; 8 or 16 bits.
    """
    steps = 2 ** (bits - 1) - 1 if signed else 2**bits - 1
    roots = np.sign(values) * np.sqrt(np.abs(values) / (most or 1.0))
    kinds: dict[tuple[int, bool], type[np.integer[Any]]] = {
        (8, False): np.uint8,
        (16, False): np.uint16,
        (8, True): np.int8,
        (16, True): np.int16,
    }
    integers: npt.NDArray[np.integer[Any]] = np.rint(roots * steps).astype(kinds[bits, signed])
    return integers
