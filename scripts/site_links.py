"""A hook of the site: files outside docs/ are no pages of it, so links to them become the names of the files."""

import re
from typing import Any


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """The text of a page, with `[text](../FILE)` as text and file name."""
    above = page.file.src_uri.count("/") + 1  # folders up to that of the project
    outside = re.compile(rf"(?<!!)\[([^\]]+)\]\((?:\.\./){{{above}}}([^)]+)\)")
    return outside.sub(lambda link: f"{link[1]} (`{link[2]}`)" if link[2] not in link[1] else link[1], markdown)
