"""Grids are read with all that they may say, and every mistake in one is named before any work."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headway.core.errors import UserError
from headway.grids.grid import load_grid
from headway.models import StackedConfig
from headway.processing.text.text_processor import PreparationConfig
from tests.grids.grids import GRID, write_grid

RATES = {"key": "optimizer.learning_rate", "values": [0.01, 0.02], "on": {"tsv": "dev.tsv"}}
TUNE = RATES | {"updates": 2, "by": "variant"}


def test_variants_are_recipes_or_changes_by_key_path(tmp_path: Path) -> None:
    grid = load_grid(write_grid(tmp_path))
    attention, local, ngram = (variant.recipe.model for variant in grid.variants)
    assert [variant.name for variant in grid.variants] == ["attention", "local", "ngram"]
    mixers = [model.encoder.mixer for model in (attention, local, ngram)]  # type: ignore[attr-defined]
    assert mixers == [{"kind": "attention"}, {"kind": "local", "n": 3}, {"kind": "ngram", "n": 2}]


def test_there_are_five_seeds_where_none_are_named(tmp_path: Path) -> None:
    assert load_grid(write_grid(tmp_path, seeds=None)).config.seeds == (1, 2, 3, 4, 5)


def test_cells_are_variants_by_seeds(tmp_path: Path) -> None:
    grid = load_grid(write_grid(tmp_path))
    cells = [cell for variant in grid.variants for cell in grid.cells(grid.groups_of(variant)[0])]
    assert [cell.name for cell in cells] == [f"{name}-{seed}" for name in GRID["variants"] for seed in (1, 2)]
    assert [cell.recipe.training.seed for cell in cells] == [1, 2] * 3
    assert {cell.recipe.training.updates for cell in cells} == {6}
    assert grid.tests[0].name == "test"
    assert grid.tests[0].corpus.path == tmp_path / "test.tsv"  # type: ignore[union-attr]


def test_corpora_are_looked_for_beside_each_recipe_and_then_beside_the_grid(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    path = write_grid(tmp_path, variants={"base": {}, "moved": "own/moved.yaml"})
    (own / "moved.yaml").write_text((tmp_path / "base.yaml").read_text())
    (own / "train.tsv").write_text("a b\tb a\n")
    (tmp_path / "train.tsv").write_text("a b c\tc b a\n")
    base, moved = (variant.recipe.data.corpora() for variant in load_grid(path).variants)
    assert base["data.train"].path == tmp_path / "train.tsv"  # type: ignore[union-attr]
    assert moved["data.train"].path == own / "train.tsv"  # type: ignore[union-attr]
    assert moved["data.dev"].path == tmp_path / "dev.tsv"  # type: ignore[union-attr]


def test_overrides_change_the_grid_or_all_recipes(tmp_path: Path) -> None:
    grid = load_grid(write_grid(tmp_path), ["seeds=[7]", "training.updates=3", "model.dim=8", "margin.chrf=2"])
    cells = [cell for variant in grid.variants for cell in grid.cells(grid.groups_of(variant)[0])]
    assert [(cell.seed, cell.recipe.training.updates, cell.recipe.model.width()) for cell in cells] == [(7, 3, 8)] * 3
    assert grid.config.margin == {"chrf": 2}
    for_all = load_grid(write_grid(tmp_path, overrides={"training.updates": 5, "optimizer": {"warmup": 1}}))
    for variant in for_all.variants:
        assert (variant.recipe.training.updates, variant.recipe.training.batch_tokens) == (5, 128)
        assert (variant.recipe.optimizer.warmup, variant.recipe.optimizer.learning_rate) == (1, 1e-2)


def test_tuning_runs_are_short_and_the_same_for_all(tmp_path: Path) -> None:
    grid = load_grid(write_grid(tmp_path, tune=TUNE))
    for variant in grid.variants:
        runs = grid.tuning_runs(grid.groups_of(variant)[0])
        assert [run.name for run in runs] == [f"{variant.name}-0.01-1", f"{variant.name}-0.02-1"]
        assert [run.recipe.optimizer.learning_rate for run in runs] == [0.01, 0.02]
        assert {(run.recipe.training.updates, run.recipe.training.seed) for run in runs} == {(2, 1)}
        assert {cell.recipe.optimizer.learning_rate for cell in grid.cells(grid.groups_of(variant)[0], 0.02)} == {0.02}


@pytest.mark.parametrize(("updates", "told"), [(2, True), (3, False)])
def test_short_runs_within_the_warm_up_are_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, updates: int, told: bool
) -> None:
    load_grid(write_grid(tmp_path, tune=RATES | {"updates": updates}, variants={"a": {}, "n": "ngram.yaml"}))
    shown = ["reach none of the learning rates" in message for message in caplog.messages]
    assert shown == [True] * 2 * told


def test_values_are_tried_with_seeds_of_their_own(tmp_path: Path) -> None:
    grid = load_grid(write_grid(tmp_path, tune=TUNE | {"seeds": [8, 9]}))
    for variant in grid.variants:
        runs = grid.tuning_runs(grid.groups_of(variant)[0])
        assert [(run.value, run.seed, run.recipe.training.seed) for run in runs] == [
            (0.01, 8, 8), (0.01, 9, 9), (0.02, 8, 8), (0.02, 9, 9),
        ]  # fmt: skip
        assert len({run.name for run in runs}) == 4
        assert [cell.seed for cell in grid.cells(grid.groups_of(variant)[0], 0.02)] == list(grid.config.seeds)


@pytest.mark.parametrize(
    ("ends", "short", "share"),
    [
        ({"updates": 7}, {"updates": 4}, 4 / 7),
        ({"updates": 8, "epochs": 6}, {"updates": 4, "epochs": 3}, 0.5),
        ({"updates": 8, "minutes": 3.0}, {"updates": 4, "minutes": 1.5}, 0.5),
    ],
)
def test_short_runs_are_half_as_long_where_nothing_is_said(
    tmp_path: Path, ends: dict[str, Any], short: dict[str, Any], share: float
) -> None:
    grid = load_grid(write_grid(tmp_path, tune=RATES, overrides={"training": ends}))
    for variant in grid.variants:
        groups = grid.groups_of(variant)
        assert [(group.seeds, group.tuning_seeds, group.seed) for group in groups] == [((1,), (1,), 1), ((2,), (2,), 2)]
        for run in grid.tuning_runs(groups[1]):
            found = {end: getattr(run.recipe.training, end) for end in ("updates", "epochs", "minutes")}
            assert {end: value for end, value in found.items() if value is not None} == short
            assert run.recipe.training.seed == 2
        assert grid.short_share(variant) == share


def test_seeds_of_tuning_are_those_of_a_variant(tmp_path: Path) -> None:
    grid = load_grid(write_grid(tmp_path, tune=RATES | {"seeds": [8, 9]}))
    assert [group.tuning_seeds for group in grid.groups_of(grid.variants[0])] == [(8, 9)]


def test_the_key_on_is_read_although_yaml_takes_it_for_true(tmp_path: Path) -> None:
    path = write_grid(tmp_path)
    tune = "tune: {key: optimizer.learning_rate, values: [0.01, 0.02], on: {tsv: dev.tsv}, updates: 2}\n"
    path.write_text(path.read_text() + tune)
    tuning_set = load_grid(path).tuning_set
    assert tuning_set is not None
    assert tuning_set.corpus.path == tmp_path / "dev.tsv"  # type: ignore[union-attr]


@pytest.mark.parametrize("given", [True, "1%", {"to": "attention", "by": "feed_forward"}])
def test_parameters_are_matched_to_the_first_variant(tmp_path: Path, given: Any) -> None:
    attention, local, ngram = load_grid(write_grid(tmp_path, match_parameters=given)).variants
    assert isinstance(attention.recipe.model, StackedConfig)
    assert attention.recipe.model.match_parameters is None
    for variant in (local, ngram):
        assert isinstance(variant.recipe.model, StackedConfig)
        match = variant.recipe.model.match_parameters
        assert match is not None
        assert (match.to, match.within) == (attention.recipe.model.model_dump(mode="json"), 0.01)


VARIANTS: dict[str, Any] = GRID["variants"]
HUB = {"hub": "some/set", "split": "validation", "columns": ["a", "b"]}
MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown key": ({"seed": [1]}, r"seed: unknown key; did you mean 'seeds'\?"),
    "an empty list of seeds": ({"seeds": []}, "seeds: "),
    "a seed twice": ({"seeds": [1, 1]}, "two cells of one name; received 'attention-1, attention-1'"),
    "names that differ by case": ({"variants": {"A": {}, "a": "ngram.yaml"}}, "two cells of one name"),
    "two short runs of one name": (
        {"tune": TUNE | {"values": ["de", "DE"], "key": "text.source.language"}},
        "two cells of one name; received 'attention-de-1, attention-DE-1'",
    ),
    "no variants": ({"variants": {}}, "variants: "),
    "a name that is a path": ({"variants": {"a/b": {}}}, r"variants\.a/b: string should match pattern"),
    "a variant that does not differ": (
        {"variants": VARIANTS | {"same": {"model.dim": 16}}},
        "variants.same: this variant does not differ from attention",
    ),
    "a variant that differs in what it logs": (
        {"variants": VARIANTS | {"same": {"training.log_every": 3}}},
        "variants.same: this variant does not differ from attention",
    ),
    "an unknown key of a recipe": (
        {"variants": VARIANTS | {"wrong": {"model.encoder.mixr": "local"}}},
        r"variants.wrong: model.encoder.mixr: unknown key; did you mean 'mixer'\?",
    ),
    "an unknown mixer": (
        {"variants": VARIANTS | {"wrong": {"model.encoder.mixer": "loca"}}},
        "variants.wrong: (.|\n)*unknown mixer; did you mean 'local'",
    ),
    "a recipe that is not there": ({"variants": VARIANTS | {"wrong": "none.yaml"}}, "variants.wrong: .*cannot read"),
    "a recipe that is no path": ({"variants": VARIANTS | {"wrong": {"recipe": 5}}}, "wrong: a variant begins"),
    "no recipe": ({"recipe": None}, "variants.attention: a variant begins from a recipe"),
    "a seed of a variant's own": (
        {"variants": VARIANTS | {"lucky": {"training.seed": 3}}},
        "variants.lucky: training.seed: the grid itself sets this key",
    ),
    "a seed in a section of a variant": (
        {"variants": VARIANTS | {"lucky": {"training": {"seed": 3}}}},
        "variants.lucky: training.seed: the grid itself sets this key",
    ),
    "a seed for all": ({"overrides": {"training.seed": 3}}, "training.seed: the grid itself sets this key"),
    "a tuned key for all": (
        {"tune": TUNE, "overrides": {"optimizer": {"learning_rate": 0.5}}},
        "optimizer.learning_rate: the grid itself sets this key",
    ),
    "variants of other tasks": (
        {"variants": VARIANTS | {"other": {"task": "summarization"}}},
        "variants.other: variants of one task are compared",
    ),
    "an unknown baseline": ({"baseline": "atention"}, "baseline: no such variant as atention; did you mean"),
    "a model that cannot be sized": (
        {"match_parameters": True, "variants": VARIANTS | {"lstm": {"model": "luong"}}},
        "variants.lstm",
    ),
    "an unknown metric": ({"metrics": ["bluee"]}, r"unknown metric; did you mean 'bleu'\?"),
    "a metric twice": ({"metrics": ["chrf", "chrf"]}, "metrics: two metrics of one name"),
    "a metric of other outputs": (
        {"metrics": ["bracket-f1"]},
        "metrics: this metric scores trees, and the outputs are text; received 'bracket-f1'; allowed: bleu",
    ),
    "a metric of other outputs for one set": (
        {"test": {"held": {"corpus": {"tsv": "test.tsv"}, "metrics": ["f0.5"]}}},
        "test.held.metrics: this metric scores labels",
    ),
    "a margin of no metric": ({"margin": {"bleu": 1}}, "margin.bleu: no such metric here"),
    "a negative margin": ({"margin": {"chrf": -1}}, "margin.chrf"),
    "two test sets of one name": (
        {"test": [{"tsv": "test.tsv"}, {"tsv": "test.tsv", "columns": [2, 1]}]},
        "test: two test sets of one name; received 'test'; allowed: test: {NAME: CORPUS",
    ),
    "no test": ({"test": None}, "test: this key is needed"),
    "a corpus that is none": ({"test": [{"tvs": "test.tsv"}]}, "test"),
    "tuning on a reported split": (
        {"tune": TUNE | {"on": {"tsv": "test.tsv"}}},
        "tune.on: the test set test reports this split",
    ),
    "tuning on dev, which is reported": (
        {"tune": {key: value for key, value in TUNE.items() if key != "on"}, "test": {"held": {"tsv": "dev.tsv"}}},
        "tune.on: the test set held reports this split",
    ),
    "one value to tune": ({"tune": TUNE | {"values": [1]}}, "tune.values"),
    "values that do not differ": (
        {"tune": TUNE | {"values": [0.01, "1.0e-2"]}},
        "tune.values: two of the values make the same recipe",
    ),
    "a seed of tuning twice": (
        {"tune": TUNE | {"seeds": [2, 2]}},
        "tune.values, tune.seeds or variants: two cells of one name; received 'attention-0.01-2, attention-0.01-2'",
    ),
    "seeds of tuning by seed": (
        {"tune": TUNE | {"by": "seed", "seeds": [2]}},
        "tune: by: seed tries each value with the seed of the cell",
    ),
    "no seed of tuning": ({"tune": TUNE | {"seeds": []}}, "tune.seeds: "),
    "a tuned end of training": ({"tune": TUNE | {"key": "training.updates"}}, "tune.key: this key is not one to tune"),
    "a tuned key that changes no result": (
        {"tune": TUNE | {"key": "training.log_every"}},
        "tune.key: this key is not one to tune",
    ),
    "an unknown tuned key": ({"tune": TUNE | {"key": "optimizer.rate"}}, "variants.attention: optimizer.rate"),
    "a tuned key that a variant sets": (
        {"tune": TUNE, "variants": VARIANTS | {"fast": {"optimizer.learning_rate": 1}}},
        "variants.fast: optimizer.learning_rate: the grid itself sets this key",
    ),
    "a tuned key within a section that a variant sets": (
        {"tune": TUNE, "variants": VARIANTS | {"fast": {"optimizer": {"learning_rate": 1}}}},
        "variants.fast: optimizer.learning_rate: the grid itself sets this key",
    ),
    "one variant": ({"variants": {"attention": {}}}, "variants: dictionary should have at least 2 items"),
    "a variant that does not differ, with matched parameters": (
        {"variants": VARIANTS | {"same": {"model.dim": 16}}, "match_parameters": "1%"},
        "variants.same: this variant does not differ from attention",
    ),
    "no metrics": ({"metrics": []}, "metrics: a comparison needs at least one metric"),
    "no metrics of a test set": (
        {"test": {"test": {"corpus": {"tsv": "test.tsv"}, "metrics": []}}},
        "metrics: a comparison needs at least one metric",
    ),
    "zero twice": (
        {"tune": TUNE | {"key": "model.dropout", "values": [0, 0.0]}},
        "tune.values: two of the values make the same recipe",
    ),
    "tuning on a reported hub set": (
        {"tune": TUNE | {"on": HUB}, "test": {"test": HUB}}, "tune.on: the test set test reports this split"
    ),
    "more outputs than the beam has": (
        {"predict": {"nbest": 9}}, "variants.attention: predict: nbest: more outputs than the beam has"
    ),
    "a dictionary that is not there": (
        {"predict": {"unknown_words": "copy", "dictionary": "none.tsv"}}, "predict.dictionary: there is no such file"
    ),
    "prefixes": ({"predict": {"prefixes": ["a"]}}, "predict.prefixes: a grid's test sets are decoded without this"),
    "an unknown option of prediction": ({"predict": {"beem": 2}}, r"predict: beem: unknown key; did you mean 'beam'\?"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_named_before_any_work(tmp_path: Path, mistake: str) -> None:
    changes, message = MISTAKES[mistake]
    path = write_grid(tmp_path, **changes)
    with pytest.raises(UserError, match=message):
        load_grid(path)


def test_a_copy_of_the_tested_file_is_recognised(tmp_path: Path) -> None:
    path = write_grid(tmp_path, tune=TUNE | {"on": {"tsv": "copy.tsv"}})
    (tmp_path / "copy.tsv").write_bytes((tmp_path / "test.tsv").read_bytes())
    with pytest.raises(UserError, match="reports this split"):
        load_grid(path)


def test_two_variants_of_one_name_are_named(tmp_path: Path) -> None:
    path = write_grid(tmp_path, variants=None)
    path.write_text(path.read_text() + "variants: {a: {}, a: {model.dim: 8}}\n")
    with pytest.raises(UserError, match="the key 'a' stands here again"):
        load_grid(path)


def test_a_variant_keeps_what_it_says_is_to_be_sized(tmp_path: Path) -> None:
    sized = {"model.encoder.mixer": {"kind": "local", "n": 3}, "model.match_parameters": {"to": 9999, "by": "head_dim"}}
    _, local = load_grid(
        write_grid(tmp_path, match_parameters=True, variants={"attention": {}, "local": sized})
    ).variants
    assert isinstance(local.recipe.model, StackedConfig)
    match = local.recipe.model.match_parameters
    assert match is not None
    assert (match.by, match.to == 9999) == ("head_dim", False)


def test_an_unknown_override_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"sedes=\[1\]: unknown key; did you mean 'seeds'"):
        load_grid(write_grid(tmp_path), ["sedes=[1]"])


def test_references_are_normalised_where_all_variants_write_such(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lower, steps = {"text": {"target": {"normalise": ["lower"]}}}, "text.target.normalise"
    tune = {"key": steps, "values": [["lower"], ["nfkc"]], "updates": 2}
    for changes, wanted in (
        ({}, ""),
        ({"overrides": lower}, "lower"),
        ({"overrides": lower, "variants": {"a": {}, "b": {steps: ["lower", "nfkc"]}}}, None),
        ({"tune": tune}, None),
    ):
        caplog.clear()
        grid = load_grid(write_grid(tmp_path, **changes))
        tests = [*grid.tests, *([grid.tuning_set] if grid.tuning_set else [])]
        assert {test.written and ", ".join(test.written.normalise) for test in tests} == {wanted}
        assert ("references are scored as they stand" in caplog.text) == (wanted is None)
        assert {test.steps for test in tests} == {wanted or ""}


def test_results_by_other_references_are_other_results(tmp_path: Path) -> None:
    (test,) = load_grid(write_grid(tmp_path)).tests
    plain, lower = (PreparationConfig.model_validate({"normalise": steps}) for steps in ([], ["lower"]))
    prints = [replace(test, written=written).fingerprint() for written in (None, plain, lower)]
    assert prints[0] == prints[1] != prints[2]
