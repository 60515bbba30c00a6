"""Records that headway keeps between calls are read as damaged, not as whatever they hold."""

import json
from pathlib import Path

import pytest

from headway.claims.reproduce import read_record
from headway.comparison.cells import read_result
from headway.core.errors import UserError
from headway.corpora.corpus import build_corpus
from headway.corpora.filters import Filters
from headway.formats.pairs import open_source
from headway.processing.text.text_processor import TextConfig, train_processors
from headway.processing.text.vocabulary import VocabularyConfig
from headway.runs.metrics import read_metrics

DAMAGE = [b"[" * 100_000, b"[]", b"1", b"null", b'{"a": 1, "a": 2}', b"\xff", b"", b'{"update": "x"}']


@pytest.mark.parametrize("content", DAMAGE)
def test_a_damaged_file_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "lengths.json"
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"lengths\.json"):
        read_result(path, {})
    with pytest.raises(UserError, match=r"lengths\.json"):
        read_record(path)
    if content:
        with pytest.raises(UserError, match=r"lengths\.json:1"):
            read_metrics(path)


@pytest.mark.parametrize("line", [{"update": 1, "dev": []}, {"update": 1, "dev": {"bleu": "x"}}, {"update": 1.5}])
def test_a_line_of_metrics_of_wrong_types_is_named(tmp_path: Path, line: dict[str, object]) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"update": 1}\n' + json.dumps(line), encoding="utf-8")
    with pytest.raises(UserError, match=r"metrics\.jsonl:2"):
        read_metrics(path)


@pytest.mark.parametrize("content", DAMAGE)
def test_a_damaged_report_of_an_encoded_corpus_is_made_anew(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.tsv").write_text("a b\tb a\n" * 3, encoding="utf-8")
    source = open_source({"tsv": tmp_path / "x.tsv"}, "data.train")
    sides = train_processors(TextConfig(), VocabularyConfig(kind="char"), lambda: iter([("a b", "b a")]))

    def report() -> object:
        return build_corpus(source, sides, Filters(), name="train", filter=True, cache=tmp_path / "cache").report

    expected = report()
    (kept,) = (tmp_path / "cache").rglob("report.json")
    kept.write_bytes(content)
    assert report() == expected
