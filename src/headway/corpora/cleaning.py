"""Cleaning a corpus of pairs: texts are repaired, and pairs that are probably no translations are rejected by rules.

The rules `mozilla` have the limits of the configuration of OpusCleaner with which Mozilla cleans corpora for the models
of Firefox. Rules for duplicates, equal sides and untranslated targets follow them.
"""

import html
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import cached_property
from hashlib import blake2b
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

from headway.core.errors import UserError, option, require_installed
from headway.core.files import sha256, write_json
from headway.core.languages import LOOKED_AT, base_language, has_no_spaces, language_name, look_unspaced
from headway.core.log import counted, progress, say
from headway.core.storage import check_new, put_in_place, workspace
from headway.core.version import VERSION
from headway.corpora.split import open_parallel, open_table, suffix_of
from headway.formats.corpus_format import Broken, Pair, RowErrors

ENTITY = re.compile(r"&(?:#\d+|#x[\da-f]+|[a-z][a-z\d]*);", re.IGNORECASE)
# Marks of a wiki, and what stays of them: footnotes, links with a label, and headings.
WIKI = (
    (re.compile(r" ?\[\d+\]"), ""),
    (re.compile(r"\[\[(?:[^\[\]]*\|)?([^\[\]|]+)\]\]"), r"\1"),
    (re.compile(r"(?<!=)(={2,6}) ?([^=]+?) ?\1(?!=)"), r"\2"),
)
MARKUP = re.compile(rf"</?[a-z][^<>]*>|\{{\{{|\}}\}}|\[\[|\]\]|{ENTITY.pattern}", re.IGNORECASE)
STYLES = ".mw-parser-output"  # of style sheets in texts from Wikimedia
NUMBER = re.compile(r"(?<!\w)\d++(?:[.,:]\d++)*+(?!\w)")
ADDRESS = re.compile(r"(?:(?:https?|ftp)://|www\.)[!-~]+|(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)+", re.I | re.ASCII)
CERTAIN = 10  # a text is in another language if that language is so many times as probable
BOKMAL = {"nb": "no"}  # the code of py3langid
Texts = tuple[str, str]
Rule = Callable[[Texts, "Facts"], bool]  # whether the texts break the rule


class Facts:
    """The facts about a corpus, beside the pair, that the rules depend on. Languages that cannot be judged are logged.

    Args:
        first: the first pairs.
        languages: the codes of source and target, None if unknown.
        identified: whether a rule judges the languages.

    Attributes:
        spaced: for each side, whether its words can be compared in number with those of other languages. They cannot in
            Korean, nor if no spaces separate them.
        labels: for each side, its language in py3langid; None if it is not judged.

    Raises:
        UserError: py3langid is needed and not installed.
    """

    def __init__(self, first: Iterable[Texts], languages: Sequence[str | None], identified: bool) -> None:
        sides = [*zip(*first, strict=True)] or [(), ()]
        self.spaced = [
            not (look_unspaced(texts) if code is None else has_no_spaces(code) or base_language(code) == "ko")
            for code, texts in zip(languages, sides, strict=True)
        ]
        named = zip(("source", "target"), languages, strict=True)
        self.labels = [self._label(side, code) if identified else None for side, code in named]
        self._seen = set[bytes]()

    @cached_property
    def _identifier(self) -> Any:
        require_installed("the rule language", ["py3langid"], "filter")
        from py3langid.langid import MODEL_FILE, LanguageIdentifier

        return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)

    def _label(self, side: str, code: str | None) -> str | None:
        if code is None:
            say(f"{side}: the language of texts is not judged; {option(f'{side}_language')} names it")
            return None
        wanted = BOKMAL.get(base_language(code), base_language(code))
        label = next((label for label in self._identifier.labels if base_language(label) == wanted), None)
        if label is None:
            say(f"{side}: the language of texts is not judged: py3langid does not know {language_name(code)}")
        return label

    def words(self, texts: Texts) -> Iterator[list[str]]:
        """The words of each text whose words can be compared in number."""
        return (text.split() for text, spaced in zip(texts, self.spaced, strict=True) if spaced)

    def is_foreign(self, text: str, label: str | None) -> bool:
        """Whether a text is certainly in another language than its side."""
        probabilities = {} if label is None else dict(self._identifier.rank(text))
        return bool(CERTAIN * probabilities.get(label, 0) < max(probabilities.values(), default=0))

    def has_seen(self, texts: Texts) -> bool:
        """Whether the same pair was asked for before."""
        count, digest = len(self._seen), blake2b("\t".join(texts).encode(), digest_size=16).digest()
        self._seen.add(digest)
        return len(self._seen) == count


