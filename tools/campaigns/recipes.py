"""Recipes with mistakes: in their text, in their tree, in overrides; also the recipes with every key written out."""

from __future__ import annotations

import copy
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import yaml
from hypothesis.strategies import SearchStrategy

from tools.campaigns.campaign import Campaign
from tools.campaigns.history import ROOT
from tools.campaigns.mutations import Change, changed, changes, expanded

FOLDER = ROOT / "recipes"


@dataclass(frozen=True)
class Edit:
    """A change to the tree of a recipe, at a share of its nodes; `key` and `value` are what some of them put there."""

    kind: str
    at: int  # thousandths
    key: str
    value: Any

    def apply(self, tree: Any) -> None:
        """Change the tree, unless nothing is left in it."""
        nodes = list(_nodes(tree))
        if not nodes:
            return
        holder, key = nodes[self.at * len(nodes) // 1000]
        old = holder[key]
        match self.kind:
            case "delete":
                del holder[key]
            case "set":
                holder[key] = copy.deepcopy(self.value)
            case "wrap":
                holder[key] = [old]
            case "name":
                holder[key] = {self.key: old}
            case "scale":
                number = isinstance(old, int | float) and isinstance(self.value, int | float)
                holder[key] = old * self.value if number else [old, self.value]
            case "add" if isinstance(old, dict):
                old[self.key] = self.value
            case "add":
                holder[key] = {self.key: self.value}
            case "rename" if isinstance(holder, dict):
                holder[self.key] = holder.pop(key)
            case "rename":
                holder[key] = self.key
            case "copy":
                other, name = nodes[(self.at + 137 * len(self.key)) % 1000 * len(nodes) // 1000]
                holder[key] = copy.deepcopy(other[name])


def _nodes(tree: Any) -> Iterator[tuple[Any, Any]]:
    """Every place in a tree that holds a value, as what holds it and the key there."""
    for key, value in list(tree.items() if isinstance(tree, dict) else enumerate(tree)):
        yield tree, key
        if isinstance(value, dict | list):
            yield from _nodes(value)


@dataclass(frozen=True)
class RecipeCase:
    """A recipe of the folder, or (`whole`) the same with every key written out, and what is changed in it."""

    recipe: str
    whole: bool
    edits: tuple[Edit, ...] = ()
    text: tuple[Change, ...] = ()
    overrides: tuple[str, ...] = ()
    twice: int = 0  # thousandths: the line of the text that stands twice, if any


def keys_twice(node: yaml.Node | None) -> bool:
    """Whether a key stands twice in one of the mappings of a document."""
    if isinstance(node, yaml.MappingNode):
        keys = [key.value for key, _ in node.value]
        return len(set(map(str, keys))) < len(keys) or any(keys_twice(value) for _, value in node.value)
    return isinstance(node, yaml.SequenceNode) and any(map(keys_twice, node.value))


SCALARS: tuple[Any, ...] = (
    0, 1, 2, 3, 8, -1, 0.5, 1.0, 2.5, -0.0, 1e-320, 1e38, 1e308, 100, 10**6, 2**31, 2**63, 2**64, 10**30, True, False,
    None, float("inf"), float("-inf"), float("nan"), "", " ", "a", "none", "null", "1", "010", "1:30", "0x10", "1e3",
    "2024-99-99", "yes", "~", "-", "*", "!", "ü", "日本語", "a\nb", "a\tb", "a\0b", "\x1b[31m", "\x85", "\u2028",
    "\ufeff", "\u202e", "\U0010ffff", "a" * 300, "a" * 5000, "/dev/zero", "/dev/null", "/proc/self/mem", "..", "/",
    "a/b", "base.yaml", "recipe.yaml", ":", ":X", "x:", ".x:y", "a:b:c", "os:system", "this:s",
    "headway.mixers.attention:Attention", "headway.core.errors:UserError", "builtins:dict", "__class__", "kind",
)  # fmt: skip
OVERRIDE_TEXTS = (
    "", "1", "-1", "0", "[]", "{}", "null", "nosuch", "true", "1e9", ".inf", ".nan", "2024-99-99", "!!int x", "0b",
    "010", "1:30", "[1, 2", "{a: 1, a: 2}", "&a [*a]", "*a", "!!python/object:os.system x", "'", '"', "\t", "a: b: c",
    "9" * 5000, "[" * 200, "{kind: attention}", "attention", "[attention, ngram]", "transformer-base", "| x", "%YAML",
    "@", "`", "!!binary aGVq", "!!set {a}", "? a", "- a", "<<: {a: 1}", "\x00", "\x1b[31m", "é",
)  # fmt: skip


class RecipesCampaign(Campaign[RecipeCase]):
    """Checks each recipe as training would before its work; what is right is written and read back."""

    name = "recipes"
    about = "recipes/, mutated: YAML text, trees, overrides; what is right is written and read back"
    quick, together = 100, 50

    def prepare(self, folder: Path) -> None:
        """Read all recipes, import all that checks them, and make a small encoder in the place of those on the hub."""
        os.environ["HF_HUB_OFFLINE"] = "1"  # before the import: a name that is no encoder is not asked for on the hub
        from headway.core.documents import dump_yaml
        from headway.core.registry import CATALOGUE, registry_of
        from headway.models import PRESETS
        from headway.recipe import flatten, load_recipe, read_tree
        from headway.training.start import check_recipe
        from tests.models.encoders import write_encoder

        encoder = write_encoder(folder / "encoder", hidden_size=24, max_position_embeddings=512)
        self.trees: dict[tuple[str, bool], dict[str, Any]] = {}
        self.texts: dict[str, str] = {}
        paths, kinds = set[str](), set[tuple[str, str]]()
        for path in sorted(FOLDER.rglob("*.yaml")):
            if path.name.endswith("-grid.yaml"):
                continue
            name, tree, text = str(path.relative_to(FOLDER)), read_tree(path), path.read_text(encoding="utf-8")
            self.texts[name] = re.sub(r"(?m)^base: (.*)", lambda found: f"base: {path.parent / found[1]}", text)  # noqa: B023
            if isinstance(tree.get("model"), dict) and tree["model"].get("kind") == "tagger":
                tree["model"]["encoder"] = str(encoder)
                self.texts[name] = dump_yaml(tree)
            recipe = load_recipe(tree)
            if (recipe.task, recipe.model.kind) not in kinds:  # which imports what it needs
                kinds.add((recipe.task, recipe.model.kind))
                check_recipe(recipe)
            whole = recipe.model_dump(mode="json")
            self.trees[name, False], self.trees[name, True] = tree, whole
            paths |= flatten(whole).keys()
        self.paths = sorted(paths)
        self.keys = sorted({key for path in paths for key in path.split(".")})
        names = {name for kind in CATALOGUE for name in registry_of(kind)} | set(PRESETS)
        self.values = (*SCALARS, *sorted(names))

    def first(self) -> list[RecipeCase]:
        name = "dates/transformer.yaml"
        lines = len(self.texts[name].splitlines())
        twice = [RecipeCase(name, False, twice=1 + 1000 * line // lines) for line in range(1, lines)]
        numbers = ("training.updates=7", "model.heads=2", "optimizer.learning_rate=0.5")
        return [*twice, RecipeCase(name, False, overrides=numbers)]

    def cases(self) -> SearchStrategy[RecipeCase]:
        scalars = st.sampled_from(self.values)
        keys = st.one_of(st.sampled_from(self.keys), st.sampled_from(self.values).map(str))
        values = st.one_of(
            scalars, scalars, scalars, st.integers(-10, 10**7), st.floats(0, 2), st.lists(scalars, max_size=3),
            st.dictionaries(keys, scalars, max_size=2), st.fixed_dictionaries({"kind": scalars}),
        )  # fmt: skip
        edits = st.builds(
            Edit, st.sampled_from(("set",) * 4 + ("delete", "add", "wrap", "name", "scale", "rename", "copy")),
            st.integers(0, 999), keys, values,
        )  # fmt: skip
        override = st.one_of(
            st.tuples(st.sampled_from(self.paths), st.sampled_from(OVERRIDE_TEXTS)),
            st.tuples(st.sampled_from(self.paths), values.map(str)),
            st.tuples(st.lists(keys, min_size=1, max_size=4).map(".".join), values.map(str)),
        ).map("=".join)
        names = st.sampled_from(sorted(self.texts))
        some = st.lists(edits, min_size=1, max_size=3).map(tuple)
        lists = st.lists(override, min_size=1, max_size=3).map(tuple)
        tokens = [token.encode() for token in (*OVERRIDE_TEXTS, *self.keys)]
        return st.one_of(
            st.builds(RecipeCase, names, st.booleans(), edits=some),
            st.builds(RecipeCase, names, st.booleans(), edits=some),
            st.builds(RecipeCase, names, st.just(False), text=changes(tokens)),
            st.builds(RecipeCase, names, st.just(False), overrides=lists),
            st.builds(RecipeCase, names, st.just(False), twice=st.integers(1, 999)),
            st.builds(RecipeCase, names, st.booleans(), edits=some, overrides=lists),
        )

    def check(self, case: RecipeCase, folder: Path) -> None:
        from headway.core.registry import foreign_code, import_paths
        from headway.recipe import load_recipe
        from headway.runs.run_folder import RunFolder
        from headway.training.start import check_recipe

        path, run = folder / "recipe.yaml", RunFolder(folder / "run")
        run.path.mkdir()
        if case.edits:
            recipe = load_recipe(self._tree(case), case.overrides)
        else:
            lines = self.texts[case.recipe].splitlines(keepends=True)
            if case.twice:
                lines.insert(case.twice * len(lines) // 1000, lines[case.twice * len(lines) // 1000])
            path.write_bytes(expanded(changed((("".join(lines).encode(), 1),), case.text)))
            recipe = load_recipe(path, case.overrides)
        written = recipe.model_dump(mode="json")
        if not case.edits:
            assert not keys_twice(yaml.compose(path.read_text(encoding="utf-8"), yaml.CSafeLoader)), (
                "a key stands twice"
            )
        self._check_override(case, written)
        with foreign_code(bool(import_paths(written))):
            check_recipe(recipe)
            run.write_recipe(recipe)
            again = run.read_recipe()
        assert again == recipe, "the recipe of the run is another"
        assert again.model_dump(mode="json") == written, "the recipe of the run has other values"

    def _check_override(self, case: RecipeCase, written: dict[str, Any]) -> None:
        """The last override, where it is a plain number, is what the recipe says."""
        from headway.recipe import flatten

        key, _, text = (case.overrides or ("",))[-1].partition("=")
        value = flatten(written).get(key)
        if re.fullmatch(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?", text) and isinstance(value, int | float):
            assert value == float(text), f"{key} is {value}"

    def _tree(self, case: RecipeCase) -> dict[str, Any]:
        tree: dict[str, Any] = copy.deepcopy(self.trees[case.recipe, case.whole])
        for edit in case.edits:
            edit.apply(tree)
        return tree
