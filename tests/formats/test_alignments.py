"""Alignment error rate by hand, and the formats that alignments come in."""

import json
import os
from pathlib import Path

import pytest

from headway.core.errors import UserError
from headway.formats.alignments import Links, parse_pharaoh, read_alignments, read_treebanks
from headway.metrics import build_metric
from tests.conftest import Command


# |A & S|, |A & P|, |A|, |S| counted by hand; the second is the example of Och and Ney's definition.
@pytest.mark.parametrize(
    ("hypothesis", "gold", "counts", "rate"),
    [
        ("0-0 1-1", "0-0 1-1", (2, 2, 2, 2), 0.0),
        ("0-0 1-1 2-2", "0-0 1?1 3-3", (1, 2, 3, 2), 100 * (1 - 3 / 5)),
        ("0-1", "0-0", (0, 0, 1, 1), 100.0),
        ("1-1", "1p1", (0, 1, 1, 0), 0.0),
        ("", "0-0 1-1", (0, 0, 0, 2), 100.0),
        ("0-0 0-0 1?1", "0-0", (1, 1, 2, 1), 100 * (1 - 2 / 3)),
        ("", "", (0, 0, 0, 0), 0.0),
    ],
)
def test_by_hand(hypothesis, gold, counts, rate):
    metric = build_metric("aer")
    assert tuple(metric.statistics([hypothesis], [[gold]])[0]) == counts
    assert metric.score([hypothesis], [[gold]]).value == pytest.approx(rate)


def test_a_corpus_is_scored_from_sums():
    hypothesis, gold = ["0-0 1-1", "0-1", ""], ["0-0 1?1 2-2", "0-0", "1-0"]
    metric = build_metric("aer")
    score = metric.score(hypothesis, [gold])
    assert score.value == pytest.approx(100 * (1 - (1 + 2) / (3 + 4)))
    assert not metric.higher_is_better


def test_sure_links_are_possible():
    links = parse_pharaoh("2-1 0?0 1p3", "here")
    assert links == Links(frozenset({(2, 1)}), frozenset({(2, 1), (0, 0), (1, 3)}))
    assert links.pharaoh() == "0?0 1?3 2-1"


def test_naacl(tmp_path):
    file = tmp_path / "gold.naacl"
    file.write_text("0001 1 1 S\n0001 2 3 P\n3 2 1\n0003 1 2 P 0.75\n\n3 0 4\n", encoding="utf-8")
    assert read_alignments(file) == ["0-0 1?2", "", "0?1 1-0"]


def test_pharaoh_keeps_empty_lines(tmp_path):
    file = tmp_path / "gold"
    file.write_text("\n0-0 1?1\n\n", encoding="utf-8")
    assert read_alignments(file) == ["", "0-0 1?1", ""]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("0-0\n0-0 x-1\n", r"gold:2: this is no link between words; received 'x-1'"),
        ("1 1 1 S\n1 1\n", r"gold:2: this is no NAACL alignment"),
        ("0 1 1\n", r"gold:1: this is no NAACL alignment"),
        ("1 1 1\n999999999999 1 1 S\n", r"gold:2: this is no NAACL alignment"),
        ("1 1 1\n30000000 1 1 S\n", r"gold:2: this is no NAACL alignment; .* sentences up to 1,020"),
        ("1 1 " + "9" * 5000, r"gold:1: this is no link between words"),
        ("0-" + "9" * 5000, r"gold:1: this is no link between words"),
        ("٣-1", r"gold:1: this is no link between words"),
        ("<a", r"this is not XML"),
        ("<treealign><treebanks/></treealign>", r"an alignment names two treebanks"),
    ],
)
def test_what_is_no_alignment_is_named(tmp_path, content, message):
    file = tmp_path / "gold"
    file.write_text(content, encoding="utf-8")
    with pytest.raises(UserError, match=message):
        read_alignments(file)


def test_links_that_count_from_1(tmp_path):
    file = tmp_path / "gold"
    file.write_text("1-1 2?10\n" * 100, encoding="utf-8")
    assert read_alignments(file)[0] == "1-1 2?10"  # which may be from 0 yet
    assert read_alignments(file, 1) == ["0-0 1?9"] * 100
    file.write_text("1-1\n" * 101, encoding="utf-8")
    with pytest.raises(
        UserError, match=r"none of 101 sentences links a word 0, .* count from 1; allowed: links_from 1"
    ):
        read_alignments(file)
    assert read_alignments(file, 0) == ["1-1"] * 101
    file.write_text("1-1\n" * 101 + "10-0", encoding="utf-8")
    assert read_alignments(file) == read_alignments(file, 1) == ["1-1"] * 101 + ["10-0"]


