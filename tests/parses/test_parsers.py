"""Parsers: characters of the raw line for every token, whatever white space means; CoNLL-U; spaCy; a Stanza double."""

import sys
from types import SimpleNamespace

import pytest

from headway.core.errors import UserError
from headway.parses.parsers import ParserConfig, _without_blanks, load_parser, read_conllu
from tests.parses import toys


def tokens(parse, line):
    return [(line[start:end], head, label) for start, end, head, label in parse.tokens]


def load(kind, model, whitespace="text"):
    return load_parser(ParserConfig(kind=kind, model=str(model), whitespace=whitespace), "data.parses.source")


def test_conllu_sentences_are_found_by_their_characters(tmp_path):
    parser = load("conllu", toys.write_conllu(tmp_path))
    together, apart, unknown, blank = (
        "Er ist im Haus. Sie singt", "Er  ist i m Haus .", "Er ist im Haus . Sie sang", "",
    )  # fmt: skip
    first, second, third, fourth = parser.parse([together, apart, unknown, blank])
    german = [("Er", 4), ("ist", 4), ("im", 4), ("im", 4), ("Haus", 4), (".", 4)]
    assert [token[:2] for token in tokens(first, together)] == [*german, ("Sie", 7), ("singt", 7)]
    assert [token[0] for token in tokens(second, apart)] == ["Er", "ist", "i m", "i m", "Haus", "."]
    assert third.tokens == fourth.tokens == ()
    assert [text for text, _ in read_conllu(tmp_path / "made.conllu")] == ["Er ist im Haus.", "Sie singt"]
    assert [token.tokens for token in load("conllu", tmp_path).parse([together])] == [first.tokens]


def test_ranges_are_read_wherever_they_stand_among_their_words(tmp_path):
    row = "{}\t{}\t_\t_\t_\t_\t{}\tx\t_\t{}\n"
    words = [row.format(*cells) for cells in ((1, "de", 3, "_"), (2, "el", 3, "_"), (3, "mar", 0, "SpaceAfter=No"))]
    whole, empty = row.format("1-2", "del", "_", "_"), row.format("3.1", "no", "_", "_")
    texts = (
        [whole, *words, empty],
        [*words[:2], whole, empty, words[2]],
        [words[0], whole, *words[1:]],
        [*words, whole],
    )
    for rows in texts:
        (tmp_path / "a.conllu").write_text("".join(rows) + "\n", encoding="utf-8")
        ((text, parse),) = read_conllu(tmp_path / "a.conllu")
        assert (text, [token[:2] for token in parse.tokens]) == ("del mar", [(0, 3), (0, 3), (3, 6)])
    for number in ("3-4", "2-3"):
        wrong = row.format(number, "x", "_", "_")
        (tmp_path / "a.conllu").write_text("".join([whole, *words, wrong]), encoding="utf-8")
        with pytest.raises(UserError, match=rf"a\.conllu:5: this is no range of words of its own; received '{number}'"):
            list(read_conllu(tmp_path / "a.conllu"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1\ta\t_\t_\t_\t_\t2\tx\t_\t_\n2\tb\t_\t_\t_\t_\t1\tx\t_\t_\n\n", "made.conllu:1: these heads make no tree"),
        (toys.CONLLU + "1\ta\t_\t_\t_\t_\t7\tx\t_\t_\n\n", "made.conllu:14: these heads make no tree"),
        (toys.CONLLU + "no columns\n\n", "made.conllu:14: this row is not CoNLL-U .*expected 10, got 1"),
        (toys.CONLLU + "x\ta\t_\t_\t_\t_\t0\tx\t_\t_\n\n", "made.conllu:14: this row is not CoNLL-U"),
    ],
)
def test_damaged_conllu_is_named(tmp_path, text, message):
    with pytest.raises(UserError, match=message):
        load("conllu", toys.write_conllu(tmp_path, text))


def test_a_missing_model_is_named(tmp_path):
    with pytest.raises(UserError, match=r"data.parses.source: there is no such file"):
        load("conllu", tmp_path / "missing.conllu")
    pytest.importorskip("spacy")
    with pytest.raises(UserError, match=r"data.parses.source: cannot load this spaCy pipeline"):
        load("spacy", "no_such_pipeline")


