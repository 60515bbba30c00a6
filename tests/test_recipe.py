"""The recipe: every mistake is named with its key before any work, and what is right survives being written down."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from hypothesis import given
from hypothesis import strategies as st

from headway.core.config import merge
from headway.core.errors import UserError
from headway.formats.corpus_config import parse_corpus
from headway.models import PRESETS, build_model, model_section
from headway.models.matching import count_parameters
from headway.recipe import Recipe, apply_overrides, changed_keys, dump_recipe, load_recipe, parse_recipe, read_tree
from headway.training.start import check_recipe

TREE: dict[str, Any] = {"data": {"train": {"tsv": "train.tsv"}}, "training": {"updates": 10}}


def parse(**changes: Any) -> Recipe:
    return parse_recipe(merge(TREE, changes))


def written(folder: Path, text: str | None = None) -> Path:
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(TREE) if text is None else text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"modle": {}}, "modle: unknown key; did you mean 'model'?; allowed: task, data, text,"),
        ({"model": {"encoder": {"layer": 2}}}, "model.encoder.layer: unknown key; did you mean 'layers'?"),
        ({"data": {"dev": {"tsv": "x", "colums": 1}}}, "data.dev.colums: unknown key; did you mean 'columns'?"),
        ({"training": {"zzz": 2}}, "training.zzz: unknown key; allowed: updates, epochs"),
        (
            {"model": {"dim": "wide"}},
            "model.dim: input should be a valid integer",
        ),
        ({"model": {"dim": 0}}, "model.dim: input should be greater than 0; received 0"),
        ({"model": {"dropout": 1.0}}, "model.dropout: input should be less than 1; received 1.0"),
        ({"model": {"norm": "middle"}}, "model.norm: input should be 'post' or 'pre'; received 'middle'"),
        ({"model": []}, "model: input should be a valid dictionary"),
        ({"model": None}, "model: input should be a valid dictionary"),
        ({"model": "transformer-bsae"}, "model: unknown preset 'transformer-bsae'; allowed: transformer-base,"),
        ({"model": {"preset": ["transformer-base"]}}, "model: unknown preset ['transformer-base']"),
        ({"model": {"match_parameters": [1]}}, "model.match_parameters.to: input should be a valid integer"),
        ({"data": {"dev": {"source": 0, "target": "x"}}}, "data.dev.source: input is not a valid path for"),
        ({"model": {"heads": 3}}, "model: heads (3) do not divide dim (512); set head_dim"),
        (
            {"model": {"encoder": {"layers": 3, "mixer": ["attention", "attention"]}}},
            "model.encoder: mixer is a list of 2 for 3 layers; give one per layer",
        ),
        ({"model": {"encoder": {"mixer": 3}}}, "model.encoder.mixer"),
        ({"data": {"train": {"jsonl": "x", "columns": ["a", "b"]}}}, "data.train: a corpus is either"),
        ({"data": {"dev": {}}}, "data.dev: a corpus is either"),
        (
            {"data": {"dev": {"source": "x"}}},
            "data.dev: a corpus of several files needs a source, and a target or references",
        ),
        ({"data": {"dev": {"jsonl": "x"}}}, "data.dev.columns: this key is needed"),
        ({"data": {"dev": {"tsv": "x", "columns": [0, 1]}}}, "data.dev.columns.0: input should be greater than 0"),
        ({"text": {"source": {"normalise": ["nfk"]}}}, "text.source.normalise.0: input should be 'nfkc'"),
        ({"vocabulary": {"size": 4}}, "vocabulary.size: input should be greater than 4"),
        ({"training": {"updates": None}}, "training: give updates, epochs or minutes"),
        (
            {"training": {"checkpoint_every": 20, "evaluate_every": 30}},
            "training: evaluate_every must be a multiple of checkpoint_every",
        ),
        ({1: 2}, "1: keys should be strings"),
        ({"data": {"lead": [{"n": 8}]}}, "data.lead.0.count: this key is needed"),
        ({"data": {"parses": {"source": {"kind": "spacy", "model": "x", "whitespaces": "none"}}}}, "did you mean"),
        ({"model": {"kind": ["x"]}}, "model.kind: the name of a model should be text"),
        ({"model": {"kind": {"a": 1}}}, "model.kind: the name of a model should be text"),
        ({"model": {"position": {"kind": ["a"]}}}, "model.position: kind should be text"),
        ({"model": {"encoder": {"mixer": {"kind": 3}}}}, "model.encoder.mixer: kind should be text"),
        ({"training": {"dev_metrics": [{"name": ["x"]}]}}, "training.dev_metrics: name should be text"),
        ({"training": {"dev_metrics": [{"name": 5}]}}, "training.dev_metrics: name should be text"),
        ({"text": {"source": {"segment": {"a": 2}}}}, "text.source.segment: a segmenter needs a kind"),
        ({"vocabulary": {"kind": [1]}}, "vocabulary.kind: the name of a vocabulary should be text"),
        ({"vocabulary": {"size": 10**12}}, "vocabulary.size: input should be less than or equal to"),
        ({"vocabulary": {"character_coverage": 0.5}}, "vocabulary.character_coverage: input should be greater"),
        ({"training": {"seed": 2**64}}, "training.seed: input should be less than"),
        ({"model": {"dim": 10**6}}, "model.dim: input should be less than or equal to 65536"),
        ({"model": {"heads": True}}, "model.heads: input should be a number, not true or false"),
        ({"decoding": {"beam": 99999999999}}, "decoding.beam: input should be less than or equal to"),
        ({"decoding": {"length_penalty": 1e308}}, "decoding.length_penalty: input should be less than or equal to"),
        ({"optimizer": {"learning_rate": math.inf}}, "learning_rate"),
        ({"optimizer": {"learning_rate": math.nan}}, "learning_rate"),
    ],
)
def test_mistakes_are_named_with_their_full_key(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as error:
        parse_recipe(merge(TREE, changes))
    assert message in str(error.value)
    assert "Value error" not in str(error.value)


def test_missing_keys_and_several_mistakes_are_all_listed() -> None:
    with pytest.raises(UserError) as error:
        parse_recipe({"model": {"dim": -1}, "trainin": {}})
    lines = str(error.value).splitlines()
    assert {line.partition(":")[0] for line in lines} == {"data", "training", "model.dim", "trainin"}
    assert "data: this key is needed" in lines


def test_mistakes_of_an_optimizer_its_schedule_and_lengths_are_listed_with_the_others() -> None:
    with pytest.raises(UserError) as error:
        parse(
            optimizer={"bet": 1, "schedule": {"kind": "step", "fator": 0.5}},
            decoding={"min_length": 10, "max_length": 5},
            training={"updaes": 3},
        )
    told = str(error.value).split("\n")
    assert [line.partition(": ")[0] for line in told] == [
        "optimizer.schedule.fator", "training.updaes", "decoding.min_length",
    ]  # fmt: skip
    with pytest.raises(
        UserError, match=r"^optimizer\.bet: unknown key; did you mean 'betas'\?(?s:.*)\ntraining\.updaes: "
    ):
        parse(optimizer={"bet": 1}, training={"updaes": 3})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("task: x\ndata: {train\ntraining: 1\n", r"recipe\.yaml:3: this is not YAML"),
        ("- a\n- b\n", r"recipe\.yaml: a recipe is a mapping of keys to values; received 'list'"),
    ],
)
def test_a_file_that_is_no_mapping_is_refused_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        load_recipe(written(tmp_path, text))


def test_a_recipe_begins_from_its_base(tmp_path: Path) -> None:
    (tmp_path / "variants").mkdir()
    written(tmp_path)
    variant = tmp_path / "variants" / "ngram.yaml"
    variant.write_text("base: ../recipe.yaml\nmodel: {encoder: {mixer: {kind: ngram, n: 3}}}\n")
    further = tmp_path / "further.yaml"
    further.write_text("base: variants/ngram.yaml\ntraining: {updates: 11}\n")
    recipe = load_recipe(further, ["model.dim=64"])
    assert recipe.model.encoder.mixers()[0] == {"kind": "ngram", "n": 3}
    assert (recipe.training.updates, recipe.model.dim) == (11, 64)
    assert load_recipe(variant).training.updates == 10
    assert "base" not in yaml.safe_load(dump_recipe(recipe))


@pytest.mark.parametrize(
    ("base", "message"),
    [
        ("again.yaml", "more than 20 recipes begin from each other"),
        ("3", "the path of another; received 3"),
        ("none.yaml", "cannot read the recipe"),
    ],
)
def test_a_base_must_be_another_recipe(tmp_path: Path, base: str, message: str) -> None:
    recipe = tmp_path / "again.yaml"
    recipe.write_text(f"base: {base}\n")
    with pytest.raises(UserError, match=message):
        load_recipe(recipe)


def test_overrides_win_and_reach_every_depth(tmp_path: Path) -> None:
    recipe = load_recipe(
        written(tmp_path),
        ["training.updates=7", "model=transformer-small", "model.dim=128", "model.encoder.mixer.kind=attention",
         "optimizer.betas=[0.8, 0.9]", "training.updates=8", "data.max_ratio=", "optimizer.learning_rate=1e-3",
         "training.dev_metrics=[bleu, {name: chrf, word_order: 2}]"],
    )  # fmt: skip
    assert recipe.training.updates == 8
    assert (recipe.model.dim, recipe.model.feed_forward, recipe.model.encoder.layers) == (128, 1024, 3)
    assert recipe.optimizer.betas == (0.8, 0.9)
    assert recipe.optimizer.learning_rate == 1e-3
    assert recipe.data.max_ratio is None
    assert recipe.training.dev_metrics == ({"name": "bleu"}, {"name": "chrf", "word_order": 2})


def test_an_override_below_null_makes_the_section() -> None:
    tree: dict[str, Any] = {"data": {"dev": None}}
    apply_overrides(tree, ["data.dev.tsv=dev.tsv"])
    assert tree == {"data": {"dev": {"tsv": "dev.tsv"}}}
    apply_overrides(tree, "data.dev.tsv=test.tsv")  # one alone
    assert tree == {"data": {"dev": {"tsv": "test.tsv"}}}


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("training.updates", "training.updates: an override is key.path=value"),
        ("=3", "=3: an override is key.path=value"),
        ("model.dim=[1", "model.dim=[1: the value of this override is not YAML"),
        ("training.updates.more=3", "updates holds a value, not keys; received 10"),
        ("training.update=3", "training.update: unknown key; did you mean 'updates'?"),
        ("model..dim=3", "model.: unknown key"),
    ],
)
def test_bad_overrides(tmp_path: Path, override: str, message: str) -> None:
    with pytest.raises(UserError) as error:
        load_recipe(written(tmp_path), [override])
    assert message in str(error.value)


@pytest.mark.parametrize("name", PRESETS)
def test_presets_stand_for_their_sizes(name: str) -> None:
    assert parse(model=name).model == parse(model={"preset": name}).model == parse(model=PRESETS[name]).model


def test_the_sizes_of_the_paper() -> None:
    base, big = parse(model="transformer-base").model, parse(model="transformer-big").model
    sizes = [(each.dim, each.feed_forward, each.heads, each.dropout, each.encoder.layers) for each in (base, big)]
    assert sizes == [(512, 2048, 8, 0.1, 6), (1024, 4096, 16, 0.3, 6)]


def test_a_preset_with_changes_keeps_the_rest() -> None:
    model = parse(
        model={"preset": "transformer-small", "decoder": {"mixer": {"kind": "attention"}}, "norm": "pre"}
    ).model
    assert (model.norm, model.dim, model.decoder.layers) == ("pre", 256, 3)
    assert model.decoder.mixers() == [{"kind": "attention"}] * 3


def test_one_mixer_a_layer() -> None:
    stack = parse(model={"encoder": {"layers": 2, "mixer": ["attention", {"kind": "local", "width": 3}]}}).model.encoder
    assert stack.mixers() == [{"kind": "attention"}, {"kind": "local", "width": 3}]


def test_paths_are_looked_for_here_then_beside_the_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, beside, folder = (tmp_path / name for name in ("here", "beside", "folder"))
    for each in (here, beside, folder):
        each.mkdir()
    monkeypatch.chdir(here)
    recipe = written(beside)

    def train(*overrides: str) -> Path:
        path: Path = load_recipe(recipe, overrides).data.train.path  # type: ignore[union-attr]
        return path

    assert train() == here / "train.tsv"  # found nowhere: the message names the current folder
    (beside / "train.tsv").touch()
    assert train() == beside / "train.tsv"
    (here / "train.tsv").touch()
    assert train() == here / "train.tsv"
    assert train(f"data.folder={folder}") == folder / "train.tsv"
    assert train(f"data.train.tsv={beside / 'train.tsv'}", f"data.folder={folder}") == beside / "train.tsv"
    loaded = load_recipe(recipe, [f"data.folder={folder}", "data.dev={source: a, target: b}"])
    assert loaded.data.dev == parse_corpus({"source": folder / "a", "target": folder / "b"}, "data.dev")
    assert loaded.data.folder is None


rates = st.floats(1e-8, 1.0, exclude_min=True) | st.sampled_from([5e-324, 7e-4])
TREES = st.fixed_dictionaries(
    {
        "task": st.text(st.characters(exclude_categories=["Cs"])),
        "data": st.fixed_dictionaries(
            {
                "train": st.sampled_from([
                    {"tsv": "train é.tsv", "columns": [2, 1]}, {"source": "no", "target": "1e3"},
                    {"jsonl": "x", "columns": ["translation.de", "1"]},
                    {"hub": "a/b", "split": "null", "columns": ["a", "b"]},
                ]),
                "max_ratio": st.none() | st.floats(1, 100, exclude_min=True),
            }
        ),
        "model": st.sampled_from(
            [
                "transformer-tiny", {"dim": 6, "heads": 4, "head_dim": 5},
                {"encoder": {"layers": 1, "mixer": ["attention"]}},
            ]
        ),
        "optimizer": st.fixed_dictionaries({"learning_rate": rates | st.just(1e22), "epsilon": rates}),
        "training": st.fixed_dictionaries(
            {"minutes": rates, "seed": st.integers(0, 2**63 - 1), "clip_norm": st.none() | rates}
        ),
    }
)  # fmt: skip


@given(TREES)
def test_a_recipe_that_is_written_reads_the_same(tree: dict[str, Any]) -> None:
    recipe = parse_recipe(tree)
    again = parse_recipe(yaml.safe_load(dump_recipe(recipe)))
    assert again == recipe
    assert changed_keys(recipe, again) == {}


def test_what_is_written_has_every_key() -> None:
    tree = yaml.safe_load(dump_recipe(parse(model="transformer-tiny")))
    assert tree["model"]["dim"] == 128
    assert tree["decoding"]["beam"] == 4
    assert "preset" not in tree["model"]


def test_changed_keys_have_both_values() -> None:
    before = parse()
    after = parse(model={"dim": 64, "encoder": {"layers": 2}}, data={"dev": {"tsv": "dev.tsv"}})
    changes = changed_keys(before, after)
    assert changes["model.dim"] == (512, 64)
    assert changes["model.encoder.layers"] == (6, 2)
    assert changes["data.dev.path"] == (None, "dev.tsv")
    assert "training.updates" not in changes
    assert changed_keys(before, parse()) == {}


@pytest.mark.parametrize(
    "mixer", [":X", ".x:y", {"kind": "attention", "head_dim": -1}, {"kind": "attention", "dropout": 2}]
)
def test_mixers_that_cannot_be_are_found_before_the_work(mixer: Any) -> None:
    recipe = parse(model={"encoder": {"mixer": mixer}})
    with pytest.raises(UserError, match=r"model\.encoder\.mixer"):
        check_recipe(recipe)


def test_the_recipe_of_a_run_has_no_base(tmp_path: Path) -> None:
    path = written(tmp_path, "base: other.yaml\n")
    with pytest.raises(UserError, match="the recipe of a run has no base"):
        read_tree(path, alone=True)


def test_recipes_do_not_match_each_others_parameters(tmp_path: Path) -> None:
    path = written(tmp_path, yaml.safe_dump(TREE | {"model": {"match_parameters": "recipe.yaml"}}))
    with pytest.raises(UserError, match="recipes cannot match each other's parameters"):
        load_recipe(path)


@pytest.mark.parametrize("value", ["010", "2024-99-99x: [", "!!int x"])
def test_overrides_are_read_as_recipes_are(tmp_path: Path, value: str) -> None:
    with pytest.raises(UserError, match=r"^vocabulary\.size="):
        load_recipe(written(tmp_path), [f"vocabulary.size={value}"])


@pytest.mark.parametrize(
    ("to", "message"),
    [
        ({"activation": math.inf}, "match_parameters.to: model.activation: input should be 'relu', 'gelu' or 'swish'"),
        ({"kind": "tagger", "encoder": "x"}, "parameters of this kind of model cannot be matched; received 'tagger'"),
    ],
)
def test_a_model_that_is_matched_is_checked(to: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as error:
        load_recipe(TREE | {"model": {"match_parameters": {"to": to}}})
    assert message in str(error.value)


@pytest.mark.slow
def test_a_recurrent_model_can_be_matched() -> None:
    recipe = load_recipe(TREE | {"model": {"dim": 32, "heads": 2, "match_parameters": {"to": {"kind": "recurrent"}}}})
    assert recipe.model_dump(mode="json")["model"]["match_parameters"]["to"]["kind"] == "recurrent"
    with torch.device("meta"):
        sized, other = (count_parameters(build_model(model_section(section), 100, 100, False))
                        for section in (recipe.model, {"kind": "recurrent"}))  # fmt: skip
    assert sized == pytest.approx(other, rel=0.01)


@pytest.mark.parametrize("tree", [{"model": "9" * 5000}, {"9" * 5000: 1}, {"task": "9" * 5000}])
def test_a_message_stays_short(tree: dict[str, Any]) -> None:
    with pytest.raises(UserError) as error:
        check_recipe(load_recipe(TREE | tree))
    assert 100 < len(str(error.value)) < 2500
