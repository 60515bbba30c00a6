"""Sources: what they read, and that every fault is told with its file and line."""

import gzip
import json
import lzma
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.errors import UserError
from headway.corpora.data_checks import Overlap, overlap
from headway.formats.corpus_config import AnyCorpus, parse_corpus
from headway.formats.labelled_words import open_labelled
from headway.formats.lines import read_lines
from headway.formats.pairs import Pair, PairSource, check_sides, open_source
from headway.processing.text.line_ends import LINE_ENDS


def corpus_of(**options: Any) -> AnyCorpus:
    return parse_corpus(options, "data.train")


def fault(read: Callable[[], Any]) -> UserError:
    with pytest.raises(UserError) as caught:
        read()
    return caught.value


def test_only_newlines_end_a_line(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes("\ufeffa\u2028b\x0b\x0c\x1c\x85c\r\n\rd\re\n\n \nlast".encode())
    assert list(read_lines(path)) == ["a\u2028b\x0b\x0c\x1c\x85c", "\rd\re", "", " ", "last"]


@given(st.lists(st.text(st.characters(exclude_characters="\n\r\ufeff", exclude_categories=["Cs"]))))
def test_lines_survive(tmp_path_factory: pytest.TempPathFactory, lines: list[str]) -> None:
    path = tmp_path_factory.getbasetemp() / "lines"
    path.write_bytes("".join(f"{line}\n" for line in lines).encode())
    assert list(read_lines(path)) == lines


@pytest.mark.parametrize(("suffix", "pack"), [(".gz", gzip.compress), (".xz", lzma.compress)])
def test_compressed(tmp_path: Path, suffix: str, pack: Callable[[bytes], bytes]) -> None:
    content = pack("".join(f"zeile {number} é\r\n" for number in range(9000)).encode())
    path = tmp_path / f"text{suffix}"
    path.write_bytes(content)
    assert list(read_lines(path)) == [f"zeile {number} é" for number in range(9000)]
    for broken in (
        content[:-9],
        content[: len(content) // 2],
        b"plain text",
        content[:40] + b"\x00\xff" + content[42:],
    ):
        path.write_bytes(broken)
        assert str(fault(lambda: list(read_lines(path)))).startswith(f"{path}:")


def test_invalid_utf8(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes("gut\nfür".encode("latin-1"))
    error = fault(lambda: list(read_lines(path)))
    assert error.where == f"{path}:2"
    assert "byte 0xfc at byte 2 of the line" in error.what


def test_parallel_files(parallel: Callable[..., AnyCorpus]) -> None:
    source = open_source(parallel(["a", "", "c"], ["A", "B", ""]), "data.train")
    expected = [Pair(1, "a", "A"), Pair(2, "", "B"), Pair(3, "c", "")]
    assert list(source) == expected
    assert list(source) == expected


@pytest.mark.parametrize("longer", ["src", "trg"])
def test_different_numbers_of_lines(parallel: Callable[..., AnyCorpus], tmp_path: Path, longer: str) -> None:
    texts = {"src": ["a", "b"], "trg": ["A", "B"]} | {longer: ["1", "2", "3", "4", "5"]}
    error = fault(lambda: list(open_source(parallel(texts["src"], texts["trg"]), "data.train")))
    assert error.where == f"{tmp_path}/train.{longer}:3"
    counts = [f"{tmp_path}/train.{side} has {len(lines)} lines" for side, lines in texts.items()]
    assert error.what == f"this line has no partner: {counts[0]}, {counts[1]}"


def test_faulty_files(parallel: Callable[..., AnyCorpus], tmp_path: Path) -> None:
    parallel(["a"], ["A"])
    for content, path in (("missing", None), ("empty", b""), ("empty", b"\xef\xbb\xbf")):
        other = tmp_path / f"{content}.trg"
        if path is not None:
            other.write_bytes(path)
        error = fault(lambda other=other: open_source({"source": tmp_path / "train.src", "target": other}, "data.dev"))
        assert (error.where, error.received) == ("data.dev.target", str(other))
        assert ("no such file" if path is None else "empty") in error.what
    assert "not a file" in fault(lambda: open_source(corpus_of(tsv=tmp_path), "data.dev")).what
    assert fault(lambda: list(read_lines(tmp_path))).what == "cannot read this file (Is a directory)"


@pytest.mark.skipif(getattr(os, "geteuid", int)() == 0, reason="nothing is unreadable for root")
def test_unreadable_file(parallel: Callable[..., AnyCorpus], tmp_path: Path) -> None:
    config = parallel(["a"], ["A"])
    source = tmp_path / "train.src"
    source.chmod(0)
    error = fault(lambda: open_source(config, "data.dev"))
    assert (error.where, error.what) == (str(source), "cannot read this file (Permission denied)")


SKIPPED = ", or data.broken=skip, which leaves such rows out"


def tsv(tmp_path: Path, text: str, columns: tuple[int, ...] | None = None) -> PairSource:
    path = tmp_path / "pairs.tsv"
    path.write_text(text, encoding="utf-8", newline="")
    return open_source(corpus_of(tsv=path, columns=columns), "data.train")


def test_tsv(tmp_path: Path) -> None:
    assert list(tsv(tmp_path, 'a "x\tA\r\n\n\tB\nc\t\n')) == [
        Pair(1, 'a "x', "A"), Pair(2, "", ""), Pair(3, "", "B"), Pair(4, "c", ""),
    ]  # fmt: skip
    assert list(tsv(tmp_path, "1\tA\ta\n2\tB\tb\n", (3, 2))) == [Pair(1, "a", "A"), Pair(2, "b", "B")]


@pytest.mark.parametrize(
    ("text", "columns", "line", "received", "allowed"),
    [
        ("a\tA\nb\tB\tx\n", None, 2, 3, "2"),
        ("a\tA\nb B\n", None, 2, 1, "2"),
        ("1\tA\ta\n2\tB\n", (2, 3), 2, 2, "3"),
        ("1\ta\tA\n2\tb\tx\tB\n", (2, 3), 2, 4, "3"),
        ("1\tA\n", (2, 3), 1, 2, "at least 3"),
    ],
)
def test_tsv_columns(
    tmp_path: Path, text: str, columns: tuple[int, int] | None, line: int, received: int, allowed: str
) -> None:
    error = fault(lambda: list(tsv(tmp_path, text, columns)))
    assert (error.where, error.received, error.allowed) == (
        f"{tmp_path}/pairs.tsv:{line}",
        received,
        f"{allowed}{SKIPPED}",
    )


SPREADSHEET = 'a "" b\tA\n"a ""b"" c"\t"A\n""B"""\nc\t"d\te"\n\n"e"\tE\n"x" y\tX\n'


def test_a_table_is_read_as_spreadsheets_quote_it(tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text(SPREADSHEET, encoding="utf-8")
    config = corpus_of(tsv=tmp_path / "pairs.tsv", quoted=True)
    rows = iter(open_source(config, "data.train"))
    assert [next(rows) for _ in range(5)] == [
        Pair(1, 'a "" b', "A"), Pair(2, 'a "b" c', 'A "B"'), Pair(4, "c", "d\te"), Pair(5, "", ""), Pair(6, "e", "E"),
    ]  # fmt: skip
    with pytest.raises(UserError, match=r"pairs\.tsv:7: this row is not quoted as spreadsheets quote"):
        next(rows)
    plain = corpus_of(tsv=tmp_path / "pairs.tsv")
    assert open_source(config, "data.train").fingerprint() != open_source(plain, "data.train").fingerprint()
    named = corpus_of(tsv=tmp_path / "pairs.tsv", columns=("A", 'a "" b'), quoted=True)
    assert next(iter(open_source(named, "data.train"))) == Pair(2, 'A "B"', 'a "b" c')
    with pytest.raises(UserError, match=r"data\.train\.quoted: words are never quoted"):
        open_labelled(config, "data.train")


def test_rows_that_a_spreadsheet_quoted_are_counted_where_quotes_are_text(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    text = '"a ""b"" c"\tA\n"Yes."\tJa "so\nb\t"""B"" ""C"""\n"" x\ty "" z\n'
    pairs = tsv(tmp_path, text)
    assert [pair.source for pair in pairs] == ['"a ""b"" c"', '"Yes."', "b", '"" x']
    assert len(list(pairs)) == 4
    (said,) = caplog.messages  # once, however often the file is read
    assert "pairs.tsv: the quotes of 2 rows that a spreadsheet has quoted are read as text" in said
    assert "`quoted: true` in the recipe's corpus" in said
    error = fault(lambda: list(tsv(tmp_path, 'a\t"A\nB"\n')))
    assert error.allowed is not None
    assert error.allowed.startswith(
        "2; a cell of a spreadsheet may go over several lines with `quoted: true`, or data."
    )


def test_several_references(tmp_path: Path) -> None:
    for name, lines in {"source": "a\n\n", "ref0": "A\nB\n", "ref1": "x\n\n", "ref2": "y\nz\n"}.items():
        (tmp_path / name).write_text(lines, encoding="utf-8")
    references = [str(tmp_path / f"ref{number}") for number in range(3)]
    files = corpus_of(source=tmp_path / "source", references=references)
    assert list(open_source(files, "data.dev")) == [
        Pair(1, "a", "A", ("A", "x", "y")),
        Pair(2, "", "B", ("B", "", "z")),
    ]
    (tmp_path / "ref1").write_text("x\n", encoding="utf-8")
    error = fault(lambda: list(open_source(files, "data.dev")))
    assert error.where == f"{tmp_path}/source:2"
    assert error.what.count(" has 2 lines") == 3
    assert f"{tmp_path}/ref1 has 1 line" in error.what
    missing = corpus_of(source=tmp_path / "source", references=[tmp_path / "ref9"])
    assert fault(lambda: open_source(missing, "data.dev")).where == "data.dev.references"


def test_columns_of_several_references(tmp_path: Path) -> None:
    text = "1\ta\tA\tx\n\n2\tb\tB\t\n"
    pairs = [Pair(1, "a", "A", ("A", "x")), Pair(2, "", "", ("", "")), Pair(3, "b", "B", ("B", ""))]
    assert list(tsv(tmp_path, text, (2, 3, 4))) == pairs
    path = tmp_path / "pairs.jsonl"
    path.write_text('{"s": "a", "r": {"0": "A", "1": "x"}}\n\n{"s": "b", "r": {"0": "B", "1": ""}}\n', encoding="utf-8")
    fields = corpus_of(jsonl=path, columns=("s", "r.0", "r.1"))
    assert list(open_source(fields, "data.train")) == pairs
    assert (
        len(
            {open_source(corpus, "x").fingerprint() for corpus in (fields, corpus_of(jsonl=path, columns=("s", "r.0")))}
        )
        == 2
    )


def test_a_header_with_a_name_twice(tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text("de\ten\tde\na\tb\tc\n", encoding="utf-8")

    def read(columns: tuple[str, str]) -> list[Pair]:
        return list(open_source(corpus_of(tsv=tmp_path / "pairs.tsv", columns=columns), "data.train"))

    assert fault(lambda: read(("de", "en"))).what == "several columns have this name"
    assert fault(lambda: read(("en", "de"))).where == f"{tmp_path}/pairs.tsv:1"


def test_line_ends_within_texts_are_spaces_and_counted(tmp_path: Path) -> None:
    rows = [json.dumps({"text": {"de": f"a{sign}b"}, "en": sign}) for sign in LINE_ENDS]
    source = jsonl(tmp_path, *rows, '{"text": {"de": "c"}, "en": "C"}')
    pairs = list(source)
    assert pairs[:-1] == [Pair(line, "a b", " ") for line in range(1, len(LINE_ENDS) + 1)]
    report = source.row_errors.report()
    assert (report.broken, report.line_ends, report.lines) == (0, len(LINE_ENDS), (1, 2, 3, 4, 5))
    assert report.text() == ["  changed 10: characters that end a line are spaces now (line 1, 2, 3, 4, 5, ...)"]
    several = Pair(1, "a", "b", ("b", "c\nd"))
    assert several.on_one_line().compared == ("b", "c d")
    path = Pair(1, "a\u2028.wav", "b\x85c")
    assert path.on_one_line(source=False) == Pair(1, "a\u2028.wav", "b c")


def test_rows_that_cannot_be_read_are_left_out_on_request(tmp_path: Path) -> None:
    good = '{"text": {"de": "a"}, "en": "A"}'
    jsonl(tmp_path, good, "no JSON", good, *["[]"] * 7)
    config = corpus_of(jsonl=tmp_path / "pairs.jsonl", columns=("text.de", "en"))
    source = open_source([config, config], "data.train", "skip")
    assert [pair.line for pair in source] == [1, 3, 4, 6]
    assert [pair.line for pair in source] == [1, 3, 4, 6]  # counted anew in every reading
    report = source.row_errors.report(several=True)
    assert (report.broken, len(report.errors)) == (16, 5)
    assert report.errors[0].startswith("pairs.jsonl:2: this line is not JSON")
    assert report.text()[0] == "  left out 16: rows that cannot be read"
    assert report.text()[-1] == "    ..."
    (tmp_path / "s").write_bytes(b"a\n\xff\nc\n")
    (tmp_path / "t").write_bytes(b"A\nB\nC\n")
    files = open_source({"source": tmp_path / "s", "target": tmp_path / "t"}, "data.train", "skip")
    assert list(files) == [Pair(1, "a", "A"), Pair(3, "c", "C")]
    (tmp_path / "pairs.tsv").write_bytes(b"a\tA\nb\n\xff\tx\nc\tC\n")
    table = open_source({"tsv": tmp_path / "pairs.tsv"}, "data.train", "skip")
    assert [pair.line for pair in table] == [1, 4]
    assert table.row_errors.report().errors[1].startswith("line 3: invalid UTF-8")


def test_one_column_is_no_pair() -> None:
    with pytest.raises(UserError, match=r"columns: (value|tuple) should have at least 2 items"):
        corpus_of(tsv=Path("x"), columns=(1,))


def jsonl(tmp_path: Path, *lines: str) -> PairSource:
    path = tmp_path / "pairs.jsonl"
    path.write_text("\n".join(lines), encoding="utf-8")
    return open_source(corpus_of(jsonl=path, columns=("text.de", "en")), "data.train")


def test_jsonl(tmp_path: Path) -> None:
    source = jsonl(tmp_path, '{"text": {"de": "\\u00e4"}, "en": "A"}', "", '{"en": "", "text": {"de": "b"}}')
    assert list(source) == [Pair(1, "ä", "A"), Pair(2, "", ""), Pair(3, "b", "")]


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("{'text': 1}", "this line is not JSON"),
        ("[" * 100_000, "this line is not JSON"),
        ("1" * 5000, "this line is not JSON"),
        ('{"text": {"de": "a", "de": "b"}, "en": "A"}', "this line is not JSON (the field 'de' is there twice)"),
        ("[1]", "there is no text in a field text.de"),
        ('{"text": "a", "en": "A"}', "there is no text in a field text.de"),
        ('{"text": {"fr": "a"}, "en": "A"}', "there is no text in a field text.de"),
        ('{"text": {"de": null}, "en": "A"}', "there is no text in a field text.de"),
        ('{"text": {"de": "\\ud800"}, "en": "A"}', "field text.de holds half of a surrogate pair"),
    ],
)
def test_faulty_jsonl(tmp_path: Path, line: str, what: str) -> None:
    error = fault(lambda: list(jsonl(tmp_path, '{"text": {"de": "a"}, "en": "A"}', line)))
    assert error.where == f"{tmp_path}/pairs.jsonl:2"
    assert error.what.startswith(what)


class Rows(list[Any]):
    """As much of `datasets.Dataset` as is used."""

    cache_files: Iterable[dict[str, str]] = ()


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Splits of the data set `wmt`, configuration `de-en`, as a module instead of `datasets` gives them."""
    splits: dict[str, Any] = {}

    def load_dataset(name: str, config: str | None, *, split: str | None, streaming: bool) -> Any:
        if (name, config) != ("wmt", "de-en"):
            raise FileNotFoundError(f"Dataset {name!r} doesn't exist on the Hub")
        return splits if split is None else splits[split]

    module = ModuleType("datasets")
    module.load_dataset = load_dataset  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "datasets", module)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    return splits


WMT = {"hub": "wmt", "hub_config": "de-en", "split": "train", "columns": ("t.de", "t.en")}


def test_hub(hub: dict[str, Any], tmp_path: Path) -> None:
    hub["train"] = Rows({"t": {"de": word, "en": word.upper()}} for word in "ab")
    source = open_source(corpus_of(**WMT), "data.train")
    assert list(source) == [Pair(1, "a", "A"), Pair(2, "b", "B")]
    first = source.fingerprint()
    hub["train"][1]["t"]["de"] = "x"
    assert open_source(corpus_of(**WMT), "data.train").fingerprint() != first
    (tmp_path / "rows.arrow").write_bytes(b"1")
    hub["train"].cache_files = [{"filename": str(tmp_path / "rows.arrow")}]
    stored = open_source(corpus_of(**WMT), "data.train")
    assert stored.files == (tmp_path / "rows.arrow",)
    second = stored.fingerprint()
    (tmp_path / "rows.arrow").write_bytes(b"2")
    assert stored.fingerprint() != second


def test_faulty_hub(hub: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    hub |= {"train": Rows([{"t": {"de": "a"}}]), "test": Rows()}
    assert fault(lambda: list(open_source(corpus_of(**WMT), "data.train"))).where == "wmt train:1"
    missing = fault(lambda: open_source(corpus_of(**WMT | {"hub": "wmd"}), "data.train"))
    assert missing.where == "data.train.hub"
    assert "doesn't exist" in missing.what
    no_split = fault(lambda: open_source(corpus_of(**WMT | {"split": None}), "data.train"))
    assert (no_split.where, no_split.allowed) == ("data.train.split", "train, test")
    monkeypatch.setitem(sys.modules, "datasets", None)
    assert fault(lambda: open_source(corpus_of(**WMT), "data.train")).allowed == "pip install 'headway[hub]'"


def test_fingerprint_is_of_content(tmp_path: Path) -> None:
    def fingerprint(name: str, text: str, **options: Any) -> str:
        (tmp_path / name).write_text(text, encoding="utf-8")
        return open_source(corpus_of(tsv=tmp_path / name, **options), "data.train").fingerprint()

    first = fingerprint("a", "x\ty")
    assert fingerprint("b", "x\ty") == first
    assert len({first, fingerprint("a", "x\tz"), fingerprint("a", "x\ty", columns=(2, 1))}) == 3


def test_overlap(parallel: Callable[..., AnyCorpus]) -> None:
    train = open_source(parallel(["a", "b", "b", "", "d"], ["A", "B", "X", "", ""]), "data.train")
    dev = open_source(parallel(["a", "b", "c", "", "d", "a"], ["A", "Y", "C", "", "D", "A"], "dev"), "data.dev")
    shared = overlap(train, dev)
    assert shared == Overlap(dev_pairs=5, pairs=2, sources=4)
    assert str(shared) == (
        "data.dev: of 5 pairs with text, 2 (40.0%) also stand in train, and 4 (80.0%) with their source alone"
    )
    assert "0 (0.0%)" in str(Overlap(0, 0, 0))


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["a\t", "b\t "], "two.tsv: no pair has any text as its target"),
        (["\ta", "\tb"], "two.tsv: no pair has any text as its source"),
        (["\t", "\t"], "two.tsv: no pair has any text as its source"),
        (["a", "b"], r"two.tsv: no row can be read; the first: .*two.tsv:1: wrong number of columns"),
    ],
)
def test_a_side_without_text_is_named(tmp_path: Path, lines: list[str], message: str) -> None:
    (tmp_path / "two.tsv").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    with pytest.raises(UserError, match=message):
        check_sides(open_source({"tsv": tmp_path / "two.tsv"}, "data.train", "skip"))


def test_sides_may_have_their_text_in_different_pairs(tmp_path: Path) -> None:
    (tmp_path / "two.tsv").write_text("\ta\nb\t\n", encoding="utf-8")
    check_sides(open_source({"tsv": tmp_path / "two.tsv"}, "data.train"))
