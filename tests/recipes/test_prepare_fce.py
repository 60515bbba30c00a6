"""The preparation of FCE, CoNLL-14 and JFLEG, in miniature on made files."""

from pathlib import Path

from tests.preparation import RECIPES, prepare, write

SCRIPT = RECIPES / "error_detection" / "fce" / "prepare.sh"
FCE = {"train": "He\tc\ngo\ti\n\nYes\tc\n\n", "dev": "No\tc\n", "test": "\nWe\tc\nis\ti\n\n"}
M2 = """S He go home .
A 1 2|||Vform|||goes|||REQUIRED|||-NONE-|||0
A 0 1|||Pron|||They|||REQUIRED|||-NONE-|||1

"""


def write_corpora(folder: Path) -> Path:
    """Files as those of the three corpora; the file of FCE's sentences."""
    for part, text in FCE.items():
        write(folder / f"fce-public.{part}.original.tsv", text)
    write(folder / "official-2014.combined.m2", M2)
    write(folder / "test" / "test.src", "I has it .\n")
    for number, text in enumerate(("I have it .", "I had it .", "I have it .", "I has it .")):
        write(folder / "test" / f"test.ref{number}", f"{text}\n")
    counts = {f"fce-public.{part}.original.tsv": count for part, count in (("train", 2), ("dev", 1), ("test", 1))}
    counts |= dict.fromkeys(("conll14-1.tsv", "conll14-2.tsv", "jfleg.tsv"), 1)
    return write(folder / "sentences", "".join(f"{name}\t{count}\n" for name, count in counts.items()))


def test_the_tests_are_labelled(tmp_path: Path) -> None:
    sentences, output = write_corpora(tmp_path / "corpora"), tmp_path / "data"
    ended = prepare(SCRIPT, sentences.parent, output, sentences)
    assert ended.returncode == 0, ended.stderr
    texts = {path.name: path.read_text(encoding="utf-8") for path in output.iterdir()}
    assert {texts.pop(f"fce-public.{part}.original.tsv") for part in FCE} == set(FCE.values())
    assert texts["conll14-1.tsv"].split() == ["He", "c", "go", "i", "home", "c", ".", "c"]
    assert texts["conll14-2.tsv"].split() == ["He", "i", "go", "c", "home", "c", ".", "c"]
    assert texts["jfleg.tsv"].split()[:4] == ["I", "c", "has", "i"]
    assert texts.keys() == {"conll14-1.tsv", "conll14-2.tsv", "jfleg.tsv"}


def test_a_wrong_number_of_sentences_is_named(tmp_path: Path) -> None:
    sentences = write_corpora(tmp_path / "corpora")
    ended = prepare(SCRIPT, sentences.parent, tmp_path / "data")
    assert ended.returncode == 2
    assert "fce-public.train.original.tsv has 2 sentences, and should have 28731" in ended.stderr
    write(sentences, "jfleg.tsv\t2\n")
    ended = prepare(SCRIPT, sentences.parent, tmp_path / "data", sentences)
    assert (ended.returncode, ended.stderr) == (2, "prepare.sh: jfleg.tsv has 1 sentences, and should have 2\n")
    assert not list((tmp_path / "data").iterdir())
