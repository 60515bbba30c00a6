"""Files of every format that corpora and metrics read: well-formed with odd text, and damaged."""

from __future__ import annotations

import gzip
import json
import lzma
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.sax.saxutils import quoteattr

import hypothesis.strategies as st
from hypothesis.strategies import SearchStrategy

from tools.campaigns.campaign import Campaign
from tools.campaigns.mutations import LINE_ENDS, Change, Content, changed, changes, expanded, words


@dataclass(frozen=True)
class DataCase:
    """The files of a corpus (all but the first in the same format), and how they are packed.

    `damage` is done to the first file after it was compressed.
    """

    kind: str
    files: tuple[Content, ...]
    suffix: str = ""
    option: str = ""
    damage: tuple[Change, ...] = ()


sentences = st.lists(words(), max_size=6)
lines = sentences.map(" ".join)
labels = st.sampled_from(("c", "i", "NOUN", "X", ""))
tags = st.sampled_from(("NN", "DT", "NP-SBJ", "-NONE-", "$,", "XX", "("))


def _text(rows: SearchStrategy[str]) -> SearchStrategy[tuple[bytes]]:
    return st.lists(rows, min_size=1, max_size=6).map(lambda written: (_joined(written),))


def _aligned(rows: SearchStrategy[str], end: str = "\n") -> SearchStrategy[tuple[bytes, bytes]]:
    """Two files with equally many lines."""
    pairs = st.lists(st.tuples(rows, rows), min_size=1, max_size=6)
    return pairs.map(lambda both: (_joined([one for one, _ in both], end), _joined([other for _, other in both])))


def _joined(rows: Sequence[str], end: str = "\n") -> bytes:
    return "".join(row + end for row in rows).encode("utf-8", "surrogatepass")


def _json_row(pair: tuple[Any, Any], escaped: bool, twice: bool) -> str:
    row = json.dumps({"s": pair[0], "t": pair[1], "n": {"deep": pair[0]}}, ensure_ascii=escaped)
    return row[:-1] + ', "s": "twice"}' if twice else row


json_values = st.one_of(
    lines, lines, st.text(st.sampled_from("a " + LINE_ENDS), max_size=4), st.none(), st.integers(), st.booleans(),
    st.lists(lines, max_size=2),
)  # fmt: skip
json_rows = st.builds(
    _json_row, st.tuples(json_values, json_values), st.booleans(), st.sampled_from((False,) * 5 + (True,))
)
tsv_rows = st.lists(lines, min_size=1, max_size=4).map("\t".join)
word_rows = st.one_of(st.tuples(words(), labels).map("\t".join), st.just(""))
conllu_words = st.tuples(words(), st.integers(0, 5), st.sampled_from(("nsubj", "punct", "conj", "case", "root", "cc")))


def _conllu(sentence: list[tuple[str, int, str]]) -> str:
    rows = ["# text = a"]
    for index, (form, head, relation) in enumerate(sentence, start=1):
        head = min(head, len(sentence))
        rows.append("\t".join((str(index), form, form, "NOUN", "NN", "_", str(head), relation, "_", "SpaceAfter=No")))
    return "\n".join(rows) + "\n"


def _m2(sentence: list[str], edits: list[tuple[int, int, int]]) -> str:
    rows = [f"S {' '.join(sentence)}"]
    rows += [f"A {start} {start + size}|||R:VERB|||x|||REQUIRED|||-NONE-|||{who}" for start, size, who in edits]
    return "\n".join(rows) + "\n"


def _brackets(children: SearchStrategy[str]) -> SearchStrategy[str]:
    return st.tuples(tags, st.lists(children, min_size=1, max_size=3)).map(
        lambda node: f"({node[0]} {' '.join(node[1])})"
    )


penn_trees = st.recursive(st.tuples(tags, words()).map("({0[0]} {0[1]})".format), _brackets, max_leaves=8)