def _differ(marks: re.Pattern[str], texts: Iterable[str]) -> bool:
    """Whether one side has more of the marks than the other."""
    return len({len(marks.findall(text)) for text in texts}) > 1


def _share(holds: Callable[[str], bool], items: Collection[str]) -> float:
    """The share of the items for which a condition holds; 0 if there are none."""
    return sum(map(holds, items)) / max(1, len(items))


def _is_letter(character: str) -> bool:
    """Whether a character is a letter, or a mark of one, such as a vowel sign of Hindi."""
    return unicodedata.category(character)[0] in "LM"


def _has_letter(word: str) -> bool:
    return any(map(_is_letter, word))


def _ratio(texts: Texts) -> float:
    """The number of words of the longer text for each word of the shorter one."""
    shorter, longer = sorted(len(text.split()) for text in texts)
    return longer / max(1, shorter)


def _words(text: str) -> list[str]:
    return re.findall(r"[^\W\d_]+", text.casefold())


def _numbers(text: str) -> set[str]:
    """The numbers in the digits 0 to 9, with one separator, and without zeros at the beginning."""
    digits = (re.sub(r"\d", lambda digit: str(int(digit[0])), number) for number in NUMBER.findall(text))
    return {re.sub(r"\D", ".", number).lstrip("0") for number in digits}


def _addresses(text: str) -> set[str]:
    return {address.rstrip(".,;:!?)]}>'\"") for address in ADDRESS.findall(text)}


# The rules by the option `rules`. A pair is rejected by the first rule whose function returns True. Numbers are not
# compared with texts whose words cannot be, because these often write numbers as words, or attach them to words.
RULES: dict[str, dict[str, Rule]] = {
    "mozilla": {
        "empty": lambda texts, facts: not all(texts),
        "markup": lambda texts, facts: _differ(MARKUP, texts) or any(STYLES in text for text in texts),
        "length": lambda texts, facts: any(len(text.split()) > 150 for text in texts),
        "word_length": lambda texts, facts: any(len(word) > 150 for words in facts.words(texts) for word in words),
        "ratio": lambda texts, facts: all(facts.spaced) and _ratio(texts) > 2,
        "words": lambda texts, facts: any(_share(_has_letter, words) < 0.4 for words in facts.words(texts)),
        "letters": lambda texts, facts: any(_share(_is_letter, "".join(words)) < 0.5 for words in facts.words(texts)),
        "numbers": lambda texts, facts: (
            all(facts.spaced)
            and len(_numbers(texts[0]) ^ _numbers(texts[1])) > len(_numbers(texts[0]) & _numbers(texts[1]))
        ),
        "addresses": lambda texts, facts: _addresses(texts[0]) != _addresses(texts[1]),
        "language": lambda texts, facts: any(map(facts.is_foreign, texts, facts.labels)),
        "duplicate": lambda texts, facts: facts.has_seen(texts),
        "equal": lambda texts, facts: texts[0].casefold() == texts[1].casefold(),
        "untranslated": lambda texts, facts: _share(set(_words(texts[0])).__contains__, _words(texts[1])) > 0.6,
    }
}


def repaired(pair: Pair) -> Texts:
    """The texts with characters for entities, single spaces, and no marks of a wiki that one side alone has."""
    texts = [ENTITY.sub(lambda entity: html.unescape(entity[0]), text) for text in (pair.source, pair.target)]
    for marks, rest in WIKI:
        if _differ(marks, texts):
            texts = [marks.sub(rest, text) for text in texts]
    source, target = (" ".join(text.split()) for text in texts)
    return source, target


