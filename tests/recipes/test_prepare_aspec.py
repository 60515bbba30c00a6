"""The preparation of ASPEC, in miniature on made files."""

from pathlib import Path

from tests.preparation import RECIPES, prepare

SCRIPT = RECIPES / "aspec" / "prepare.sh"


def write_corpus(folder: Path) -> Path:
    """Files as those of ASPEC-JE: training has a score before the numbers, and its third pair has no English side."""
    english = ["one\tand two .", "a | b .", " ", "four .", "five ."]
    rows = [f"0.9{number} ||| A-{number} ||| 1 ||| 文{number} 。 ||| {text}" for number, text in enumerate(english)]
    files = {
        "train/train-1.txt": rows, "dev/dev.txt": ["B-1 ||| 1 ||| 開発 。 ||| dev ."],
        "test/test.txt": ["C-1 ||| 1 ||| 試験 。 ||| test ."],
    }  # fmt: skip
    for name, lines in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return folder


def test_the_first_pairs_are_the_training_corpus(tmp_path: Path) -> None:
    corpus, output = write_corpus(tmp_path / "ASPEC-JE"), tmp_path / "data"
    ended = prepare(SCRIPT, corpus, output, "4", "sed 's/文/文 /'")
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines() == [
        "train: 3 of 4 pairs have two sides", "dev: 1 of 1 pairs have two sides", "test: 1 of 1 pairs have two sides",
    ]  # fmt: skip
    texts = {path.name: path.read_text(encoding="utf-8").splitlines() for path in output.iterdir()}
    assert texts == {
        "train.ja": ["文 0 。", "文 1 。", "文 3 。"], "train.en": ["one and two .", "a | b .", "four ."],
        "dev.ja": ["開発 。"], "dev.en": ["dev ."], "test.ja": ["試験 。"], "test.en": ["test ."],
    }  # fmt: skip


def test_what_is_wrong_is_named(tmp_path: Path) -> None:
    assert f"{tmp_path} has no train/train-1.txt" in prepare(SCRIPT, tmp_path, tmp_path / "data").stderr
    corpus = write_corpus(tmp_path / "ASPEC-JE")
    (corpus / "dev" / "dev.txt").write_text("B-1 ||| 開発 。 ||| dev .\n", encoding="utf-8")
    ended = prepare(SCRIPT, corpus, tmp_path / "data")
    assert ended.returncode == 2
    assert "dev, line 1: 3 fields in the place of 4" in ended.stderr
    write_corpus(corpus)
    shorter = prepare(SCRIPT, corpus, tmp_path / "data", "5", "head -n 1")
    assert shorter.returncode == 2
    assert "head -n 1 does not give a line for each line of train" in shorter.stderr
    assert not list((tmp_path / "data").iterdir())
