"""Segmenters of Japanese, and what they need."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from headway.core.errors import UserError
from headway.processing.text.segmentation import segmenter
from headway.processing.text.text_processor import PreparationConfig, TextProcessor, prepare
from headway.processing.text.vocabulary import VocabularyConfig, train_vocabulary
from headway.recipe import load_recipe, parse_recipe

LINE = "彼は iPhone 15を\u3000買った。国家公務員"


def test_sudachi_cuts_words() -> None:
    pytest.importorskip("sudachipy")
    longest = prepare(LINE, PreparationConfig(language="ja", segment="sudachi"))
    assert longest == "彼 は iPhone 15 を 買っ た 。 国家公務員"
    shortest = prepare(LINE, PreparationConfig.model_validate({"segment": {"kind": "sudachi", "mode": "A"}}))
    assert shortest == "彼 は iPhone 15 を 買っ た 。 国家 公務 員"
    assert segmenter("sudachi", "ja").detokenise(longest) == "彼はiPhone 15を買った。国家公務員"
    assert segmenter("sudachi", "ja").detokenise("New York へ 行く") == "New Yorkへ行く"
    with pytest.raises(UserError, match=r"text\.segment: Sudachi: .*too long.*60000 bytes"):
        segmenter("sudachi", "ja").segment("あ" * 20_000)


def test_tokens_know_their_characters() -> None:
    pytest.importorskip("sudachipy")
    config = PreparationConfig(language="ja", segment="sudachi")
    words = VocabularyConfig(kind="whitespace")
    processor = TextProcessor(config, train_vocabulary(words, [prepare(LINE, config)]))
    tokens = processor.encode_with_spans(LINE)
    assert [LINE[token.start : token.end] for token in tokens] == prepare(LINE, config).split()
    assert processor.decode(processor.encode(LINE).values) == "彼はiPhone 15を買った。国家公務員"


def test_a_dictionary_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sudachipy")
    monkeypatch.setitem(sys.modules, "sudachidict_full", None)
    with pytest.raises(UserError, match=r"sudachi needs sudachidict_full, .*headway\[japanese\]"):
        segmenter({"kind": "sudachi", "dictionary": "full"}, "ja")


class Characters:
    """A stand-in for KyTea, which cuts between all characters."""

    def __init__(self, options: str) -> None:
        if "damaged" in options:
            raise RuntimeError("bad model")
        self.options = options

    def getWS(self, line: str) -> list[str]:  # noqa: N802  # KyTea's own name
        return list(line)


def test_kytea_reads_its_model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "Mykytea", SimpleNamespace(Mykytea=Characters))
    for name in ("model.bin", "damaged.bin", "a model.bin"):
        (tmp_path / name).write_text("weights")
    model = tmp_path / "model.bin"
    made = segmenter({"kind": "kytea", "model": str(model)}, "ja")
    assert made._tagger.options == f"-model {model} -notags"  # type: ignore[attr-defined]
    assert made.segment("彼は 15") == "彼 は 1 5"
    for name, message in (
        ("nowhere.bin", r"text\.segment\.model: there is no such model of KyTea, .*nowhere"),
        ("damaged.bin", r"text\.segment\.model: KyTea: bad model"),
        ("a model.bin", r"text\.segment\.model: .*or its path has a space"),
    ):
        with pytest.raises(UserError, match=message):
            segmenter({"kind": "kytea", "model": str(tmp_path / name)}, "ja")


def test_kytea_itself_says_what_is_wrong_with_a_model(tmp_path: Path) -> None:
    pytest.importorskip("Mykytea")
    (tmp_path / "model.bin").write_text("no weights")
    with pytest.raises(UserError, match=r"text\.segment\.model: KyTea: "):
        segmenter({"kind": "kytea", "model": str(tmp_path / "model.bin")}, "ja")


def test_kytea_needs_a_model_and_finds_it_beside_the_recipe(tmp_path: Path) -> None:
    tree = {"data": {"train": {"tsv": "a"}}, "training": {"updates": 1}, "text": {"source": {"segment": "kytea"}}}
    with pytest.raises(UserError, match=r"text\.source\.segment\.model: this key is needed"):
        parse_recipe(tree)
    (tmp_path / "model.bin").touch()
    text = (
        "data: {train: {tsv: a}}\ntraining: {updates: 1}\ntext: {source: {segment: {kind: kytea, model: model.bin}}}\n"
    )
    (tmp_path / "recipe.yaml").write_text(text)
    segment = load_recipe(tmp_path / "recipe.yaml").text.source.segment
    assert segment == {"kind": "kytea", "model": str(tmp_path / "model.bin")}
