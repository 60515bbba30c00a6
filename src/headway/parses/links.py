"""Links between the words of pairs: stored by pair beside the corpus, and projected to tokens of a vocabulary.

Words are separated by spaces after segmentation, as in all of headway's word alignments. eflomal aligns the characters
of a side without spaces instead (`linked_characters`). The store has a line per pair with links `i-j`, source word and
target word from 0, or `i-j:p` with the share p of the target word.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field, model_validator

from headway.core.config import Layers, Section, Width, named
from headway.core.errors import UserError
from headway.core.languages import CHARACTER_OR_WORD, has_no_spaces
from headway.core.log import warn
from headway.formats.alignments import Link, LinksFrom
from headway.formats.corpus_config import AnyCorpus, parts
from headway.formats.corpus_format import open_format
from headway.parses.parse_store import AnnotationStore, StoreLabeller
from headway.processing.text.text_processor import PreparationConfig, TextConfig, TextProcessor, prepare
from headway.tensors.batch import LINKS, WHOLE

LINK = re.compile(r"([0-9]{1,9})-([0-9]{1,9})(?::([0-9.]{1,20}))?")


class LinksConfig(Section):
    """Links between the words of pairs; the name of a kind is short for it.

    `kind`: `eflomal` (Östling and Tiedemann 2016) aligns train and dev in both directions, and characters instead of
    words if a language has no spaces and no segmenter adds them; `pharaoh` reads the links of another aligner or of
    people, of which possible links count as sure ones; `teacher` uses the cross-attention of a run, forced to the
    targets, whose words keep their shares in source words from 0.01 on. `symmetrise`: `intersection` keeps the links of
    both directions of `eflomal`, the default (Koehn et al. 2005) adds links beside these and for words without any.
    `file`: the file of `pharaoh`, a line for each pair of data.train, in any format of AER. `links_from`: the number of
    the first word in that file. `run`: the run of `teacher`. `layer`, `heads`: the layer of its decoder, and the heads
    that are averaged; by default as for word alignments. `folder`: the folder of the links, by default that of the
    corpus.
    """

    kind: Literal["eflomal", "pharaoh", "teacher"] = "eflomal"
    symmetrise: Literal["grow-diag-final-and", "intersection"] = "grow-diag-final-and"
    file: Path | None = None
    links_from: LinksFrom = None
    run: Path | None = None
    layer: Layers | None = None
    heads: Annotated[tuple[Width, ...], Field(min_length=1)] | None = None
    folder: Path | None = None

    @model_validator(mode="after")
    def _complete(self) -> LinksConfig:
        for kind, key in (("pharaoh", "file"), ("teacher", "run")):
            if (self.kind == kind) != (getattr(self, key) is not None):
                raise ValueError(f"kind {kind} has its {key}, and no other kind has one")
        return self


AnyLinks = Annotated[LinksConfig, BeforeValidator(lambda value: named(value, "kind"))]


def store_of_links(corpus: AnyCorpus, links: LinksConfig) -> Path:
    """The path of the store of links; several corpora share that of the first, as pairs are looked up by text."""
    where, first = parts(corpus, "data")[0]
    source, target = (open_format(first, where).annotations(side) for side in ("source", "target"))
    return (links.folder or source.parent) / f"{source.name}-{target.name}.{links.kind}.links"


def lacks_spaces(text: TextConfig) -> list[bool]:
    """Whether words of the source, and of the target, have no spaces between them, and no segmenter adds them."""
    return [side.segment == "none" and has_no_spaces(side.language) for side in (text.source, text.target)]


def linked_characters(kind: str, text: TextConfig) -> list[bool]:
    """Whether links of a kind are between characters of the source, and of the target, instead of words."""
    return [kind == "eflomal" and lacks for lacks in lacks_spaces(text)]


def linked_words(text: str, side: PreparationConfig, *, characters: bool) -> list[str]:
    """The words of a raw text that links are between."""
    return CHARACTER_OR_WORD.findall(text) if characters else prepare(text, side).split()


def _words_of_tokens(processor: TextProcessor, text: str, *, characters: bool) -> list[range]:
    """The words that each token of a raw text has characters of; one word, unless words are `characters`."""
    tokens = processor.encode_with_spans(text)
    if not characters:
        return [range(token.word, token.word + 1) for token in tokens]
    spans = [match.span() for match in CHARACTER_OR_WORD.finditer(text)]
    starts, ends = [start for start, _ in spans], [end for _, end in spans]
    return [range(bisect_right(ends, token.start), bisect_left(starts, token.end)) for token in tokens]


def key_text(source: str, target: str) -> str:
    """The text of a pair that is hashed for its key. Texts contain no line ends, so it is unambiguous."""
    return f"{source}\n{target}"


class LinkStore(AnnotationStore):
    """A store of links."""

    noun, maker, command = "links", "aligner", "headway data annotate with its option links"

    def get(self, source: str, target: str) -> dict[Link, float | None] | None:
        """The links of a raw pair, with their shares if known, or None if the pair was never aligned.

        Raises:
            UserError: the store is damaged.
        """
        text = self.text(key_text(source, target))
        if text is None:
            return None
        links = [LINK.fullmatch(link) for link in text.split()]
        if None in links:
            raise self.damaged(text, ValueError("no links"))
        return {(int(link[1]), int(link[2])): float(link[3]) if link[3] else None for link in links if link}


class LinkLabeller(StoreLabeller[LinkStore]):
    """`links`: for each target token, the source tokens that it is linked with, each with its share.

    Tokens of linked words are linked with equal shares; if links have shares, that of a source word is divided among
    its tokens. The shares of a target token sum to 1.

    Raises:
        UserError: the store is missing or damaged, or its words are from another preparation of the text.
    """

    name, side, kind = LINKS, None, LinkStore
    counted: ClassVar[tuple[str, ...]] = ("pairs", "pairs without links", "links", "target tokens without links")

    def __init__(self, store: Path, text: TextConfig) -> None:
        super().__init__(store)
        header = self.store.header
        self.characters = linked_characters(str(header.get("kind")), text)
        received = header.get("text"), header.get("characters", [False, False])
        if received != (allowed := (text.stored(), self.characters)):
            what = "these links are between words of another preparation of the text; remove them and make them anew"
            raise UserError(what, where=str(store), received=str(received), allowed=str(allowed))

    def label(
        self, texts: tuple[str, str], sides: tuple[TextProcessor, TextProcessor]
    ) -> tuple[NDArray[np.integer], Sequence[int]]:
        links = self.store.get(*texts) or {}
        both = zip(sides, texts, self.characters, strict=True)
        shares = token_links(links, *(_words_of_tokens(side, text, characters=each) for side, text, each in both))
        target, source = shares.nonzero()
        units = np.rint(shares[target, source] * WHOLE).astype(np.int32)
        without = int((~shares.any(1)).sum())
        return np.stack([target, source, units], 1), [1, int(not links), len(links), without]

    def check(self, counts: Mapping[str, int]) -> None:
        if not counts["links"]:
            raise UserError("none of the pairs has links here", where=str(self.path), received=dict(counts))
        if missing := counts["pairs without links"]:
            warn(f"{self.name}: {missing:,} of {counts['pairs']:,} pairs have none in {self.path}")


def token_links(
    links: Mapping[Link, float | None], source: Sequence[Iterable[int]], target: Sequence[Iterable[int]]
) -> NDArray[np.float64]:
    """The shares (T, S) of source tokens in each target token. Rows with links sum to 1, others to 0.

    Args:
        links: the links between words, with their shares if known.
        source: the words of each source token.
        target: the words of each target token.
    """
    source_tokens, target_tokens = _tokens_of_words(source), _tokens_of_words(target)
    shares = np.zeros((len(target), len(source)))
    for (one, other), share in links.items():
        read = source_tokens[one]
        shares[np.ix_(target_tokens[other], read)] += 1.0 if share is None else share / max(1, len(read))
    totals = shares.sum(1, keepdims=True)
    shares /= np.where(totals > 0, totals, 1)
    return shares


def _tokens_of_words(words: Sequence[Iterable[int]]) -> Mapping[int, list[int]]:
    """The tokens of each word, from the words of each token."""
    tokens = defaultdict[int, list[int]](list)
    for token, some in enumerate(words):
        for word in some:
            tokens[word].append(token)
    return tokens


def link_labellers(corpus: AnyCorpus, links: LinksConfig | None, text: TextConfig) -> list[LinkLabeller]:
    """The labeller of a corpus's links. Raises UserError if the recipe names no links, or they are missing."""
    return [LinkLabeller(store_of_links(corpus, named_links(links)), text)]


def named_links(links: LinksConfig | None) -> LinksConfig:
    if links is None:
        allowed = "eflomal; {kind: pharaoh, file: FILE}; {kind: teacher, run: RUN}"
        raise UserError("the recipe names no links", where="data.links", allowed=allowed)
    return links


def identity(links: LinksConfig, text: TextConfig, version: str) -> dict[str, Any]:
    """The settings that distinguish a store's links from others, as JSON: how they were made, and the segmentation.

    `characters` says of both sides whether their words are characters; it is missing if those of neither side are.
    """
    made = links.model_dump(mode="json", include={"kind", "symmetrise", "layer", "heads"})
    made |= {"links_from": links.links_from} if links.links_from else {}
    characters = linked_characters(links.kind, text)
    made |= {"characters": characters} if any(characters) else {}
    return made | {"version": version, "text": text.stored()}