def test_a_spacy_pipeline_without_a_parser_is_refused(tmp_path):
    spacy = pytest.importorskip("spacy")
    spacy.blank("en").to_disk(tmp_path / "blank")
    with pytest.raises(UserError, match="this spaCy pipeline has no parser"):
        load("spacy", tmp_path / "blank")


def test_spacy_tokens_know_their_characters(tmp_path):
    pytest.importorskip("spacy")
    folder = toys.random_pipeline(tmp_path)
    line = "we can't  sing"
    texts = {"text": ["we", "ca", "n't", "sing"], "tokens": ["we", "can't", "sing"], "none": ["we can't  sing"]}
    for whitespace, expected in texts.items():
        (parse,) = load("spacy", folder, whitespace).parse([line])
        assert [text for text, _, _ in tokens(parse, line)] == expected
        assert any(head == index for index, (_, head, _) in enumerate(tokens(parse, line)))


def test_what_hangs_on_white_space_moves_up():
    spans = [(0, 1), (1, 3), (3, 4), (4, 5)]
    moved = _without_blanks(spans, [1, 2, 2, 1], list("abcd"), [True, False, True, True])
    assert [token.head for token in moved.tokens] == [1, 1, 1]
    rootless = _without_blanks(spans, [1, 1, 1, 2], list("abcd"), [True, False, True, True])
    assert [token.head for token in rootless.tokens] == [0, 1, 1]


def test_japanese_by_ginza():
    pytest.importorskip("ja_ginza", reason="needs ja-ginza: pip install 'headway[parse]'")
    line = "私 は 本 を 読 み ま し た 。"
    (parse,) = load("spacy", "ja_ginza", "none").parse([line])
    heads = {text: tokens(parse, line)[head][0] for text, head, _ in tokens(parse, line)}
    assert heads == {
        "私": "読 み", "は": "私", "本": "読 み", "を": "本",
        "読 み": "読 み", "ま し": "読 み", "た": "読 み", "。": "読 み",
    }  # fmt: skip


class FakeStanza:
    """As much of Stanza as is used: `im` is a contraction of two words, each sentence ends at a full stop."""

    __version__ = "0"

    def __init__(self):
        self.options = {}

    def Pipeline(self, **options):  # noqa: N802
        if options["lang"] == "xx":
            raise KeyError("no such language")
        self.options = options
        return self.run

    def run(self, text):
        sentences, start = [], 0
        for part in text.split("."):
            if part.strip():
                sentences.append(SimpleNamespace(tokens=self.tokens_of(text, part, start)))
            start += len(part) + 1
        return SimpleNamespace(sentences=sentences)

    def tokens_of(self, text, part, start):
        tokens, count = [], 0
        for form in part.split():
            start = text.index(form, start)
            words = ["in", "dem"] if form == "im" else [form]
            heads = [0 if count + n == 0 else 1 for n in range(len(words))]
            nodes = [SimpleNamespace(head=head, deprel="dep") for head in heads]
            tokens.append(SimpleNamespace(start_char=start, end_char=start + len(form), words=nodes))
            start, count = start + len(form), count + len(words)
        return tokens


def test_stanza_sentences_become_trees_of_one_line(monkeypatch, tmp_path):
    fake = FakeStanza()
    monkeypatch.setitem(sys.modules, "stanza", fake)
    line = "er ist  im. sie singt."
    (parse,) = load("stanza", "de").parse([line])
    assert [token[:2] for token in tokens(parse, line)] == [
        ("er", 0), ("ist", 0), ("im", 0), ("im", 0), ("sie", 4), ("singt", 4),
    ]  # fmt: skip
    assert fake.options["lang"] == "de"
    assert fake.options["download_method"] is None
    (parse,) = load("stanza", "de", "none").parse(["a b ."])
    assert [token[0] for token in tokens(parse, "a b .")] == ["a b"]
    (parse,) = load("stanza", "de", "tokens").parse(["a  b im"])
    assert [token[0] for token in tokens(parse, "a  b im")] == ["a", "b", "im", "im"]
    assert fake.options["tokenize_pretokenized"]
    (tmp_path / "de").mkdir()
    load("stanza", tmp_path / "de")
    assert fake.options["dir"] == str(tmp_path)
    with pytest.raises(UserError, match="cannot load these Stanza models"):
        load("stanza", "xx")
