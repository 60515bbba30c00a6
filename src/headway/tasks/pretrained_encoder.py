"""Pretrained encoders from Hugging Face's format, and the taggers over them.

No code of a published encoder is ever executed: only the architectures of the installed library are built, and weights
are read from safetensors alone.
"""

from pathlib import Path
from typing import Any

import torch

from headway.core.errors import UserError
from headway.models import Tagger, TaggerConfig
from headway.processing.pretrained import encoder_location, loading
from headway.tasks.caching_tagger import CachingTagger

# The maximum of each size in the configuration of an encoder.
LARGEST = {"hidden_size": 1 << 16, "num_hidden_layers": 1000, "vocab_size": 1 << 24, "max_position_embeddings": 1 << 24,
           "intermediate_size": 1 << 20, "num_attention_heads": 1 << 12}  # fmt: skip


def encoder_config(name_or_path: str, *, stored: bool = False) -> Any:
    """The configuration of a Hugging Face encoder.

    Args:
        name_or_path: the name of an encoder, or its folder.
        stored: whether only local files are read.

    Raises:
        UserError: the configuration does not exist, or belongs to a model with a decoder.
    """
    with loading("this encoder", name_or_path) as transformers:
        config = transformers.AutoConfig.from_pretrained(name_or_path, trust_remote_code=False, local_files_only=stored)
    for name, most in LARGEST.items():
        size = getattr(config, name, 0)
        if not isinstance(size, int) or size > most:
            raise UserError(
                f"the {name} of this encoder is none that can be", where=f"{name_or_path}: config.json",
                received=size, allowed=f"up to {most:,}",
            )  # fmt: skip
    if getattr(config, "is_encoder_decoder", False):
        raise UserError(
            "this model has a decoder; only encoders label words", where="model.encoder", received=name_or_path
        )
    return config


def longest_read(config: Any) -> int | None:
    """The maximum length that an encoder reads, in tokens including special ones. None if it is unlimited.

    Positions that are numbered after a padding index, as in RoBERTa, are fewer than the configuration says. The encoder
    is built without weights to check this.
    """
    said = getattr(config, "max_position_embeddings", None)
    limits = [said] if isinstance(said, int) and said > 0 else []  # XLNet's is -1
    with loading("this encoder", str(config.name_or_path)) as transformers, torch.device("meta"):
        encoder = transformers.AutoModel.from_config(config, trust_remote_code=False)
    for name, table in encoder.named_modules():
        if name.endswith("position_embeddings") and getattr(table, "padding_idx", None) is not None:
            limits.append(table.num_embeddings - table.padding_idx - 1)
    return min(limits, default=None)


def build_tagger(config: TaggerConfig, labels: int, stored: Path, *, initial: bool) -> Tagger:
    """Build the tagger that `config` describes.

    Args:
        config: the recipe's model section.
        labels: the number V of labels.
        stored: the folder with the encoder's configuration.
        initial: whether the encoder gets its pretrained weights, if the recipe enables them. All other weights are
            drawn from torch's global generator.

    Raises:
        UserError: the encoder cannot be loaded.
    """
    if initial and config.pretrained and isinstance(config.encoder, str):
        name_or_path = encoder_location(config.encoder)
        with loading("this encoder", name_or_path) as transformers:
            encoder = transformers.AutoModel.from_pretrained(
                name_or_path, dtype=torch.float32, trust_remote_code=False, use_safetensors=True
            )
    else:
        config_of_run = encoder_config(str(stored), stored=True)
        with loading("this encoder", str(stored)) as transformers:
            encoder = transformers.AutoModel.from_config(config_of_run, dtype=torch.float32, trust_remote_code=False)
    if getattr(encoder, "pooler", None) is not None:
        encoder.pooler = None  # the labels of words do not depend on its output
    return (CachingTagger if config.cache_bytes else Tagger)(config, encoder, labels)
