"""The recurrent tagger: the equations in a loop, padding, and a run from training to export."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import headway
from headway.corpora.word_corpus import collate_windows
from headway.models import TaggerConfig
from headway.models.recurrent.recurrent_words import RecurrentTagger, RecurrentWords
from headway.models.tagger import RecurrentWordsConfig
from headway.processing.pretrained import Window
from headway.recipe import load_recipe
from headway.training.loop import train
from tests.conftest import Command
from tests.tasks.test_word_labelling import sentences, write_recipe

SMALL = {"kind": "recurrent", "dim": 5, "hidden": 3, "output": 4}
LENGTHS = 6, 1, 3


def tagger(**changes: Any) -> RecurrentTagger:
    torch.manual_seed(3)
    config = TaggerConfig.model_validate({"encoder": SMALL | changes, "layers": "last", "dropout": 0.0})
    assert isinstance(config.encoder, RecurrentWordsConfig)
    return RecurrentTagger(config, RecurrentWords(config.encoder, 11, 0.0), 2).double().eval()


def windows() -> list[Window]:
    return [
        Window(row, 0, tuple((7 * row + place) % 11 for place in range(length)), tuple(range(length)))
        for row, length in enumerate(LENGTHS)
    ]


def lstm(cells: Any, inputs: list[Tensor]) -> list[Tensor]:
    """The states of an LSTM over vectors, one position at a time."""
    h = c = inputs[0].new_zeros(cells.hidden_size)
    states = []
    for x in inputs:
        gates = cells.weight_ih_l0 @ x + cells.bias_ih_l0 + cells.weight_hh_l0 @ h + cells.bias_hh_l0
        i, f, g, o = gates.view(4, -1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        states.append(h)
    return states


def labelled(model: Any, ids: tuple[int, ...]) -> Tensor:
    """The logits of a sentence by the equations of Rei and Yannakoudakis (2016)."""
    read = [model.encoder.embedding.weight[id] for id in ids]
    for forwards, backwards in model.encoder.recurrent.layers:
        after, before = lstm(forwards, read), lstm(backwards, read[::-1])[::-1]
        read = [torch.cat(both) for both in zip(after, before, strict=True)]
    hidden = [torch.tanh(model.encoder.output.weight @ states) for states in read]
    return torch.stack([model.output.weight @ d + model.output.bias for d in hidden])


@pytest.mark.parametrize("layers", [1, 2])
def test_values_and_gradients_are_those_of_the_equations(layers: int) -> None:
    model = tagger(layers=layers)
    found = model(collate_windows(windows(), 0)).logits
    expected = [labelled(model, window.ids) for window in windows()]
    weights = torch.randn(sum(LENGTHS), 2, dtype=torch.float64)
    mine = torch.cat([found[row, :length] for row, length in enumerate(LENGTHS)])
    torch.testing.assert_close(mine, torch.cat(expected))
    gradients = [
        torch.autograd.grad((each * weights).sum(), list(model.parameters())) for each in (mine, torch.cat(expected))
    ]
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other)


def test_padding_changes_nothing() -> None:
    model = tagger()
    together = model(collate_windows(windows(), 0)).logits
    for row, window in enumerate(windows()):
        torch.testing.assert_close(together[row, : len(window.ids)], model(collate_windows([window], 0)).logits[0])


def test_states_are_points_of_interventions() -> None:
    model = tagger()
    batch = collate_windows(windows(), 0)
    plain = model(batch).logits
    assert list(model.points()) == ["encoder.1.state", "layers:layer=1"]
    for place in model.points().values():
        undo = place(torch.zeros_like)
        assert torch.equal(model(batch).logits[0, 0], model.output.bias)
        undo()
    assert torch.equal(model(batch).logits, plain)


def test_random_layers_are_not_frozen() -> None:
    with pytest.raises(ValueError, match="freeze"):
        TaggerConfig.model_validate({"encoder": SMALL, "freeze": True})


def test_a_run_learns_predicts_scores_and_is_exported(tmp_path: Path, run_headway: Command) -> None:
    for name, count, seed in (("train", 300, 1), ("dev", 40, 2)):
        (tmp_path / f"{name}.tsv").write_text(sentences(count, seed), encoding="utf-8")
    encoder = {"kind": "recurrent", "dim": 16, "hidden": 8, "output": 8}
    changes = {"model": {"encoder": encoder, "layers": "last"}, "optimizer": {"learning_rate": 2e-2}}
    recipe = write_recipe(tmp_path, **changes)
    run = tmp_path / "run"
    assert train(load_recipe(recipe), run) == 0
    predictor = headway.load(run, device="cpu")
    assert predictor.predict(["HE goes not home bad never-seen"])[0].labels == ("c", "c", "c", "i", "i", "c")
    assert run_headway("data", "check", recipe).code == 0
    dev = tmp_path / "dev.tsv"
    said = run_headway("inspect", "tables", "layers", run, "--data", dev)
    assert said.code == 2
    assert "no self-attention" in said.err
    assert run_headway("export", "huggingface", run, "--output", tmp_path / "out").code == 0
    words = ["he goes not home"]
    again, before = (one.predict(words)[0] for one in (headway.load(tmp_path / "out", device="cpu"), predictor))
    assert again.probabilities.tolist() == before.probabilities.tolist()
    assert headway.evaluate(run, {"tsv": str(dev)}, device="cpu").variants[0].scores
