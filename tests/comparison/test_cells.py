"""Cells that cannot be compared: what is missing, what differs, and how hypotheses are tokenised."""

import math
from dataclasses import replace
from pathlib import Path

import pytest

import headway
from headway.comparison.cells import CellOutput, CellResult, documents_of
from headway.comparison.options import DocumentColumn
from headway.core.errors import UserError
from headway.formats.corpus_config import parse_corpus
from headway.metrics import build_metric
from tests.comparison.toys import cell, evaluation_set

BLEU = build_metric("bleu")
TEST = evaluation_set()


def with_lines(original: CellResult, lines: list[str]) -> CellResult:
    return replace(original, outputs=(CellOutput(original.outputs[0].test, tuple(lines)),))


def tokenised(original: CellResult, mark: str) -> CellResult:
    return with_lines(original, [f"{line.replace(' ,', mark)}{mark[:-1]}." for line in original.outputs[0].hypotheses])


A, B = cell("a", 1, 0.8, TEST), cell("b", 1, 0.9, TEST)


@pytest.mark.parametrize(
    ("cells", "options", "message"),
    [
        ([A], {}, "variants: a comparison needs two variants or more; received 'a'"),
        ([A, B, replace(A, path=Path("x"))], {}, "a, seed 1: two cells of one name; received 'x'"),
        ([A, B, cell("a", 2, 0.8, TEST)], {}, "b: seed 2 is missing; seeds are paired by their number; received '1'"),
        ([A, replace(B, outputs=())], {}, "b, seed 1: the test sets, or their references, are not those of a, seed 1"),
        ([A, cell("b", 1, 0.9, evaluation_set(159))], {}, "or their references, are not those of a, seed 1"),
        ([A, cell("b", 1, 0.9, evaluation_set(name="dev"))], {}, "received 'dev'; allowed: test"),
        ([A, with_lines(B, ["one"])], {}, "b, seed 1, test: 1 hypotheses for 160 references"),
        ([A, B], {"baseline": "c"}, "baseline: no such variant; received 'c'; allowed: a, b"),
        ([A, B], {"margin": {"blue": 1}}, r"margin.blue: no such metric here; did you mean 'bleu'\?"),
        ([A, B], {"margin": {"bleu": -1}}, "margin: a margin is METRIC=NUMBER, one of a metric, and not below 0"),
        ([A, B], {"margin": {"bleu": math.inf}}, "margin: a margin is METRIC=NUMBER"),
        ([A, B], {"metrics": []}, "metrics: a comparison needs at least one metric"),
        ([A, B], {"metrics": [BLEU, BLEU]}, "metrics: two metrics of one name"),
        ([tokenised(A, ", "), tokenised(B, " , ")], {}, r"b, seed 1: these hypotheses are tokenised \(punctuation"),
    ],
)  # fmt: skip
def test_what_cannot_be_compared(cells: list[CellResult], options: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        headway.compare(cells, **{"metrics": [BLEU]} | options)


def test_tokenisation_may_differ_by_leave() -> None:
    cells = [tokenised(A, ", "), tokenised(B, " , ")]
    assert headway.compare(cells, [BLEU], any_tokenization=True).pairs


@pytest.mark.parametrize(
    ("line", "message"),
    [("こ れ は 本 で す", "characters stand apart"), ("wh@@ at a thing", "pieces are not joined")],
)
def test_other_tokenisation(line: str, message: str) -> None:
    plain = "これは本です" if "本" in line else "what a thing"
    with pytest.raises(UserError, match=message):
        headway.compare([with_lines(A, [line] * 160), with_lines(B, [plain] * 160)], [BLEU])


def test_a_document_ends_at_a_blank_line() -> None:
    assert documents_of("blank", ["a", "b", "", "c"], "test") == ("0", "0", "1", "1")


def test_a_column_names_documents(tmp_path: Path) -> None:
    table, lines = tmp_path / "test.tsv", tmp_path / "test.jsonl"
    table.write_text("a\tx\tone\nb\ty\tone\nc\tz\ttwo\n")
    lines.write_text('{"s": "a", "t": "x", "of": {"talk": "one"}}\n')
    corpus = parse_corpus({"tsv": table, "columns": [1, 2]}, "test")
    assert documents_of(DocumentColumn(column=3), (), "test", corpus) == ("one", "one", "two")
    records = parse_corpus({"jsonl": lines, "columns": ["s", "t"]}, "test")
    assert documents_of(DocumentColumn(column="of.talk"), (), "test", records) == ("one",)
    with pytest.raises(UserError, match=r"test\.tsv:1: wrong number of columns"):
        documents_of(DocumentColumn(column=4), (), "test", corpus)
    with pytest.raises(UserError, match=r"test\.documents: only tables have columns; received 'parallel'"):
        documents_of(DocumentColumn(column=1), (), "test", parse_corpus({"source": table, "target": table}, "test"))
