"""Parameters and FLOPs of the parts of a model."""

import json

import pytest
import torch

from headway.inspect.parameters import count_parts
from headway.models import build_model, model_section
from tests.conftest import Command, Reversal

SMALL = {"dim": 16, "feed_forward": 24, "heads": 2, "encoder": {"layers": 1}, "decoder": {"layers": 2}}


def parts(length: int = 10, **changes):
    with torch.device("meta"):
        model = build_model(model_section(SMALL | changes), 50, 40, False)
    return count_parts(model, (50, 40), length), model


def test_parts_add_up():
    result, model = parts()
    assert result.total == sum(each.numel() for each in model.parameters())
    by_name = {part.name: part for part in result.parts}
    assert by_name["encoder.1.feed_forward"].parameters == 2 * 16 * 24 + 16 + 24
    assert "projection" in by_name  # its weight is the target embedding's, its work its own
    assert by_name["projection"].parameters == 0


@pytest.mark.parametrize("length", [10, 30])
def test_operations_counted_by_hand(length):
    """A multiplication with its addition is two: projections 2 * 4 D D, scores and means 2 * 2 L D a position."""
    by_name = {part.name: part.flops_per_token for part in parts(length)[0].parts}
    assert by_name["encoder.1.mixer"] == 2 * 4 * 16 * 16 + 2 * 2 * length * 16
    assert by_name["decoder.2.feed_forward"] == 2 * 2 * 16 * 24
    assert by_name["projection"] == 2 * 16 * 40


def test_operations_of_ngrams_do_not_grow_with_length():
    mixer = {"mixer": {"kind": "ngram", "n": 3}}
    short, long = (
        {part.name: part.flops_per_token for part in parts(length, encoder={"layers": 1} | mixer)[0].parts}
        for length in (10, 100)
    )
    assert short["encoder.1.mixer"] == long["encoder.1.mixer"] == 2 * 2 * 16 * 16 + 2 * 5 * 8 * 16
    assert short["decoder.1.mixer"] < long["decoder.1.mixer"]


def test_a_canon_layer_is_a_part_of_its_own():
    """Four weights a channel; what they multiply is counted once."""
    plain, canon = (
        {part.name: part for part in parts(decoder={"layers": 1, **changes})[0].parts}
        for changes in ({}, {"canon": "ACD"})
    )
    for point, size in (("mixer", 16), ("feed_forward", 16), ("feed_forward_inner", 24)):
        part = canon.pop(f"decoder.1.{point}_canon")
        assert (part.parameters, part.flops_per_token) == (4 * size, 2 * 4 * size)
    assert canon == plain


def test_the_command_line(run_headway: Command, reversal: Reversal):
    table = run_headway("inspect", "tables", "parameters", reversal.run)
    manifest = json.loads((reversal.run / "manifest.json").read_text())
    assert table.code == 0
    assert f"{manifest['parameters']:,}" in table.out
    values = json.loads(run_headway("inspect", "tables", "parameters", "--json", reversal.run).out)
    assert values["parameters"] == manifest["parameters"]
    recipe = run_headway(
        "inspect", "tables", "parameters", "--json", "--vocabulary", "8", reversal.recipe, "model.dim=64"
    )
    assert json.loads(recipe.out)["source_vocabulary"] == 8
    changed = ["vocabulary.shared=false", "vocabulary.target.size=99"]
    sizes = json.loads(run_headway("inspect", "tables", "parameters", "--json", reversal.recipe, *changed).out)
    assert (sizes["source_vocabulary"], sizes["target_vocabulary"]) == (8000, 99)


def test_refusals(run_headway: Command, reversal: Reversal):
    changed = run_headway("inspect", "tables", "parameters", reversal.run, "model.dim=64")
    assert (changed.code, "cannot be changed" in changed.err) == (2, True)
    learned = ["inspect", "tables", "parameters", reversal.recipe, "model.position=learned", "model.max_position=24"]
    longer = run_headway(*learned, "data.max_length=20")
    assert (longer.code, longer.err.split("; ", 1)[1]) == (2, "received 32; allowed: up to 24\n")
    assert run_headway(*learned, "data.max_length=20", "--length", "24").code == 0


LAYERS = {"layers": 1, "hidden": 8}
RECURRENT = {"kind": "recurrent", "dim": 8, "encoder": LAYERS, "decoder": LAYERS}


def test_nothing_is_computed_of_a_recurrent_model():
    section = model_section(RECURRENT)
    with torch.device("meta"):
        model = build_model(section, 11, 13, False)
    counted = count_parts(model, (11, 13), 4)
    real = count_parts(build_model(section, 11, 13, False), (11, 13), 4)
    assert counted.total == real.total
    assert counted.flops_per_token > 0  # the fused layers of a CPU are not counted, so the real ones are fewer


@pytest.mark.parametrize(
    ("score", "choice"),
    [("dot", "soft"), ("general", "hard"), ("additive", "monotonic"), ("concat", "soft"), ("location", "soft")],
)
def test_every_score_of_a_recurrent_model_is_counted(score: str, choice: str) -> None:
    """Those of `location` are rows of a weight, and nothing that is computed."""
    with torch.device("meta"):
        model = build_model(model_section(RECURRENT | {"attention": {"score": score, "kind": choice}}), 11, 13, False)
    by_name = {part.name: part for part in count_parts(model, (11, 13), 4).parts}
    assert by_name["decoder"].flops_per_token > 0
