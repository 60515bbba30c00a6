"""Marian's native format: convert its options and arrays to headway's Transformer, and back.

A matrix in Marian has the shape (in, out), and a vector (1, n). Marian has no begin-of-sentence token in the decoder,
and no padding token. Their rows are zero here, and their logits so low that the probability is zero in float32.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from headway.core.errors import UserError
from headway.processing.marian_binary import EMBEDDING, embeddings
from headway.processing.marian_npz import CONFIG, Arrays, read_npz, read_options, read_vocabularies
from headway.processing.text.subwords import SubwordVocabulary
from headway.processing.text.vocabulary import Vocabulary
from headway.tasks.marian import NEVER, Weights
from headway.tensors.batch import BOS, PAD

# The values of each option that headway's Transformer supports. The first is Marian's default.
ALLOWED: dict[str, tuple[Any, ...]] = {
    "type": ("transformer",),
    "transformer-decoder-autoreg": ("self-attention", "rnn"),
    "transformer-ffn-activation": ("swish", "relu", "gelu"),
    "transformer-ffn-depth": (2,),
    "transformer-decoder-ffn-depth": (0, 2),
    "transformer-postprocess-emb": ("d", ""),
    "transformer-no-projection": (False,),
    "transformer-rnn-projection": (False,),
    "transformer-train-position-embeddings": (False,),
    "transformer-train-positions": (False,),
    "transformer-tied-layers": ([], None),
    "transformer-pool": (False,),
    "layer-normalization": (False,),
    "output-omit-bias": (False,),
    "lemma-dim-emb": (0,),
    "ulr": (False,),
}
NORMS: dict[tuple[str, ...], str] = {
    ("", "an", ""): "post",
    ("n", "a", "n"): "pre",
}  # preprocess, postprocess and postprocess-top, without dropout
# The settings that all models of Marian share.
COMMON: dict[str, Any] = {
    "norm_kind": {"kind": "layer", "eps": 1e-6},
    "position": {"kind": "sinusoidal", "arrangement": "halves"},
    "scale_embeddings": True,
    "output_bias": True,
    "first_input": "zero",
}
OUTPUT, OUTPUT_BIAS, LEGACY_OUTPUT = "decoder_ff_logit_out_Wt", "decoder_ff_logit_out_b", "decoder_ff_logit_out_W"
# For each part of a block, the names of its rows, from the first to the last; {} is W, b, or a suffix of a norm.
PARTS = {
    "mixer.in_projection": ("self_{}q", "self_{}k", "self_{}v"),
    "mixer.out_projection": ("self_{}o",),
    "mixer_residual.norm": ("self_Wo_{}",),
    "cross.query_projection": ("context_{}q",),
    "cross.memory_projection": ("context_{}k", "context_{}v"),
    "cross.out_projection": ("context_{}o",),
    "cross_residual.norm": ("context_Wo_{}",),
    "feed_forward.inner": ("ffn_{}1",),
    "feed_forward.outer": ("ffn_{}2",),
    "feed_forward_residual.norm": ("ffn_ffn_{}",),
}
RECURRENT = {"mixer.in_projection": ("rnn_{}", "rnn_{}f"), "mixer": ("rnn_{}f",)}
RECURRENT_NORM = {"post": "rnn_ffn_{}", "pre": "rnn_{}"}
TOKENS = ("source_embedding.tokens.weight", "target_embedding.tokens.weight", "projection.weight", "projection.bias")


class MarianModel(NamedTuple):
    """A Marian model: the recipe sections, both vocabularies, and a function that returns weights for given tensors."""

    sections: dict[str, Any]
    vocabularies: tuple[Vocabulary, Vocabulary]
    weights: Callable[[Mapping[str, Tensor]], Weights]


def read_marian(model: Path, vocabularies: Sequence[Path]) -> MarianModel:
    """Read a model with its vocabularies. Raises UserError if a file is damaged, or the model is not supported."""
    arrays = read_npz(model)
    section = marian_section(read_options(arrays, model), arrays, model)
    source, target = read_vocabularies(vocabularies)
    kind = "marian" if isinstance(source.vocabulary, SubwordVocabulary) else "whitespace"
    both = source.vocabulary, target.vocabulary
    sections = {"model": section, "vocabulary": {"kind": kind, "shared": both[0].shares_ids_with(both[1])}}
    return MarianModel(sections, both, partial(weights_of, arrays, (source.rows, target.rows), str(model)))


def marian_section(options: Mapping[str, Any], arrays: Arrays, file: Path) -> dict[str, Any]:
    """The `model` section of a recipe. Raises UserError if headway's Transformer does not support an option."""

    def refuse(keys: str, received: Any, allowed: str | Sequence[Any]) -> UserError:
        what = "headway computes no such model of Marian"
        allowed = allowed if isinstance(allowed, str) else " or ".join(map(repr, allowed))
        return UserError(what, where=f"{file}: {CONFIG}: {keys}", received=received, allowed=allowed)

    for key, allowed in ALLOWED.items():
        if (value := options.get(key, allowed[0])) not in allowed:
            raise refuse(key, value, allowed)
    recurrent = options.get("transformer-decoder-autoreg") == "rnn"
    if recurrent and options.get("dec-cell") != "ssru":
        raise refuse("dec-cell", options.get("dec-cell"), ["ssru"])
    hidden = options.get("transformer-dim-ffn")
    if options.get("transformer-decoder-dim-ffn", 0) not in (0, hidden):
        raise refuse("transformer-decoder-dim-ffn", options["transformer-decoder-dim-ffn"], f"{hidden}")
    steps = tuple(options.get(f"transformer-{key}", "") for key in ("preprocess", "postprocess", "postprocess-top"))
    norm = NORMS.get(tuple(str(each).replace("d", "") for each in steps))
    if norm is None:
        keys = "transformer-preprocess, transformer-postprocess, transformer-postprocess-top"
        raise refuse(keys, steps, "'', 'dan', '' or 'n', 'da', 'n'")
    activation = options.get("transformer-ffn-activation", "swish")
    version = re.match(r"v(\d+)\.(\d+)\.(\d+)", str(options.get("version")))
    if activation == "gelu" and version and tuple(map(int, version.groups())) <= (1, 12, 0):
        raise refuse("version", options["version"], "one after v1.12.0: before, its gelu was x sigmoid(1.702 x)")
    tied = {key: options.get(f"tied-embeddings{key}", False) for key in ("", "-src", "-all")}
    if tied["-src"] and not (tied[""] or tied["-all"]):
        raise refuse("tied-embeddings-src", True, "false, or tied-embeddings-all")
    depths = {"encoder": options.get("enc-depth"), "decoder": options.get("dec-depth")}
    for stack, depth in depths.items():
        if f"{stack}_l{depth}_ffn_W1" not in arrays:
            raise UserError(
                "there are not so many layers", where=f"{file}: {CONFIG}: {stack[:3]}-depth", received=depth
            )
    return {
        "kind": "transformer",
        "dim": options.get("dim-emb"),
        "feed_forward": hidden,
        "heads": options.get("transformer-heads"),
        "activation": activation,
        "dropout": options.get("transformer-dropout", 0.0),
        "attention_dropout": options.get("transformer-dropout-attention", 0.0),
        "norm": norm,
        **COMMON,
        "tied": "all" if tied["-all"] or tied["-src"] else "target" if tied[""] else "none",
        "encoder": {"layers": depths["encoder"]},
        "decoder": {"layers": depths["decoder"], "mixer": "ssru" if recurrent else "attention"},
    }


