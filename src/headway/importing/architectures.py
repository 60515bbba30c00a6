"""Encoder-decoders of Hugging Face as headway's Transformer: the recipe's section, and the names of weights.

Shapes: V vocabulary, D model, L positions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from headway.core.errors import UserError
from headway.processing.marian_files import ACTIVATIONS, marian_section
from headway.tasks.marian import NEVER, PARTS
from headway.tensors.batch import BOS

Weights = dict[str, Tensor]
LAYER = re.compile(r"(model\.)?(encoder|decoder)\.(layers|block)\.\d+")  # prefix of the names of a layer's weights
OFFSET = 2  # of positions: a text's first position is in the third row

# How the descendants of BART differ: the place of norms, a norm of the embeddings, and position embeddings.
BART_LIKE: dict[str, dict[str, Any]] = {
    "bart": {"norm": "post", "embedding_norm": True, "position": "learned"},
    "mbart": {"norm": "pre", "embedding_norm": True, "position": "learned"},
    "m2m_100": {"norm": "pre", "embedding_norm": False, "position": {"kind": "sinusoidal", "arrangement": "halves"}},
}
GATED = {"relu": "relu", "gated-gelu": "geglu", "gated-silu": "swiglu"}
HEADLESS = ("ForConditionalGeneration", "Model", "WithLMHeadModel", "MTModel")  # suffixes of the supported classes


def refusal(key: str, received: Any, allowed: Any) -> UserError:
    """The error for a model setting that headway cannot reproduce."""
    what = "headway cannot compute this as the model does"
    return UserError(what, where=key, received=received, allowed=allowed)


def check_weights(raw: Mapping[str, Any]) -> None:
    """Raise UserError if the raw configuration is of a model with other outputs, or with quantized weights."""
    if other := [name for name in raw.get("architectures") or () if not name.endswith(HEADLESS)]:
        raise refusal("architectures", other[0], f"classes that end in {', '.join(HEADLESS)}")
    if "quantization_config" in raw:
        raise refusal("quantization_config", raw["quantization_config"], "weights that are not quantized")


def model_section(config: Any) -> dict[str, Any]:
    """The `model` section for a library configuration. Raises UserError if headway cannot compute the same."""
    if config.model_type == "t5":
        if config.feed_forward_proj not in GATED:
            raise refusal("feed_forward_proj", config.feed_forward_proj, GATED)
        return _t5_section(config)
    if config.activation_function not in ACTIVATIONS:
        raise refusal("activation_function", config.activation_function, ACTIVATIONS)
    for key in ("ffn_dim", "attention_heads"):
        if getattr(config, f"encoder_{key}") != getattr(config, f"decoder_{key}"):
            received, allowed = getattr(config, f"decoder_{key}"), str(getattr(config, f"encoder_{key}"))
            raise refusal(f"decoder_{key}", received, allowed)
    section = marian_section(config.to_dict()) | BART_LIKE[config.model_type]
    if config.model_type == "m2m_100":
        if config.d_model % 2:
            raise refusal("d_model", config.d_model, "an even number, for sines and cosines")
        section["position"] = section["position"] | {"first": (config.pad_token_id or 0) + 1}
    return section | {"tied": "all" if config.tie_word_embeddings else "none"}


def _t5_section(config: Any) -> dict[str, Any]:
    kind = GATED[config.feed_forward_proj]
    buckets, farthest = config.relative_attention_num_buckets, config.relative_attention_max_distance
    return {
        "kind": "transformer",
        "dim": config.d_model,
        "feed_forward": {"kind": kind, "hidden": config.d_ff},
        "heads": config.num_heads,
        "head_dim": config.d_kv,
        "dropout": config.dropout_rate,
        "attention_dropout": config.dropout_rate,
        "bias": False,
        "norm": "pre",
        "norm_kind": {"kind": "rms", "eps": config.layer_norm_epsilon},
        "position": {"kind": "t5", "buckets": buckets, "max_distance": farthest},
        "tied": "all" if config.scale_decoder_outputs else "none",
        "output_bias": True,
        "scale_embeddings": False,
        "encoder": {"layers": config.num_layers},
        "decoder": {"layers": config.num_decoder_layers},
    }


def carried(
    config: Any,
    weights: Mapping[str, Tensor],
    names: Mapping[str, Tensor],
    rows: tuple[Sequence[int], Sequence[int]],
    where: str,
) -> Weights:
    """Convert a model's weights to headway's names.

    T5 does not divide scores by the root of the head size, and multiplies the input of a tied projection by D ** -0.5.
    Therefore queries are scaled up, and the gains of the last norm down.

    Args:
        config: the model's configuration.
        weights: the model's weights.
        names: the tensors of headway's Transformer; their values are not used.
        rows: for both vocabularies, the model's embedding row of each id.
        where: the folder, for messages.

    Raises:
        UserError: a weight is missing, embeddings have another size, or there are too many layers.
    """
    t5 = config.model_type == "t5"
    prefix = "model." if any(name.startswith("model.") for name in weights) else ""

    def given(*candidates: str) -> Tensor:
        name = next((name for name in candidates if name in weights), None)
        if name is None:
            raise UserError(f"this model lacks the weight {candidates[0]}", where=where)
        if not weights[name].is_floating_point():
            raise UserError(f"the weight {name} has no fractions", where=where, received=weights[name].dtype)
        return weights[name].float()

    own = [f"{prefix}{side}.embed_tokens.weight" for side in ("encoder", "decoder")]
    shared = [f"{prefix}shared.weight", *([*own, "lm_head.weight"] if config.tie_word_embeddings else [])]
    sides = [given(name, *shared) for name in own]
    projection = given("lm_head.weight", *([own[1], *shared] if config.tie_word_embeddings else []))
    for tensor in (*sides, projection):
        if tensor.shape != (config.vocab_size, config.d_model):
            what = "the embeddings are not of the size that config.json says"
            raise UserError(what, where=where, received=tuple(tensor.shape))
    if "projection.weight" not in names and not (torch.equal(sides[1], projection) and torch.equal(sides[0], sides[1])):
        what = "these weights have embeddings, or a projection, of their own, which config.json does not say"
        raise UserError(what, where=where, allowed="tie_word_embeddings: false")
    source, target = (torch.tensor(each) for each in rows)
    bias = weights.get("final_logits_bias", torch.zeros(config.vocab_size)).float().reshape(config.vocab_size)[target]
    if int(target[BOS]) in [*rows[1][:BOS], *rows[1][BOS + 1 :]]:
        bias[BOS] = NEVER
    result = {
        "source_embedding.tokens.weight": sides[0][source],
        "target_embedding.tokens.weight": sides[1][target],
        "projection.weight": projection[target],
        "projection.bias": bias,
    }
    used = set[str]()
    for name in names:
        parts = _t5_parts(config, name) if t5 else _bart_parts(name, prefix)
        used.update(parts)
        if parts:
            result[name] = torch.cat([given(part) for part in parts])
            if name.endswith("position.table") and not t5:
                result[name] = result[name][OFFSET:]
            elif t5 and name.endswith((".in_projection.weight", ".query_projection.weight")):
                result[name][: config.num_heads * config.d_kv] *= config.d_kv**0.5
            elif t5 and name == "decoder_norm.weight" and config.scale_decoder_outputs:
                result[name] *= config.d_model**-0.5
    given_layers, used_layers = (
        {found[0] for name in some if (found := LAYER.match(name))} for some in (weights, used)
    )
    if others := sorted(given_layers - used_layers):
        raise UserError("these weights have more layers than config.json says", where=where, received=others[0])
    return {name: result[name].contiguous() for name in names if name in result}


def _bart_parts(name: str, prefix: str) -> list[str]:
    """The names of the weights in a descendant of BART whose rows, concatenated, are the weight `name`."""
    stack, _, rest = name.partition(".")
    place, _, kind = rest.rpartition(".")
    number, _, module = place.partition(".")
    if stack in ("encoder", "decoder"):
        return [f"{prefix}{stack}.layers.{number}.{part}.{kind}" for part in PARTS[module]]
    side = {"source_embedding": "encoder", "target_embedding": "decoder"}.get(stack, stack.removesuffix("_norm"))
    part = {"norm": "layernorm_embedding", "position": "embed_positions", "": "layer_norm"}.get(place)
    if stack == "projection" or part is None:
        return []
    return [f"{prefix}{side}.{part}.{'weight' if kind == 'table' else kind}"]


def _t5_parts(config: Any, name: str) -> list[str]:
    """The names of the weights in T5 whose rows, concatenated, are the weight `name`."""
    if name in ("encoder_norm.weight", "decoder_norm.weight"):
        return [f"{name[:7]}.final_layer_norm.weight"]
    stack, _, rest = name.partition(".")
    if stack not in ("encoder", "decoder"):
        return []
    number, _, place = rest.partition(".")
    last = 1 if stack == "encoder" else 2
    gated = GATED[config.feed_forward_proj] != "relu"
    parts = {
        "mixer.in_projection": [f"0.SelfAttention.{part}" for part in "qkv"],
        "mixer.out_projection": ["0.SelfAttention.o"],
        "mixer.position": ["0.SelfAttention.relative_attention_bias"],
        "mixer_residual.norm": ["0.layer_norm"],
        "cross.query_projection": ["1.EncDecAttention.q"],
        "cross.memory_projection": [f"1.EncDecAttention.{part}" for part in "kv"],
        "cross.out_projection": ["1.EncDecAttention.o"],
        "cross_residual.norm": ["1.layer_norm"],
        "feed_forward.gate": [f"{last}.DenseReluDense.wi_0"],
        "feed_forward.inner": [f"{last}.DenseReluDense.wi{'_1' if gated else ''}"],
        "feed_forward.outer": [f"{last}.DenseReluDense.wo"],
        "feed_forward_residual.norm": [f"{last}.layer_norm"],
    }[place.rpartition(".")[0]]
    return [f"{stack}.block.{number}.layer.{part}.weight" for part in parts]
