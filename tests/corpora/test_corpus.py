"""Encoded corpora: what is kept, the report, the cache, many processes, flat memory."""

import gc
import random
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headway.core.errors import RunError, UserError
from headway.corpora import corpus as corpus_module
from headway.corpora import corpus as encoding
from headway.corpora.corpus import Corpus, build_corpus
from headway.corpora.corpus_report import CorpusReport
from headway.corpora.filters import Filters
from headway.formats.corpus_config import AnyCorpus
from headway.formats.pairs import open_source
from headway.processing.text.text_processor import (
    TextConfig,
    TextProcessor,
    train_processors,
)
from headway.processing.text.vocabulary import VocabularyConfig

Sides = tuple[TextProcessor, TextProcessor]
Write = Callable[..., AnyCorpus]

# Line 1 .. 10: what becomes of it with max_length 4, max_ratio 2 and drop_duplicates.
LINES = [
    ("a b c d", "A B x"),  # kept
    ("", "A"),  # empty
    ("a", "A A"),  # kept: ratio 2
    ("a", "A A A"),  # ratio 3
    ("a a a a a", "A A A A"),  # too long
    ("b", " \u3000"),  # empty
    ("a", "A A"),  # duplicate of 3
    ("A", "a a a a a"),  # too long, and ratio 5
    ("", "A"),  # empty, no duplicate
    ("z", "A"),  # kept
]


@pytest.fixture
def build(sides: Sides, tmp_path: Path) -> Callable[..., Corpus]:
    def build(config: AnyCorpus, filter: bool = True, **filters: Any) -> Corpus:
        source, wanted = open_source(config, "data.train"), Filters(**filters)
        return build_corpus(source, sides, wanted, name="data.train", filter=filter, cache=tmp_path / "cache")

    return build


@pytest.fixture
def ten(parallel: Write) -> AnyCorpus:
    return parallel([source for source, _ in LINES], [target for _, target in LINES])


def left_in(cache: Path) -> list[str]:
    """The names of all that is kept of corpora, but for locks."""
    return [path.name for path in (cache / "corpora").iterdir() if not path.name.startswith(".")]


def test_filters_and_report(build: Callable[..., Corpus], ten: AnyCorpus, sides: Sides) -> None:
    corpus = build(ten, max_length=4, max_ratio=2, drop_duplicates=True)
    assert len(corpus) == 3
    assert corpus.lines.tolist() == [1, 3, 10]
    encoded = [side.encode_lines([LINES[line - 1][which] for line in (1, 3, 10)]) for which, side in enumerate(sides)]
    assert [corpus.source(i).tolist() for i in range(3)] == encoded[0]
    assert [corpus.target(i).tolist() for i in range(3)] == encoded[1]
    assert (corpus.source_lengths.tolist(), corpus.target_lengths.tolist()) == ([4, 1, 1], [3, 2, 1])
    assert corpus.source_lengths.dtype == corpus.target_lengths.dtype == np.int32
    report = corpus.report
    assert (report.name, report.pairs_read, report.pairs_kept) == ("data.train", 10, 3)
    assert (report.source_tokens, report.target_tokens) == (6, 6)
    assert (report.source.unknown, report.target.unknown) == (1, 1)
    assert report.dropped == {"empty side": 3, "duplicate": 1, "over max_length": 2, "over max_ratio": 1}
    assert report.first_dropped == {
        "empty side": [2, 6, 9], "duplicate": [7], "over max_length": [5, 8], "over max_ratio": [4],
    }  # fmt: skip
    assert list(report.source.lengths.values()) == [1, 1, 1, 1, 4, 4, 4, 4]
    assert list(report.target.lengths.values()) == [1, 1, 1, 2, 3, 3, 3, 3]


def test_lengths_can_be_counted_in_words(parallel: Write, tmp_path: Path) -> None:
    text = ("ab cd ef", "AB")
    characters = train_processors(TextConfig(), VocabularyConfig(kind="char"), lambda: iter([text]))
    source = open_source(parallel(["ab cd ef", "ab cd", "ab"], ["AB", "AB", "AB AB AB"]), "data.train")

    def kept(**filters: Any) -> list[int]:
        wanted = Filters(**filters)
        corpus = build_corpus(source, characters, wanted, name="data.train", filter=True, cache=tmp_path / "cache")
        return corpus.lines.tolist()

    assert kept(max_length=3) == []
    assert kept(max_length=3, count="words") == [1, 2, 3]
    assert kept(max_length=2, count="words") == [2]
    assert kept(max_ratio=2, count="words") == [2]


