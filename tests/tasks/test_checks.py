"""Which heads an objective teaches is checked before training, and told where it may not be what was meant."""

import pytest

from headway.core.errors import UserError
from headway.models import build_model
from headway.recipe import parse_recipe
from headway.tasks.checks import check_objective

BIAFFINE = {"kind": "dependency", "dependency_heads": 2}


def checked(dependency: dict[str, object], encoder: list[object], decoder: list[object]) -> None:
    tree = {
        "task": "translation",
        "data": {"train": {"tsv": "x"}, "dev": {"tsv": "x"}},
        "model": {"dim": 8, "heads": 4, "feed_forward": 8, "dropout": 0.0}
        | {"encoder": {"layers": 2, "mixer": encoder}, "decoder": {"layers": 2, "mixer": decoder}},
        "objective": {"dependency": dependency},
        "training": {"updates": 1},
    }
    recipe = parse_recipe(tree)
    check_objective(recipe, build_model(recipe.model, 9, 9, False).to("meta"))


@pytest.mark.parametrize(
    ("dependency", "encoder", "decoder", "told"),
    [
        ({"layer": 2}, [BIAFFINE, "attention"], ["attention", BIAFFINE], ["head 1 of layer 2 of model.encoder"]),
        ({"heads": [1, 2, 4]}, [BIAFFINE, "attention"], [BIAFFINE, "attention"],
         ["head 4 of layer 1 of model.encoder", "head 4 of layer 1 of model.decoder"]),
        ({"sides": ["source"]}, [BIAFFINE, "attention"], ["attention", "attention"], []),
        ({"heads": [1, 2]}, [BIAFFINE, "attention"], [BIAFFINE, "attention"], []),
        ({"heads": [1, 2]}, ["attention", "attention"], ["attention", "attention"], []),
    ],
)  # fmt: skip
def test_plain_heads_beside_biaffine_ones_are_told(caplog, dependency, encoder, decoder, told):
    checked(dependency, encoder, decoder)
    lines = [line for line in caplog.messages if "plain attention" in line]
    assert len(lines) == len(told)
    assert all(part in line for part, line in zip(told, lines, strict=True))


@pytest.mark.parametrize("mixer", [{"kind": "delta"}, {"kind": "linear", "gate": "scalar"}])
def test_signed_weights_are_not_taught(mixer):
    with pytest.raises(UserError, match=r"objective\.dependency: the weights of encoder\.1\.self are signed"):
        checked({"sides": ["source"]}, [mixer, "attention"], ["attention", "attention"])
    checked({"sides": ["source"], "layer": 2}, [mixer, "attention"], ["attention", "attention"])
