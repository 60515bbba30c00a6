"""A pretrained encoder that labels words: its layers, mixed at each word's first piece, and one linear map.

Shapes: B batch, P pieces, W words, N words of the whole batch, L layers, D encoder, K heads, J heads over layers,
V labels.
"""

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn

from headway.errors import UserError
from headway.models.layer_attention import build_layer_mix
from headway.models.model import Model, Output, wanted
from headway.models.model_config import TaggerConfig
from headway.processing.pretrained import encoder_place, transformers_quiet
from headway.tensors.batch import TokenBatch

LAYERS = "layers"  # the name of the attention over layers


class Tagger(Model[TokenBatch]):
    """Labels for words from any Hugging Face encoder (equation 10 over any mix of its layers).

    Attention names are `encoder.LAYER.self` (B, K, P, P), over pieces, and `layers` (B, J, W, L), over layers.

    Args:
        config: the recipe's model section.
        encoder: the encoder; its own `config` says how many layers and how large.
        labels: V.
    """

    def __init__(self, config: TaggerConfig, encoder: nn.Module, labels: int) -> None:
        super().__init__()
        self.encoder, self.frozen = encoder, config.freeze
        encoder.requires_grad_(not config.freeze)
        sizes: Any = encoder.config
        heads = config.heads if config.layers == "attention" else 1
        check_heads(config, sizes.hidden_size)
        self.mix = build_layer_mix(
            config.layers, sizes.num_hidden_layers, sizes.hidden_size, heads, config.head_dim, config.dropout
        )
        self.output = nn.Linear(self.mix.size, labels)

    def train(self, mode: bool = True) -> Self:
        """Training mode; a frozen encoder stays as it is."""
        super().train(mode)
        if self.frozen:
            self.encoder.eval()
        return self

    def forward(self, batch: TokenBatch, *, capture: Sequence[str] = ()) -> Output:
        hidden, attention = self._encode(batch, capture)
        rows = torch.arange(len(batch.first), device=batch.first.device)[:, None]
        places = (rows * batch.pieces.shape[1] + batch.first)[batch.word_mask]  # (N,) in the flattened batch
        mixed, weights = self.mix([layer.flatten(0, 1).index_select(0, places) for layer in hidden[-self.mix.depth :]])
        flat = self.output(mixed)
        logits = flat.new_zeros(*batch.first.shape, flat.shape[1])
        logits[batch.word_mask] = flat
        if weights is not None and wanted(LAYERS, capture):
            padded = weights.new_zeros(*batch.first.shape, *weights.shape[1:])
            padded[batch.word_mask] = weights
            attention[LAYERS] = padded.transpose(1, 2)
        return Output(logits, attention)

    def _encode(self, batch: TokenBatch, capture: Sequence[str]) -> tuple[Sequence[Tensor], dict[str, Tensor]]:
        """The layers' outputs (B, P, D), lowest first, and the self-attention that was asked for."""
        encoder: Any = self.encoder
        names = [f"encoder.{layer}.self" for layer in range(encoder.config.num_hidden_layers)]
        need_weights = any(wanted(name, capture) for name in names)
        inputs = {"input_ids": batch.pieces, "attention_mask": batch.piece_mask.long()}
        if need_weights:  # fused attention gives no weights
            usual = encoder.config._attn_implementation
            encoder.set_attn_implementation("eager")
        try:
            with torch.no_grad() if self.frozen else nullcontext():
                read = encoder(**inputs, output_hidden_states=True, output_attentions=need_weights)
        finally:
            if need_weights:
                encoder.set_attn_implementation(usual)
        found = zip(names, read.attentions, strict=True) if need_weights else ()
        return read.hidden_states[1:], {name: weights for name, weights in found if wanted(name, capture)}


def check_heads(config: TaggerConfig, hidden: int) -> None:
    """Raise UserError where the heads over layers do not divide the encoder's D."""
    if config.layers == "attention" and config.head_dim is None and hidden % config.heads:
        raise UserError(
            f"heads do not divide the encoder's size of {hidden}; set head_dim or another number of heads",
            where="model.heads",
            received=config.heads,
        )


def encoder_config(place: str) -> Any:
    """The configuration of a Hugging Face encoder. Raises UserError where there is none, or it is no encoder."""
    with transformers_quiet() as transformers:
        try:
            config = transformers.AutoConfig.from_pretrained(place)
        except (OSError, ValueError) as error:
            raise UserError(
                f"cannot load this encoder ({str(error).splitlines()[0]})",
                where="model.encoder", received=place, allowed="a Hugging Face name or folder",
            ) from error  # fmt: skip
    if getattr(config, "is_encoder_decoder", False):
        raise UserError("this model has a decoder; only encoders label words", where="model.encoder", received=place)
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
            place = encoder_place(config.encoder)
            try:
                encoder = transformers.AutoModel.from_pretrained(place, dtype=torch.float32)
            except (OSError, ValueError) as error:
                raise UserError(
                    f"cannot load this encoder ({str(error).splitlines()[0]})", where="model.encoder", received=place
                ) from error
        else:
            encoder = transformers.AutoModel.from_config(encoder_config(str(stored)), dtype=torch.float32)
    if getattr(encoder, "pooler", None) is not None:
        encoder.pooler = None  # it reads the whole sentence, which no word's label depends on
    return Tagger(config, encoder, labels)
