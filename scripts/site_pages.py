"""Hooks of the site: links to files outside docs/ become their names, and formulas of notebooks MathML.

Browsers draw MathML themselves, so that no page fetches a program for it.
"""

import html
import re
from typing import Any

from latex2mathml.converter import convert

# What has no formulas: code, and the scripts that a notebook brings, which here have nothing to do.
VERBATIM = re.compile(r"(<(pre|code|style|script)\b.*?</\2>)", re.DOTALL)
MATHJAX = re.compile(r'<script (?:src=""|type="text/x-mathjax-config")>.*?</script>', re.DOTALL)
FORMULA = re.compile(r"\$\$(?P<block>[^$]+)\$\$|\$(?P<inline>[^$\n]+)\$")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """The text of a page, with `[text](../FILE)` as text and file name."""
    above = page.file.src_uri.count("/") + 1  # folders up to that of the project
    outside = re.compile(rf"(?<!!)\[([^\]]+)\]\((?:\.\./){{{above}}}([^)]+)\)")
    return outside.sub(lambda link: f"{link[1]} (`{link[2]}`)" if link[2] not in link[1] else link[1], markdown)


def on_page_content(content: str, page: Any, **_: Any) -> str:
    """The markup of a page, of a notebook with its formulas as MathML."""
    if not page.file.src_uri.endswith(".ipynb"):
        return content
    parts = VERBATIM.split(MATHJAX.sub("", content))
    return "".join(
        FORMULA.sub(_mathml, part) if place % 3 == 0 else part for place, part in enumerate(parts) if place % 3 < 2
    )


def _mathml(formula: re.Match[str]) -> str:
    display = formula.lastgroup or "inline"
    markup: str = convert(html.unescape(formula[display]), display=display)
    return markup
