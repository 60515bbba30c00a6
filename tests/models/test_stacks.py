"""Mixers in layers, with positions: what cannot be is refused by name."""

import pytest
import torch

from headway.core.errors import UserError
from headway.mixers import MIXERS
from headway.mixers.relative import T5Bias
from headway.models import build_model
from headway.tensors.batch import collate
from tests.models import toys

STACKS = {
    "each": [{"kind": "ngram", "n": 2}, {"kind": "local", "n": 2}, {"kind": "nplm", "n": 2}, "attention"],
    "lightconv": [{"kind": "lightconv", "width": width} for width in (2, 3, 4, 5)],
    "ngram": {"kind": "ngram", "n": 3},
    "attention": "attention",
}


def stacked(encoder, decoder, **changes):
    sides = {"encoder": {"layers": 4, "mixer": encoder}, "decoder": {"layers": 4, "mixer": decoder}}
    return toys.model(**(sides | changes))


@pytest.mark.parametrize("position", ["sinusoidal", "none", "t5", "alibi", "rotary"])
def test_lengths_that_were_never_trained(position):
    """Past max_position, which is the end of learned positions alone."""
    model = stacked("attention", "attention", position=position, max_position=8)
    ids = torch.full((20,), 5).numpy()
    assert model(collate([ids], [ids])).logits.isfinite().all()


def test_one_table_of_t5_serves_a_stack():
    model = stacked(STACKS["each"], "attention", position="t5")
    tables = [module for module in model.modules() if isinstance(module, T5Bias)]
    assert len(tables) == 2  # encoder and decoder
    assert model.layers()[:2] == tables
    assert sum("position.table" in name for name, _ in model.named_parameters()) == 2


@pytest.mark.parametrize("mixer", sorted({"lightconv", "ngram", "nplm", "ssru"} & set(MIXERS)))
@pytest.mark.parametrize("position", ["t5", "alibi", "rotary"])
def test_relative_positions_need_attention(position, mixer):
    with pytest.raises(UserError) as error:
        stacked("attention", mixer, position=position)
    assert f"position {position} is a part of attention" in str(error.value)
    assert f"model.decoder.mixer: {mixer}" in str(error.value)


@pytest.mark.parametrize(
    ("position", "message"),
    [("rotery", "did you mean 'rotary'"), ({"kind": "learned", "share": 1}, "model.position.share: unknown key"),
     ({"kind": "rotary", "share": 7}, "model.position.share: input should be less than or equal to 1")],
)  # fmt: skip
def test_wrong_positions(position, message):
    with pytest.raises(UserError, match=message):
        build_model(toys.config(position=position), 9, 9, True)