def test_gold_from_1_is_scored_by_an_option_or_with_a_warning(tmp_path, run_headway: Command):
    (tmp_path / "links").write_text("0-0 1-1\n0-1\n0-0 2-1\n1-0\n", encoding="utf-8")
    (tmp_path / "gold").write_text("1-1 2-2\n1-2\n1-1 3-2\n2-1\n", encoding="utf-8")
    command = ("score", "--metric", "aer", "--hypotheses", tmp_path / "links", "--references", tmp_path / "gold")
    ended = run_headway(*command, "--links-from", "1", "--json")
    assert (ended.err, json.loads(ended.out)["variants"]["links"]["aer"]["mean"]) == ("", 0)
    assert "4 hypotheses link a word 0, and no reference does" in run_headway(*command).err


def test_sentences_without_links_have_no_line(tmp_path):
    (tmp_path / "gold").write_text("900 1 1\n", encoding="utf-8")
    assert read_alignments(tmp_path / "gold") == [""] * 899 + ["0-0"]


def test_one_reference():
    with pytest.raises(UserError, match="AER has one reference"):
        build_metric("aer").score(["0-0"], [["0-0"], ["0-0"]])


def treebank(*sentences: list[str]) -> str:
    rows = []
    for number, words in enumerate(sentences, start=1):
        terminals = "".join(f'<t word="{word}" id="s{number}_{index}"/>' for index, word in enumerate(words, start=1))
        phrase = f'<nonterminals><nt id="s{number}_500"/></nonterminals>'
        rows.append(f'<s id="s{number}"><graph><terminals>{terminals}</terminals>{phrase}</graph></s>')
    return f"<corpus><body>{''.join(rows)}</body></corpus>"


def test_treebanks_are_paired_by_their_links(tmp_path):
    """The second German sentence has two in English; the third has no link at all; phrases join but are no words."""
    (tmp_path / "de.xml").write_text(treebank(["Ja", "!"], ["Er", "kam", "und", "ging"], ["Ach"]), encoding="utf-8")
    (tmp_path / "en.xml").write_text(treebank(["He", "came"], ["He", "went"], ["Yes", "!"]), encoding="utf-8")
    links = [
        ("s2_1", "s1_1", "good"), ("s2_4", "s2_2", "good"), ("s2_2", "s1_2", "fuzzy"), ("s1_500", "s3_500", "good"),
        ("s1_2", "s3_2", "good"),
    ]  # fmt: skip
    aligned = "".join(
        f'<align type="{kind}"><node treebank_id="en" node_id="{en}"/><node treebank_id="de" node_id="{de}"/></align>'
        for de, en, kind in links
    )
    banks = '<treebank id="de" filename="de.xml"/><treebank id="en" filename="en.xml"/>'
    file = tmp_path / "de_en.xml"
    file.write_text(f"<treealign><head>{banks}</head>{aligned}</treealign>", encoding="utf-8")
    first, second = read_treebanks(file)
    assert (first.source, first.target, first.links.pharaoh()) == (("Ja", "!"), ("Yes", "!"), "1-1")
    assert second.source == ("Er", "kam", "und", "ging")
    assert second.target == ("He", "came", "He", "went")
    assert second.links.pharaoh() == "0-0 1?1 3-3"
    assert read_alignments(file) == ["1-1", "0-0 1?1 3-3"]


@pytest.mark.parametrize(
    ("banks", "nodes", "received"),
    [
        (("de", "en"), ("s1_2", "s1_9"), "'de': 's1_2', 'en': 's1_9'"),
        (("de", "en"), ("s4_500", "s1_2"), "'de': 's4_500', 'en': 's1_2'"),
        (("de", "sv"), ("s1_2", "s1_2"), "'de': 's1_2', 'sv': 's1_2'"),
        (("de",), ("s1_2",), "'de': 's1_2'"),
    ],
)
def test_no_link_is_dropped(tmp_path, banks, nodes, received):
    (tmp_path / "de.xml").write_text(treebank(["Ja", "!"]), encoding="utf-8")
    (tmp_path / "en.xml").write_text(treebank(["Yes", "!"]), encoding="utf-8")
    ends = "".join(f'<node treebank_id="{bank}" node_id="{node}"/>' for bank, node in zip(banks, nodes, strict=True))
    named = '<treebank id="de" filename="de.xml"/><treebank id="en" filename="en.xml"/>'
    (tmp_path / "a.xml").write_text(f'<treealign>{named}\n\n<align type="good">{ends}</align></treealign>')
    message = f"a.xml:3: this is no link of words or phrases; received {{'type': 'good', {received}}}; allowed: good"
    with pytest.raises(UserError, match=message):
        read_treebanks(tmp_path / "a.xml")


