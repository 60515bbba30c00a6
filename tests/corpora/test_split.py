"""Train, dev and test in a file's own order."""

import gzip
from pathlib import Path

import pytest

from headway.corpora.split import split_file, split_parallel
from headway.errors import UserError
from tests.conftest import Command


def test_parts_hold_every_sentence_once_in_order(tmp_path: Path) -> None:
    path = tmp_path / "all.tsv"
    sentences = [f"w{number}\tc\nx\ti\n" for number in range(20)]
    path.write_text("\n".join(sentences), encoding="utf-8")
    assert split_file(path, tmp_path / "parts", (8, 1, 1)) == {"train": 16, "dev": 2, "test": 2}
    parts = [(tmp_path / "parts" / f"{name}.tsv").read_text(encoding="utf-8") for name in ("train", "dev", "test")]
    assert "\n".join(parts) == "\n".join(sentences)


def test_mistakes(tmp_path: Path) -> None:
    path = tmp_path / "all.tsv"
    path.write_text("a\tc\n\nb\tc\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"too few sentences for these parts; received 2"):
        split_file(path, tmp_path / "parts", (8, 1, 1))
    with pytest.raises(UserError, match="shares: there are three"):
        split_file(path, tmp_path / "parts", (1, 0, 1))


def test_pairs_stay_pairs(tmp_path: Path, run_headway: Command) -> None:
    sources, targets = ([f"{side}{number}" for number in range(20)] for side in "st")
    with gzip.open(tmp_path / "all.ja.gz", "wt", encoding="utf-8") as file:
        file.write("\n".join(sources))
    (tmp_path / "all.en").write_text("\n".join(targets) + "\n", encoding="utf-8")
    ended = run_headway("data", "split", tmp_path / "all.ja.gz", tmp_path / "all.en", "--output", tmp_path / "parts")
    assert (ended.code, ended.out) == (0, "train: 16 sentences, dev: 2 sentences, test: 2 sentences\n")
    for suffix, lines in (("ja", sources), ("en", targets)):
        parts = [(tmp_path / "parts" / f"{name}.{suffix}").read_text() for name in ("train", "dev", "test")]
        assert [part.splitlines() for part in parts] == [lines[:16], lines[16:18], lines[18:]]
    (tmp_path / "short.de").write_text("a\n" * 3, encoding="utf-8")
    for target, message in (
        ("all.en", "the same suffix"),
        ("short.de", "the same number of lines; received '20 and 3'"),
    ):
        with pytest.raises(UserError, match=message):
            split_parallel(tmp_path / "all.en", tmp_path / target, tmp_path / "parts", (8, 1, 1))


def test_the_commands(tmp_path: Path, run_headway: Command) -> None:
    path = tmp_path / "all.tsv"
    path.write_text("".join(f"w{n}\tc\n\n" for n in range(10)), encoding="utf-8")
    ended = run_headway("data", "split", path, "--output", tmp_path / "parts", "--shares", "6", "2", "2")
    assert (ended.code, ended.out) == (0, "train: 6 sentences, dev: 2 sentences, test: 2 sentences\n")
    (tmp_path / "s").write_text("He go home\n", encoding="utf-8")
    (tmp_path / "r0").write_text("He goes home\n", encoding="utf-8")
    (tmp_path / "r1").write_text("He go home now\n", encoding="utf-8")
    given = ("--source", tmp_path / "s", "--references", tmp_path / "r0", tmp_path / "r1")
    assert run_headway("data", "labels", *given).out == "He\tc\ngo\ti\nhome\ti\n\n"
    assert run_headway("data", "labels").code == 2
