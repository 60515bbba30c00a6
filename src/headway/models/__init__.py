"""Models, built from the `model` section of a recipe."""

from collections.abc import Callable

from headway.models.decoder_only import DecoderOnly
from headway.models.matching import matched
from headway.models.model import Axes, Memory, Model, Output, Seq2Seq, State
from headway.models.model_config import ModelConfig, StackedConfig
from headway.models.recurrent import Recurrent
from headway.models.transformer import Transformer

__all__ = ["Axes", "Memory", "Model", "Output", "Seq2Seq", "State", "build_model"]

MODELS: dict[str, Callable[..., Seq2Seq]] = {
    "transformer": Transformer,
    "decoder_only": DecoderOnly,
    "recurrent": Recurrent,
}


def build_model(config: ModelConfig, source_size: int, target_size: int, shared: bool) -> Seq2Seq:
    """The model that `config` describes, with freshly drawn weights from torch's global generator.

    `source_size` counts the pieces of the source vocabulary or, where `config.reads_frames()`, the numbers of a frame.

    Raises:
        UserError: options that do not go together, or a number of parameters that cannot be matched.
    """

    def build(section: ModelConfig) -> Seq2Seq:
        return MODELS[section.kind](section, source_size, target_size, shared)

    return build(matched(config, build) if isinstance(config, StackedConfig) else config)