def marian_names(names: Collection[str]) -> dict[str, tuple[str, ...]]:
    """For each weight of a Transformer, the names in Marian of its rows, from the first to the last."""
    pre = "encoder_norm.weight" in names
    parts = {"encoder": PARTS, "decoder": dict(PARTS)}
    if "decoder.0.mixer.bias" in names:
        parts["decoder"] |= {**RECURRENT, "mixer_residual.norm": (RECURRENT_NORM["pre" if pre else "post"],)}
    source, target = embeddings(() if TOKENS[1] in names else (EMBEDDING,))
    found: dict[str, tuple[str, ...]] = dict(
        zip(TOKENS, [(source,), (target,), (OUTPUT,), (OUTPUT_BIAS,)], strict=True)
    )
    for name in set(names) - found.keys():
        stack, _, place = name.partition(".")
        kind = name.rpartition(".")[2]
        norm = {"weight": "ln_scale", "bias": "ln_bias"}[kind]
        if stack.endswith("_norm"):
            found[name] = (f"{stack.removesuffix('_norm')}_top_{norm}",)
            continue
        number, _, rest = place.partition(".")
        module = rest.rpartition(".")[0]
        word = f"{norm}_pre" if pre else norm
        if not module.endswith("norm"):
            word = {"weight": "W", "bias": "b"}[kind]
        found[name] = tuple(f"{stack}_l{int(number) + 1}_{part.format(word)}" for part in parts[stack][module])
    return {name: found[name] for name in names}


