"""The recipe: the validated settings of one experiment.

A recipe is read from YAML, changed by `key.path=value` overrides, checked as a whole before any work starts, and
written to the run folder with all defaults. An unknown key is an error that names the nearest known key.
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
