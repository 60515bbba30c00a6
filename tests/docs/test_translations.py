"""The Japanese pages have the commands and the files of the English ones."""

import re

import pytest

from tests.docs.pages import ROOT

BLOCK = re.compile(r"```\w+\n(.*?)```|((?:^    \S[^\n]*\n)+)", re.DOTALL | re.MULTILINE)


def lines_of(name: str) -> list[str]:
    """The lines of the code blocks of a page, without comments and blanks at the ends."""
    text = (ROOT / name).read_text(encoding="utf-8")
    blocks = "".join(fenced or indented for fenced, indented in BLOCK.findall(text))
    lines = (re.sub(r"\s+#.*", "", line).strip() for line in blocks.splitlines())
    return [line for line in lines if line]


@pytest.mark.parametrize(
    ("japanese", "english"), [("README.ja.md", "README.md"), ("docs/tutorial.ja.md", "docs/tutorial.md")]
)
def test_code_is_that_of_the_english_page(japanese: str, english: str) -> None:
    lines = lines_of(japanese)
    assert len(lines) > 10
    assert not set(lines) - set(lines_of(english))
