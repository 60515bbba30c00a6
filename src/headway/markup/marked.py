"""The text of Markdown (CommonMark with tables), located with markdown-it."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from string import punctuation
from typing import Any, NamedTuple

from markdown_it import MarkdownIt
from markdown_it.parser_inline import ParserInline
from markdown_it.rules_inline.state_inline import StateInline
from markdown_it.token import Token

from headway.markup.documents import Languages, Parts
from headway.markup.gettext import tag_piece
from headway.markup.hypertext import html_parts
from headway.markup.inline import Piece, Segment
from headway.markup.placeholders import PLACEHOLDER
from headway.markup.translating import decoded, raw_pieces

FRONT_MATTER = re.compile(r"---[ \t]*\r?\n.*?\r?\n(?:---|\.\.\.)[ \t]*(?:\r?\n|\Z)", re.DOTALL)
LINE = re.compile(r"[^\r\n]*(?:\r\n|\n|\r)|[^\r\n]+\Z")
# Marks of GitHub, Pandoc and others, before, after and within a paragraph's text.
LEADING = re.compile(r"(?:\[[ xX]\]\s+|\[![A-Z]+\](?:\n|\Z)|:::[^\n]*(?:\n|\Z)|\[\^[^\]\s]+\]:\s*)*")
TRAILING = re.compile(r"\n:::\s*\Z")
MARKED = re.compile(r"\[\^[^\]\s]+\]|" + PLACEHOLDER)
FORMULA = re.compile(r"\$\$[^$]+\$\$|(?<![\w$])\$(?![\s$])[^$\n`]*[^\s$`]\$(?![\w$])")
# Marks at the beginning of a line inside a paragraph: a definition, a container, a footnote, a check box.
LINE_MARK = re.compile(r"[:~] +|:::[^\n]*(?=\n|\Z)|\[\^[^\]\s]+\]:\s*|\[[ xX]\] +")
READ_OTHERWISE = re.compile(r"\\(?=[!-/:-@\[-`{-~\n])|&(?=#?\w+;)")
SPECIAL = re.compile(r"[\\`*_\[\]<]|~(?=~)|&(?=#?\w+;)")
BLOCK_BEGINS = re.compile(r"^([ \t>]*(?:\d{1,9}(?=[.)])|(?=[-+=#:>~|*])))(?=.)", re.MULTILINE)


class Construct(NamedTuple):
    """An inline construct: the rule that matched the text from `begin` to `end`, and its tokens with positions."""

    rule: str
    begin: int
    end: int
    tokens: Sequence[tuple[int, Token]] = ()


class _Inline(ParserInline):
    """An inline parser that records the constructs of a text, outer ones before inner ones."""

    constructs: list[Construct]

    def tokenize(self, state: StateInline) -> None:
        """Make tokens as the base class does. The label of a link is also a construct."""
        self.constructs.append(Construct("label", state.pos, state.posMax))
        end, rules = state.posMax, list(zip(self.ruler.get_active_rules(), self.ruler.getRules(""), strict=True))
        while state.pos < end:
            begin, number, count = state.pos, len(self.constructs), len(state.tokens)
            for name, rule in rules if state.level < state.md.options["maxNesting"] else ():
                if rule(state, False):
                    made, at = list[tuple[int, Token]](), state.pos
                    for token in reversed(state.tokens[count:]):
                        at -= len(token.content) if name in ("emphasis", "strikethrough") else state.pos - begin
                        if at < begin:
                            break
                        made.insert(0, (at, token))
                        if at == begin:
                            break
                    self.constructs.insert(number, Construct(name, begin, state.pos, made))
                    break
            else:
                state.append_pending(state.src[begin])
                state.pos += 1
        if state.pending:
            state.pushPending()

    def read(self, text: str, parser: MarkdownIt, env: dict[str, Any]) -> list[Construct]:
        """The constructs of a text, in order."""
        self.constructs = []
        state = StateInline(text, parser, env, [])
        self.tokenize(state)
        for rule in self.ruler2.getRules(""):
            rule(state)
        return self.constructs[1:]


def formula(state: StateInline, silent: bool) -> bool:
    """A rule for formulas, whose signs are no marks of Markdown."""
    found = FORMULA.match(state.src, state.pos, state.posMax)
    if found and not silent:
        state.push("code_inline", "", 0).content = found[0]
    state.pos = found.end() if found else state.pos
    return found is not None


def markdown_parts(text: str, languages: Languages) -> Parts:
    """The parts of a text, with segments for paragraphs, headings, cells and items, but not code or front matter."""
    parser, env = MarkdownIt("commonmark").enable(["table", "strikethrough"]), dict[str, Any]()
    parser.inline = inline = _Inline()
    parser.inline.ruler.enable("strikethrough")
    parser.inline.ruler.before("escape", "formula", formula)
    parser.inline.ruler2.enableOnly(["balance_pairs", "strikethrough", "emphasis"])
    parser.core.ruler.disable(["inline", "text_join"])
    matter = FRONT_MATTER.match(text)
    at = matter.end() if matter else 0
    yield text[:at]
    begins = [at, *(at + match.end() for match in LINE.finditer(text[at:])), len(text)]
    for token in parser.parse(text[at:], env):
        if token.map is None or token.type not in ("inline", "html_block"):
            continue
        if token.type == "html_block" and token.level == 0:
            yield text[at : begins[token.map[0]]]
            at = begins[token.map[1]]
            yield from html_parts(text[begins[token.map[0]] : at], languages)
        elif token.type == "inline":
            written = _written(token, text, begins, at)
            if written is not None:
                begin, end, characters = written
                first, last = _marked(token.content)
                begin, end = begin + len("".join(characters[:first])), end - len("".join(characters[last:]))
                content, characters = token.content[first:last], characters[first:last]
                yield text[at:begin]
                cell = token.level == 4 and "|" in text[begins[token.map[0]] : begins[token.map[0] + 1]]
                pieces, references = _referring(_pieces(content, characters, inline.read(content, parser, env)))
                read = partial(_markup, parser=parser, env=env, inline=inline)
                mended = partial(_mended, text[begin:end], read, references)
                least, escape = (_read_in_cell, _escaped_in_cell) if cell else (_read_as_written, _escaped)
                yield Segment(pieces, escape, text[begin:end], MARKED, least, mended)
                at = end
    yield text[at:]


def _marked(content: str) -> tuple[int, int]:
    """The start and end of a paragraph's text, without marks such as a task's check box or a container's fences."""
    leading, trailing = LEADING.match(content), TRAILING.search(content)
    first = leading.end() if leading else 0
    return first, max(first, trailing.start() if trailing else len(content))


