"""Gold and automatic alignments of words: Pharaoh, NAACL, and the treebanks of the Stockholm TreeAligner.

Whatever the format, a sentence pair becomes one line of Pharaoh links, `i-j` sure and `i?j` possible, from 0.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from headway.errors import UserError
from headway.formats.lines import read_lines

Link = tuple[int, int]
PHARAOH = re.compile(r"(\d+)([-p?])(\d+)")
NAACL = re.compile(r"\s*(\d+)\s+(\d+)\s+(\d+)(?:\s+([SP]))?(?:\s+[\d.eE+-]+)?\s*")


class Links(NamedTuple):
    """The links of a sentence pair, (source word, target word) from 0; sure ones are possible, too."""

    sure: frozenset[Link]
    possible: frozenset[Link]

    def pharaoh(self) -> str:
        """One line: `i-j` for sure links, `i?j` for the others."""
        signs = {**dict.fromkeys(self.possible, "?"), **dict.fromkeys(self.sure, "-")}
        return " ".join(f"{source}{signs[source, target]}{target}" for source, target in sorted(signs))


def make_links(sure: Iterable[Link], possible: Iterable[Link]) -> Links:
    """Links of which the sure ones need not be among the possible."""
    certain = frozenset(sure)
    return Links(certain, certain | frozenset(possible))


def parse_pharaoh(line: str, where: str) -> Links:
    """The links of a line such as `0-0 1-2 1?3`; `p` marks possible ones as well. Raises UserError."""
    sure: list[Link] = []
    possible: list[Link] = []
    for item in line.split():
        link = PHARAOH.fullmatch(item)
        if link is None:
            allowed = "i-j (sure), i?j or ipj (possible), numbered from 0"
            raise UserError("this is no link between words", where=where, received=item, allowed=allowed)
        (sure if link[2] == "-" else possible).append((int(link[1]), int(link[3])))
    return make_links(sure, possible)


def read_alignments(path: Path) -> list[str]:
    """The sentence pairs of a file in any of the formats, each as a line of Pharaoh links.

    Raises:
        UserError: a file that cannot be read or has a line that is no alignment.
    """
    lines = list(read_lines(path))
    first = next((line for line in lines if line.strip()), "")
    if first.lstrip().startswith("<"):
        return [pair.links.pharaoh() for pair in read_treebanks(path)]
    if NAACL.fullmatch(first):
        return _read_naacl(lines, path)
    for number, line in enumerate(lines, start=1):
        parse_pharaoh(line, f"{path}:{number}")
    return lines


def _read_naacl(lines: list[str], path: Path) -> list[str]:
    """Sentence, source word, target word, S or P: all from 1, word 0 being nothing (Mihalcea and Pedersen 2003)."""
    sure: dict[int, list[Link]] = {}
    possible: dict[int, list[Link]] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        row = NAACL.fullmatch(line)
        if row is None or int(row[1]) == 0:
            allowed = "SENTENCE SOURCE TARGET [S|P] [CONFIDENCE], numbered from 1"
            raise UserError("this is no NAACL alignment", where=f"{path}:{number}", received=line, allowed=allowed)
        sentence, source, target = int(row[1]), int(row[2]) - 1, int(row[3]) - 1
        links = (possible if row[4] == "P" else sure).setdefault(sentence, [])
        if source >= 0 and target >= 0:
            links.append((source, target))
    count = max([*sure, *possible])
    return [
        make_links(sure.get(sentence, ()), possible.get(sentence, ())).pharaoh() for sentence in range(1, count + 1)
    ]


@dataclass(frozen=True)
class AlignedPair:
    """Sentences of both sides that belong together, as words, and the links between these."""

    source: tuple[str, ...]
    target: tuple[str, ...]
    links: Links


def read_treebanks(path: Path) -> list[AlignedPair]:
    """The sentence pairs of a TreeAligner file, whose treebanks (TIGER-XML) lie beside it.

    `good` links are sure, `fuzzy` ones possible; links of phrases are left out. Sentences that links of words or
    phrases join make one pair, in the order of the source.

    Raises:
        UserError: files that are missing or of another format.
    """
    root = _parse_xml(path)
    banks = [path.parent / bank.get("filename", "") for bank in root.iterfind(".//treebank")]
    sides = [bank.get("id", "") for bank in root.iterfind(".//treebank")]
    if len(banks) != 2:
        raise UserError("an alignment names two treebanks", where=str(path), received=f"{len(banks)} treebanks")
    source, target = (_read_treebank(bank) for bank in banks)
    groups, links = _Groups(), []
    for align in root.iterfind(".//align"):
        ends = {node.get("treebank_id"): node.get("node_id", "") for node in align.iterfind("node")}
        one, other = (ends.get(side, "") for side in sides)
        groups.join((0, one.partition("_")[0]), (1, other.partition("_")[0]))
        if one in source.words and other in target.words:
            links.append((one, other, align.get("type") == "good"))
    return [_pair(source, target, group, links) for group in groups.ordered(source, target)]


@dataclass(frozen=True)
class _Treebank:
    """`sentences` in their order, with the ids of their words; `words` by id."""

    sentences: dict[str, list[str]]
    words: dict[str, str]


def _parse_xml(path: Path) -> ElementTree.Element:
    try:
        return ElementTree.parse(path).getroot()  # noqa: S314  (expat limits the expansion of entities)
    except (OSError, ElementTree.ParseError) as error:
        raise UserError(f"cannot read this XML file ({error})", where=str(path)) from error


def _read_treebank(path: Path) -> _Treebank:
    sentences: dict[str, list[str]] = {}
    words: dict[str, str] = {}
    for sentence in _parse_xml(path).iterfind(".//s"):
        terminals = sentence.findall(".//t")
        sentences[sentence.get("id", "")] = [terminal.get("id", "") for terminal in terminals]
        words |= {terminal.get("id", ""): terminal.get("word", "") for terminal in terminals}
    if not words:
        raise UserError("this is no treebank in TIGER-XML: it has no words", where=str(path))
    return _Treebank(sentences, words)


Node = tuple[int, str]  # side and sentence


class _Groups:
    """Sentences of both sides that links join."""

    def __init__(self) -> None:
        self._group: dict[Node, set[Node]] = {}

    def join(self, one: Node, other: Node) -> None:
        """Say that two sentences belong together."""
        merged = self._group.get(one, {one}) | self._group.get(other, {other})
        for node in merged:
            self._group[node] = merged

    def ordered(self, source: _Treebank, target: _Treebank) -> Iterator[tuple[list[str], list[str]]]:
        """The groups by their first source sentence: the sentences of each side in their order."""
        done: set[str] = set()
        for name in source.sentences:
            if name in done or (0, name) not in self._group:
                continue
            group = self._group[0, name]
            sides = [
                [sentence for sentence in bank.sentences if (side, sentence) in group]
                for side, bank in enumerate((source, target))
            ]
            done |= set(sides[0])
            yield sides[0], sides[1]


def _pair(
    source: _Treebank, target: _Treebank, group: tuple[list[str], list[str]], links: list[tuple[str, str, bool]]
) -> AlignedPair:
    ids = [
        [word for sentence in names for word in bank.sentences[sentence]]
        for names, bank in zip(group, (source, target), strict=True)
    ]
    positions = [{word: position for position, word in enumerate(words)} for words in ids]
    by_kind: dict[bool, list[Link]] = {True: [], False: []}
    for one, other, good in links:
        if one in positions[0] and other in positions[1]:
            by_kind[good].append((positions[0][one], positions[1][other]))
    texts = [tuple(bank.words[word] for word in words) for words, bank in zip(ids, (source, target), strict=True)]
    return AlignedPair(texts[0], texts[1], make_links(by_kind[True], by_kind[False]))