def _tiger(sentence: list[tuple[str, str]], parents: list[int], name: str = "s1") -> str:
    """A sentence in TIGER-XML: terminal i is below constituent `parents[i]`, and these below the first."""
    terminals = "".join(
        f"<t id='{name}_{index}' word={quoteattr(word)} pos={quoteattr(pos)}/>"
        for index, (word, pos) in enumerate(sentence, start=1)
    )
    below: dict[int, list[str]] = {}
    for index, parent in enumerate(parents[: len(sentence)], start=1):
        below.setdefault(parent, []).append(f"<edge idref='{name}_{index}' label='--'/>")
    first = min(below, default=0)
    for parent in sorted(below)[1:]:
        below[first].append(f"<edge idref='{name}_5{parent:02}' label='HD'/>")
    constituents = "".join(
        f"<nt id='{name}_5{parent:02}' cat='NP'>{''.join(edges)}</nt>" for parent, edges in sorted(below.items())
    )
    return (
        f"<s id='{name}'><graph root='{name}_500'><terminals>{terminals}</terminals>"
        f"<nonterminals>{constituents}</nonterminals></graph></s>\n"
    )


xml_words = st.lists(
    st.tuples(st.sampled_from(("a", "Haus", "日", "(", "<")), st.sampled_from(("NN", "$,", "ART"))), max_size=5
)
HEADS = (
    '<?xml version="1.0" encoding="utf-8"?>',
    '<?xml version="1.0" encoding="shift_jis"?>',
    '<?xml version="1.0"?>',
    '<?xml version="1.0" encoding="nosuch"?>',
    '<!DOCTYPE a [<!ENTITY lol "lol">]>',
)


def _tiger_file(head: str, bodies: list[tuple[list[tuple[str, str]], list[int]]]) -> bytes:
    text = "".join(_tiger(sentence, parents, f"s{index}") for index, (sentence, parents) in enumerate(bodies, start=1))
    return f"{head}<corpus id='c'><body>{text}</body></corpus>".encode()


heads = st.sampled_from((HEADS[0],) * 4 + HEADS)
tiger_files = st.builds(
    _tiger_file, heads, st.lists(st.tuples(xml_words, st.lists(st.integers(0, 3), min_size=5, max_size=5)), max_size=3)
)
aligned = st.lists(st.tuples(st.integers(1, 3), st.integers(1, 3), st.sampled_from(("good", "fuzzy", ""))), max_size=4)


def _tree_aligner(head: str, links: list[tuple[int, int, str]]) -> bytes:
    rows = "".join(
        f"<align type='{kind}'><node treebank_id='a' node_id='s1_{one}'/>"
        f"<node treebank_id='b' node_id='s1_{two}'/></align>"
        for one, two, kind in links
    )
    banks = "".join(f"<treebank id='{side}' filename='{side}.xml'/>" for side in "ab")
    head = f"{head}<treealign><head><treebanks>{banks}</treebanks></head>"
    return f"{head}<alignments>{rows}</alignments></treealign>".encode()


pharaoh_rows = st.lists(
    st.tuples(st.integers(0, 9), st.sampled_from("-?p"), st.integers(0, 9)).map("{0[0]}{0[1]}{0[2]}".format), max_size=5
).map(" ".join)
naacl_rows = st.tuples(
    st.integers(1, 4), st.integers(0, 5), st.integers(0, 5), st.sampled_from(("", " S", " P", " P 0.5"))
)

# By kind: the contents of the files.
KINDS: dict[str, SearchStrategy[tuple[bytes, ...]]] = {
    "parallel": _aligned(lines),
    "parallel-crlf": _aligned(lines, "\r\n"),
    "corrections": _aligned(lines),
    "tsv": _text(tsv_rows),
    "jsonl": _text(json_rows),
    "columns": _text(word_rows),
    "conllu": _text(st.lists(conllu_words, max_size=4).map(_conllu)),
    "m2": _text(st.builds(_m2, sentences, st.lists(st.tuples(*[st.integers(0, 3)] * 3), max_size=2))),
    "penn": _text(penn_trees),
    "tiger": st.tuples(tiger_files),
    "pharaoh": _text(pharaoh_rows),
    "naacl": _text(naacl_rows.map("{0[0]} {0[1]} {0[2]}{0[3]}".format)),
    "treealigner": st.tuples(st.builds(_tree_aligner, heads, aligned), tiger_files, tiger_files),
    "manifest": _text(st.tuples(words(), lines).map("\t".join)),
    "librispeech": _text(st.tuples(words(), lines).map(" ".join)),
    "scores": _aligned(lines),
    "encode": _aligned(lines),
    "line": _text(lines),
}
OPTIONS: dict[str, tuple[str, ...]] = {
    "tsv": ("", "1 2", "2 1", "1 3", "s t", "3 2 1"),
    "columns": ("1 2", "2 1", "1 1"),
    "conllu": ("upos", "deprel", "parses"),
    "m2": ("", "0", "1"),
    "jsonl": ("s t", "s n.deep", "s t n.deep", "n t"),
    "scores": ("bleu", "chrf", "wer", "cer", "exact_match", "rouge-l", "aer", "bracket-f1", "accuracy"),
    "encode": ("char", "word", "whitespace"),
    "line": ("none", "whitespace", "moses", "nfkc", "punctuation", "lower"),
}
TOKENS: dict[str, tuple[bytes, ...]] = {
    "naacl": (b"999999999999 1 1 S\n", b"30000000 1 1\n", b"0 1 1\n", b"1 0 0 P\n"),
    "pharaoh": (b"999999999999-0", b"0--1", b"1?2", b" 3p4"),
    "tiger": (b"<t id='s1_1' word='a' pos='NN'/>", b"<edge idref='s1_500'/>", b"cat='S X'", b"<s id='s9'>", b"</s>"),
    "jsonl": (b'"s": 1, ', b'{"s": "a", "s": "b", "t": "c"}\n', b"Infinity", b'"\\n"', b'"\\u2028"'),
    "conllu": (b"1-2\ta\t", b"8.1\t", b"\t99999\t", b"\t-1\t", b"# newdoc\n", b"1\ta\ta\tX\tX\t_\t1\troot\t_\t_\n"),
    "m2": (b"A -1 -1|||noop|||-NONE-|||REQUIRED|||-NONE-|||0\n", b"A 0 99|||", b"S \n", b"|||99999999999"),
    "tsv": (b"s\tt\n", b"s\ts\n"),
}


