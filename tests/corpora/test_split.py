"""Train, dev and test in a file's own order, or at random; what is in no part is said."""

import gzip
import json
import os
import threading
from functools import partial
from pathlib import Path

import pytest

from headway.core.errors import UserError
from headway.corpora.split import SplitOptions, split_parallel, split_sentences, split_table
from tests.conftest import Command

NAMES = ("train", "dev", "test")


def part(folder: Path, name: str) -> list[str]:
    """The lines of one file of a split."""
    return (folder / name).read_text(encoding="utf-8").splitlines()


def test_parts_hold_every_sentence_once_in_order(tmp_path: Path) -> None:
    path = tmp_path / "all.tsv"
    sentences = [f"w{number}\tc\nx\ti\n" for number in range(20)]
    path.write_text("\n".join(sentences), encoding="utf-8")
    split = split_sentences(path, tmp_path / "parts", SplitOptions((8, 1, 1)))
    assert split.sizes == {"train": 16, "dev": 2, "test": 2}
    parts = [(tmp_path / "parts" / f"{name}.tsv").read_text(encoding="utf-8") for name in NAMES]
    assert "".join(parts) == "".join(f"{sentence}\n" for sentence in sentences)  # parts may be put together again


def test_unless_asked_dev_and_test_are_no_larger_than_they_need_be() -> None:
    for count, expected in ((100, [80, 10, 10]), (16_000, [13_400, 1000, 1600]), (10**6, [997_000, 1000, 2000])):
        parts = SplitOptions().assign(count, "all.tsv", "pair")
        assert [parts.count(name) for name in NAMES] == expected
    parts = SplitOptions((80, 10, 10)).assign(10**5, "all.tsv", "pair")
    assert [parts.count(name) for name in NAMES] == [80_000, 10_000, 10_000]


