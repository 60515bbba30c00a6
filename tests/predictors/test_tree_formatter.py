"""The form of a parser's lines: a tree over exactly the given words, whatever the model wrote."""

import pytest

from headway.errors import UserError
from headway.predictors.tree_formatter import Trees

WRITTEN = "(S (NP DT NN )NP (VP VBZ )VP . )S"


def test_brackets_over_the_words() -> None:
    form = Trees()
    assert form.source("The dog  barks .") == "The dog barks ."
    assert form.output("The dog  barks .", WRITTEN) == "(S (NP (DT The) (NN dog)) (VP (VBZ barks)) (. .))"
    assert form.output("f(x) dog barks .", "(S NN") == "(S (NN f-LRB-x-RRB-) (XX dog) (XX barks) (XX .))"
    assert form.notes() == ["1 of 2 trees were mended (50.0%); brackets never closed: 1, missing words: 3"]


def test_nothing_to_say_without_a_tree() -> None:
    assert Trees().notes() == []
    form = Trees("linear")
    assert form.output("The dog", "(S (NP") == "(S (NP"
    assert form.notes() == []


def test_drawings() -> None:
    assert Trees("drawing").output("a b", "(S DT NN )S") == "S ─┬─ DT a\n   └─ NN b\n"


def test_given_tags() -> None:
    form = Trees(tagged=True)
    line = "a_b_DT dog_NN ._$("
    assert form.source(line) == "a_b dog ."
    assert form.output(line, "(S XX XX XX )S") == "(S (DT a_b) (NN dog) ($-LRB- .))"
    assert form.notes() == ["0 of 1 trees were mended (0.0%)"]
    for token in ("dog", "_NN", "dog_"):
        with pytest.raises(UserError, match="--tagged: a word comes with its tag"):
            form.source(token)


def test_unknown_formats() -> None:
    with pytest.raises(UserError, match="--format: unknown format; received 'tsv'; allowed: brackets, drawing, linear"):
        Trees("tsv")
