"""Gold and automatic word alignments: Pharaoh, NAACL, and the treebanks of the Stockholm TreeAligner.

Every format is converted to one line of Pharaoh links per sentence pair: `i-j` sure and `i?j` possible, from 0.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, NamedTuple

from pydantic import Field

from headway.core.errors import UserError, option
from headway.formats.lines import check_file, kept_pipes, read_lines
from headway.formats.xml_files import begins_as_xml, read_tags

Link = tuple[int, int]
_FIRST = "The number of a first word in files of Pharaoh links, 0 or 1. A file that has a 0 counts from 0."
LinksFrom = Annotated[int | None, Field(ge=0, le=1, description=_FIRST, json_schema_extra={"default_text": "0"})]
FIRST_WORD = re.compile(r"(?<!\d)0+[-p?]|[-p?]0+(?!\d)")
CERTAIN = 100  # sentence pairs: if words are counted from 0, one of this many pairs links a first word
PHARAOH = re.compile(r"([0-9]{1,9})([-p?])([0-9]{1,9})")
NAACL = re.compile(r"\s*([0-9]{1,9})\s+([0-9]{1,9})\s+([0-9]{1,9})(?:\s+([SP]))?(?:\s+[0-9.eE+-]+)?\s*")
# Sentences without links have no line, so sentence numbers may exceed the number of lines, up to this limit.
UNLINKED, UNLINKED_SHARE = 1000, 10


class Links(NamedTuple):
    """The links (source word, target word) of a sentence pair, counted from 0. Sure links are also possible links."""

    sure: frozenset[Link]
    possible: frozenset[Link]

    def pharaoh(self) -> str:
        """The links as one line: `i-j` for sure links, `i?j` for links that are only possible."""
        signs = {**dict.fromkeys(self.possible, "?"), **dict.fromkeys(self.sure, "-")}
        return " ".join(f"{source}{signs[source, target]}{target}" for source, target in sorted(signs))


def make_links(sure: Iterable[Link], possible: Iterable[Link]) -> Links:
    """Create `Links`, adding the sure links to the possible ones."""
    certain = frozenset(sure)
    return Links(certain, certain | frozenset(possible))


def parse_pharaoh(line: str, where: str) -> Links:
    """Parse a line of links such as `0-0 1-2 1?3`, where `p` also marks possible links. Raises UserError."""
    sure: list[Link] = []
    possible: list[Link] = []
    for item in line.split():
        link = PHARAOH.fullmatch(item)
        if link is None:
            allowed = "i-j (sure), i?j or ipj (possible), numbered from 0"
            raise UserError("this is no link between words", where=where, received=item, allowed=allowed)
        (sure if link[2] == "-" else possible).append((int(link[1]), int(link[3])))
    return make_links(sure, possible)


def check_links(lines: Iterable[str], words: Iterable[tuple[int, int]], where: str) -> list[Links]:
    """Parse the links of sentence pairs with `words` source and target words.

    Raises UserError for links beyond these.
    """
    checked = []
    for number, (line, (source, target)) in enumerate(zip(lines, words, strict=True), start=1):
        links = parse_pharaoh(line, f"{where}, line {number}")
        if any(one >= source or other >= target for one, other in links.possible):
            raise UserError(
                "these links are between words that the sentences do not have", where=f"{where}, line {number}",
                received=line, allowed=f"{source} source and {target} target words, numbered from 0",
            )  # fmt: skip
        checked.append(links)
    return checked


@kept_pipes()
def read_alignments(path: Path, first: LinksFrom = None, named: str = option("links_from")) -> list[str]:
    """Read a file in any of the formats, with one line of Pharaoh links per sentence pair.

    Raises:
        UserError: the file cannot be read, a line is no alignment, or words are counted from 1 although `first`, an
            option of this name, does not say so.
    """
    if begins_as_xml(path):
        return [pair.links.pharaoh() for pair in read_treebanks(path)]
    lines = list(read_lines(path))
    if NAACL.fullmatch(next((line for line in lines if line.strip()), "")):
        return _read_naacl(lines, path)
    for number, line in enumerate(lines, start=1):
        parse_pharaoh(line, f"{path}:{number}")
    has_0, linked = any(map(FIRST_WORD.search, lines)), sum(map(bool, map(str.strip, lines)))
    if first is None and not has_0 and linked > CERTAIN:
        what = f"none of {linked:,} sentences links a word 0, so that these links count from 1"
        raise UserError(what, where=str(path), allowed=f"{named} 1, or 0 to be sure")
    if not first or has_0:
        return lines
    return [PHARAOH.sub(lambda link: f"{int(link[1]) - 1}{link[2]}{int(link[3]) - 1}", line) for line in lines]


def _read_naacl(lines: list[str], path: Path) -> list[str]:
    """Parse lines of sentence, source word, target word, S or P, from 1; word 0 is none (Mihalcea, Pedersen 2003)."""
    sure: dict[int, list[Link]] = {}
    possible: dict[int, list[Link]] = {}
    most = UNLINKED + UNLINKED_SHARE * len(lines)
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        row = NAACL.fullmatch(line)
        if row is None or not 0 < int(row[1]) <= most:
            allowed = f"SENTENCE SOURCE TARGET [S|P] [CONFIDENCE], numbered from 1, sentences up to {most:,}"
            raise UserError("this is no NAACL alignment", where=f"{path}:{number}", received=line, allowed=allowed)
        sentence, source, target = int(row[1]), int(row[2]) - 1, int(row[3]) - 1
        links = (possible if row[4] == "P" else sure).setdefault(sentence, [])
        if source >= 0 and target >= 0:
            links.append((source, target))
    count = max([*sure, *possible])
    return [
        make_links(sure.get(sentence, ()), possible.get(sentence, ())).pharaoh() for sentence in range(1, count + 1)
    ]


KINDS = ("good", "fuzzy")  # kinds of links in a TreeAligner file: sure and possible
COMMENT = "comment"  # an annotator's comment on two nodes, which is not a link


@dataclass(frozen=True)
class AlignedPair:
    """Aligned sentences of both sides, as words, and the links between the words."""

    source: tuple[str, ...]
    target: tuple[str, ...]
    links: Links


def read_treebanks(path: Path) -> list[AlignedPair]:
    """Read the sentence pairs of a TreeAligner file, whose treebanks (TIGER-XML) are in the same folder.

    `good` links are sure, `fuzzy` links possible; links of phrases and comments are left out. Sentences that are
    connected by links of words or phrases form one pair, in the order of the source.

    Raises:
        UserError: files are missing or of another format; or, with file and line, a link does not connect nodes of the
            two treebanks.
    """
    banks, aligned, within = dict[str, Path](), list[tuple[int, str, dict[str, str]]](), False
    for name, attributes, line, _ in read_tags(path):
        if attributes is None:
            within = within and name != "align"
        elif name == "treebank":
            banks[attributes.get("id", "")] = path.parent / attributes.get("filename", "")
        elif name == "align" and attributes.get("type") != COMMENT:
            within = True
            aligned.append((line, attributes.get("type", ""), {}))
        elif name == "node" and within:
            aligned[-1][2][attributes.get("treebank_id", "")] = attributes.get("node_id", "")
    if len(banks) != 2:
        raise UserError("an alignment names two treebanks", where=str(path), received=f"{len(banks)} treebanks")
    for file in banks.values():
        check_file(file, str(path))
    (first, source), (second, target) = ((name, _read_treebank(file)) for name, file in banks.items())
    group, links = dict[tuple[int, str], set[tuple[int, str]]](), []  # by side and sentence: the connected sentences
    for line, kind, ends in aligned:
        known = all(ends.get(name) in bank.nodes for bank, name in ((source, first), (target, second)))
        if kind not in KINDS or not known:
            what, received = "this is no link of words or phrases", {"type": kind, **ends}
            allowed = f"{' or '.join(KINDS)}, from {first} to {second}"
            raise UserError(what, where=f"{path}:{line}", received=received, allowed=allowed)
        one, other = ends[first], ends[second]
        sentences = (0, source.nodes[one]), (1, target.nodes[other])
        joined = set[tuple[int, str]]().union(*(group.get(sentence, {sentence}) for sentence in sentences))
        group |= dict.fromkeys(joined, joined)
        if one in source.words and other in target.words:
            links.append((one, other, kind == "good"))
    first_of = {id(group[0, name]): group[0, name] for name in source.sentences if (0, name) in group}
    return [_pair(source, target, joined, links) for joined in first_of.values()]


@dataclass
class _Treebank:
    """The sentences of a file, with the ids of their words; the words by id; the sentence of each word and phrase."""

    sentences: dict[str, list[str]] = field(default_factory=dict)
    words: dict[str, str] = field(default_factory=dict)
    nodes: dict[str, str] = field(default_factory=dict)


def _read_treebank(path: Path) -> _Treebank:
    bank, sentence = _Treebank(), ""
    for name, attributes, line, _ in read_tags(path):
        if attributes is None:
            continue
        id = attributes.get("id", "")
        if name == "s":
            sentence = id
            bank.sentences[sentence] = []
        elif name == "t" and bank.sentences:
            word = "_".join(attributes.get("word", "").split())
            if not word:
                raise UserError("this element has no word", where=f"{path}:{line}", received=attributes)
            bank.sentences[sentence].append(id)
            bank.words[id] = word
            bank.nodes[id] = sentence
        elif name == "nt":
            bank.nodes[id] = sentence
    return bank


def _pair(
    source: _Treebank, target: _Treebank, group: set[tuple[int, str]], links: list[tuple[str, str, bool]]
) -> AlignedPair:
    """The aligned pair of a group of sentences (side and name), with the sentences of each side in file order."""
    ids = [
        [word for name, words in bank.sentences.items() if (side, name) in group for word in words]
        for side, bank in enumerate((source, target))
    ]
    positions = [{word: position for position, word in enumerate(words)} for words in ids]
    by_kind: dict[bool, list[Link]] = {True: [], False: []}
    for one, other, good in links:
        if one in positions[0] and other in positions[1]:
            by_kind[good].append((positions[0][one], positions[1][other]))
    texts = [tuple(bank.words[word] for word in words) for words, bank in zip(ids, (source, target), strict=True)]
    return AlignedPair(texts[0], texts[1], make_links(by_kind[True], by_kind[False]))