def _case(kind: str) -> SearchStrategy[DataCase]:
    def build(
        drawn: tuple[tuple[bytes, ...], tuple[tuple[Change, ...], ...]], suffix: str, option: str, damage: Any
    ) -> DataCase:
        contents, applied = drawn
        files = tuple(
            changed(((content, 1),) if content else (), parts) for content, parts in zip(contents, applied, strict=True)
        )
        return DataCase(kind, files, suffix, option, damage if suffix else ())

    def files(contents: tuple[bytes, ...]) -> SearchStrategy[tuple[Any, Any]]:
        applied = st.tuples(*[st.one_of(st.just(()), changes(TOKENS.get(kind, ())))] * len(contents))
        return st.tuples(st.just(contents), applied)

    return st.builds(
        build,
        KINDS[kind].flatmap(files),
        st.sampled_from(("",) * 6 + (".gz", ".xz")),
        st.sampled_from(OPTIONS.get(kind, ("",))),
        st.one_of(st.just(()), changes()),
    )


class DataCampaign(Campaign[DataCase]):
    """Opens each file as a recipe or a metric would, reads all of it, and looks at what was read."""

    name = "data"
    about = "text, gz, xz, TSV, JSONL, columns, M2, CoNLL-U, Penn, TIGER, alignments, manifests, metrics, encoding"
    quick, together = 150, 20

    def prepare(self, folder: Path) -> None:
        from tools.campaigns import data_checks

        data_checks.prepare(folder)

    def first(self) -> list[DataCase]:
        """Lines without an end, equal pairs, and scores of segments that differ from each other."""
        one, other = ((b"a dog\na dog\nb\nno end", 1),), ((b"A dog\nA dog\nb\nthe end", 1),)
        scores = [DataCase("scores", (one, other), option=metric) for metric in OPTIONS["scores"][:6]]
        table = DataCase("tsv", (((b"a\tA\nb\tB\n", 1),),), option="1 2")
        return [table, DataCase("parallel", (one, other)), DataCase("encode", (one, other), option="char"), *scores]

    def cases(self) -> SearchStrategy[DataCase]:
        return st.sampled_from(sorted(KINDS)).flatmap(_case)

    def check(self, case: DataCase, folder: Path) -> None:
        from tools.campaigns import data_checks

        paths = [folder / f"file{index}{case.suffix}" for index in range(len(case.files))]
        for index, (path, content) in enumerate(zip(paths, case.files, strict=True)):
            raw = PACK[case.suffix](expanded(content))
            if index == 0 and case.damage:
                raw = expanded(changed(((raw, 1),), case.damage))
            path.write_bytes(raw)
        data_checks.CHECKS.get(case.kind, data_checks.check_pairs)(case.kind, paths, case.option)


PACK: dict[str, Callable[[bytes], bytes]] = {
    "": lambda raw: raw,
    ".gz": lambda raw: gzip.compress(raw, mtime=0),
    ".xz": lzma.compress,
}