def weights_of(
    arrays: Arrays, rows: tuple[Sequence[int], Sequence[int]], where: str, tensors: Mapping[str, Tensor]
) -> Weights:
    """The weights for a model whose tensors have the names and shapes of `tensors`.

    Args:
        arrays: the arrays of the Marian model.
        rows: for each side, the row of each id of headway's vocabulary; -1 if it has no row.
        where: the file, for messages.
        tensors: the tensors of headway's model; their values are not used.

    Raises:
        UserError: arrays are missing, superfluous, or of another shape.
    """
    left = {name: array for name, array in arrays.items() if name != CONFIG}
    if LEGACY_OUTPUT in left:
        left[OUTPUT] = left.pop(LEGACY_OUTPUT).T
    used, weights = set[str](), Weights()
    for name, parts in marian_names(tensors).items():
        shape, found = tensors[name].shape, []
        ids = rows[name != TOKENS[0]] if name in TOKENS else range(shape[0])
        size = max(ids) + 1 if name in TOKENS else shape[0] // len(parts)
        as_it_is = name in TOKENS[:3]
        wanted = (1, size) if len(shape) == 1 else (size, shape[1]) if as_it_is else (shape[1], size)
        for part in parts:
            array = left.get(part)
            if array is None or array.dtype != np.float32 or array.shape != wanted:
                received = "nothing of that name" if array is None else f"{list(array.shape)} of {array.dtype}"
                what = f"the weight {part} is not that of such a model"
                raise UserError(what, where=where, received=received, allowed=f"{list(wanted)} of float32")
            found.append(array if as_it_is else array[0] if len(shape) == 1 else array.T)
        used |= set(parts)
        whole = torch.from_numpy(np.concatenate(found))
        if name in TOKENS:
            absent = torch.full_like(whole[:1], NEVER if name == TOKENS[3] else 0.0)
            whole = torch.cat([whole, absent])[list(ids)]
        weights[name] = whole.contiguous()
    if others := sorted(left.keys() - used):
        raise UserError("such a model has no weights of these names", where=where, received=", ".join(others[:9]))
    return weights


def kept_ids(weights: Mapping[str, Tensor]) -> tuple[list[int], list[int]]:
    """For both sides, the ids that a Marian model has: all but unused padding and begin-of-sentence tokens."""
    bias = weights[TOKENS[3]]
    target = [id for id in range(len(bias)) if id not in (PAD, BOS) or bias[id] > NEVER / 2]
    if TOKENS[1] not in weights:
        return target, target
    source = weights[TOKENS[0]]
    return [id for id in range(len(source)) if id not in (PAD, BOS) or bool(source[id].any())], target


def arrays_of(weights: Mapping[str, Tensor], orders: Sequence[Sequence[int]]) -> Arrays:
    """The arrays of a model with these weights. `orders` are the ids of the rows, for each side."""
    arrays: Arrays = {}
    for name, parts in marian_names(weights).items():
        array = weights[name].numpy()
        if name in TOKENS:
            array = array[list(orders[name != TOKENS[0]])]
        for part, rows in zip(parts, np.split(array, len(parts)), strict=True):
            arrays[part] = rows[None] if rows.ndim == 1 else rows if name in TOKENS else np.ascontiguousarray(rows.T)
    return arrays


def options_of(weights: Mapping[str, Tensor], heads: int, activation: str, sizes: Sequence[int]) -> dict[str, Any]:
    """The options of a model with these weights. `sizes` are the sizes of both vocabularies."""
    inner = weights["encoder.0.feed_forward.inner.weight"]
    depths = {
        stack: sum(name.endswith("feed_forward.inner.weight") for name in weights if name.startswith(stack))
        for stack in ("encoder.", "decoder.")
    }
    pre, recurrent = "encoder_norm.weight" in weights, "decoder.0.mixer.bias" in weights
    before, after, top = ("n", "da", "n") if pre else ("", "dan", "")
    return {
        "type": "transformer",
        "dim-emb": inner.shape[1],
        "dim-vocabs": list(sizes),
        "enc-depth": depths["encoder."],
        "dec-depth": depths["decoder."],
        "tied-embeddings-all": TOKENS[1] not in weights,
        "tied-embeddings-src": False,
        "tied-embeddings": TOKENS[1] in weights and TOKENS[2] not in weights,
        "transformer-heads": heads,
        "transformer-dim-ffn": inner.shape[0],
        "transformer-ffn-depth": 2,
        "transformer-ffn-activation": activation,
        "transformer-no-projection": False,
        "transformer-preprocess": before,
        "transformer-postprocess": after,
        "transformer-postprocess-top": top,
        "transformer-postprocess-emb": "d",
        "transformer-decoder-autoreg": "rnn" if recurrent else "self-attention",
        "dec-cell": "ssru" if recurrent else "gru",
        "transformer-tied-layers": [],
        "transformer-train-position-embeddings": False,
        "transformer-guided-alignment-layer": "last",
        "layer-normalization": False,
        "skip": False,
        "ulr": False,
        "lemma-dim-emb": 0,
    }
