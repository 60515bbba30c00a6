"""Terms: where they stand in texts, how sources are annotated, and what outputs keep."""

from collections import Counter
from pathlib import Path

import pytest

from headway.core.errors import UserError
from headway.formats.pairs import open_source
from headway.formats.terms import Glossary, TermCount, kept

BANK = Glossary({"bank": "Ufer", "river bank": "Flussufer", "US": "USA", "東京": "Tokio", "C++": "C++"})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("the bank", ["Ufer"]), ("banks, embankment", []), ("the river bank of a bank", ["Flussufer", "Ufer"]),
        ("Bank is open. Bank! Now a Bank", ["Ufer", "Ufer"]), ("us and US", ["USA"]), ("the BANK", []),
        ("River bank", ["Flussufer"]), ("今日は東京で", ["Tokio"]), ("in C++.", ["C++"]), ("", []),
    ],
)  # fmt: skip
def test_terms_of_a_text(text: str, expected: list[str]) -> None:
    assert [target for _, target in BANK.found(text)] == expected


def test_many_terms_are_found_without_looking_for_each() -> None:
    """By the first characters of a place, not by an expression that has all of them."""
    many = Glossary({f"term{number} of trade": f"Begriff{number}" for number in range(20_000)})
    assert [target for _, target in many.found("Term7 of trade, a term19999 of trade")] == ["Begriff7", "Begriff19999"]


def test_a_longer_term_stands_before_one_that_it_begins_with() -> None:
    glossary = Glossary({"river": "Fluss", "river bank": "Flussufer"})
    assert [target for _, target in glossary.found("a river bank, a river")] == ["Flussufer", "Fluss"]


def test_a_capital_has_a_small_letter_of_its_own() -> None:
    assert [target for _, target in Glossary({"ışık": "light"}).found("Işık ve ışık")] == ["light", "light"]


def test_annotation() -> None:
    assert BANK.annotated("at the bank, US") == "at the ⟦ bank ⇒ Ufer ⟧, ⟦ US ⇒ USA ⟧"
    assert BANK.annotated("at the bank, US", "am Ufer") == "at the ⟦ bank ⇒ Ufer ⟧, US"
    assert Glossary({}).annotated("bank") == "bank"


def test_what_an_output_keeps() -> None:
    wanted = BANK.wanted("the bank by the river bank near a bank")
    assert wanted == Counter({"Ufer": 2, "Flussufer": 1})
    assert kept(wanted, "das Ufer, Flussufer") == 2
    assert kept(wanted, "Ufer Ufer Ufer") == 2
    assert (TermCount(3, 1, 2) + TermCount(1, 1, 1)).record() == {
        "asked": 4, "kept_at_first": 2, "kept": 3, "term_accuracy": 75.0,
    }  # fmt: skip
    assert TermCount().record()["term_accuracy"] is None


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "terms.tsv"
    path.write_text("bank\tUfer\n\nUS\tUSA\n", encoding="utf-8")
    assert Glossary.read(path).terms == {"bank": "Ufer", "US": "USA"}
    for text, message in [("a\n", ":1: a line of a glossary"), ("a\tb\na\tc\n", ":2: this term has another")]:
        path.write_text(text, encoding="utf-8")
        with pytest.raises(UserError, match=f"terms.tsv{message}"):
            Glossary.read(path)


def test_half_of_a_corpus_is_annotated(tmp_path: Path) -> None:
    """Always the same pairs, and only terms whose translation the target has."""
    (tmp_path / "terms.tsv").write_text("bank\tUfer\n", encoding="utf-8")
    rows = [f"bank {number}\t{'Ufer' if number % 4 else 'Sparkasse'} {number}\n" for number in range(400)]
    (tmp_path / "x.tsv").write_text("".join(rows), encoding="utf-8")
    corpus = {"tsv": str(tmp_path / "x.tsv"), "terms": str(tmp_path / "terms.tsv")}
    source = open_source(corpus, "data.train")
    annotated = [pair.target for pair in source if "⟦ bank ⇒ Ufer ⟧" in pair.source]
    assert 110 < len(annotated) < 190
    assert all(target.startswith("Ufer") for target in annotated)
    assert annotated == [pair.target for pair in open_source(corpus, "data.train") if "⟦" in pair.source]
    assert source.fingerprint() != open_source({"tsv": corpus["tsv"]}, "data.train").fingerprint()
    with pytest.raises(UserError, match=r"data\.train\.terms"):
        open_source(corpus | {"terms": "missing.tsv"}, "data.train")
