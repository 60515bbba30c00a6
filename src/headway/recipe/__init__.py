"""The recipe: the validated tree of settings that one experiment is made of.

A recipe is read from YAML, changed by `key.path=value` overrides, checked as a whole before any work starts and
written, resolved, into the run folder. A key that does not exist is an error that names the nearest one that does.
"""

from headway.formats.corpus_config import parse_corpus
from headway.recipe.reading import (
    apply_overrides,
    changed_keys,
    dump_recipe,
    flatten,
    load_recipe,
    parse_lead,
    parse_parser,
    parse_recipe,
    read_tree,
    recipe_of,
    set_key,
)
from headway.recipe.sections import Recipe, TrainingConfig

__all__ = [
    "Recipe",
    "TrainingConfig",
    "apply_overrides",
    "changed_keys",
    "dump_recipe",
    "flatten",
    "load_recipe",
    "parse_corpus",
    "parse_lead",
    "parse_parser",
    "parse_recipe",
    "read_tree",
    "recipe_of",
    "set_key",
]
