"""A Transformer in the format of CTranslate2, which decodes without torch.

The folder is what CTranslate2's own converters write: the weights, the vocabularies, and the names of the special
tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from headway.errors import UserError
from headway.mixers import Mixer
from headway.mixers.attention import Attention
from headway.mixers.positions import Learned, NoPosition
from headway.mixers.relative import RelativePosition, Rotary
from headway.models.block import Block
from headway.models.components import (
    GeluFeedForward,
    LayerNorm,
    ReluFeedForward,
    RmsNorm,
    SwigluFeedForward,
    SwishFeedForward,
)
from headway.models.cross_attention import MultiHeadCross
from headway.models.embeddings import Embedding
from headway.models.transformer import Transformer
from headway.storage import keep_folder
from headway.tensors.batch import BOS, EOS, SPECIALS, UNKNOWN

POSITIONS = 4096  # vectors of positions that are defined for every length; an output is no longer
ACTIVATIONS = {ReluFeedForward: "RELU", GeluFeedForward: "GELU", SwishFeedForward: "SWISH", SwigluFeedForward: "SWISH"}


def ctranslate2_folder(
    model: nn.Module,
    source_tokens: Sequence[str],
    target_tokens: Sequence[str],
    folder: Path,
    *,
    quantization: str | None = None,
) -> None:
    """Write `model` so that `ctranslate2.Translator(folder)` decodes with it.

    The reader adds the end mark to a source and begins a target with the begin mark.

    Args:
        model: a Transformer whose mixers are attention.
        source_tokens: the source vocabulary in the order of its ids.
        target_tokens: the target vocabulary.
        folder: a new one.
        quantization: the type of stored weights, as CTranslate2 names it (`int8`, ...); None for the model's own.

    Raises:
        UserError: CTranslate2 cannot run such a model.
    """
    specification = _specification(model)
    specification.register_source_vocabulary(list(source_tokens))
    specification.register_target_vocabulary(list(target_tokens))
    specification.config.bos_token = specification.config.decoder_start_token = SPECIALS[BOS]
    specification.config.eos_token, specification.config.unk_token = SPECIALS[EOS], SPECIALS[UNKNOWN]
    specification.config.add_source_eos = True
    specification.validate()
    specification.optimize(quantization=quantization)
    keep_folder(folder, lambda unfinished: specification.save(str(unfinished)))


def ctranslate2_refusal(model: nn.Module) -> str | None:
    """The reason why CTranslate2 cannot run a model; None where it can, as far as is known without the library."""
    if find_spec("ctranslate2") is None:
        return None if type(model) is Transformer else "CTranslate2 has no such model"
    try:
        _specification(model)
    except UserError as error:
        return str(error)
    return None


def _specification(model: nn.Module) -> Any:
    """The weights of a model as CTranslate2 arranges them. Raises UserError where it has no such model."""
    from ctranslate2.specs import TransformerSpec

    if type(model) is not Transformer or type(model.source_embedding) is not Embedding:
        raise _unknown("model", model)
    encoder = _stack(model.encoder, model.encoder_norm, model.source_embedding, decoder=False)
    decoder = _stack(model.decoder, model.decoder_norm, model.target_embedding, decoder=True)
    _fill_linear(decoder.projection, model.projection)
    specification = TransformerSpec(encoder, decoder)
    first = model.encoder[0]
    assert isinstance(first, Block)
    specification.config.layer_norm_epsilon = _norm(first.mixer_residual.norm).eps
    return specification


def _stack(blocks: nn.ModuleList, norm: nn.Module, embedding: Embedding, *, decoder: bool) -> Any:
    """The encoder or the decoder."""
    from ctranslate2.specs import common_spec, transformer_spec

    first = blocks[0]
    assert isinstance(first, Block)
    mixer, feed_forward = _attention(first.mixer), first.feed_forward
    if type(feed_forward) not in ACTIVATIONS:
        raise _unknown("feed-forward network", feed_forward)
    kind = transformer_spec.TransformerDecoderSpec if decoder else transformer_spec.TransformerEncoderSpec
    stack = kind(
        len(blocks),
        mixer.heads,
        pre_norm=not first.mixer_residual.post,
        activation=getattr(common_spec.Activation, ACTIVATIONS[type(feed_forward)]),
        ffn_glu=isinstance(feed_forward, SwigluFeedForward),
        rms_norm=isinstance(first.mixer_residual.norm, RmsNorm),
        num_heads_kv=mixer.heads,
        head_dim=mixer.key_dim,
        **_rotation(mixer.position),
    )
    (stack.embeddings if decoder else stack.embeddings[0]).weight = _array(embedding.tokens.weight)
    stack.scale_embeddings = True
    if isinstance(mixer.position, Rotary):
        if type(embedding.position) is not NoPosition:
            raise UserError("CTranslate2 has positions of the embeddings or rotary ones, not both")
    else:
        # The vectors that are added to the embeddings, zeros where there are none.
        length = len(embedding.position.table) if isinstance(embedding.position, Learned) else POSITIONS
        vectors = embedding.position.between(0, length).expand(length, embedding.tokens.embedding_dim)
        stack.position_encodings.encodings = _array(vectors)
    if not first.mixer_residual.post:
        _fill_norm(stack.layer_norm, norm)
    for layer, block in zip(stack.layer, blocks, strict=True):
        assert isinstance(block, Block)
        _fill_layer(layer, block, mixer)
    return stack


def _fill_layer(layer: Any, block: Block, like: Attention) -> None:
    """The weights of a block; the heads of all layers have to be those of the first."""
    canon = block.mixer_canon or block.feed_forward_canon
    if canon is not None:
        raise _unknown("layer", canon)
    mixer = _attention(block.mixer)
    _check_heads(mixer, like)
    if _rotation(mixer.position) != _rotation(like.position):
        raise UserError("CTranslate2 wants the same positions in every layer", received=type(mixer.position).__name__)
    _fill_linear(layer.self_attention.linear[0], mixer.in_projection)
    _fill_linear(layer.self_attention.linear[1], mixer.out_projection)
    _fill_norm(layer.self_attention.layer_norm, block.mixer_residual.norm)
    if block.cross is not None:
        cross = block.cross
        if type(cross) is not MultiHeadCross:
            raise _unknown("cross-attention", cross)
        _check_heads(cross, like)
        projections = cross.query_projection, cross.memory_projection, cross.out_projection
        for linear, projection in zip(layer.attention.linear, projections, strict=True):
            _fill_linear(linear, projection)
        _fill_norm(layer.attention.layer_norm, block.cross_residual.norm)
    network = block.feed_forward
    assert isinstance(network, ReluFeedForward | SwigluFeedForward)
    _fill_linear(layer.ffn.linear_0, network.gate if isinstance(network, SwigluFeedForward) else network.inner)
    if isinstance(network, SwigluFeedForward):
        _fill_linear(layer.ffn.linear_0_noact, network.inner)
    _fill_linear(layer.ffn.linear_1, network.outer)
    _fill_norm(layer.ffn.layer_norm, block.feed_forward_residual.norm)


def _check_heads(attention: Attention | MultiHeadCross, like: Attention) -> None:
    """Raise UserError where the heads are not those of the first layer, or their keys and values differ in size."""
    if (attention.heads, attention.key_dim, attention.value_dim) != (like.heads, like.key_dim, like.key_dim):
        what = "CTranslate2 wants as many heads in every layer, with keys and values of one size"
        raise UserError(what, received=str(attention))


def _fill_linear(layer: Any, linear: nn.Linear) -> None:
    layer.weight = _array(linear.weight)
    if linear.bias is not None:
        layer.bias = _array(linear.bias)


def _fill_norm(layer: Any, module: nn.Module) -> None:
    norm = _norm(module)
    layer.gamma = _array(norm.weight)
    if isinstance(norm, LayerNorm):
        layer.beta = _array(norm.bias)


def _norm(norm: nn.Module) -> LayerNorm | RmsNorm:
    if type(norm) in (LayerNorm, RmsNorm):  # what inherits from them may compute anything
        return cast("LayerNorm | RmsNorm", norm)
    raise _unknown("norm", norm)


def _attention(mixer: Mixer) -> Attention:
    if type(mixer) is not Attention:
        raise _unknown("mixer", mixer)
    return mixer


def _rotation(position: nn.Module) -> dict[str, Any]:
    """The arguments for the positions that attention reads."""
    if type(position) is Rotary:
        return {"rotary_dim": position.rotated, "rotary_interleave": False, "rotary_base": position.base}
    if type(position) is not RelativePosition:
        raise _unknown("position", position)
    return {}


def _array(weight: Tensor) -> NDArray[np.float32]:
    """A copy of a weight, since CTranslate2 changes the numbers that it quantises."""
    copied = weight.detach().to("cpu", torch.float32).clone(memory_format=torch.contiguous_format)
    return copied.numpy()


def _unknown(what: str, module: nn.Module) -> UserError:
    return UserError(f"CTranslate2 has no such {what}", received=type(module).__name__)