def test_long_sources_are_cut_before_the_filters_and_counted(build: Callable[..., Corpus], ten: AnyCorpus) -> None:
    whole = build(ten, max_length=5)
    for filter in (True, False):
        corpus = build(ten, filter, max_length=5, truncate_source=2)
        assert corpus.lines.tolist() == whole.lines.tolist() == [1, 3, 4, 5, 7, 8, 10]
        assert [corpus.source(i).tolist() for i in range(7)] == [whole.source(i)[:2].tolist() for i in range(7)]
        assert [corpus.target(i).tolist() for i in range(7)] == [whole.target(i).tolist() for i in range(7)]
        assert (corpus.report.truncated, whole.report.truncated) == (2, 0)
        line = "truncated 2 (28.6%): of each source the first 2 pieces are read"
        assert line in corpus.report.text()
    assert build(ten, max_length=3, truncate_source=3).report.truncated == 1  # line 5 is dropped for its target
    assert "truncated" not in whole.report.text()
    assert corpus.fingerprint != whole.fingerprint


def test_sources_can_be_cut_by_words(parallel: Write, tmp_path: Path) -> None:
    characters = train_processors(TextConfig(), VocabularyConfig(kind="char"), lambda: iter([("ab cd ef", "AB")]))
    source = open_source(parallel(["ab cd ef", "ab cd", "ab"], ["AB", "AB", "AB AB"]), "data.train")
    filters = Filters(count="words", truncate_source=1, max_length=1)
    corpus = build_corpus(source, characters, filters, name="data.train", filter=True, cache=tmp_path / "cache")
    assert corpus.lines.tolist() == [1, 2]
    assert corpus.report.truncated == 2
    assert [corpus.source(i).tolist() for i in range(2)] == [characters[0].encode("ab").values] * 2


def test_what_is_cut_must_fit() -> None:
    with pytest.raises(ValueError, match=r"max_length \(100\) is below truncate_source \(101\)"):
        Filters(truncate_source=101)


def test_dev_keeps_all_with_text(build: Callable[..., Corpus], ten: AnyCorpus) -> None:
    corpus = build(ten, filter=False, max_length=4, max_ratio=2, drop_duplicates=True)
    assert corpus.lines.tolist() == [1, 3, 4, 5, 7, 8, 10]
    assert corpus.report.dropped == {"empty side": 3}


def test_duplicates_are_equal_on_both_sides(build: Callable[..., Corpus], parallel: Write) -> None:
    config = parallel(["a b", "a", "a b", "a b", "a"], ["c", " bc", " c", "c", " bc"])
    assert build(config, drop_duplicates=True).lines.tolist() == [1, 2, 3]
    assert build(config).lines.tolist() == [1, 2, 3, 4, 5]
    assert build(parallel(["a", "ab"], ["bc", "c"]), drop_duplicates=True).lines.tolist() == [1, 2]


def test_nothing_kept(build: Callable[..., Corpus], parallel: Write) -> None:
    corpus = build(parallel(["", "a"], ["A", ""]))
    assert (len(corpus), len(corpus.source_lengths), corpus.report.pairs_read) == (0, 0, 2)
    assert corpus.report.text() == "data.train: 2 pairs read, 0 kept\n  dropped 2: empty side (line 1, 2)"


