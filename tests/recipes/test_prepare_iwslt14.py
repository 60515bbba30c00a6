"""The preparation of IWSLT 2014, in miniature on a made archive, and training on what it makes."""

import io
import tarfile
from pathlib import Path

import pytest
import torch

from headway.recipe import load_recipe
from headway.training.loop import train
from tests.preparation import RECIPES, prepare
from tests.tiers import thinned

SCRIPT = RECIPES / "iwslt14" / "prepare.sh"
TESTS = ("TED.dev2010", "TEDX.dev2012", "TED.tst2010", "TED.tst2011", "TED.tst2012")
PAIRS = 60
TINY = [
    "model.dim=8", "model.feed_forward=8", "model.heads=2", "model.encoder.layers=1", "model.decoder.layers=1",
    "vocabulary.kind=char", "training.updates=1", "training.batch_tokens=64", "training.checkpoint_every=1",
    "decoding.beam=1", "decoding.max_length=2",
]  # fmt: skip


def write_archive(path: Path, missing: str = "", extra: str = "") -> Path:
    """An archive as that of WIT3: a talk whose third sentence has no English side."""
    files = {}
    for side in ("de", "en"):
        rows = [f"{side} sentence {number} &amp; more ." for number in range(PAIRS)]
        rows[2] = "" if side == "en" else rows[2]
        head = ["<url>u</url>", "<keywords>talks</keywords>", f"<title>{side} title</title>"]
        about = [f"<description>TED: {side} about</description>", "<reviewer></reviewer>"]
        tail = [extra] if extra and side == "en" else []
        files[f"de-en/train.tags.de-en.{side}"] = "\n".join([*head, *about, *rows, *tail]) + "\n"
        for name in TESTS:
            segments = f'<doc>\n<seg id="1"> {name} {side} &lt;one&gt; </seg>\n<seg id="2"> two. </seg>\n</doc>\n'
            files[f"de-en/IWSLT14.{name}.de-en.{side}.xml"] = segments
    with tarfile.open(path, "w:gz") as archive:
        for name, content in files.items():
            if name != missing:
                entry = tarfile.TarInfo(name)
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content.encode()))
    return path


@pytest.mark.parametrize("recipe", thinned(["attention", "local", "multinn"], 3))
def test_from_the_archive_to_a_trained_model(tmp_path: Path, recipe: str) -> None:
    output = tmp_path / "data"
    ended = prepare(SCRIPT, write_archive(tmp_path / "de-en.tgz"), output)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == f"train and dev: {PAIRS + 1} of {PAIRS + 2} pairs have two sides\n"
    texts = {path.name: path.read_text(encoding="utf-8").splitlines() for path in output.iterdir()}
    assert set(texts) == {f"{name}.{side}" for name in ("train", "dev", "test") for side in ("de", "en")}
    for side in ("de", "en"):
        numbers = [number for number in range(PAIRS) if number != 2]
        kept = [f"{side} title", f"TED: {side} about", *(f"{side} sentence {number} & more ." for number in numbers)]
        assert texts[f"dev.{side}"] == kept[22::23]
        assert texts[f"train.{side}"] == [line for line in kept if line not in kept[22::23]]
        assert texts[f"test.{side}"] == [line for name in TESTS for line in (f"{name} {side} <one>", "two.")]
    torch.set_num_threads(1)
    settings = [f"data.folder={output}", *TINY]
    assert train(load_recipe(RECIPES / "loem2023" / "iwslt14" / f"{recipe}.yaml", settings), tmp_path / "run") == 0


def test_what_is_wrong_is_named(tmp_path: Path) -> None:
    name = "de-en/IWSLT14.TEDX.dev2012.de-en.en.xml"
    without = prepare(SCRIPT, write_archive(tmp_path / "without.tgz", missing=name), tmp_path / "data")
    assert without.returncode == 2
    assert r"without.tgz has no IWSLT14\.TEDX.dev2012\.de-en\.en\.xml" in without.stderr
    uneven = prepare(SCRIPT, write_archive(tmp_path / "uneven.tgz", extra="one more"), tmp_path / "data")
    assert uneven.returncode == 2
    assert "the sides of all have different numbers of lines" in uneven.stderr
    assert not list((tmp_path / "data").iterdir())