def test_mistakes(tmp_path: Path) -> None:
    path = tmp_path / "all.tsv"
    path.write_text("a\tc\n\nb\tc\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"for these parts; received 2; allowed: for pairs, a row each, columns"):
        split_sentences(path, tmp_path / "parts")
    path.write_text("a\tc\n\n" * 9, encoding="utf-8")
    for options in (SplitOptions((1, 0.01, 100)), SplitOptions(counts=(4, 5)), SplitOptions(counts=(0, 5))):
        for unit, split in (("sentence", split_sentences), ("pair", partial(split_table, columns=["1", "2"]))):
            with pytest.raises(UserError, match=f"every part needs one {unit} or more, and there are 9"):
                split(path, output=tmp_path / "parts", options=options)
    for columns in (["00", "1"], ["1", "1"], ["1"]):
        with pytest.raises(UserError, match="columns: columns are one of the source and one or more of targets"):
            split_table(path, columns, tmp_path / "parts")
    path.write_text("a\tc\n" * 9 + "a\tc\td\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"received 3; allowed: 2, or skip_broken, which leaves such rows out"):
        split_table(path, ["1", "2"], tmp_path / "parts")
    path.write_text("a\tc\n\n" * 9, encoding="utf-8")
    with pytest.raises(UserError, match="a part has no pair that is not in another one"):
        split_table(path, ["1", "2"], tmp_path / "parts")


def test_pairs_stay_pairs(tmp_path: Path, run_headway: Command) -> None:
    sources, targets = ([f"{side}{number}" for number in range(20)] for side in "st")
    with gzip.open(tmp_path / "all.ja.gz", "wt", encoding="utf-8") as file:
        file.write("\n".join(sources))
    (tmp_path / "all.en").write_text("\n".join(targets) + "\n", encoding="utf-8")
    ended = run_headway("data", "split", tmp_path / "all.ja.gz", tmp_path / "all.en", "--output", tmp_path / "parts")
    assert (ended.code, ended.out) == (0, "train: 16 pairs, dev: 2 pairs, test: 2 pairs\n")
    for suffix, lines in (("ja", sources), ("en", targets)):
        assert [part(tmp_path / "parts", f"{name}.{suffix}") for name in NAMES] == [
            lines[:16],
            lines[16:18],
            lines[18:],
        ]
    (tmp_path / "short.de").write_text("a\n" * 3, encoding="utf-8")
    for target, message in (("all.en", "the same suffix"), ("short.de", "this line has no partner")):
        with pytest.raises(UserError, match=message):
            split_parallel(tmp_path / "all.en", tmp_path / target, tmp_path / "parts")


def test_tables_and_json_lines_are_cut_row_by_row(tmp_path: Path) -> None:
    rows = [f"{number}\ts{number}\tt{number}" for number in range(10)]
    table = tmp_path / "all.tsv"
    table.write_text("\n".join(["id\tsource\ttarget", *rows, "10\t\tt"]), encoding="utf-8")
    split = split_table(table, ["source", "target"], tmp_path, SplitOptions(counts=(2, 3)))
    assert split.text() == "train: 5 pairs, dev: 2 pairs, test: 3 pairs\nleft out 1: pairs without text on one side"
    assert part(tmp_path, "dev.tsv") == ["id\tsource\ttarget", *rows[5:7]]
    records = [json.dumps({"ja": {"text": f"s{number}"}, "en": f"t{number}"}) for number in range(10)]
    (tmp_path / "all.jsonl").write_text("\n".join([*records, "{"]), encoding="utf-8")
    with pytest.raises(UserError, match=r"all.jsonl:11: this line is not JSON"):
        split_table(tmp_path / "all.jsonl", ["ja.text", "en"], tmp_path)
    split = split_table(tmp_path / "all.jsonl", ["ja.text", "en"], tmp_path, broken="skip")
    assert split.text() == "train: 8 pairs, dev: 1 pair, test: 1 pair\nleft out 1: rows that cannot be read"
    assert part(tmp_path, "train.jsonl") == records[:8]


def test_no_pair_stands_in_two_parts(tmp_path: Path, run_headway: Command) -> None:
    table = tmp_path / "all.tsv"
    rows = [f"s{number % 40}\tt{number % 80}" for number in range(200)]
    table.write_text("\n".join(rows), encoding="utf-8")
    given = ("data", "split", table, "--columns", "1", "2", "--shuffle", "--counts", "20", "20")
    ended = run_headway(*given, "--output", tmp_path / "one")
    assert "left out" in ended.out
    parts = [part(tmp_path / "one", f"{name}.tsv") for name in NAMES]
    assert all(parts)
    assert not any(set(first) & set(second) for first, second in zip(parts, (*parts[1:], parts[0]), strict=True))
    assert len(parts[2]) == 20
    assert parts[2] != rows[180:]
    assert run_headway(*given, "--seed", "1", "--output", tmp_path / "two").out == ended.out
    assert part(tmp_path / "two", "test.tsv") == parts[2]
    assert run_headway(*given, "--seed", "2", "--output", tmp_path / "three").code == 0
    assert part(tmp_path / "three", "test.tsv") != parts[2]
    options = ("--disjoint-sources", "--counts", "2", "2", "--output", tmp_path / "four")
    assert run_headway("data", "split", table, "--columns", "1", "2", *options).code == 0
    sources = [{row.split("\t")[0] for row in part(tmp_path / "four", f"{name}.tsv")} for name in NAMES]
    assert not sources[0] & sources[2]
    assert not sources[0] & sources[1]


def test_no_side_of_a_pair_stands_in_two_parts(tmp_path: Path, run_headway: Command) -> None:
    """What a test shares with training on either side is left out of training; a target like a source is neither."""
    rows = ["a\tx", "b\ty", "c\tz", "d\tc", "e\tx", "f\tu", "c\tv"]
    table = tmp_path / "all.tsv"
    table.write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
    given = ("data", "split", table, "--columns", "1", "2", "--counts", "1", "2")
    for flags, train in (
        ((), rows[:4]),
        (("--disjoint-targets",), rows[1:4]),
        (("--disjoint-sources", "--disjoint-targets"), [rows[1], rows[3]]),
    ):
        folder = tmp_path / str(len(flags))
        ended = run_headway(*given, *flags, "--output", folder)
        assert part(folder, "train.tsv") == train
        assert (part(folder, "dev.tsv"), part(folder, "test.tsv")) == ([rows[4]], rows[5:])
        assert ended.out.splitlines()[0] == f"train: {len(train)} pairs, dev: 1 pair, test: 2 pairs"


def test_white_space_hides_no_pair(tmp_path: Path) -> None:
    table = tmp_path / "all.tsv"
    rows = ["a b\tx y", "c\tx", "d\tx", "a  b\tx y", "a\u3000b\tx\xa0y ", " a b\tx y", "e\tx", "ab\txy", "f\tx"]
    table.write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
    split = split_table(table, ["1", "2"], tmp_path / "parts", SplitOptions((3, 3, 3)))
    assert split.left_out["of train, also in dev"] == 1
    assert part(tmp_path / "parts", "train.tsv") == rows[1:3]
    assert part(tmp_path / "parts", "dev.tsv") == rows[3:6]
    split_table(table, ["1", "2"], tmp_path / "others", SplitOptions((3, 3, 3), disjoint_sources=True))
    assert part(tmp_path / "others", "train.tsv") == rows[1:3]
    words = tmp_path / "words.txt"
    words.write_text("a c\n\nb c\n\nc c\n\na  c \n\nd c\n", encoding="utf-8")
    split_sentences(words, tmp_path / "sentences", SplitOptions((3, 1, 1)))
    assert part(tmp_path / "sentences", "train.txt") == ["b c", "", "c c", ""]


def test_no_sentence_stands_in_two_parts(tmp_path: Path) -> None:
    words = tmp_path / "words.tsv"
    words.write_text("a\tc\nb\ti\n\nc\tc\n\nd\tc\n\na\tc\nb\ti\n")
    split = split_sentences(words, tmp_path / "out", SplitOptions(counts=(1, 1)))
    assert split.text() == "train: 1 sentence, dev: 1 sentence, test: 1 sentence\nleft out 1: of train, also in test"
    assert (tmp_path / "out" / "train.tsv").read_text() == "c\tc\n\n"
    words.write_text("a\tc\n\nb\tc\n\na\tc\n")
    with pytest.raises(UserError, match="a part has no sentence that is not in another one"):
        split_sentences(words, tmp_path / "none", SplitOptions(counts=(1, 1)))


def test_sentences_of_conllu_are_the_same_whatever_their_number(tmp_path: Path) -> None:
    rows = "1\tTake\ttake\tVERB\tVB\t_\t0\troot\t_\t{}\n2\tcare\tcare\tNOUN\tNN\t_\t1\tobj\t_\t_\n"
    blocks = [f"# sent_id = {number}\n{rows.format(misc)}" for number, misc in enumerate(("_", "SpaceAfter=No"))]
    blocks[0] = f"# newdoc\n{blocks[0]}"
    others = [f"# sent_id = {number}\n{rows.format('_').replace('care', f'care{number}')}" for number in (2, 3)]
    path = tmp_path / "trees.conllu"
    path.write_text("\n".join([blocks[0], *others, blocks[1]]))
    split = split_sentences(path, tmp_path / "out", SplitOptions(counts=(1, 1)))
    assert split.text().endswith("left out 1: of train, also in test")
    assert (tmp_path / "out" / "train.conllu").read_text() == f"{others[0]}\n"
    assert (tmp_path / "out" / "test.conllu").read_text() == f"{blocks[1]}\n"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("--seed", "3"), "--seed: alone, this option does nothing"),
        (("--disjoint-sources",), "--disjoint-sources: alone"),
        (("--shares", "nan", "1", "1"), "--shares: shares are numbers above 0"),
        (("--shares", "inf", "1", "1"), "--shares: shares are numbers above 0"),
        (("--shares", "1", "1", "1", "--counts", "1", "1"), "--counts: sizes are shares or counts, not both"),
    ],
)
def test_options_that_mean_nothing_are_refused(
    tmp_path: Path, run_headway: Command, given: tuple[str, ...], message: str
) -> None:
    (tmp_path / "all.tsv").write_text("a\tc\n\n" * 9, encoding="utf-8")
    ended = run_headway("data", "split", tmp_path / "all.tsv", "--output", tmp_path / "parts", *given)
    assert (ended.code, message in ended.err) == (2, True)