Markup = tuple[list[str], Counter[Any]]


def _mended(
    before: str, read: Callable[[str], Markup], references: Sequence[tuple[str, str]], after: str
) -> str | None:
    """A translation with the same markup as `before`, with escaped marks of blocks if needed. None if this fails.

    Args:
        before: the text of the source.
        read: reads the markup of a text.
        references: the links of the source whose text is the label of their definition: this label, and the end.
        after: the translation, in which the labels are explicit.
    """
    for label, end in references:
        after = after.replace(f"[{label}][{label}]", f"[{label}{end}", 1)
    forms = (after, BLOCK_BEGINS.sub(r"\1\\", after))
    return next((form for form in forms if read(form) == read(before)), None)


def _markup(text: str, parser: MarkdownIt, env: dict[str, Any], inline: _Inline) -> Markup:
    """The blocks of a paragraph's text, and how often it has each construct. Line breaks count if they are hard."""
    blocks = [token.type for token in parser.parse(text, dict(env))]
    counts = Counter[Any]()
    for one in inline.read(text, parser, env):
        counts.update((token.type, token.tag) for _, token in one.tokens if token.nesting)
        counts.update((token.type, token.content) for _, token in one.tokens if token.type == "code_inline")
        is_hard = one.rule == "newline" and text[: one.begin].endswith("  ")
        is_counted = one.rule in ("link", "image", "html_inline", "autolink")
        counts.update([one.rule] if is_hard or is_counted else [])
    return blocks, counts


def _written(token: Token, text: str, begins: Sequence[int], at: int) -> tuple[int, int, list[str]] | None:
    """The start and end of a token's content, and how its characters are written; None if that is ambiguous."""
    characters, first, end = list[str](), -1, at
    for number, line in enumerate(token.content.split("\n"), start=(token.map or [0])[0]):
        low, high = max(at, begins[number]), begins[number + 1]
        cell = token.level == 4
        begin, own = (text.find(line, low, high) if cell else text.rfind(line, low, high)), list(line)
        if begin < 0 or (cell and "|" in line):
            own = [rf"\{one}" if one == "|" else one for one in line]
            begin = text.find("".join(own), low, high)
        if begin < 0:
            return None
        characters += [*([text[end:begin]] if first >= 0 else []), *own]
        first, end = (begin if first < 0 else first), begin + len("".join(own))
    return first, end, characters


