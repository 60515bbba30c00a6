"""Self-contained HTML pages: a template with styles, scripts and data in it.

Text goes into a page as data and is set as text there, never as markup. Assets of all pages are in `page/`; assets of
one page are in the `page/` beside the module that writes it.

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

# A page makes no requests; its styles and scripts are inline.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"

ICON = '<link rel="icon" href="data:,">'  # keeps browsers from requesting an icon


def write_page(path: Path, template: str, **parts: Any) -> None:
    """Write the page of `page_text` atomically."""
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
    """The HTML of a page: `frame.html` around a body.

    Args:
        template: the name of the HTML file of its body, which may have `{{title}}`.
        title: the title, as text.
        styles: names of style sheets, in order.
        scripts: names of scripts, in order.
        data: JSON values by the id of their element. A script parses each element when it needs it.
        assets: a folder of files that are not in `page/`.
        elements: further elements, as markup, after the data.
        policy: the content security policy; empty if a server's header has it.
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
    # In one pass, so that text that looks like a placeholder is not replaced.
    whole = read("frame.html").replace("{{body}}\n", read(template))
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], whole)


def data_element(name: str, value: Any) -> str:
    """The element of a page that holds a value as JSON, under an id."""
    content = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    # In a script element, only `<` could end it (</script>) or change how it is parsed (<!--).
    content = content.replace("<", "\\u003c")
    return f'<script type="application/json" id="{name}">{content}</script>'


def packed_weights(weights: npt.NDArray[np.floating[Any]], bits: int, *, signed: bool) -> dict[str, Any]:
    """Weights (K, T, S) for JSON: 8- or 16-bit integers, as little-endian bytes, deflated, in base64.

    An integer is the square root of a value's share of the largest value, `most`, with a sign if `signed`. A value v is
    decoded within sqrt(v * most) / (2^bits - 1), or twice that if `signed`.
    """
    most = float(np.abs(weights).max(initial=0))
    roots = np.sign(weights) * np.sqrt(np.abs(weights) / (most or 1.0))
    integers = np.rint(roots * (2 ** (bits - signed) - 1)).astype(f"<{'i' if signed else 'u'}{bits // 8}")
    data = base64.b64encode(zlib.compress(integers.tobytes(), level=6)).decode()
    return {"heads": len(weights), "most": most, "data": data}
