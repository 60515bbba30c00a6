"""The preparation of the Wall Street Journal, in miniature on made trees."""

from pathlib import Path

from tests.preparation import RECIPES, prepare, write

SCRIPT = RECIPES / "parsing" / "prepare-wsj.sh"
TREE = "\n( (S (NP-SBJ (NNP Section) (CD {})) \n    (VP (VBZ ends) )\n    (. .) ))\n"


def write_sections(folder: Path) -> Path:
    """A tree in each section from 00 to 24; the file of the parts' sentences."""
    for section in range(25):
        write(folder / f"{section:02d}" / f"wsj_{section:02d}01.mrg", TREE.format(section))
    return write(folder / "sentences", "train.trees\t20\ndev.trees\t1\ntest.trees\t1\n")


def test_sections_become_parts(tmp_path: Path) -> None:
    sentences, output = write_sections(tmp_path / "wsj"), tmp_path / "data"
    ended = prepare(SCRIPT, sentences.parent, output, sentences)
    assert ended.returncode == 0, ended.stderr
    expected = {"train.trees": range(2, 22), "dev.trees": [22], "test.trees": [23]}
    assert {path.name: path.read_text(encoding="utf-8") for path in output.iterdir()} == {
        name: "".join(map(TREE.format, sections)) for name, sections in expected.items()
    }


def test_a_wrong_number_of_sentences_is_named(tmp_path: Path) -> None:
    sentences, output = write_sections(tmp_path / "wsj"), tmp_path / "data"
    ended = prepare(SCRIPT, sentences.parent, output)
    assert ended.returncode == 2
    assert "train.trees has 20 sentences, and should have 39832" in ended.stderr
    assert not list(output.iterdir())
