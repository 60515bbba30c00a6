"""The preparation of Gigaword's headlines, in miniature on made files."""

import gzip
from pathlib import Path

from tests.preparation import RECIPES, prepare, write

SCRIPT = RECIPES / "summarization" / "gigaword" / "prepare.sh"
LINES = {
    "train/train.article.txt": "one\ttwo\n\nthree\n", "train/train.title.txt": "1\n2\n3\n",
    "train/valid.article.filter.txt": "four\n", "train/valid.title.filter.txt": "4\n",
    "Giga/input.txt": "five\n", "Giga/task1_ref0.txt": "5\n",
}  # fmt: skip


def write_corpus(folder: Path) -> Path:
    """Files as they are distributed, one of them compressed; the file of their lines."""
    for name, text in LINES.items():
        write(folder / name, text)
    plain = folder / "train" / "train.article.txt"
    plain.with_name("train.article.txt.gz").write_bytes(gzip.compress(plain.read_bytes()))
    plain.unlink()
    return write(folder / "lines", "".join(f"{name}\t{text.count(chr(10))}\n" for name, text in LINES.items()))


def test_pairs_with_two_sides_train(tmp_path: Path) -> None:
    lines, output = write_corpus(tmp_path / "sumdata"), tmp_path / "data"
    ended = prepare(SCRIPT, lines.parent, output, lines)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "train: 2 of 3 pairs have two sides\n"
    kept = LINES | {"train/train.article.txt": "one two\nthree\n", "train/train.title.txt": "1\n3\n"}
    assert {str(path.relative_to(output)): path.read_text() for path in output.rglob("*.txt")} == kept


def test_what_is_wrong_is_named(tmp_path: Path) -> None:
    lines, output = write_corpus(tmp_path / "sumdata"), tmp_path / "data"
    assert (
        "train/train.article.txt has 3 lines, and should have 3803957" in prepare(SCRIPT, lines.parent, output).stderr
    )
    (lines.parent / "Giga" / "input.txt").unlink()
    ended = prepare(SCRIPT, lines.parent, output, lines)
    assert ended.returncode == 2
    assert f"{lines.parent} has no Giga/input.txt" in ended.stderr
    assert not list(output.rglob("*.txt"))


def test_all_files_of_the_recipes_are_made() -> None:
    recipe = (SCRIPT.parent / "base.yaml").read_text(encoding="utf-8")
    expected = dict(line.split("\t") for line in (SCRIPT.parent / "lines.tsv").read_text().splitlines())
    assert expected.keys() == LINES.keys()
    assert all(name in recipe for name in expected)