def _pieces(content: str, written: Sequence[str], constructs: Sequence[Construct]) -> list[Piece]:
    """The pieces of inline content, whose characters are written in the document as in `written`."""
    run, prefix, at, labels = list[tuple[str, str]](), "", 0, list[tuple[int, int]]()
    out = list[Piece]()

    def raw(begin: int, end: int) -> str:
        return "".join(written[begin:end])

    def flush(end: int) -> None:
        nonlocal at
        run.extend(zip(content[at:end], written[at:end], strict=True))
        out.extend(raw_pieces(run))
        run.clear()
        at = end

    def close_links(before: int) -> None:
        nonlocal at
        while labels and labels[-1][0] <= before:
            inside, end = labels.pop()
            flush(inside)
            reference = raw(inside, end)
            out.append(Piece("close", reference, key="link"))
            at = end

    for index, one in enumerate(constructs):
        if one.rule in ("label", "text") or one.begin < at:
            continue
        close_links(one.begin)
        kinds = {token.type for _, token in one.tokens}
        if one.rule == "entity" or (one.rule == "escape" and content[one.begin + 1] in punctuation):
            run.extend(zip(content[at : one.begin], written[at : one.begin], strict=True))
            source = raw(one.begin, one.end)
            run.extend([(content[one.begin + 1], source)] if one.rule == "escape" else decoded(source))
            at = one.end
        elif one.rule == "newline" or (one.rule == "escape" and content[one.begin + 1] == "\n"):
            hard = one.rule == "escape" or content[: one.begin].endswith("  ")
            flush(max(at, len(content[: one.begin].rstrip(" "))))
            marked = LINE_MARK.match(content, one.end)
            after = marked.end() if marked else one.end
            out.append(Piece("cut" if marked else "break" if hard else "space", raw(at, after), " "))
            at = after
        elif one.rule in ("emphasis", "strikethrough"):
            flush(one.begin)
            for place, token in one.tokens:
                width = min([next_place for next_place, _ in one.tokens if next_place > place] or [one.end]) - place
                mark, key = raw(place, place + width), token.tag
                if token.nesting:
                    out.append(Piece("open" if token.nesting > 0 else "close", prefix + mark, key=key))
                    prefix = ""
                elif token.content:
                    run.extend(zip(content[place : place + width], mark, strict=True))
                elif out and out[-1].kind == "close" and out[-1].key == "strong" and len(out[-1].raw) == 1:
                    out[-1] = out[-1]._replace(raw=out[-1].raw + mark)
                else:
                    prefix = mark
            at = one.end
        elif one.rule == "link":
            flush(one.begin)
            inside = constructs[index + 1]
            out.append(Piece("open", raw(one.begin, inside.begin), key="link"))
            at = inside.begin
            labels.append((inside.end, one.end))
        elif one.rule in ("image", "html_inline", "autolink") or "code_inline" in kinds:
            flush(one.begin)
            source, shown = raw(one.begin, one.end), content[one.begin : one.end].replace("\n", " ")
            if one.rule == "html_inline":
                out.append(tag_piece(source, source))
            elif one.rule == "image":
                out.append(Piece("void", source))
            else:
                out.append(Piece("atom", source, shown.strip("<>") if one.rule == "autolink" else shown))
            at = one.end
    close_links(len(content))
    flush(len(content))
    return out


def _referring(pieces: list[Piece]) -> tuple[list[Piece], list[tuple[str, str]]]:
    """The pieces with an explicit label for links whose text is the label of their definition; the labels and ends."""
    begun, references = list[int](), list[tuple[str, str]]()
    for number, piece in enumerate(pieces):
        if piece.key == "link" and piece.kind == "open":
            begun.append(number)
        elif piece.key == "link":
            begin = begun.pop()
            label = "".join(one.raw for one in pieces[begin + 1 : number])
            if piece.raw in ("]", "][]"):
                pieces[begin] = pieces[begin]._replace(exact=True)
                references.append((label, piece.raw))
                pieces[number] = piece._replace(raw=f"][{label}]")
    return pieces, references


def _escaped(text: str) -> str:
    return SPECIAL.sub(r"\\\g<0>", text)


def _read_as_written(text: str) -> str:
    """A text without escapes and entities, which would be read as other signs."""
    return READ_OTHERWISE.sub(r"\\\g<0>", text)


def _escaped_in_cell(text: str) -> str:
    return _escaped(text).replace("|", r"\|")


def _read_in_cell(text: str) -> str:
    return _read_as_written(text).replace("|", r"\|")
