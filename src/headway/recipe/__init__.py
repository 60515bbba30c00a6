"""The recipe: the validated tree of settings that one experiment is made of.

A recipe is read from YAML, changed by `key.path=value` overrides, checked as a whole before any work starts and
written, resolved, into the run folder. A key that does not exist is an error that names the nearest one that does.
"""

from headway.recipe.audio import AudioConfig, SpecAugmentConfig
from headway.recipe.base import Section, merge
from headway.recipe.models import (
    PRESETS,
    DecoderOnlyConfig,
    FrontEndConfig,
    MatchConfig,
    ModelConfig,
    ModelSection,
    RecurrentConfig,
    StackConfig,
    StackedConfig,
    TaggerConfig,
    TransformerConfig,
)
from headway.recipe.objectives import DependencyConfig, ObjectiveConfig, SynchronousConfig
from headway.recipe.parses import PARSERS, ParserConfig, ParsesConfig
from headway.recipe.reading import (
    apply_override,
    changed_keys,
    dump_recipe,
    explain,
    load_recipe,
    parse_corpus,
    parse_model,
    parse_parser,
    parse_recipe,
    read_tree,
)
from headway.recipe.sections import (
    CorpusConfig,
    DataConfig,
    DecodingConfig,
    OptimizerConfig,
    PiecesConfig,
    Recipe,
    SideConfig,
    TextConfig,
    TrainingConfig,
    VocabularyConfig,
)

__all__ = [
    "PARSERS",
    "PRESETS",
    "AudioConfig",
    "CorpusConfig",
    "DataConfig",
    "DecoderOnlyConfig",
    "DecodingConfig",
    "DependencyConfig",
    "FrontEndConfig",
    "MatchConfig",
    "ModelConfig",
    "ModelSection",
    "ObjectiveConfig",
    "OptimizerConfig",
    "ParserConfig",
    "ParsesConfig",
    "PiecesConfig",
    "Recipe",
    "RecurrentConfig",
    "Section",
    "SideConfig",
    "SpecAugmentConfig",
    "StackConfig",
    "StackedConfig",
    "SynchronousConfig",
    "TaggerConfig",
    "TextConfig",
    "TrainingConfig",
    "TransformerConfig",
    "VocabularyConfig",
    "apply_override",
    "changed_keys",
    "dump_recipe",
    "explain",
    "load_recipe",
    "merge",
    "parse_corpus",
    "parse_model",
    "parse_parser",
    "parse_recipe",
    "read_tree",
]
