"""HTML pages that need nothing else: a template of `page/` with its styles, scripts and data in it.

All text goes into a page as data and is set as text there, never as markup.
"""

import base64
import html
import json
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from headway.files import write_text

Floats = npt.NDArray[np.floating[Any]]


def write_page(
    path: Path, template: str, *, title: str, styles: Sequence[str], scripts: Sequence[str], data: Mapping[str, Any]
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
    """
    parts = {
        "title": html.escape(title),
        "style": _joined(styles),
        "data": "\n".join(_data(name, value) for name, value in data.items()),
        "script": _joined(scripts),
    }
    # In one pass, so that text that looks like a placeholder stays text.
    write_text(path, re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], _read(template)))


def _data(name: str, value: Any) -> str:
    content = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    # Within a script element only `<` could end it (</script>) or change how it is read (<!--).
    content = content.replace("<", "\\u003c")
    return f'<script type="application/json" id="{name}">{content}</script>'


def _joined(names: Iterable[str]) -> str:
    return "\n".join(_read(name) for name in names)


def _read(name: str) -> str:
    return resources.files(__package__).joinpath("page", name).read_text(encoding="utf-8")


def pack_integers(values: npt.NDArray[np.integer[Any]]) -> str:
    """The bytes of integers, little end first, deflated, in base64."""
    little = values.astype(values.dtype.newbyteorder("<"), copy=False)
    return base64.b64encode(zlib.compress(little.tobytes(), level=6)).decode()
