"""Documents with made markup, and translators that do what models do to it: nothing but the text changes."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape, unescape
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import hypothesis.strategies as st
from hypothesis.strategies import SearchStrategy
from markdown_it import MarkdownIt

from tools.campaigns.campaign import Campaign

PLACEHOLDERS = ("{name}", "%s", "%(n)d", "%1$s", "{0}", "https://x.org/a?b=1&c=2", "me@x.org")
WORDS = ("Hello", "world.", "dear", "friend,", "a", "5", "(see)", "R&D", "x<y", "日本語", "Ende!", "it's", "“so”")
KINDS = ("html", "xliff", "tmx", "markdown", "po", "srt", "vtt", "text")
PAIRS = ("b", "i", "a")

Node = str | tuple[str, list[Any]]  # words, a placeholder or code; or a pair of tags around nodes


@dataclass(frozen=True)
class MarkupCase:
    """A document of paragraphs, and a translator: its seed, and how often it does harm, in tenths."""

    kind: str
    paragraphs: tuple[tuple[Any, ...], ...]
    seed: int
    harm: int


def _nodes() -> SearchStrategy[Any]:
    leaves = st.one_of(
        st.sampled_from(WORDS), st.sampled_from(PLACEHOLDERS), st.sampled_from((" ", "  ", "CODE", "ALONE", "BREAK"))
    )
    return st.recursive(
        leaves, lambda inner: st.tuples(st.sampled_from(PAIRS), st.lists(inner, max_size=4)), max_leaves=10
    )


class Translator:
    """Words in another order, more or fewer of them; placeholders that get lost, come twice or are made up."""

    def __init__(self, seed: int, harm: int) -> None:
        self.random, self.harm = random.Random(seed), harm

    def __call__(self, sentences: Sequence[str]) -> list[Any]:
        """A translation of each sentence, with links that may be anything."""
        return [self._one(sentence) for sentence in sentences]

    def _one(self, sentence: str) -> Any:
        from headway.markup.inline import Aligned

        if not self.harm:
            return Aligned(sentence)
        words = [word if self._sound() else word.upper() for word in sentence.split()]
        if not self._sound():
            self.random.shuffle(words)
        if not self._sound():
            made_up = self.random.choice((*PLACEHOLDERS, "<b>", "*", "_x_", "]", "-"))
            words.insert(self.random.randrange(len(words) + 1), made_up)
        words = [word for word in words if self._sound() or self._sound()]
        text = ("" if self.random.random() < self.harm / 40 else " ").join(words)
        if self._sound() or not text or not sentence:
            return Aligned(text)

        def span(text: str) -> tuple[int, int]:
            begin = self.random.randrange(len(text))
            return begin, self.random.randrange(begin, len(text)) + 1

        return Aligned(text, [(span(sentence), span(text)) for _ in range(self.random.randrange(6))])

    def _sound(self) -> bool:
        return self.random.randrange(10) >= self.harm


def _written(nodes: Sequence[Any], kind: str) -> str:
    """Nodes as a document of a kind has them."""
    return "".join(_node(node, kind) for node in nodes)


def _node(node: Any, kind: str) -> str:
    if not isinstance(node, str):
        name, inner = node
        text = _written(inner, kind)
        tags = {
            "html": (f'<{name} class="{name}">', f"</{name}>"), "xliff": (f'<g id="{name}">', "</g>"),
            "tmx": (f'<hi type="{name}">', "</hi>"), "po": (f'<{name} class=\\"{name}\\">', f"</{name}>"),
            "srt": (f"<{name}>", f"</{name}>"), "vtt": (f"<{name}>", f"</{name}>"), "text": ("", ""),
            "markdown": {"b": ("**", "**"), "i": ("*", "*"), "a": ("[", "](u)")}[name],
        }[kind]  # fmt: skip
        if kind == "markdown" and not (text[:1].isalnum() and text[-1:].isalnum()):
            return text
        return f" {tags[0]}{text}{tags[1]} " if kind == "markdown" else f"{tags[0]}{text}{tags[1]}"
    if node == "CODE":
        return {"html": " <code>f(x)</code> ", "markdown": " `f(x)` "}.get(kind, "`f(x)`")
    if node == "ALONE":
        alone = {"html": '<img src="x"/>', "xliff": '<x id="7"/>', "tmx": '<ph x="7">c</ph>', "vtt": "<00:00:01.000>"}
        return {**alone, "markdown": "![i](j)", "po": "<hr/>", "srt": "{\\an8}"}.get(kind, "")
    if node == "BREAK":
        return {"markdown": "  \nq", "po": " ", "text": " "}.get(kind, "\n" if kind in ("srt", "vtt") else "\n  ")
    if node in PLACEHOLDERS:
        node = f" {node} "
    if kind == "srt" and node == "x<y":
        return "xy"
    if kind in ("html", "xliff", "tmx", "vtt"):
        return escape(node, quote=False)
    if kind == "markdown":
        return node.replace("<", "\\<")
    return node


def document(case: MarkupCase) -> str:
    """The document of a case."""
    texts = [_written(nodes, case.kind) for nodes in case.paragraphs]
    if case.kind in ("srt", "vtt"):
        texts = [re.sub(r"\n\s*\n+", "\n", text).strip("\n") for text in texts]
        cues = [f"{at}\n00:00:{at:02}.000 --> 00:00:{at:02}.500\n{text}\n\n" for at, text in enumerate(texts, start=1)]
        return ("WEBVTT\n\n" if case.kind == "vtt" else "") + "".join(cues)
    if case.kind == "po":
        named = [(at, text) for at, text in enumerate(texts) if text]
        return "".join(f'#: a.c:{at}\nmsgctxt "{at}"\nmsgid "{text}"\nmsgstr ""\n\n' for at, text in named)
    if case.kind == "xliff":
        units = [f'<trans-unit id="{at}"><source>{text}</source></trans-unit>' for at, text in enumerate(texts)]
        return f'<xliff version="1.2"><file><body>{"".join(units)}</body></file></xliff>'
    if case.kind == "tmx":
        units = [f'<tu><tuv xml:lang="en"><seg>{text}</seg></tuv></tu>' for text in texts]
        return f'<tmx version="1.4"><header srclang="en"/><body>{"".join(units)}</body></tmx>'
    if case.kind == "html":
        return f"<html><body>{''.join(f'<p>{text}</p>' for text in texts)}</body></html>"
    return ("\n" if case.kind == "text" else "\n\n").join(texts) + "\n"


def shape(kind: str, text: str) -> tuple[Any, Counter[str]]:
    """All of a document that no translation may change: its structure, and how often placeholders are there."""
    if kind == "html":
        root = ElementTree.fromstring(text)
        return _elements(root), _placeholders("".join(root.itertext()))
    if kind == "markdown":
        found, seen = list[Any](), list[str]()
        for token in MarkdownIt("commonmark").parse(text):
            inner = token.children or []
            marks = Counter((one.type, str(one.attrs)) for one in inner if one.nesting or one.type == "image")
            found.append((token.type, sorted(marks.items())))
            seen += [one.content if one.type == "text" else f"`{one.content}`" for one in inner]
        return found, _placeholders("".join(seen))
    tags = re.findall(r"</?\w[^<>]*>|<[\d:.]+>|\{\\an8\}", text)
    tags = [] if kind == "text" else tags
    lines = [line for line in text.splitlines() if "-->" in line]
    return (lines, Counter(tags)), _placeholders(unescape(text) if kind == "vtt" else text)


def _elements(element: Any) -> Counter[Any]:
    """The elements in an element, with what in them is no text."""
    inside = (one for one in element.iter() if one is not element)
    return Counter((one.tag, str(one.attrib), one.text if one.tag in ("ph", "code") else "") for one in inside)


def _placeholders(text: str) -> Counter[str]:
    return Counter({name: text.count(name) for name in (*PLACEHOLDERS, "f(x)")})


def check(case: MarkupCase) -> None:
    """Raise AssertionError where a translation changes more than text."""
    from headway.markup.documents import Languages, translate_document

    text = document(case)
    translator, languages = Translator(case.seed, case.harm), Languages("en", "de")
    result = translate_document(text.encode(), "x", translator, languages, case.kind).decode()
    if case.kind in ("xliff", "tmx"):
        _check_units(case.kind, text, result, harmed=case.harm > 0)
    elif case.kind == "po":
        _check_messages(text, result, harmed=case.harm > 0)
    else:
        assert shape(case.kind, result) == shape(case.kind, text), result
    same = translate_document(text.encode(), "x", Translator(0, 0), languages, case.kind)
    if case.kind not in ("xliff", "tmx", "po"):
        assert same == text.encode(), same.decode()


def _check_units(kind: str, before: str, after: str, *, harmed: bool) -> None:
    """A unit with a sentence that was harmed may stay without a target."""
    unit, names = ("trans-unit", ("source", "target")) if kind == "xliff" else ("tu", ("seg", "seg"))
    old, new = (list(ElementTree.fromstring(text).iter(unit)) for text in (before, after))
    for one, other in zip(old, new, strict=True):
        first, made = next(one.iter(names[0])), list(other.iter(names[1]))
        assert ElementTree.tostring(first) == ElementTree.tostring(next(other.iter(names[0]))), after
        assert made or harmed or not "".join(first.itertext()).strip(), after
        for each in made:
            assert _elements(each) == _elements(first), after
            assert _placeholders("".join(each.itertext())) == _placeholders("".join(first.itertext())), after


def _check_messages(before: str, after: str, *, harmed: bool) -> None:
    """A message with a sentence that was harmed may stay without a translation."""
    for old, new in zip(before.split("\n\n"), after.split("\n\n"), strict=True):
        assert new.startswith(old.removesuffix('msgstr ""')), after
        if not old:
            continue
        source, target = (re.search(rf'{name} "((?:[^"\\]|\\.)*)"', new) for name in ("msgid", "msgstr"))
        assert source
        assert target, after
        if harmed and not target[1]:
            continue
        tags = r'</?\w+(?: class=\\"\w\\")?/?>'
        assert Counter(re.findall(tags, source[1])) == Counter(re.findall(tags, target[1])), after
        assert _placeholders(source[1]) == _placeholders(target[1]), after


class MarkupCampaign(Campaign[MarkupCase]):
    """Documents of all kinds, and translators that do harm."""

    name = "markup"
    about = "documents of eight kinds, with translators that lose, double and make up what they should keep"
    quick = 400
    together = 50

    def prepare(self, folder: Path) -> None:
        import headway.markup.exchange
        import headway.markup.gettext
        import headway.markup.hypertext
        import headway.markup.marked  # noqa: F401

        check(MarkupCase("text", (("Hello",),), 1, 0))

    def cases(self) -> SearchStrategy[MarkupCase]:
        paragraphs = st.lists(st.lists(_nodes(), min_size=1, max_size=8).map(tuple), min_size=1, max_size=3).map(tuple)
        return st.builds(MarkupCase, st.sampled_from(KINDS), paragraphs, st.integers(0, 1000), st.integers(0, 5))

    def check(self, case: MarkupCase, folder: Path) -> None:
        check(case)
