"""Pretrained encoders from Hugging Face's format, and the taggers over them.

No code of a published encoder is ever executed: only the architectures of the installed library are built, and weights
are read from safetensors alone.
"""

from pathlib import Path
from typing import Any

import torch

from headway.errors import UserError
from headway.models import Tagger, TaggerConfig
from headway.processing.pretrained import encoder_location, transformers_quiet


def encoder_config(name_or_path: str, *, stored: bool = False) -> Any:
    """The configuration of a Hugging Face encoder.

    Args:
        name_or_path: a name or a folder.
        stored: whether it is a folder of this machine, so that nothing else is asked.

    Raises:
        UserError: there is none, or it is no encoder.
    """
    with transformers_quiet() as transformers:
        try:
            config = transformers.AutoConfig.from_pretrained(
                name_or_path, trust_remote_code=False, local_files_only=stored
            )
        except (OSError, ValueError) as error:
            raise UserError(
                f"cannot load this encoder ({str(error).splitlines()[0]})",
                where="model.encoder", received=name_or_path, allowed="a Hugging Face name or folder",
            ) from error  # fmt: skip
    if getattr(config, "is_encoder_decoder", False):
        raise UserError(
            "this model has a decoder; only encoders label words", where="model.encoder", received=name_or_path
        )
    return config


def build_tagger(config: TaggerConfig, labels: int, stored: Path, *, initial: bool) -> Tagger:
    """The model that `config` describes.

    Args:
        config: the recipe's model section.
        labels: V.
        stored: the folder with the encoder's configuration.
        initial: whether the encoder begins with its pretrained weights, where the recipe wants them; its other weights,
            and all others, are drawn from torch's global generator.

    Raises:
        UserError: an encoder that cannot be loaded.
    """
    with transformers_quiet() as transformers:
        if initial and config.pretrained:
            name_or_path = encoder_location(config.encoder)
            try:
                encoder = transformers.AutoModel.from_pretrained(
                    name_or_path, dtype=torch.float32, trust_remote_code=False, use_safetensors=True
                )
            except (OSError, ValueError) as error:
                raise UserError(
                    f"cannot load this encoder ({str(error).splitlines()[0]})",
                    where="model.encoder",
                    received=name_or_path,
                ) from error
        else:
            config_of_run = encoder_config(str(stored), stored=True)
            encoder = transformers.AutoModel.from_config(config_of_run, dtype=torch.float32, trust_remote_code=False)
    if getattr(encoder, "pooler", None) is not None:
        encoder.pooler = None  # it reads the whole sentence, which no word's label depends on
    return Tagger(config, encoder, labels)