def test_second_time_from_the_cache(
    build: Callable[..., Corpus], ten: AnyCorpus, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    first = build(ten)
    assert isinstance(first.lines.base, np.memmap)
    monkeypatch.setattr(corpus_module, "chunks", None)  # would fail if called
    second = build(ten)
    assert (second.fingerprint, second.report) == (first.fingerprint, first.report)
    assert left_in(tmp_path / "cache") == [first.fingerprint]


def test_cache_key(build: Callable[..., Corpus], parallel: Write, ten: AnyCorpus, sides: Sides, tmp_path: Path) -> None:
    keys = [
        build(ten).fingerprint,
        build(ten, filter=False).fingerprint,
        build(ten, max_length=4).fingerprint,
        build(ten, max_ratio=2).fingerprint,
        build(ten, drop_duplicates=True).fingerprint,
        build(parallel(["a"], ["A"], name="other")).fingerprint,
    ]
    assert len(set(keys)) == 6
    assert build(ten).fingerprint == keys[0]
    source, turned = open_source(ten, "data.train"), (sides[1], sides[0])
    swapped = build_corpus(source, turned, Filters(), name="data.train", filter=True, cache=tmp_path / "cache")
    assert swapped.fingerprint not in keys


def test_cut_off_cache_is_built_anew(build: Callable[..., Corpus], ten: AnyCorpus, tmp_path: Path) -> None:
    first = build(ten)
    folder, lines = tmp_path / "cache" / "corpora" / first.fingerprint, first.lines.tolist()
    del first  # which has its files open
    for name in ("source.npy", "lines.npy", "target_offsets.npy", "report.json"):
        whole = (folder / name).read_bytes()
        (folder / name).write_bytes(whole[:-4])
        assert build(ten).lines.tolist() == lines
        assert (folder / name).read_bytes() == whole


def test_another_process_was_faster(
    build: Callable[..., Corpus], ten: AnyCorpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = corpus_module._write

    def meanwhile(*arguments: Any) -> None:
        monkeypatch.setattr(corpus_module, "_write", write)
        build(ten)
        write(*arguments)

    monkeypatch.setattr(corpus_module, "_write", meanwhile)
    assert build(ten).lines.tolist() == build(ten).lines.tolist()


def test_a_failed_build_leaves_nothing(
    build: Callable[..., Corpus], parallel: Write, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match="has 2 lines"):
        build(parallel(["a", "b"], ["A"]))
    assert left_in(tmp_path / "cache") == []

    def full(*arguments: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(corpus_module, "_write", full)
    with pytest.raises(RunError, match=r"No space left on device.*HEADWAY_CACHE"):
        build(parallel(["a"], ["A"]))
    assert left_in(tmp_path / "cache") == []


def test_wide_ids(build: Callable[..., Corpus], ten: AnyCorpus, sides: Sides, monkeypatch: pytest.MonkeyPatch) -> None:
    for longest, (size, kind) in enumerate(
        [(1 << 8, np.uint8), ((1 << 8) + 1, np.uint16), (1 << 16, np.uint16), ((1 << 16) + 1, np.int32)], start=9
    ):
        monkeypatch.setattr(type(sides[0].vocabulary), "__len__", lambda vocabulary, size=size: size)
        assert build(ten, max_length=longest).source(0).dtype == kind


def random_pairs(pairs: int, seed: int) -> tuple[list[str], list[str]]:
    numbers = random.Random(seed)
    source = [" ".join(numbers.choices("abcde", k=numbers.randint(0, 12))) for _ in range(pairs)]
    return source, [line.upper() for line in source]


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "CHUNK", 30)
    monkeypatch.setattr(encoding, "PATIENCE", 0)
    monkeypatch.setattr(encoding, "cores", lambda: 2)


@pytest.mark.usefixtures("small_chunks")
def test_processes_give_the_same(
    parallel: Write, sides: Sides, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = open_source(parallel(*random_pairs(1200, seed=1)), "data.train")
    filters = Filters(max_length=10, drop_duplicates=True)

    def build(cache: str) -> Corpus:
        done: list[int] = []
        corpus = build_corpus(
            source, sides, filters, name="data.train", filter=True, cache=tmp_path / cache, progress=done.append
        )
        assert done == [*range(30, 1201, 30)]
        return corpus

    together = build("together")
    monkeypatch.setattr(encoding, "PATIENCE", 60)
    monkeypatch.setattr(encoding, "in_processes", None)  # would fail if called
    alone = build("alone")
    pairs = list(source)
    assert len(alone) > 500
    for index, line in enumerate(alone.lines):
        assert alone.source(index).tolist() == sides[0].encode(pairs[line - 1].source).values
        assert alone.target(index).tolist() == sides[1].encode(pairs[line - 1].target).values
    assert alone.fingerprint == together.fingerprint
    files = [path.relative_to(tmp_path / "alone") for path in (tmp_path / "alone").glob("corpora/*/*.*")]
    assert len(files) == 7
    for path in files:
        assert (tmp_path / "alone" / path).read_bytes() == (tmp_path / "together" / path).read_bytes()


class Killed(BaseException):
    """The end of a process, at which nothing tidies up."""


@pytest.mark.parametrize("journal", ["whole", "damaged", "of other code"])
def test_a_process_that_was_killed_leaves_its_chunks_to_the_next(
    parallel: Write, sides: Sides, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, journal: str
) -> None:
    monkeypatch.setattr(encoding, "CHUNK", 30)
    monkeypatch.setattr(encoding, "SAVED_EVERY", 0.0)
    source = open_source(parallel(*random_pairs(290, seed=4)), "data.train")  # with a last chunk that is shorter
    read, encoded, encode = list[int](), list[int](), encoding.encode

    def build(cache: str, killed_at: int = 0) -> Corpus:
        def progress(done: int) -> None:
            read.append(done)
            if done == killed_at:
                raise Killed

        return build_corpus(
            source, sides, Filters(max_length=10, drop_duplicates=True), name="data.train", filter=True,
            cache=tmp_path / cache, progress=progress,
        )  # fmt: skip

    def counted(chunk: encoding.Chunk, *arguments: Any) -> encoding.EncodedChunk:
        encoded.append(len(chunk.lines) + len(chunk.duplicates))
        return encode(chunk, *arguments)

    monkeypatch.setattr(encoding, "encode", counted)
    whole = build("whole")
    for killed_at in (120, 240):
        with pytest.raises(Killed):
            build("cut", killed_at)
    (left,) = (tmp_path / "cut").glob("corpora/*.unfinished/kept/journal.json")
    if journal != "whole":
        text = left.read_text(encoding="utf-8")
        left.write_text(text[:-9] if journal == "damaged" else text.replace('"software": "', '"software": "x'))
    encoded.clear()
    read.clear()
    cut = build("cut")
    assert read[0] == (240 if journal == "whole" else 30)  # the chunk at which it was killed was not saved yet
    assert sum(encoded) == 290 - (210 if journal == "whole" else 0)
    assert (cut.fingerprint, cut.report) == (whole.fingerprint, whole.report)
    files = [path.relative_to(tmp_path / "whole") for path in (tmp_path / "whole").glob("corpora/*/*.*")]
    assert len(files) == 7
    for path in files:
        assert (tmp_path / "cut" / path).read_bytes() == (tmp_path / "whole" / path).read_bytes()
    assert left_in(tmp_path / "cut") == [cut.fingerprint]


def test_memory_is_flat(parallel: Write, sides: Sides, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "CHUNK", 100)
    monkeypatch.setattr(encoding, "cores", lambda: 1)
    peaks = []
    for pairs in (1_000, 6_000):
        source = open_source(parallel(*random_pairs(pairs, seed=3), name=str(pairs)), "data.train")
        work = tmp_path / f"work {pairs}"
        work.mkdir()
        gc.collect()
        tracemalloc.start()
        corpus_module._write(source, sides, {"max_length": 10}, tmp_path, lambda done: None, (), None, work)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.2 * peaks[0]  # for six times the pairs


def test_report_text_and_json(build: Callable[..., Corpus], ten: AnyCorpus) -> None:
    report = build(ten, max_length=4, max_ratio=2, drop_duplicates=True).report
    assert CorpusReport.from_json(report.to_json()) == report
    assert report.text() == (
        "data.train: 10 pairs read, 3 kept\n"
        "  dropped 3: empty side (line 2, 6, 9)\n"
        "  dropped 1: duplicate (line 7)\n"
        "  dropped 2: over max_length (line 5, 8)\n"
        "  dropped 1: over max_ratio (line 4)\n"
        "              tokens   unknown  length least   1%  25%  50%  75%  95%  99% most\n"
        "  source           6         1             1    1    1    1    4    4    4    4\n"
        "  target           6         1             1    1    1    2    3    3    3    3"
    )
