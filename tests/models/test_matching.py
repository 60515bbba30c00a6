"""Sizing to a number of parameters, and the totals that the n-gram document reports."""

import pytest
import torch
from torch import nn

from headway.core.errors import UserError
from headway.models import build_model, model_section
from headway.models.matching import count_parameters
from headway.recipe import load_recipe
from tests.tiers import thinned


def total(section, vocabulary: int = 32_768) -> int:
    with torch.device("meta"):
        return count_parameters(build_model(section, vocabulary, vocabulary, True))


def both(**mixer) -> dict:
    return {side: {"mixer": mixer} for side in ("encoder", "decoder")}


def sized(by: str, to, **mixer) -> dict:
    return both(**mixer) | {"match_parameters": {"to": to, "by": by}}


# Table 2, with a shared vocabulary of 32K pieces; the ablations and Sun and Iyyer's model are sized to multiNN's.
TABLE_2 = {
    "self-attention": ("transformer-base", 61),
    "local attention": (both(kind="local", n=12), 61),
    "Sun and Iyyer": (sized("hidden", {"preset": "multinn-base"}, kind="nplm", n=5), 62),
    "multiNN": ("multinn-base", 62),
    "multiNN, one head": (
        {"preset": "multinn-base", "encoder": {"mixer": {"heads": 1}}, "decoder": {"mixer": {"heads": 1}},
         "match_parameters": {"to": {"preset": "multinn-base"}, "by": "head_dim"}}, 62,
    ),
    "multiNN, no global vector": (
        {"preset": "multinn-base", "encoder": {"mixer": {"global_context": False}},
         "match_parameters": {"to": {"preset": "multinn-base"}, "by": "feed_forward"}}, 62,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", thinned(TABLE_2, 3))
def test_parameters_of_table_2(name):
    section, millions = TABLE_2[name]
    assert round(total(section) / 1e6) == millions


@pytest.mark.parametrize(
    "section", [{}, both(kind="local", n=11), "multinn-speech"], ids=["attention", "local", "multiNN"]
)
def test_parameters_of_table_6(section):
    """Speech: 80 bins, 10K pieces; the two convolutions have 80 to 1024 and 512 to 1024 channels of kernel 5."""
    config = model_section({"front_end": {}} | section if isinstance(section, dict) else section)
    with torch.device("meta"):
        model = build_model(config, 80, 10_000, False)
    front_end = nn.ModuleList([nn.Conv1d(80, 1024, 5), nn.Conv1d(512, 1024, 5)])
    assert count_parameters(model.source_embedding) == count_parameters(front_end)
    assert round(count_parameters(model) / 1e6) == 52


SIZES = [
    ("feed_forward", {"kind": "nplm", "n": 2}),
    ("n", {"kind": "ngram"}),
    ("head_dim", {"kind": "ngram", "heads": 1}),
    ("hidden", {"kind": "nplm"}),
]


@pytest.mark.parametrize(("by", "mixer"), thinned(SIZES, 4), ids=str)
def test_sizes_come_within_one_percent(by, mixer):
    small = {"preset": "transformer-small"} | both(kind="attention")
    goal = total(small, 1000)
    for to in (goal, small):
        found = total({"preset": "transformer-small"} | sized(by, to, **mixer), 1000)
        assert found != total({"preset": "transformer-small"} | both(**mixer), 1000)
        assert abs(found - goal) <= 0.01 * goal


@pytest.mark.parametrize(("share", "goal"), thinned([(0.5, 500_000), (1.0, 500_000), (1.0, 136_000)], 3, 2))
def test_sizes_that_are_too_small_for_a_model_are_passed_over(share, goal):
    section = {"dim": 16, "heads": 2, "position": {"kind": "rotary", "share": share}, "feed_forward": 16}
    match = {"to": goal, "by": "head_dim", "within": 0.05}
    assert abs(total(section | both(kind="attention") | {"match_parameters": match}, 1000) - goal) <= 0.05 * goal


def test_what_no_size_mends_is_said():
    section = {"dim": 16, "heads": 2, "position": {"kind": "rotary", "share": 1e-6}}
    with pytest.raises(UserError, match="leaves no pair to rotate"):
        total(section | sized("head_dim", 10**6, kind="attention"), 1000)


def test_what_cannot_be_matched_is_said():
    with pytest.raises(
        UserError, match=r"no feed_forward gives 1,000 parameters .*\n?.*model.match_parameters|within 1 %"
    ):
        total({"preset": "transformer-tiny", "match_parameters": 1000})
    with pytest.raises(UserError, match="no mixer of this model has a n"):
        total({"preset": "transformer-tiny", "match_parameters": {"to": 10**7, "by": "n"}})


def test_a_recipe_names_another(tmp_path):
    rest = "data: {train: {tsv: train.tsv}}\ntraining: {updates: 1}\n"
    (tmp_path / "small.yaml").write_text(f"{rest}model: transformer-small\n")
    (tmp_path / "ngram.yaml").write_text(
        f"{rest}model: {{preset: transformer-small, encoder: {{mixer: ngram}}, match_parameters: small.yaml}}\n"
    )
    recipe = load_recipe(tmp_path / "ngram.yaml")
    assert recipe.model.match_parameters.to["dim"] == 256
    goal = total("transformer-small", 500)
    assert abs(total(recipe.model.model_dump(), 500) - goal) <= 0.01 * goal


def test_a_path_is_that_of_the_recipe_it_stands_in(tmp_path):
    rest = "data: {train: {tsv: train.tsv}}\ntraining: {updates: 1}\n"
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "small.yaml").write_text(f"{rest}model: {{preset: transformer-small, dim: 128}}\n")
    (tmp_path / "folder" / "ngram.yaml").write_text(
        "base: small.yaml\nmodel: {encoder: {mixer: ngram}, match_parameters: small.yaml}\n"
    )
    (tmp_path / "mine.yaml").write_text("base: folder/ngram.yaml\ntraining: {updates: 2}\n")
    assert load_recipe(tmp_path / "mine.yaml").model.match_parameters.to["dim"] == 128


def test_a_model_that_writes_no_sequences_is_refused():
    with pytest.raises(UserError, match=r"model\.kind: this model writes no sequences; received 'tagger'"):
        build_model({"kind": "tagger", "encoder": "bert"}, 9, 9, True)
