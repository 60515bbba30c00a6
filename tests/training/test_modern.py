"""The block of today over bytes, from a recipe to outputs: all parts together."""

import numpy as np
import pytest

import headway
from headway.inspect.analyses import CorpusAnalysis
from headway.inspect.capture import ReadOptions, read
from headway.metrics import build_metric
from headway.predictors.output import Example
from headway.recipe import parse_recipe
from headway.training.loop import train
from tests.conftest import REVERSAL, write_reversal


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("modern")
    write_reversal(folder)
    data = {name: {"tsv": str(folder / f"{name}.tsv")} for name in ("train", "dev")}
    recipe = REVERSAL | {
        "data": data, "vocabulary": {"kind": "byte", "shared": True},
        "model": {
            "preset": "transformer-modern", "dim": 16, "heads": 2, "feed_forward": {"hidden": 24},
            "encoder": {"layers": 2, "mixer": ["attention", "attention"], "residual": "attention"},
            "decoder": {"layers": 2, "cross": "merged", "residual": {"kind": "attention", "over": "blocks"}},
        },
        "optimizer": {"kind": "muon", "learning_rate": 0.01, "warmup": 2, "schedule": "constant"},
        "training": {
            "updates": 6, "batch_tokens": 256, "checkpoint_every": 3, "dev_metrics": ["exact_match"],
            "average": {"kind": "ema", "decay": 0.9},
        },
    }  # fmt: skip
    assert train(parse_recipe(recipe), folder / "run") == 0
    return folder / "run"


def test_any_line_is_read_and_every_output_is_text(run):
    model = headway.load(run)
    lines = ["abc", "猫 é 😀", "never seen: Ж"]
    for line, output in zip(lines, model.predict(lines, beam=2, max_length=12, capture="all"), strict=True):
        assert len(output.source_tokens) == len(line.encode())
        assert len(output.source_words.texts) == len(line.split())
        output.text.encode()  # U+FFFD stands for what is no UTF-8
        own, cross = (output.attention[f"decoder.2.{kind}"] for kind in ("self", "cross"))
        np.testing.assert_allclose(own.sum(-1) + cross.sum(-1), 1, atol=1e-5)
        for side, count in (("encoder", 5), ("decoder", 5)):  # two layers of two sublayers, and the top
            weights = output.attention[f"{side}.layers"]
            np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-5)
            assert len(weights) == count


def test_scores_are_those_of_search(run):
    model = headway.load(run)
    (output,) = model.predict(["abcd"], max_length=9)
    (again,) = model.score(["abcd"], [output.written]) if "\ufffd" not in output.text else [output]
    assert again.score == pytest.approx(output.score, abs=1e-4)


@pytest.mark.slow
def test_figures_have_the_weights_over_depth(run, tmp_path):
    analysis = CorpusAnalysis(build_metric("exact_match"), 3)
    for captured in read(headway.load(run), [Example("abc", target="cba")], ReadOptions(hypotheses=False)):
        analysis.add(captured)
    names = {path.stem for path in analysis.write(tmp_path)}
    assert {"encoder-layer-weights", "decoder-layer-weights", "entropy"} <= names
