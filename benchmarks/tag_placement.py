"""F1 of where tags stand in translations, beside where a person put them, in 200 captions.

    python benchmarks/tag_placement.py RUN [--show]

`tag_placement.tsv` has a kind, a caption and its German translation a line. The translations are a model's own, with
its mistakes, and their tags were put there by hand. A tag whose words were not translated does not count.
RUN, of any kind, is made to read these translations (`force`), and tags are placed as in documents by its attention.
Beside it, `positions` is what documents have without attention, and `proportional` puts a tag as far along as it was.
"""

import argparse
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import headway
from headway.markup.documents import Languages, translate_document
from headway.markup.inline import Aligned
from headway.predictors.sentence_translator import aligned, usual_aligner
from headway.predictors.sequence_predictor import SequencePredictor

CASES = Path(__file__).with_suffix(".tsv")
TOKEN = re.compile(r"\w+(?:[-'’]\w+)*|[^\w\s]")
TAG = re.compile(r"<(/?)(\w+)>")
Spans = dict[str, tuple[int, int]]


class Case(NamedTuple):
    """A caption and its translation, both with tags; every tag of a caption has a name of its own."""

    kind: str
    source: str
    target: str


def read_cases() -> list[Case]:
    """The cases that were made by hand."""
    return [Case(*line.split("\t")) for line in CASES.read_text(encoding="utf-8").splitlines()]


def spans(text: str) -> Spans:
    """The characters of the text without tags that each tag is around, but for spaces at both ends."""
    found, begun, plain, at = Spans(), dict[str, int](), "", 0
    for match in [*TAG.finditer(text), None]:
        plain += text[at : match.start() if match else len(text)]
        if match is None:
            continue
        at = match.end()
        if not match[1]:
            begun[match[2]] = len(plain)
            continue
        inside = plain[begun[match[2]] :]
        found[match[2]] = len(plain) - len(inside.lstrip()), len(plain) - len(inside) + len(inside.rstrip())
    return found


def without_tags(text: str) -> str:
    """The text alone."""
    return TAG.sub("", text)


def covered(text: str, span: tuple[int, int]) -> set[int]:
    """The numbers of the tokens that a span has a part of."""
    tokens = enumerate(TOKEN.finditer(text))
    return {number for number, token in tokens if token.start() < span[1] and token.end() > span[0]}


def placed(case: Case, translation: Aligned) -> str:
    """The translation with tags, as documents have it."""

    def translate(sentences: Sequence[str]) -> list[Aligned]:
        assert list(sentences) == [without_tags(case.source)], sentences
        return [translation]

    return translate_document(case.source.encode(), "x.html", translate, Languages("en", "de")).decode()


def proportional(case: Case) -> Spans:
    """The tags around the words that are as far along."""
    source, target = without_tags(case.source), without_tags(case.target)
    tokens = [token.span() for token in TOKEN.finditer(target)]
    scale, found = len(tokens) / len(TOKEN.findall(source)), Spans()
    for name, span in spans(case.source).items():
        numbers = covered(source, span)
        first = min(len(tokens) - 1, round(min(numbers) * scale))
        last = max(first, round((max(numbers) + 1) * scale) - 1)
        found[name] = tokens[first][0], tokens[last][1]
    return found


class Score(NamedTuple):
    """Counts over tags, and over their tokens."""

    tags: int = 0
    exact: int = 0
    right: int = 0
    placed: int = 0
    wanted: int = 0

    def __add__(self, other: "Score") -> "Score":  # type: ignore[override]
        return Score(*map(sum, zip(self, other, strict=True)))

    def told(self) -> str:
        """F1 of whole tags, each of which is placed once and wanted once, and of tokens."""
        return f"{100 * self.exact / self.tags:5.1f} {200 * self.right / (self.placed + self.wanted):5.1f}"


def scores(case: Case, found: Spans) -> Iterator[Score]:
    """The score of each tag that has a place."""
    text = without_tags(case.target)
    for name, wanted in spans(case.target).items():
        ours, theirs = covered(text, found[name]), covered(text, wanted)
        yield Score(1, int(found[name] == wanted), len(ours & theirs), len(ours), len(theirs))


def contenders(run: Path, cases: Sequence[Case]) -> dict[str, list[Spans]]:
    """The places of all tags, by who placed them."""
    predictor = headway.load(run)
    assert isinstance(predictor, SequencePredictor)
    aligner, (sources, targets) = (
        usual_aligner(predictor),
        zip(*((without_tags(case.source), without_tags(case.target)) for case in cases), strict=True),
    )
    outputs = predictor.force(list(sources), list(targets), capture=(aligner.layer,) if aligner else ())
    by: dict[str, Callable[[int], Aligned]] = {
        "attention": lambda number: aligned(outputs[number], aligner),
        "positions": lambda number: Aligned(targets[number]),
    }
    found = {name: [spans(placed(case, of(number))) for number, case in enumerate(cases)] for name, of in by.items()}
    return found | {"proportional": [proportional(case) for case in cases]}


def main() -> None:
    """Print F1 by kind, and the failures where they are asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--show", action="store_true", help="print what attention places otherwise than by hand")
    given = parser.parse_args()
    cases = read_cases()
    found = contenders(given.run, cases)
    table: dict[str, Counter[str] | dict[str, Score]] = defaultdict(lambda: dict.fromkeys(found, Score()))
    for name, places in found.items():
        for case, of in zip(cases, places, strict=True):
            for score in scores(case, of):
                for kind in (case.kind, "all"):
                    table[kind][name] += score  # type: ignore[operator,assignment]
    print(f"{'F1 of whole tags, of tokens':28} {'tags':>5} {'':2}" + "  ".join(f"{name:>13}" for name in found))
    for kind, row in sorted(table.items(), key=lambda one: one[0] == "all"):
        tags = row["attention"].tags  # type: ignore[union-attr]
        print(f"{kind:28} {tags:5} {'':2}" + "  ".join(f"{score.told():>13}" for score in row.values()))  # type: ignore[union-attr]
    for case, of in zip(cases, found["attention"], strict=True) if given.show else ():
        text, wanted = without_tags(case.target), spans(case.target)
        if wrong := [name for name in wanted if of[name] != wanted[name]]:
            print(f"{case.kind}: {case.source}\n    {case.target}")
            print("".join(f"    {name}: {text[slice(*of[name])]!r}\n" for name in wrong), end="")


if __name__ == "__main__":
    main()
