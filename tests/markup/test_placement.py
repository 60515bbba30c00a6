"""Tags in translations whose alignment is known: where people put them."""

import re
from collections.abc import Sequence

import pytest

from headway.core.log import say
from headway.markup.documents import Languages, translate_document
from headway.markup.inline import Aligned

# Source, the translation, links between words (from 0, `source-target`), and the translation as people mark it up.
CASES = [
    ("A <b>red</b> house", "Ein rotes Haus", "0-0 1-1 2-2", "Ein <b>rotes</b> Haus"),
    ("A <b>red house</b>", "Une maison rouge", "0-0 1-2 2-1", "Une <b>maison rouge</b>"),
    ("A <b>red</b> house", "Une maison rouge", "0-0 1-2 2-1", "Une maison <b>rouge</b>"),
    ("<b>All of it</b>", "Das Ganze", "0-1 1-1 2-0", "<b>Das Ganze</b>"),
    ("I have <i>not</i> seen <b>him</b>", "Ich habe ihn nicht gesehen", "0-0 1-1 2-3 3-4 4-2",
     "Ich habe <b>ihn</b> <i>nicht</i> gesehen"),
    ("Click <a>here</a>, please.", "Bitte klicken Sie hier.", "0-1 1-3 2-0", "Bitte klicken Sie <a>hier</a>."),
    ("Click <a>here.</a>", "Klicken Sie hier.", "0-0 1-2", "Klicken Sie <a>hier.</a>"),
    ("<a>Read <b>more</b></a> today", "Heute mehr lesen", "0-2 1-1 2-0", "Heute <a><b>mehr</b> lesen</a>"),
    ("The <b>quick</b> <i>brown</i> fox", "Le renard brun rapide", "0-0 1-3 2-2 3-1",
     "Le renard <i>brun</i> <b>rapide</b>"),
    ("He <b>gave up</b> smoking", "Er hat das Rauchen aufgegeben", "0-0 1-4 2-4 3-3",
     "Er hat das Rauchen <b>aufgegeben</b>"),
    ("She <b>called</b> him", "Sie rief ihn an", "0-0 1-1 1-3 2-2", "Sie <b>rief</b> ihn an"),
    ("See <img/> figure 3", "Siehe Abbildung 3", "0-0 1-1 2-2", "Siehe <img/> Abbildung 3"),
    ("note<sup>1</sup> and more", "Anmerkung1 und mehr", "0-0 1-1 2-2", "Anmerkung<sup>1</sup> und mehr"),
    ("He said “<i>hello</i>”.", "Er sagte „hallo“.", "0-0 1-1 2-2", "Er sagte „<i>hallo</i>“."),
    ("<b>Note:</b> this is new", "Hinweis: Dies ist neu", "0-0 1-1 2-2 3-3", "<b>Hinweis:</b> Dies ist neu"),
    ("the <i>European Union</i>'s law", "das Recht der Europäischen Union", "0-0 1-3 2-4 3-1",
     "das Recht der <i>Europäischen Union</i>"),
    ("<b>Tokyo</b> is big", "東京は大きい", "0-0 1-1 2-2", "<b>東京</b>は大きい"),
    ("Press <b>OK</b> now", "Drücken Sie jetzt OK", "0-0 1-3 2-2", "Drücken Sie jetzt <b>OK</b>"),
    ("It is <b>very <i>very</i></b> good", "Es ist sehr sehr gut", "0-0 1-1 2-2 3-3 4-4",
     "Es ist <b>sehr <i>sehr</i></b> gut"),
    ("from <b>1990</b> to <b>2000</b>", "von 1990 bis 2000", "0-0 1-1 2-2 3-3", "von <b>1990</b> bis <b>2000</b>"),
    ("to <b>2000</b> from <i>1990</i>", "ab 1990 bis 2000", "0-2 1-3 2-0 3-1", "ab <i>1990</i> bis <b>2000</b>"),
    ("<b>Yes</b> <i>no</i>", "Ja", "0-0", "<b>Ja</b><i></i>"),
    ("I <b>like</b> it", "Es gefällt mir", "0-2 1-1 2-0", "Es <b>gefällt</b> mir"),
    ("<b>un</b>likely it is", "es ist unwahrscheinlich", "0-2 1-0 2-1", "es ist <b>unwahrscheinlich</b>"),
    ("He talks on the <b>phone</b>.", "Er telefoniert.", "0-0", "Er <b>telefoniert</b>."),
    ("see <a><img/> the map</a>", "die Karte ansehen", "0-2 1-0 2-1", "<a><img/> die Karte</a> ansehen"),
]  # fmt: skip


def spans(text: str, pattern: str) -> list[tuple[int, int]]:
    return [match.span() for match in re.finditer(pattern, text)]


def place(source: str, target: str, links: str) -> str:
    """The translation of a fragment with its tags."""
    plain = re.sub(r"<[^<>]*>", "", source)
    unspaced = "東" in target
    theirs = [(0, 2), (2, 3), (3, 6)] if unspaced else spans(target, r"\S+")
    ours = spans(re.sub(r"\s+", " ", plain), r"\S+")

    def translate(sentences: Sequence[str]) -> list[Aligned]:
        pairs = [tuple(map(int, link.split("-"))) for link in links.split()]
        return [Aligned(target, [(ours[one], theirs[other]) for one, other in pairs]) for _ in sentences]

    return translate_document(source.encode(), "x.html", translate, Languages("en", "de")).decode()


def tagged(text: str) -> set[tuple[str, int, int]]:
    """Every pair of tags, and every tag alone, with the characters of the text that it is around."""
    found, open_tags, length = set(), [], 0
    for part in re.split(r"(<[^<>]*>)", text):
        if part.startswith("</"):
            name, begin = open_tags.pop()
            found.add((name, begin, length))
        elif part.endswith("/>"):
            found.add((part, length, length))
        elif part.startswith("<"):
            open_tags.append((part[1:-1], length))
        else:
            length += len(part.replace(" ", ""))
    return found


@pytest.mark.parametrize(("source", "target", "links", "expected"), CASES)
def test_a_tag_is_where_people_put_it(source: str, target: str, links: str, expected: str) -> None:
    assert place(source, target, links).replace(" ", "") == expected.replace(" ", "")


def test_f1_of_all() -> None:
    both = [(tagged(place(source, target, links)), tagged(expected)) for source, target, links, expected in CASES]
    right = sum(len(found & wanted) for found, wanted in both)
    f1 = 2 * right / sum(len(found) + len(wanted) for found, wanted in both)
    say(f"F1 of tags in {len(CASES)} fragments: {f1:.3f}")
    assert f1 >= 0.95
