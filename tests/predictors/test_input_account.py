"""What is said of inputs that a model has learned nothing of: once, with counts."""

import logging
from collections.abc import Sequence
from typing import Any

import pytest
from torch import nn

import headway
from headway.core.errors import UserError
from headway.predictors.input_account import InputAccount, accounted
from headway.predictors.predictor import Run
from headway.processing.processor import Encoded
from headway.processing.text.extension import tagged
from headway.processing.text.text_processor import PreparationConfig, TextProcessor, with_characters
from headway.processing.text.vocabulary import VocabularyConfig, train_vocabulary
from headway.recipe import parse_recipe
from tests.conftest import Command, Reversal


def run_of(tags: Sequence[str | None], kind: str = "word") -> Run:
    """A run without a model, whose training corpora have these tags."""
    corpora: list[dict[str, Any]] = [{"tsv": "x.tsv", **({"tag": tag} if tag else {})} for tag in tags]
    text = train_vocabulary(VocabularyConfig(kind=kind), ["one two"])
    own = with_characters(TextProcessor(PreparationConfig(), text), "one two")
    source, target = tagged((own, own), [tag for tag in tags if tag])
    recipe = parse_recipe({"data": {"train": corpora}, "vocabulary": {"kind": kind}, "training": {"updates": 1}})
    return Run(recipe, source, target, nn.Identity())  # type: ignore[arg-type]


def said(run: Run, lines: Sequence[str], caplog: pytest.LogCaptureFixture) -> list[str]:
    """The messages of an account of these inputs."""
    caplog.clear()
    account = InputAccount()
    account.read_inputs(run, lines, [run.source.encode(line) for line in lines])
    account.tell()
    assert {record.levelno for record in caplog.records} <= {logging.WARNING}
    return [record.getMessage() for record in caplog.records]


def test_tags(caplog: pytest.LogCaptureFixture) -> None:
    both = run_of(["<2de>", "<2fr>"])
    lines = ["<2de> one", "<2fr> two", "one", "", "<2es> one", "<2de>one"]
    missing, other, *_ = said(both, lines, caplog)
    assert missing.startswith("3 of 6 inputs have none of the tags that all sources of training have (<2de>, <2fr>) (")
    assert missing.endswith("(line 3, line 5, line 6)")
    assert other == "1 of 6 inputs have a tag that training did not have (<2de>, <2fr>) (line 5: <2es>)"
    assert said(both, ["<2de> one", "", "<2fr> two"], caplog) == []
    assert said(run_of(["<2de>", None]), ["one", "<2de> two"], caplog) == []
    assert said(run_of([None]), ["one"], caplog) == []


def test_unknown_words_and_characters(caplog: pytest.LogCaptureFixture) -> None:
    words = said(run_of([None]), ["one tow", "two", "wot"], caplog)
    assert words == ["the input has 2 unknown words of 4, all read as the same one"]
    characters, tokens = said(run_of(["<2up>"], "char"), ["<2up> oné"], caplog)
    assert "the input has 1 character (1 different: é U+00E9" in characters
    assert tokens == "the input has 1 unknown token of 5, all read as the same one"


def test_many_inputs_are_counted_and_few_are_named(caplog: pytest.LogCaptureFixture) -> None:
    (message,) = said(run_of([None]), ["one\ttwo"] * 7, caplog)
    shown = "line 1, line 2, line 3, line 4, line 5, ..."
    assert message == f"7 of 7 inputs are rows with tabs, and are read as texts ({shown})"


def test_one_account_for_all_that_is_read_together(caplog: pytest.LogCaptureFixture) -> None:
    run = run_of([None])
    with accounted():
        for line in ("tow", "wot"):
            with accounted() as account:
                account.read_inputs(run, [line], [Encoded([3])])
    with accounted(InputAccount()), accounted() as account:
        account.read_inputs(run, ["tow"], [Encoded([3])])
    assert caplog.messages == ["the input has 2 unknown words of 2, all read as the same one"]


def test_python_is_told_and_refused(reversal: Reversal, caplog: pytest.LogCaptureFixture) -> None:
    predictor = headway.load(reversal.run, device="cpu")
    predictor.predict(["abc", "äb\tc"])
    assert "1 of 2 inputs are rows with tabs, and are read as texts (line 2)" in caplog.text
    assert "ä U+00E4 LATIN SMALL LETTER A WITH DIAERESIS 1" in caplog.text
    caplog.clear()
    predictor.score(["abc"], ["cbé"])
    assert "the targets have 1 character (1 different: é U+00E9" in caplog.text
    for refused in (["abc\tcba"], ['{"source": "abc"}']):
        with pytest.raises(UserError, match="line 1: lines of text are read here"):
            predictor.predict(refused)
        with pytest.raises(UserError, match="line 1: lines of text are read here"):
            predictor.score(refused, ["cba"])
    with pytest.raises(UserError, match="target: lines of text are read here"):
        predictor.score(["abc"], ["-0.1\tcba"])


def test_rows_are_refused_by_every_command(run_headway: Command, reversal: Reversal) -> None:
    folder = reversal.recipe.parent
    table, new = folder / "train.tsv", folder / "new"
    (folder / "text").write_text("abc\n" * 2, encoding="utf-8")
    (folder / "row").write_text("-0.1\tcba\n" * 2, encoding="utf-8")
    commands: list[tuple[Any, ...]] = [
        ("predict", reversal.run, "--input", table),
        ("augment", "distill", reversal.run, "--input", table, "--output", new),
        ("augment", "backtranslate", reversal.run, "--input", table, "--output", new),
        ("inspect", "page", reversal.run, "--input", table, "--output", new),
        ("inspect", "page", reversal.run, "--text", "ab\tba", "--output", new),
        ("export", "huggingface", reversal.run, "--input", table, "--output", new),
        ("score", reversal.run, "--source", table, "--target", table),
        ("score", reversal.run, "--source", folder / "text", "--target", folder / "row"),
        ("score", "--hypotheses", folder / "row", "--references", folder / "text"),
        ("compare", "--hypotheses", folder / "row", folder / "text", "--references", folder / "text"),
    ]
    for command in commands:
        ended = run_headway(*command)
        assert (ended.code, ended.out) == (2, ""), command
        assert "these are rows with tabs" in ended.err, command
        assert "cut -f" in ended.err
    assert sorted(path.name for path in folder.iterdir() if "new" in path.name) == []
