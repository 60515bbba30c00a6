"""Links: kept by pair, carried over to tokens with shares that add up to 1, and read by a corpus."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from headway.core.errors import UserError
from headway.corpora.corpus import build_corpus
from headway.corpora.filters import Filters
from headway.formats.corpus_config import AnyCorpus, parse_corpus
from headway.formats.pairs import open_source
from headway.parses.links import (
    LinksConfig,
    LinkStore,
    identity,
    key_text,
    link_labellers,
    linked_characters,
    linked_words,
    store_of_links,
    token_links,
)
from headway.parses.parse_store import key_of, open_writer
from headway.processing.text.text_processor import TextConfig, train_processors
from headway.processing.text.vocabulary import VocabularyConfig
from headway.tensors.batch import WHOLE

LINKS, TEXT = LinksConfig(), TextConfig()


def write(store: Path, pairs: dict[tuple[str, str], str], text: TextConfig = TEXT) -> None:
    with open_writer(store, identity(LINKS, text, "1"), LinkStore) as writer:
        writer.add((key_of(key_text(*pair)), line) for pair, line in pairs.items())


def test_shares_of_tokens() -> None:
    """Source words 0 (tokens 0, 1), 1 (2) and 2 (3); target words 0 (0), 1 (1, 2) and 2 (3)."""
    words = [(0,), (0,), (1,), (2,)], [(0,), (1,), (1,), (2,)]
    hard = token_links({(0, 0): None, (0, 1): None, (1, 1): None}, *words)
    assert hard.tolist() == [[0.5, 0.5, 0, 0], [1 / 3, 1 / 3, 1 / 3, 0], [1 / 3, 1 / 3, 1 / 3, 0], [0, 0, 0, 0]]
    # Of target word 0 a quarter of what is kept is in source word 0, which has two tokens.
    soft = token_links({(0, 0): 0.2, (2, 0): 0.6, (2, 2): 0.01}, *words)
    assert soft == pytest.approx(np.array([[0.125, 0.125, 0, 0.75], [0] * 4, [0] * 4, [0, 0, 0, 1]]))
    assert not token_links({(9, 9): None}, *words).any()


def test_a_token_without_spaces_has_the_links_of_its_characters(tmp_path: Path, parallel: Any) -> None:
    """駅 is read for "station", 前 for "before"; 駅前 is one token."""
    text = TextConfig.model_validate({"target": {"language": "ja"}})
    assert linked_words("駅前に B 2台。", text.target, characters=True) == ["駅", "前", "に", "B", "2", "台", "。"]
    assert linked_characters("eflomal", text) == [False, True]
    segmented = TextConfig.model_validate(
        {"source": {"language": "ko"}, "target": {"language": "ja", "segment": "sudachi"}}
    )
    assert not any([*linked_characters("pharaoh", text), *linked_characters("eflomal", segmented)])
    corpus = parallel(["before the station"], ["駅前 B"])
    vocabulary = VocabularyConfig(kind="whitespace")
    sides = train_processors(text, vocabulary, lambda: iter([("before the station", "駅前 B")]))
    store = store_of_links(corpus, LINKS)
    write(store, {("before the station", "駅前 B"): "0-1 2-0 1-2"}, text)
    (labeller,) = link_labellers(corpus, LINKS, text)
    rows, counts = labeller.label(("before the station", "駅前 B"), sides)
    assert rows.tolist() == [[0, 0, WHOLE // 2], [0, 2, WHOLE // 2], [1, 1, WHOLE]]
    assert list(counts) == [1, 0, 3, 0]
    header = store.read_text(encoding="utf-8")
    store.write_text(header.replace('"characters": [false, true], ', ""), encoding="utf-8")
    with pytest.raises(UserError, match="remove them and make them anew"):
        link_labellers(corpus, LINKS, text)


def test_a_line_belongs_to_its_pair_alone(tmp_path: Path) -> None:
    store = tmp_path / "x.links"
    write(store, {("a b", "A"): "0-0 1-0:0.25", ("c", "C"): "", ("d", "D"): "0-0 none"})
    kept = LinkStore(store)
    assert kept.get("a b", "A") == {(0, 0): None, (1, 0): 0.25}
    assert kept.get("c", "C") == {}
    assert kept.get("a b", "a") is kept.get("a", "b A") is None
    with pytest.raises(UserError, match="links are damaged"):
        kept.get("d", "D")
    with pytest.raises(UserError, match="another aligner, or version of it, made these links"):
        write(store, {}, TextConfig.model_validate({"source": {"segment": "moses"}}))


def test_a_corpus_carries_links(tmp_path: Path, parallel: Any) -> None:
    """Characters are tokens, spaces included: a space is a part of the word after it."""
    corpus = parallel(["ab c", "c a b", "b"], ["C BA", "A", "B"])
    sides = train_processors(TextConfig(), VocabularyConfig(kind="char"), lambda: iter([("ab c", "C BA")]))
    with pytest.raises(UserError, match=r"these sentences have no links yet; allowed: headway data annotate with"):
        link_labellers(corpus, LINKS, TextConfig())
    store = store_of_links(corpus, LINKS)
    write(store, {("ab c", "C BA"): "0-1 1-0", ("c a b", "A"): "1-0", ("b", "other"): "0-0"})

    def build() -> Any:
        return build_corpus(
            open_source(corpus, "data.train"), sides, Filters(max_length=5), name="data.train", filter=True,
            cache=tmp_path / "cache", labellers=link_labellers(corpus, LINKS, TextConfig()),
        )  # fmt: skip

    built = build()
    assert built.lines.tolist() == [1, 3]  # the second has six tokens
    links = built.collate(np.array([1, 0])).labels["links"]
    assert links.shape == (2, 6, 6)
    assert not links[0].any()
    of_c, of_ab = [0.0, 0.0, 0.0, 0.5, 0.5, 0.0], [1 / 3, 1 / 3, 1 / 3, 0.0, 0.0, 0.0]
    assert links[1].flatten().tolist() == pytest.approx([*of_c * 2, *of_ab * 3, *[0.0] * 6])
    assert built.report.labels["links"] == {
        "pairs": 2, "pairs without links": 1, "links": 2, "target tokens without links": 2,
    }  # fmt: skip
    assert build().fingerprint == built.fingerprint
    write(store, {("b", "B"): "0-0"})
    assert build().fingerprint != built.fingerprint


def test_links_of_other_words_are_refused(parallel: Any) -> None:
    corpus = parallel(["a"], ["A"])
    write(store_of_links(corpus, LINKS), {("a", "A"): "0-0"})
    other = TextConfig.model_validate({"target": {"normalise": ["lower"]}})
    with pytest.raises(UserError, match="between words of another preparation of the text"):
        link_labellers(corpus, LINKS, other)
    with pytest.raises(UserError, match=r"data\.links: the recipe names no links"):
        link_labellers(corpus, None, other)
    (labeller,) = link_labellers(corpus, LINKS, TextConfig())
    with pytest.raises(UserError, match="none of the pairs has links here"):
        labeller.check({"pairs": 3, "pairs without links": 3, "links": 0})


def test_where_links_are_kept(tmp_path: Path) -> None:
    def store(corpus: AnyCorpus, **options: object) -> Path:
        return store_of_links(corpus, LinksConfig.model_validate(options))

    files = parse_corpus({"source": tmp_path / "a.ja", "target": tmp_path / "b" / "a.en"}, "data.train")
    assert store(files) == tmp_path / "a.ja-a.en.eflomal.links"
    assert store(files, folder=tmp_path / "c", kind="teacher", run="r") == tmp_path / "c" / "a.ja-a.en.teacher.links"
    table = parse_corpus({"tsv": tmp_path / "a.tsv"}, "data.train")
    assert store(table) == tmp_path / "a.tsv.source-a.tsv.target.eflomal.links"


@pytest.mark.parametrize("options", [{"kind": "pharaoh"}, {"run": "r"}, {"kind": "teacher", "file": "f", "run": "r"}])
def test_a_kind_has_what_it_reads(options: dict[str, str]) -> None:
    with pytest.raises(ValidationError, match="and no other kind has one"):
        LinksConfig.model_validate(options)
