"""Corpora as recipes name them: long and short forms, lists, formats from elsewhere, recipes of earlier runs."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headway.core.errors import UserError
from headway.core.registry import foreign_code
from headway.corpora.corpus import build_corpus
from headway.corpora.filters import Filters
from headway.formats import FORMATS
from headway.formats.corpus_config import SHORT_FORMS, CorpusConfig, parse_corpus
from headway.formats.corpus_format import ERRORS, PAIRS, CorpusFormat, Pair, PairSource, check_product
from headway.formats.labelled_words import open_labelled
from headway.formats.lines import read_lines
from headway.formats.pairs import open_source
from headway.formats.recordings import open_recordings, read_utterances
from headway.processing.text.text_processor import TextProcessor
from headway.recipe import Recipe, dump_recipe, load_recipe, parse_recipe

LEXICON = f"{__name__}:LexiconFormat"


class Entries(PairSource):
    """Words and their pronunciations."""

    def rows(self) -> Iterator[Pair | UserError]:
        for line, row in enumerate(read_lines(self.files[0]), start=1):
            word, _, sounds = row.partition("  ")
            yield Pair(line, " ".join(word.lower() if self.columns[0] else word), sounds)


class LexiconFormat(CorpusFormat):
    """A pronunciation lexicon, as a user may write it: `WORD  S OU N D S`."""

    class Config(CorpusConfig):
        """The file; `lower` makes small letters of words."""

        path: Path
        lower: bool = False

    config: Config
    products = (PAIRS,)

    def pairs(self) -> PairSource:
        return Entries(str(self.config.path), (self.config.path,), (int(self.config.lower),))


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def recipe(train: Any, dev: Any = None) -> Recipe:
    return parse_recipe({"data": {"train": train, "dev": dev}, "training": {"updates": 1}})


@pytest.mark.parametrize(
    ("short", "long"),
    [
        ({"tsv": "a"}, {"kind": "tsv", "path": "a"}),
        ({"tsv": "a", "columns": [2, 1]}, {"kind": "tsv", "path": "a", "columns": [2, 1]}),
        ({"source": "a", "target": "b"}, {"kind": "parallel", "source": "a", "target": "b"}),
        ({"source": "a", "references": ["b", "c"]}, {"kind": "parallel", "source": "a", "references": ["b", "c"]}),
        ({"jsonl": "a", "columns": ["x", "y.z"]}, {"kind": "jsonl", "path": "a", "columns": ["x", "y.z"]}),
        (
            {"hub": "a/b", "hub_config": "c", "split": "train", "columns": ["x", "y"]},
            {"kind": "hub", "name": "a/b", "configuration": "c", "split": "train", "columns": ["x", "y"]},
        ),
        ({"trees": "a", "leaves": "xx"}, {"kind": "trees", "path": "a", "leaves": "xx"}),
        ({"conllu": "a", "label": "xpos"}, {"kind": "conllu", "path": "a", "label": "xpos"}),
        ({"m2": "a", "annotator": 1}, {"kind": "m2", "path": "a", "annotator": 1}),
        ({"librispeech": "a"}, {"kind": "librispeech", "folders": ["a"]}),
    ],
)
def test_short_forms_stand_for_long_ones(short: dict[str, Any], long: dict[str, Any]) -> None:
    assert recipe(short).data == recipe(long).data
    assert recipe(short).data.train.kind == long["kind"]  # type: ignore[union-attr]
    assert set(SHORT_FORMS) <= set(FORMATS)


FLAT = {
    "source": None, "target": None, "tsv": None, "jsonl": None, "hub": None, "hub_config": None, "split": None,
    "m2": None, "annotator": None, "conllu": None, "label": "upos", "references": [], "librispeech": [], "trees": None,
    "leaves": "tags", "functions": False, "columns": None,
}  # fmt: skip


@pytest.mark.parametrize(
    "given",
    [
        {"tsv": "a"}, {"source": "a", "target": "b"}, {"source": "a", "references": ["b"]}, {"librispeech": ["a", "b"]},
        {"jsonl": "a", "columns": ["x", "y"]}, {"hub": "a", "split": "b", "columns": ["x", "y"]}, {"m2": "a"},
        {"conllu": "a", "label": "deprel"}, {"trees": "a", "functions": True},
    ],
)  # fmt: skip
def test_recipes_of_earlier_runs_have_every_key_of_every_kind(given: dict[str, Any]) -> None:
    assert recipe(FLAT | given).data == recipe(given).data


def test_an_override_of_a_short_form_changes_the_long_one() -> None:
    assert parse_corpus({"kind": "tsv", "path": "old", "tsv": "new"}, "x") == parse_corpus({"tsv": "new"}, "x")


def test_what_is_written_is_read() -> None:
    import yaml

    several = recipe([{"tsv": "a"}, {"kind": LEXICON, "path": "b", "lower": True}], {"source": "a", "target": "b"})
    tree = yaml.safe_load(dump_recipe(several))
    assert tree["data"]["train"] == [
        {"kind": "tsv", "weight": None, "tag": None, "terms": None, "path": "a", "columns": None, "quoted": False},
        {"kind": LEXICON, "weight": None, "tag": None, "terms": None, "path": "b", "lower": True},
    ]  # fmt: skip
    assert parse_recipe(tree) == several


@pytest.mark.parametrize(
    ("corpus", "message"),
    [
        (
            {"kind": "tvs"},
            "data.dev.kind: unknown corpus format; did you mean 'tsv'?; received 'tvs'; allowed: parallel",
        ),
        ({"kind": "tsv"}, "data.dev.path: this key is needed"),
        ({"kind": "tsv", "pth": "a", "path": "b"}, "data.dev.pth: unknown key; did you mean 'path'?; allowed: kind,"),
        ({"kind": LEXICON, "path": "a", "lowr": True}, "data.dev.lowr: unknown key; did you mean 'lower'?"),
        ({"kind": LEXICON, "path": "a", "lower": 7}, "data.dev.lower: input should be a valid boolean"),
        ({"kind": f"{__name__}:Absent"}, "data.dev.kind: cannot import the corpus format"),
        ({"kind": "pathlib:Path"}, "data.dev.kind: this is not a subclass of headway.formats.corpus_format.CorpusFor"),
        ([{"tsv": "a"}, {"tsv": "b", "colums": 1}], "data.dev.1.colums: unknown key; did you mean 'columns'?"),
        ([{"tsv": "a"}, {"x": "b"}], "data.dev.1: a corpus is either"),
        ([], "data.dev: tuple should have at least 1 item"),
        ("a.tsv", "data.dev: a corpus is either"),
        ({"tsv": "a", "jsonl": "b"}, "data.dev: a corpus is either"),
        ({"kind": "m2", "path": "a", "annotator": -1}, "data.dev.annotator: input should be greater than or equal"),
    ],
)
def test_mistakes_are_named_with_their_full_key(corpus: Any, message: str) -> None:
    with pytest.raises(UserError) as error:
        recipe({"tsv": "a", "x": 1}, corpus)
    assert message in str(error.value)
    assert "data.train.x: unknown key" in str(error.value)  # beside all others


def test_a_format_from_elsewhere(tmp_path: Path) -> None:
    path = write(tmp_path / "lexicon", "DO  D UW\nGO  G OW\n")
    corpus = recipe({"kind": LEXICON, "path": str(path), "lower": True}).data.train
    source = open_source(corpus, "data.train")
    assert list(source) == [Pair(1, "d o", "D UW"), Pair(2, "g o", "G OW")]
    with pytest.raises(UserError, match=r"data\.dev\.path: there is no such file"):
        open_source({"kind": LEXICON, "path": tmp_path / "none"}, "data.dev")
    with pytest.raises(UserError, match=f"data.train: the task reads no such corpus; received '{LEXICON}'; allowed: p"):
        check_product(corpus, "data.train", ERRORS)
    with foreign_code(False), pytest.raises(UserError, match=r"data\.train\.kind: loading this would import"):
        recipe({"kind": LEXICON, "path": str(path)})


def test_paths_of_every_part_are_looked_for(tmp_path: Path) -> None:
    write(tmp_path / "a.tsv", "a\tb\n")
    path = write(
        tmp_path / "recipe.yaml",
        f"data: {{train: [{{tsv: a.tsv}}, {{kind: '{LEXICON}', path: b}}], folder: {tmp_path}}}\n"
        "training: {updates: 1}\n",
    )
    train = load_recipe(str(path)).data.train
    assert [part.path for part in train] == [tmp_path / "a.tsv", tmp_path / "b"]  # type: ignore[union-attr,attr-defined]


def test_several_corpora_are_one(tmp_path: Path, sides: tuple[TextProcessor, TextProcessor]) -> None:
    one, two = write(tmp_path / "a.tsv", "a\tA\n\nb\tB\n"), write(tmp_path / "b.tsv", "c\tC\n\n\td\nd d d\tD\n")
    several = open_source([{"tsv": one}, {"tsv": two}], "data.train")
    assert [(pair.line, pair.source) for pair in several] == [
        (1, "a"), (2, ""), (3, "b"), (4, "c"), (5, ""), (6, ""), (7, "d d d"),
    ]  # fmt: skip
    assert list(several) == list(several)
    corpus = build_corpus(several, sides, Filters(max_length=2), name="data.train", filter=True, cache=tmp_path)
    assert corpus.lines.tolist() == [1, 3, 4]
    message = corpus.report.text()
    assert f"dropped 3: empty side (line {one}:2, {two}:2, {two}:3)" in message
    assert f"dropped 1: over max_length (line {two}:4)" in message
    again = build_corpus(several, sides, Filters(max_length=2), name="data.train", filter=True, cache=tmp_path)
    assert (again.report.text(), again.fingerprint) == (message, corpus.fingerprint)
    turned = open_source([{"tsv": two}, {"tsv": one}], "data.train")
    assert len({item.fingerprint() for item in (several, turned, open_source({"tsv": one}, "x"))}) == 3


def test_mistakes_in_a_list_name_their_file(tmp_path: Path) -> None:
    one, two = write(tmp_path / "a.tsv", "a\tA\n"), write(tmp_path / "b.tsv", "c\tC\td\n")
    with pytest.raises(UserError, match=r"b\.tsv:1: wrong number of columns"):
        list(open_source([{"tsv": one}, {"tsv": two}], "data.train"))
    with pytest.raises(UserError, match=r"data\.train\.1\.tsv: there is no such file"):
        open_source([{"tsv": one}, {"tsv": tmp_path / "c"}], "data.train")
    with pytest.raises(UserError, match=r"data\.train\.1: the task reads no such corpus; received 'm2'"):
        open_source([{"tsv": one}, {"m2": two}], "data.train")


def test_labelled_words_and_recordings_in_a_list(tmp_path: Path) -> None:
    one, two = write(tmp_path / "a.tsv", "a\tc\n"), write(tmp_path / "b.tsv", "x\ti\tb\n")
    columns = {"kind": "columns", "path": two, "columns": [3, 2]}
    sentences = open_labelled([{"tsv": one}, columns], "data.train", ERRORS)
    assert [(item.words, item.labels) for item in sentences] == [(("a",), (("c",),)), (("b",), (("i",),))]
    edits = write(
        tmp_path / "c.m2", "S a\nA 0 1|||R|||b|||REQUIRED|||-NONE-|||0\nA 0 1|||R|||b|||REQUIRED|||-NONE-|||1\n"
    )
    with pytest.raises(UserError, match="equally many annotators; received 2; allowed: 1"):
        open_labelled([{"tsv": one}, {"m2": edits}], "data.train", ERRORS)
    (tmp_path / "more").mkdir()
    more = write(tmp_path / "more" / "d.tsv", "d.wav\tdee\n")
    recordings = open_recordings([{"tsv": one}, {"tsv": more}], "data.train")
    assert [(item.line, item.audio) for item in read_utterances(recordings)] == [
        (1, tmp_path / "a"), (2, tmp_path / "more" / "d.wav"),
    ]  # fmt: skip
