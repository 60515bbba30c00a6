"""The preparation of WMT 2014, in miniature on made archives, and training on what it makes."""

import gzip
import io
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from headway.recipe import load_recipe
from headway.training.loop import train
from tests.preparation import RECIPES, prepare

SCRIPT = RECIPES / "wmt14" / "prepare.sh"
PARTS = {
    "de": {
        "europarl-v7.de-en": ("training-parallel-europarl-v7.tgz", "training/"),
        "commoncrawl.de-en": ("training-parallel-commoncrawl.tgz", ""),
        "news-commentary-v9.de-en": ("training-parallel-nc-v9.tgz", "training/"),
    },
    "fr": {
        "europarl-v7.fr-en": ("training-parallel-europarl-v7.tgz", "training/"),
        "commoncrawl.fr-en": ("training-parallel-commoncrawl.tgz", ""),
        "undoc.2000.fr-en": ("training-parallel-un.tgz", "un/"),
        "giga-fren.release2.fixed": ("training-giga-fren.tar", ""),
        "news-commentary-v9.fr-en": ("training-parallel-nc-v9.tgz", "training/"),
    },
}
TINY = [
    "model.dim=8", "training.epochs=1", "training.updates=1", "training.batch_tokens=64", "training.checkpoint_every=1",
    "decoding.beam=1", "decoding.max_length=2",
]  # fmt: skip
TRANSFORMER = [
    "model.feed_forward=8", "model.heads=2", "model.encoder.layers=1", "model.decoder.layers=1", "vocabulary.kind=char",
]  # fmt: skip
RECURRENT = ["model.encoder.hidden=8", "model.decoder.hidden=8", "training.batch_sentences=4"]

pytestmark = pytest.mark.skipif(shutil.which("sha256sum") is None, reason="sha256sum is not installed")


def sentences(part: str, side: str) -> list[str]:
    """Five of a part, of which the third has no English side."""
    return [f"{part} \t{side} sentence {number} ." if (number, side) != (2, "en") else " " for number in range(5)]


def add(archive: Path, name: str, content: bytes) -> None:
    mode = "w" if not archive.exists() else "a"
    with tarfile.open(archive, mode) as file:  # not compressed: `tar` finds out by itself
        entry = tarfile.TarInfo(name)
        entry.size = len(content)
        file.addfile(entry, io.BytesIO(content))


def sgml(lines: list[str]) -> bytes:
    rows = [f'<seg id="{number}"> {line} </seg>' for number, line in enumerate(lines, start=1)]
    return ("<srcset>\n<doc>\n" + "\n".join(rows) + "\n</doc>\n</srcset>\n").encode()


def write_archives(folder: Path, language: str) -> Path:
    """Archives as those of statmt.org, and the file of their lines."""
    folder.mkdir()
    expected = ["newstest2013\t2", "newstest2014\t2"]
    for part, (archive, below) in PARTS[language].items():
        expected.append(f"{part}\t5")
        for side in ("en", language):
            content = "".join(f"{line}\n" for line in sentences(part, side)).encode()
            zipped = archive.endswith("fren.tar")
            name = f"{below}{part}.{side}{'.gz' if zipped else ''}"
            add(folder / archive, name, gzip.compress(content) if zipped else content)
    for side in ("en", language):
        add(folder / "dev.tgz", f"dev/newstest2013.{side}", f"one {side} .\ntwo {side} .\n".encode())
        kind = "src" if side == "en" else "ref"
        lines = [f"&quot;{side}&quot; &amp; more", f"last {side}"]
        add(folder / "test-full.tgz", f"test-full/newstest2014-{language}en-{kind}.{side}.sgm", sgml(lines))
    (folder / "lines.tsv").write_text("".join(f"{line}\n" for line in expected))
    return folder


def lines(path: Path) -> Iterator[str]:
    return iter(path.read_text(encoding="utf-8").splitlines())


@pytest.mark.parametrize(
    ("language", "recipe", "overrides"),
    [("de", "vaswani2017/table-3/key-dim-16", TRANSFORMER), ("fr", "recurrent/bahdanau-en-fr", RECURRENT)],
)
def test_from_archives_to_a_trained_model(tmp_path: Path, language: str, recipe: str, overrides: list[str]) -> None:
    made, output = write_archives(tmp_path / "archives", language), tmp_path / "data"
    ended = prepare(SCRIPT, language, made, output, made / "lines.tsv")
    assert ended.returncode == 0, ended.stderr
    parts = PARTS[language]
    assert f"train: {4 * len(parts)} of {5 * len(parts)} pairs have two sides" in ended.stdout
    names = {f"{name}.{side}" for name in ("train", "newstest2013", "newstest2014") for side in ("en", language)}
    assert {path.name for path in output.iterdir()} == names
    kept = [f"{part}  en sentence {number} ." for part in parts for number in (0, 1, 3, 4)]
    assert list(lines(output / "train.en")) == kept
    assert list(lines(output / f"train.{language}")) == [line.replace(" en ", f" {language} ") for line in kept]
    assert list(lines(output / f"newstest2014.{language}")) == [f'"{language}" & more', f"last {language}"]
    torch.set_num_threads(1)
    settings = [f"data.folder={output}", *TINY, *overrides]
    assert train(load_recipe(RECIPES / f"{recipe}.yaml", settings), tmp_path / "run") == 0


def test_what_is_wrong_is_named(tmp_path: Path) -> None:
    made, output = write_archives(tmp_path / "archives", "de"), tmp_path / "data"
    expected = made / "lines.tsv"
    assert "the language is de or fr; received nl" in prepare(SCRIPT, "nl", made, output, expected).stderr
    counts = expected.read_text()
    expected.write_text(counts.replace("commoncrawl.de-en\t5", "commoncrawl.de-en\t6"))
    ended = prepare(SCRIPT, "de", made, output, expected)
    assert "commoncrawl.de-en has 5 lines, and should have 6" in ended.stderr
    expected.write_text(counts)
    add(made / "dev.tgz", "dev/another", b"")
    assert prepare(SCRIPT, "de", made, output, expected).returncode == 0  # the first download of this archive
    add(made / "dev.tgz", "dev/one more", b"")
    assert "dev.tgz is not what it was" in prepare(SCRIPT, "de", made, tmp_path / "again", expected).stderr
    assert not list((tmp_path / "again").iterdir())


def test_the_corpora_have_the_pairs_that_papers_report() -> None:
    counts = dict(line.split("\t") for line in lines(SCRIPT.parent / "lines.tsv"))
    assert {name for parts in PARTS.values() for name in parts} < set(counts)
    totals = {language: sum(int(counts[part]) for part in parts) for language, parts in PARTS.items()}
    assert totals == {"de": 4_520_620, "fr": 40_842_333}
