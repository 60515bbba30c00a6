"""Dependency parsers of raw lines: spaCy pipelines, Stanza, and lookup in CoNLL-U files."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, SerializeAsAny

from headway.core.config import Section
from headway.core.errors import UserError, not_installed
from headway.core.files import exists, sha256
from headway.formats.conllu import ConlluSentence, check_dependent, read_sentences
from headway.formats.corpus_format import content_hash
from headway.formats.lines import check_file
from headway.parses import PARSERS
from headway.parses.parse import Parse, Token


class ParserConfig(Section):
    """A dependency parser; `KIND:MODEL` for short, or just the name of a spaCy pipeline.

    `kind`: `spacy`, `stanza`, `conllu` or `module:Class`. `model`: the name or folder of a spaCy pipeline; a language
    (`en`), or a folder of Stanza models named after the language; or a CoNLL-U file, or a folder of them. `whitespace`:
    white space in the corpus is part of natural `text`, or separates the `tokens` of the parser, or is `none` of the
    text's (segmented Japanese) and is removed for parsing.
    """

    kind: str = "spacy"
    model: str
    whitespace: Literal["text", "tokens", "none"] = "text"


def _parse_config(value: Any) -> Any:
    if isinstance(value, str):
        kind, colon, model = value.partition(":")
        value = {"kind": kind, "model": model} if colon and kind in PARSERS else {"model": value}
    return PARSERS.section({"kind": "spacy"} | dict(value)) if isinstance(value, Mapping) else value


AnyParser = Annotated[SerializeAsAny[ParserConfig], BeforeValidator(_parse_config)]


class Parser(ABC):
    """Parses lines of text.

    Attributes:
        Config: the class of its options.
        version: the version of the model, if known; for CoNLL-U files, a hash of their content.
    """

    Config: ClassVar[type[ParserConfig]] = ParserConfig
    version = ""

    def __init__(self, config: ParserConfig, where: str) -> None:
        self.config, self.where = config, where

    def identity(self) -> dict[str, Any]:
        """The settings that distinguish the parses of this parser from others, as JSON."""
        named = {"kind": self.config.kind, "model": Path(self.config.model).name, "version": self.version}
        return self.config.model_dump(mode="json") | named

    @abstractmethod
    def parse(self, lines: Sequence[str]) -> Iterator[Parse]:
        """The parse of each line, in order; a parse without tokens if there is none."""


class SpacyParser(Parser):
    """A spaCy pipeline, reduced to the components that dependency heads need.

    Raises:
        UserError: spaCy or the pipeline is not installed, or it has no parser.
    """

    def __init__(self, config: ParserConfig, where: str) -> None:
        super().__init__(config, where)
        spacy = _import("spacy", where)
        try:
            self.pipeline = spacy.load(config.model)
        except (OSError, ImportError, ValueError, TypeError) as error:
            raise UserError(f"cannot load this spaCy pipeline ({error})", where=where, received=config.model) from error
        metas = {name: self.pipeline.get_pipe_meta(name) for name in self.pipeline.pipe_names}
        if not any("token.head" in meta.assigns for meta in metas.values()):
            raise UserError("this spaCy pipeline has no parser", where=where, received=list(metas))
        for name, meta in metas.items():
            if not {"token.head", "token.dep", "doc.tensor"} & set(meta.assigns) and "transformer" not in meta.factory:
                self.pipeline.disable_pipe(name)
        about = self.pipeline.meta
        self.version = f"{about.get('lang')}_{about.get('name')} {about.get('version')}"

    def parse(self, lines: Sequence[str]) -> Iterator[Parse]:
        spans = [_visible_spans(line, self.config.whitespace) for line in lines]
        for line, positions, parsed in zip(lines, spans, self.pipeline.pipe(map(self._document, lines)), strict=True):
            if self.config.whitespace == "tokens":
                yield _parse(positions, [token.head.i for token in parsed], [token.dep_ for token in parsed])
                continue
            characters = [(token.idx, token.idx + len(token)) for token in parsed]
            if self.config.whitespace == "none":
                characters = [(positions[start][0], positions[end - 1][1]) for start, end in characters]
            kept = [line[start:end].strip() != "" for start, end in characters]
            heads, labels = [token.head.i for token in parsed], [token.dep_ for token in parsed]
            yield _without_blanks(characters, heads, labels, kept)

    def _document(self, line: str) -> Any:
        if self.config.whitespace == "tokens":
            from spacy.tokens import Doc

            return Doc(self.pipeline.vocab, words=line.split())
        return self.pipeline.make_doc("".join(line.split()) if self.config.whitespace == "none" else line)


class StanzaParser(Parser):
    """Stanza, with models that are already on disk; it downloads nothing.

    Raises:
        UserError: Stanza or its models are not installed.
    """

    def __init__(self, config: ParserConfig, where: str) -> None:
        super().__init__(config, where)
        stanza = _import("stanza", where)
        folder = Path(config.model)
        options = {"dir": str(folder.parent)} if folder.is_dir() else {}
        try:
            self.pipeline = stanza.Pipeline(
                lang=folder.name, processors="tokenize,pos,lemma,depparse", download_method=None, verbose=False,
                tokenize_pretokenized=config.whitespace == "tokens", **options,
            )  # fmt: skip
        except Exception as error:  # missing models and languages raise different exceptions
            raise UserError(f"cannot load these Stanza models ({error})", where=where, received=config.model) from error
        self.version = str(stanza.__version__)

    def parse(self, lines: Sequence[str]) -> Iterator[Parse]:
        for line in lines:
            yield self._parse_line(line)

    def _parse_line(self, line: str) -> Parse:
        whitespace = self.config.whitespace
        positions = _visible_spans(line, whitespace)
        text = {"text": line, "none": "".join(line.split()), "tokens": " ".join(line.split())}[whitespace]
        spans, heads, labels, seen = [], list[int](), [], 0
        for sentence in self.pipeline(text).sentences if text.strip() else ():
            before = len(heads)
            for token in sentence.tokens:
                span = token.start_char, token.end_char
                if whitespace == "none":
                    span = positions[span[0]][0], positions[span[1] - 1][1]
                elif whitespace == "tokens":
                    span = positions[seen]
                seen += 1
                for word in token.words:  # the words of a contraction share its characters
                    spans.append(span)
                    heads.append(before + word.head - 1 if word.head else len(heads))
                    labels.append(word.deprel)
        return _parse(spans, heads, labels)


class ConlluParser(Parser):
    """Parses from CoNLL-U files.

    Lines, of one or more sentences, are looked up by their characters without white space.

    Raises:
        UserError: the file is missing or damaged.
    """

    def __init__(self, config: ParserConfig, where: str) -> None:
        super().__init__(config, where)
        path = Path(config.model)
        files = sorted(path.glob("*.conllu")) if exists(path, "folder") else [path]
        if not files:
            raise UserError("there is no CoNLL-U file in this folder", where=where, received=config.model)
        check_file(files[0], where)
        self.version = content_hash([sha256(file) for file in files])
        self.sentences: dict[str, Parse] = {}
        self.texts: list[str] = []
        for file in files:
            for text, parse in read_conllu(file):
                self.sentences["".join(text.split())] = parse
                self.texts.append(text)
        self.lengths = sorted({len(text) for text in self.sentences}, reverse=True)

    def parse(self, lines: Sequence[str]) -> Iterator[Parse]:
        for line in lines:
            yield self._find(line)

    def _find(self, line: str) -> Parse:
        positions = _visible_spans(line, "none")
        text, done, tokens = "".join(line.split()), 0, list[Token]()
        for until in self._cuts(text):
            offset = len(tokens)
            for start, end, head, label in self.sentences[text[done:until]].tokens:
                span = positions[done + start][0], positions[done + end - 1][1]
                tokens.append(Token(*span, offset + head, label))
            done = until
        return Parse(tokens)

    def _cuts(self, text: str) -> list[int]:
        """The end of each sentence that a text consists of; if ambiguous, the one with longer sentences first."""
        cuts, choices, failed = list[int](), [self._ends(text, 0)], set[int]()
        while choices:
            end = next((end for end in choices[-1] if end not in failed), None)
            if end is None:
                choices.pop()
                failed.update(cuts[-1:])
                cuts = cuts[:-1]
            elif end == len(text):
                return [*cuts, end]
            else:
                cuts.append(end)
                choices.append(self._ends(text, end))
        return []

    def _ends(self, text: str, start: int) -> Iterator[int]:
        """The possible ends of a sentence that begins at `start`, the longest first."""
        ends = (start + size for size in self.lengths if start + size <= len(text))
        return (end for end in ends if text[start:end] in self.sentences)


def read_conllu(path: Path) -> Iterator[tuple[str, Parse]]:
    """The text and the parse of each sentence of a CoNLL-U file. Offsets only count visible characters.

    The words of a contraction (`2-3  im`) all cover its characters; empty nodes (`8.1`) are skipped.

    Raises:
        UserError: with file and line: the file is not CoNLL-U, or heads do not form a tree.
    """
    for sentence in read_sentences(path):
        try:
            yield _conllu_sentence(sentence, path)
        except ValueError as error:
            raise UserError(f"these heads make no tree ({error})", where=f"{path}:{sentence.line}") from error


def _conllu_sentence(sentence: ConlluSentence, path: Path) -> tuple[str, Parse]:
    """The text, with spaces except after SpaceAfter=No, and the parse."""
    spans, heads, labels, visible, text, until, shared = [], list[int](), [], 0, "", 0, (0, 0)
    for token in sentence.tokens:
        first, separator, last = token.id if isinstance(token.id, tuple) else (token.id, "", token.id)
        if separator == ".":  # an empty node
            continue
        if separator and not until < first <= last <= len(sentence.words()):
            what, where = "this is no range of words of its own", f"{path}:{token.line}"
            raise UserError(what, where=where, received=f"{first}-{last}")
        if separator or first > until:  # a single word, or a contraction
            end = visible + len("".join(token.form.split()))
            shared, visible = (visible, end), end
            text += token.form + ("" if token.misc.get("SpaceAfter") == "No" else " ")
            until = last
        if not separator:
            check_dependent(token, len(heads), path)
            spans.append(shared)
            heads.append(token.head - 1 if token.head else len(heads))
            labels.append(token.deprel)
    return text.rstrip(), _parse(spans, heads, labels)


def _visible_spans(line: str, whitespace: str) -> list[tuple[int, int]]:
    """The raw characters of each given token (`tokens`) or of each character other than white space (`none`)."""
    if whitespace == "tokens":
        return [match.span() for match in re.finditer(r"\S+", line)]
    if whitespace == "none":
        return [(index, index + 1) for index, character in enumerate(line) if not character.isspace()]
    return []


def _parse(spans: Sequence[tuple[int, int]], heads: Sequence[int], labels: Sequence[str]) -> Parse:
    return Parse([Token(*span, head, label) for span, head, label in zip(spans, heads, labels, strict=True)])


def _without_blanks(
    spans: Sequence[tuple[int, int]], heads: Sequence[int], labels: Sequence[str], kept: Sequence[bool]
) -> Parse:
    """The parse without tokens that are white space; their children are attached to the next token above."""
    positions = {token: position for position, token in enumerate(token for token in range(len(kept)) if kept[token])}

    def above(token: int) -> int:
        head = heads[token]
        while head not in positions and heads[head] != head:
            head = heads[head]
        return head if head in positions else token  # children of a white-space root become roots

    chosen = list(positions)
    return _parse([spans[t] for t in chosen], [positions[above(t)] for t in chosen], [labels[t] for t in chosen])


def _import(module: str, where: str) -> Any:
    import importlib

    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise not_installed("this parser", [module], "parse", where) from error


def load_parser(config: ParserConfig, where: str) -> Parser:
    """Load the parser that a recipe names under the key `where`.

    Raises:
        UserError: the parser is not installed, or cannot be loaded.
    """
    return PARSERS.get(config.kind, f"{where}.kind")(config, where)
