"""Text files and text sides for the tests of the data room."""

from collections.abc import Callable
from pathlib import Path

import pytest

from headway.formats.corpus_config import AnyCorpus, parse_corpus
from headway.processing.text.text_processor import TextConfig, TextProcessor, train_processors
from headway.processing.text.vocabulary import VocabularyConfig

Write = Callable[..., AnyCorpus]


@pytest.fixture
def parallel(tmp_path: Path) -> Write:
    """Writes two line-aligned files and gives their corpus."""

    def write(source: list[str], target: list[str], name: str = "train") -> AnyCorpus:
        for language, lines in (("src", source), ("trg", target)):
            (tmp_path / f"{name}.{language}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return parse_corpus({"source": tmp_path / f"{name}.src", "target": tmp_path / f"{name}.trg"}, name)

    return write


@pytest.fixture
def sides() -> tuple[TextProcessor, TextProcessor]:
    """Sides that know the words a to e and A to E."""
    text = ("a b c d e", "A B C D E")
    return train_processors(TextConfig(), VocabularyConfig(kind="whitespace"), lambda: iter([text]))