@pytest.mark.skipif("HEADWAY_DATA" not in os.environ, reason="HEADWAY_DATA, the folder of corpora, is not set")
def test_a_real_gold_alignment():
    gold = Path(os.environ["HEADWAY_DATA"]) / "alignments" / "alignments_banana_de_en.xml"
    pairs = read_treebanks(gold)
    assert len(pairs) == 77
    assert (sum(len(pair.links.sure) for pair in pairs), sum(len(pair.links.possible) for pair in pairs)) == (
        1189,
        1317,
    )
    first = pairs[0]
    named = {(first.source[one], first.target[other]) for one, other in first.links.sure}
    assert ("Rainforest", "Rainforest") in named
    assert ("Bananen-Zertifizierungsprogramm", "Certification") in named
    lines = read_alignments(gold)
    assert build_metric("aer").score(lines, [lines]).value == pytest.approx(100 * (1 - (1189 + 1317) / (1317 + 1189)))


def test_nodes_stand_in_the_sentence_that_holds_them(tmp_path):
    """Their ids need not begin with that of the sentence, which may have an underscore itself."""
    for name, word in (("de", "Ja"), ("en", "Yes")):
        terminals = f'<t id="doc_s1_1" word="{word}"/><t id="t2" word="!"/>'
        row = f'<s id="doc_s1"><graph><terminals>{terminals}</terminals></graph></s>'
        (tmp_path / f"{name}.xml").write_text(f"<corpus><body>{row}</body></corpus>")
    banks = '<treebank id="de" filename="de.xml"/><treebank id="en" filename="en.xml"/>'

    def written(kind: str, node: str) -> Path:
        ends = f'<node treebank_id="de" node_id="{node}"/><node treebank_id="en" node_id="{node}"/>'
        (tmp_path / "a.xml").write_text(f'<treealign>{banks}\n<align type="{kind}">{ends}</align></treealign>')
        return tmp_path / "a.xml"

    for node, link in (("doc_s1_1", "0-0"), ("t2", "1-1")):
        (pair,) = read_treebanks(written("good", node))
        assert (pair.source, pair.target, pair.links.pharaoh()) == (("Ja", "!"), ("Yes", "!"), link)
    with pytest.raises(UserError, match=r"a.xml:2: this is no link .* {'type': 'sure', .*allowed: good or fuzzy"):
        read_treebanks(written("sure", "t2"))


def test_comments_link_nothing(tmp_path):
    """Annotators say of two nodes what is doubtful there; the sentences that only a comment joins are no pair."""
    (tmp_path / "de.xml").write_text(treebank(["Ja", "!"], ["Ach"]), encoding="utf-8")
    (tmp_path / "en.xml").write_text(treebank(["Yes", "!"], ["Oh"]), encoding="utf-8")
    aligned = "".join(
        f'<align {kind}><node treebank_id="de" node_id="{node}"/><node treebank_id="en" node_id="{node}"/></align>'
        for kind, node in (
            ('type="good"', "s1_1"),
            ('type="comment" comment="doubtful"', "s1_2"),
            ('type="comment"', "s2_1"),
        )
    )
    banks = '<treebank id="de" filename="de.xml"/><treebank id="en" filename="en.xml"/>'
    (tmp_path / "a.xml").write_text(f"<treealign>{banks}{aligned}</treealign>", encoding="utf-8")
    assert [(pair.source, pair.links.pharaoh()) for pair in read_treebanks(tmp_path / "a.xml")] == [
        (("Ja", "!"), "0-0")
    ]


def test_treebanks_as_text(run_headway: Command, tmp_path):
    (tmp_path / "de.xml").write_text(treebank(["Ja", "!"]), encoding="utf-8")
    (tmp_path / "en.xml").write_text(treebank(["Yes", "!"]), encoding="utf-8")
    nodes = '<node treebank_id="de" node_id="s1_2"/><node treebank_id="en" node_id="s1_2"/>'
    banks = '<treebank id="de" filename="de.xml"/><treebank id="en" filename="en.xml"/>'
    (tmp_path / "a.xml").write_text(f'<treealign>{banks}<align type="good">{nodes}</align></treealign>')
    assert run_headway("data", "make", "treebanks", tmp_path / "a.xml", "--output", tmp_path / "out").code == 0
    written = {path.stem: path.read_text(encoding="utf-8") for path in (tmp_path / "out").iterdir()}
    assert written == {"source": "Ja !\n", "target": "Yes !\n", "gold": "1-1\n"}


def test_the_command_line(run_headway: Command, tmp_path):
    (tmp_path / "automatic").write_text("0-0 1-1 2-2\n", encoding="utf-8")
    (tmp_path / "gold").write_text("1 1 1 S\n1 2 2 P\n1 4 4 S\n", encoding="utf-8")
    files = ("--hypotheses", tmp_path / "automatic", "--references", tmp_path / "gold")
    code, out, _ = run_headway("score", "--metric", "aer", *files)
    assert code == 0
    assert "40.00" in out
