"""The preparation of Tanaka, in miniature."""

from pathlib import Path

from tests.preparation import RECIPES, prepare, write

SCRIPT = RECIPES / "tanaka" / "prepare.sh"


def lines(side: str, number: int) -> str:
    return "".join(f"{side} {index} .\n" for index in range(number))


def test_a_test_set_is_cut_off_or_taken_as_it_is(tmp_path: Path) -> None:
    data, cut, given = tmp_path / "tanaka", tmp_path / "cut", tmp_path / "given"
    for side in ("ja", "en"):
        write(data / f"train.{side}", lines(side, 520))
        write(data / f"dev.{side}", lines(side, 3))
    assert prepare(SCRIPT, data, cut).returncode == 0
    assert (cut / "train.ja").read_text() == lines("ja", 20)
    assert (cut / "test.en").read_text().startswith("en 20 .\n")
    assert (cut / "dev.en").read_text() == lines("en", 3)
    for side in ("ja", "en"):
        write(data / f"test.{side}", lines(side, 5))
    assert prepare(SCRIPT, data, given).returncode == 0
    assert (given / "train.en").read_text() == lines("en", 520)
    assert (given / "test.ja").read_text() == lines("ja", 5)


def test_sides_of_different_lengths_are_refused_before_any_work(tmp_path: Path) -> None:
    for side, number in (("ja", 5), ("en", 4)):
        write(tmp_path / "tanaka" / f"train.{side}", lines(side, number))
    ended = prepare(SCRIPT, tmp_path / "tanaka", tmp_path)
    assert ended.returncode == 2
    assert ended.stderr.endswith("train.ja and train.en have different numbers of lines\n")
    assert not (tmp_path / "train.ja").exists()
