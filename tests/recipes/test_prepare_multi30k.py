"""The preparation of Multi30k with joined captions, in miniature, and a claim's model on what it makes."""

from pathlib import Path

import pytest

from headway.claims.claims import claim_files, read_claims
from headway.claims.reproduce import claimed_grid
from headway.training.loop import train
from tests.preparation import RECIPES, prepare, write

SCRIPT = RECIPES / "multi30k" / "texts.py"
CLAIMS = claim_files(RECIPES.parent / "claims")
TINY = [
    "model.dim=8", "model.encoder.hidden=8", "model.decoder.hidden=8", "vocabulary.kind=char",
    "training.updates=1", "training.checkpoint_every=1", "training.dev_metrics=[]", "training.precision=float32",
]  # fmt: skip


def write_captions(folder: Path, names: dict[str, int]) -> Path:
    for name, count in names.items():
        for side in ("de", "en"):
            write(folder / f"{name}.{side}", "".join(f"{side.upper()} caption {n}, here.\n" for n in range(count)))
    return folder


def test_captions_are_joined_in_turn(tmp_path: Path) -> None:
    data = write_captions(tmp_path / "raw", {"train": 25, "val": 5, "test_2016_flickr": 24})
    output = tmp_path / "data"
    ended = prepare(SCRIPT, data, output)
    assert ended.returncode == 0, ended.stderr
    texts = {path.name: path.read_text(encoding="utf-8").splitlines() for path in output.iterdir()}
    parts = ("train", "dev", "test", "long")
    assert set(texts) == {f"{name}.{side}" for name in parts for side in ("de", "en")} | {"test.captions"}

    def text(side: str, *numbers: int) -> str:
        return " ".join(f"{side.upper()} caption {n} , here ." for n in numbers)

    for side in ("de", "en"):
        alone = [text(side, n) for n in range(25)]
        in_turn = [text(side, 0), text(side, 1, 2), text(side, 3, 4, 5), text(side, *range(6, 10))]
        five_six = [text(side, *range(10, 15)), text(side, *range(15, 21))]
        assert texts[f"train.{side}"] == [*alone, *in_turn, *five_six, text(side, 21), text(side, 22, 23)]
        assert texts[f"dev.{side}"] == in_turn[:2]
        assert texts[f"test.{side}"] == [*in_turn, *five_six, text(side, 21), text(side, 22, 23)]
        assert texts[f"long.{side}"] == [text(side, *range(start, start + 6)) for start in (0, 6, 12, 18)]
    assert texts["test.captions"] == ["1", "2", "3", "4", "5", "6", "1", "2"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bahdanau2015/attention", "luong2015/alignments"])
def test_a_model_of_the_claims_is_trained_on_it(name: str, tmp_path: Path) -> None:
    data = write_captions(tmp_path / "raw", {"train": 25, "val": 5, "test_2016_flickr": 24})
    assert prepare(SCRIPT, data, tmp_path / "data").returncode == 0
    claims = read_claims(CLAIMS[name])
    for variant in claimed_grid(claims, CLAIMS[name], tmp_path / "data", "small", overrides=TINY).variants:
        assert train(variant.recipe, tmp_path / variant.name) == 0


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("val.en", "one\n", "val: 3 and 1 lines"),
        ("val.en", "one\n\nthree\n", "val: line 2 is blank in one of the languages"),
        ("test_2016_flickr.en", "one\ntwo\nthree\n", "test_2016_flickr: 3 captions; at least 6 are needed"),
        ("train.de", None, "train.de: cannot read this file (No such file or directory)"),
    ],
)
def test_mistakes_are_told_before_anything_is_written(
    tmp_path: Path, file: str, content: str | None, message: str
) -> None:
    data = write_captions(tmp_path / "raw", {"train": 3, "val": 3, "test_2016_flickr": 3})
    if content is None:
        (data / file).unlink()
    else:
        write(data / file, content)
    ended = prepare(SCRIPT, data, tmp_path / "data")
    assert (ended.returncode, ended.stderr) == (1, f"texts.py: {data}/{message}\n")
    assert not list((tmp_path / "data").glob("*"))


def test_rare_separators_end_no_caption(tmp_path: Path) -> None:
    data = write_captions(tmp_path / "raw", {"train": 1, "val": 1, "test_2016_flickr": 6})
    write(data / "train.en", "one\u2028two\x85three\n")
    ended = prepare(SCRIPT, data, tmp_path / "data")
    assert ended.returncode == 0, ended.stderr
    assert (tmp_path / "data" / "train.en").read_text(encoding="utf-8").split("\n")[0] == "one two three"
