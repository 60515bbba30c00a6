"""HTML pages that need nothing else: a template with its styles, scripts and data in it.

All text goes into a page as data and is set as text there, never as markup. What all pages share stands in `page/`;
what one of them has alone stands in the `page/` beside the file that writes it.

Shapes: K heads, T target tokens, S source tokens, both with the end mark.
"""

from __future__ import annotations

import base64
import html
import json
import re
import zlib
from collections.abc import Mapping, Sequence
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from headway.core.files import write_text

# A page asks nobody for anything; its styles and scripts are its own.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"

ICON = '<link rel="icon" href="data:,">'  # so that a browser does not ask a server for one


def write_page(path: Path, template: str, **parts: Any) -> None:
    """Write the page that `page_text` gives whole."""
    write_text(path, page_text(template, **parts))


def page_text(
    template: str,
    *,
    title: str,
    styles: Sequence[str],
    scripts: Sequence[str],
    data: Mapping[str, Any],
    assets: Traversable | None = None,
    elements: Sequence[str] = (),
    policy: str = POLICY,
) -> str:
    """A page: `frame.html` around a body.

    Args:
        template: the name of the HTML file of its body, which may have `{{title}}`.
        title: its title, as text.
        styles: names of style sheets, in their order.
        scripts: names of scripts, in their order.
        data: values that JSON can hold, each in an element of its own with that id, so that a script reads what it
            needs when it needs it.
        assets: a folder of files that are not in `page/`.
        elements: further ones, as markup, behind the data.
        policy: of its content; empty where a server's header has it.
    """
    own = resources.files(__package__).joinpath("page")

    def read(name: str) -> str:
        file = own.joinpath(name)
        return (file if assets is None or file.is_file() else assets.joinpath(name)).read_text("utf-8")

    parts = {
        "title": html.escape(title),
        "style": "\n".join(map(read, styles)),
        "data": "\n".join([*(data_element(name, value) for name, value in data.items()), *elements]),
        "script": "\n".join(["<script>", *map(read, scripts), "</script>"]) if scripts else "",
        "policy": f'<meta http-equiv="Content-Security-Policy" content="{policy}">' if policy else ICON,
    }
    # In one pass, so that text that looks like a placeholder stays text.
    whole = read("frame.html").replace("{{body}}\n", read(template))
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], whole)


def data_element(name: str, value: Any) -> str:
    """The element of a page that holds a value as JSON, under an id."""
    content = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    # Within a script element only `<` could end it (</script>) or change how it is read (<!--).
    content = content.replace("<", "\\u003c")
    return f'<script type="application/json" id="{name}">{content}</script>'


def packed_weights(weights: npt.NDArray[np.floating[Any]], bits: int, *, signed: bool) -> dict[str, Any]:
    """Weights (K, T, S) for JSON: the bytes of integers of 8 or 16 bits, little end first, deflated, in base64.

    An integer is the square root of a value's share of the largest, `most`, with the sign where there are signs. A
    value v comes back within sqrt(v * most) / (2^bits - 1), twice that with signs.
    """
    most = float(np.abs(weights).max(initial=0))
    roots = np.sign(weights) * np.sqrt(np.abs(weights) / (most or 1.0))
    integers = np.rint(roots * (2 ** (bits - signed) - 1)).astype(f"<{'i' if signed else 'u'}{bits // 8}")
    data = base64.b64encode(zlib.compress(integers.tobytes(), level=6)).decode()
    return {"heads": len(weights), "most": most, "data": data}