def test_the_commands(tmp_path: Path, run_headway: Command) -> None:
    path = tmp_path / "all.tsv"
    path.write_text("".join(f"w{n}\tc\n\n" for n in range(10)), encoding="utf-8")
    ended = run_headway("data", "split", path, "--output", tmp_path / "parts", "--shares", "6", "2", "2")
    assert (ended.code, ended.out) == (0, "train: 6 sentences, dev: 2 sentences, test: 2 sentences\n")
    (tmp_path / "s").write_text("He go home\n", encoding="utf-8")
    (tmp_path / "r0").write_text("He goes home\n", encoding="utf-8")
    (tmp_path / "r1").write_text("He go home now\n", encoding="utf-8")
    given = (f"source={tmp_path / 's'}", f"references=[{tmp_path / 'r0'},{tmp_path / 'r1'}]")
    assert run_headway("data", "make", "labels", *given).out == "He\tc\ngo\ti\nhome\ti\n\n"
    assert run_headway("data", "make", "labels").code == 2


@pytest.mark.parametrize("options", [("--columns", "1", "2"), ()])
def test_a_pipe_is_split_as_a_file(tmp_path: Path, run_headway: Command, options: tuple[str, ...]) -> None:
    text = "".join(f"w{number}\tc{number}\n\n" for number in range(10)).replace("\n\n", "\n" if options else "\n\n")
    (tmp_path / "file").write_text(text, encoding="utf-8")
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=lambda: (tmp_path / "pipe").write_text(text, encoding="utf-8"))
    writer.start()
    for name in ("pipe", "file"):
        ended = run_headway("data", "split", tmp_path / name, *options, "--output", tmp_path / f"of-{name}")
        assert (ended.code, ended.err) == (0, "")
    writer.join()
    parts = [{path.name: path.read_text() for path in (tmp_path / f"of-{name}").iterdir()} for name in ("pipe", "file")]
    assert parts[0] == parts[1]
    assert sum(part.count("w") for part in parts[0].values()) == 10


def test_a_file_that_is_there_is_not_written_over(tmp_path: Path) -> None:
    path = tmp_path / "train.tsv"
    path.write_text("".join(f"a{index}\tb{index}\n" for index in range(30)))
    whole = path.read_text()
    with pytest.raises(UserError, match=r"already, with another text; .*received '.*train\.tsv'"):
        split_table(path, ["1", "2"], tmp_path)
    assert path.read_text() == whole
    assert [file.name for file in tmp_path.iterdir()] == ["train.tsv"]
    for _ in range(2):
        split_table(path, ["1", "2"], tmp_path / "parts")
    sentences = tmp_path / "dev.txt"
    sentences.write_text("\n".join(f"word{index}\tc\n" for index in range(30)))
    with pytest.raises(UserError, match="already"):
        split_sentences(sentences, tmp_path)
