"""Segmenters and vocabularies from elsewhere: named by import path, their options checked, saved and loaded."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml

from headway.core.errors import UserError
from headway.core.registry import foreign_code
from headway.corpora import corpus as encoding
from headway.processing.text.segmentation import Segmenter, segmenter
from headway.processing.text.text_processor import PreparationConfig, TextProcessor, save_processors
from headway.processing.text.vocabulary import TokensConfig, WordVocabulary, load_vocabulary, train_vocabulary
from headway.recipe import Recipe, dump_recipe, parse_recipe

HYPHENS, SORTED = f"{__name__}:HyphenSegmenter", f"{__name__}:SortedVocabulary"


class HyphenSegmenter(Segmenter):
    """Words are cut at hyphens, or at another mark."""

    def __init__(self, language: str, *, mark: str = "-") -> None:
        super().__init__(language)
        self.mark = mark

    def segment(self, line: str) -> str:
        return " ".join(line.replace(self.mark, f" {self.mark} ").split())

    def detokenise(self, line: str) -> str:
        return line.replace(f" {self.mark} ", self.mark)


class SortedVocabulary(WordVocabulary):
    """Words in the order of the alphabet, `first` of them."""

    class Config(TokensConfig):
        """How many."""

        first: int = 3

    family = SORTED

    @classmethod
    def train(cls, config: TokensConfig, lines: Iterable[str], where: str, side: str) -> SortedVocabulary:
        assert isinstance(config, cls.Config)
        return cls(sorted({word for line in lines for word in line.split()})[: config.first])


class LowerCaseVocabulary(WordVocabulary):
    """Words without case; its family is that of its parent."""

    def encode(self, segmented: str) -> list[int]:
        return super().encode(segmented.lower())


def recipe(**changes: Any) -> Recipe:
    return parse_recipe({"data": {"train": {"tsv": "x"}}, "training": {"updates": 1}} | changes)


def test_a_segmenter_from_elsewhere() -> None:
    read = recipe(text={"source": {"segment": {"kind": HYPHENS, "mark": "+"}}, "target": {"segment": HYPHENS}})
    source = segmenter(read.text.source.segment, "en")
    assert source.segment("a+b c-d") == "a + b c-d"
    assert source.detokenise("a + b c-d") == "a+b c-d"
    assert segmenter(read.text.target.segment, "en").segment("a+b c-d") == "a+b c - d"
    assert segmenter(read.text.source.segment, "en") is source
    assert parse_recipe(yaml.safe_load(dump_recipe(read))) == read


def test_a_vocabulary_from_elsewhere(tmp_path: Path) -> None:
    own = {"kind": SORTED, "first": 2}
    read = recipe(vocabulary={**own, "target": {"kind": SORTED, "first": 1}})
    assert parse_recipe(yaml.safe_load(dump_recipe(read))) == read
    vocabulary = train_vocabulary(read.vocabulary, ["c b a"])
    assert [vocabulary.token(id) for id in range(4, len(vocabulary))] == ["a", "b"]
    assert read.vocabulary.target is not None
    assert len(train_vocabulary(read.vocabulary.target, ["c b a"])) == 5
    vocabulary.save(tmp_path)
    with foreign_code(True):
        loaded = load_vocabulary(tmp_path)
    assert isinstance(loaded, SortedVocabulary)
    assert loaded.encode("b") == vocabulary.encode("b")
    with pytest.raises(UserError, match="loading this would import the vocabulary"):
        load_vocabulary(tmp_path)


def test_a_vocabulary_that_inherits_its_family_is_loaded_as_itself(tmp_path: Path) -> None:
    config = recipe(vocabulary={"kind": f"{__name__}:LowerCaseVocabulary"}).vocabulary
    vocabulary = train_vocabulary(config, ["a b"])
    vocabulary.save(tmp_path)
    with foreign_code(True):
        loaded = load_vocabulary(tmp_path)
    assert loaded.encode("A B") == vocabulary.encode("a b")
    with pytest.raises(UserError, match="loading this would import the vocabulary"):
        load_vocabulary(tmp_path)


def test_processes_that_encode_a_corpus_have_the_vocabulary_of_the_one_that_began_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    side = TextProcessor(PreparationConfig(), train_vocabulary(recipe(vocabulary={"kind": SORTED}).vocabulary, ["b a"]))
    save_processors((side, side), tmp_path / "sides")
    monkeypatch.setattr(encoding, "_loaded", None, raising=False)
    encoding._start(tmp_path / "sides", (), None)
    (source, _), _, _ = encoding._loaded
    assert isinstance(source.vocabulary, SortedVocabulary)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"text": {"source": {"segment": "mose"}}}, "unknown segmenter; did you mean 'moses'?"),
        (
            {"text": {"source": {"segment": {"kind": HYPHENS, "mrk": "x"}}}},
            "text.source.segment.mrk: unknown key; did you mean 'mark'?",
        ),
        ({"vocabulary": {"kind": "bpee"}}, "vocabulary.kind: unknown vocabulary; did you mean 'bpe'?"),
        ({"vocabulary": {"target": {"kind": "bpee"}}}, "vocabulary.target.kind: unknown vocabulary; did you mean"),
        ({"vocabulary": {"kind": SORTED, "frst": 2}}, "vocabulary.frst: unknown key; did you mean 'first'?"),
        ({"vocabulary": {"kind": "bpe", "first": 2}}, "vocabulary.first: unknown key"),
        ({"vocabulary": {"kind": SORTED, "first": "x", "size": 1}}, "vocabulary.first: input should be a valid"),
        ({"vocabulary": {"shared": True, "target": {}}}, "vocabulary: a shared vocabulary has no target of its own"),
        ({"data": {"train": {"tsv": "x"}, "parses": {"source": {"kind": "spcy", "model": "x"}}}},
         "data.parses.source.kind: unknown parser; did you mean 'spacy'?"),
    ],
)  # fmt: skip
def test_mistakes(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as error:
        recipe(**changes)
    assert message in str(error.value)