class Cleaned(NamedTuple):
    """The numbers of kept pairs, of those with repaired text, of unreadable rows, and of rejected pairs by rule."""

    kept: int
    repaired: int
    unreadable: int
    rejected: Mapping[str, int]

    def text(self) -> str:
        """The numbers as text of a few lines."""
        read = counted(self.kept + sum(self.rejected.values()), "pair")
        lines = [f"kept: {self.kept:,} of {read}, {self.repaired:,} with repaired text"]
        lines += [f"rejected {count:,}: {rule}" for rule, count in self.rejected.items() if count]
        return "\n".join(lines + [f"left out {self.unreadable:,}: rows that cannot be read"] * (self.unreadable > 0))


def clean_corpus(
    files: Sequence[Path], columns: Sequence[str], output: Path, languages: Sequence[str | None], *,
    rules: str = "mozilla", without: Sequence[str] = (), broken: Broken = "error",
) -> Cleaned:  # fmt: skip
    """Write a new folder with the pairs that break no rule, the rejected pairs, and a manifest of their numbers.

    Kept pairs keep their order, in `kept` with the suffix of each file if there are two, else in the two columns of
    `kept.tsv`. `rejected.tsv` has the rule and the line of each rejected pair.

    Args:
        files: one with a pair a row, or line-aligned sources and targets.
        columns: the columns of the source and the target if there is one file: numbers, or names.
        output: the folder to make. It appears when all of it is there.
        languages: of source and target; None if unknown.
        rules: the name of the rules, in `RULES`.
        without: the rules that are not applied.
        broken: `error` stops at an unreadable row, `skip` leaves it out.

    Raises:
        UserError: the folder exists, there is no such rule, files cannot be read, or no pairs are left.
    """
    check_new(output, "output")
    if unknown := [name for name in without if name not in RULES[rules]]:
        raise UserError("there is no such rule", where=option("without"), received=unknown[0], allowed=RULES[rules])
    pairs = open_table(files[0], columns) if len(files) == 1 else open_parallel(*files)
    pairs.row_errors = RowErrors(broken, remedy=option("skip_broken"))
    applied = {name: rule for name, rule in RULES[rules].items() if name not in without}
    names = [f"kept{suffix_of(file)}" for file in files] if len(files) == 2 else ["kept.tsv"]
    names.append("rejected.tsv")
    with workspace(output.absolute().parent, output) as space, progress("filtering", unit="pairs", long=True) as work:
        (folder := space / "corpus").mkdir()
        stream = work.over(pairs)
        first = [*islice(stream, LOOKED_AT)]
        facts = Facts(map(repaired, first), languages, "language" in applied)
        counts = _write(chain(first, stream), applied, facts, [folder / name for name in names])
        rejected = {name: counts[name] for name in applied}
        if not counts["kept"]:
            raise UserError("no pair is left", where=pairs.name, received={n: c for n, c in rejected.items() if c})
        cleaned = Cleaned(counts["kept"], counts["repaired"], pairs.row_errors.count, rejected)
        manifest = {
            "headway": VERSION, "command": "headway data filter",
            "files": {str(file.absolute()): sha256(file) if file.is_file() else None for file in files},
            "columns": [*columns] if len(files) == 1 else None, "languages": [*languages], "identified": facts.labels,
            "rules": rules, "without": [*without], "counts": cleaned._asdict(),
            "sha256": {name: sha256(folder / name) for name in names},
        }  # fmt: skip
        write_json(folder / "manifest.json", manifest)
        put_in_place(folder, output)
    return cleaned


def _write(pairs: Iterable[Pair], rules: Mapping[str, Rule], facts: Facts, paths: Sequence[Path]) -> Counter[str]:
    """Write kept pairs to a table or two files, and rejected pairs to a table, the last path.

    Returns the numbers of `kept` and `repaired` pairs, and of rejected pairs by rule.
    """
    counts = Counter[str]()
    with ExitStack() as stack:
        opened = [path.open("w", encoding="utf-8", newline="\n") for path in paths]
        *sides, refused = map(stack.enter_context, opened)
        refused.write("rule\tline\tsource\ttarget\n")
        for pair in pairs:
            texts = repaired(pair)
            broken = next((name for name, breaks in rules.items() if breaks(texts, facts)), None)
            counts[broken or "kept"] += 1
            if broken is not None:
                refused.write("\t".join((broken, str(pair.line), *texts)) + "\n")
                continue
            counts["repaired"] += texts != pair[1:3]
            for file, line in zip(sides, texts if len(sides) == 2 else ["\t".join(texts)], strict=True):
                file.write(f"{line}\n")
    return counts
