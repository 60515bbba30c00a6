"""Models, built from the `model` section of a recipe."""

from collections.abc import Mapping
from typing import Any

from headway.core.errors import UserError
from headway.mixers import State
from headway.models.components import CROSS_ATTENTIONS, FEED_FORWARDS, MODELS, NORMS, PRESETS, model_section
from headway.models.decoder_only import DecoderOnly, DecoderOnlyConfig
from headway.models.front_end import FrontEndConfig
from headway.models.matching import matched
from headway.models.model import Axes, Memory, Model, ModelConfig, ModelSection, Output, Seq2Seq
from headway.models.stacks import MatchConfig, StackConfig, StackedConfig
from headway.models.tagger import Tagger, TaggerConfig
from headway.models.transformer import Transformer, TransformerConfig

__all__ = [
    "CROSS_ATTENTIONS",
    "FEED_FORWARDS",
    "MODELS",
    "NORMS",
    "PRESETS",
    "Axes",
    "DecoderOnly",
    "DecoderOnlyConfig",
    "FrontEndConfig",
    "MatchConfig",
    "Memory",
    "Model",
    "ModelConfig",
    "ModelSection",
    "Output",
    "Seq2Seq",
    "StackConfig",
    "StackedConfig",
    "State",
    "Tagger",
    "TaggerConfig",
    "Transformer",
    "TransformerConfig",
    "build_model",
    "model_section",
]


def build_model(
    config: ModelConfig | Mapping[str, Any] | str, source_size: int, target_size: int, shared: bool
) -> Seq2Seq:
    """Build the sequence-to-sequence model that `config` describes, initialised from torch's global generator.

    Args:
        config: the `model` section of a recipe, validated or not: a preset's name, or keys.
        source_size: the size of the source vocabulary or, if `config.reads_frames()`, the numbers per frame.
        target_size: the size of the target vocabulary.
        shared: whether both sides have the same vocabulary.

    Raises:
        UserError: `model_section` refuses the section, the model is no sequence-to-sequence model, options do not go
            together, or a number of parameters cannot be matched.
    """
    section = model_section(config)
    if not isinstance(section, ModelConfig):
        raise UserError("this model writes no sequences", where="model.kind", received=section.kind)

    def build(config: ModelConfig) -> Seq2Seq:
        model: Any = MODELS.get(config.kind, "model.kind")
        built = model(config, source_size, target_size, shared)
        assert isinstance(built, Seq2Seq)
        return built

    return build(matched(section, build) if isinstance(section, StackedConfig) else section)
