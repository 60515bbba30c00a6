"""Students of browsers' engines: from headway's Transformer to Marian's names and integers, and back.

An engine has two special ids, the end of a sentence (0) and the unknown token (1). So the pieces of a vocabulary change
places, and the vectors of padding and of the begin mark are not in its files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from headway.core.errors import UserError
from headway.processing.marian_binary import (
    CONFIG,
    EMBEDDING,
    Floats,
    Item,
    Items,
    Quantized,
    config_lines,
    quantized,
)
from headway.processing.shortlist import EIGHT
from headway.processing.text.subwords import SubwordVocabulary
from headway.tensors.batch import EOS, SPECIALS, UNKNOWN

NEVER = -100.0  # the logit of a token that the engine does not have: its probability is zero in float32
OUTPUT_BIAS = "decoder_ff_logit_out_b"
FACTOR = "_QuantMultA"  # ends the name of the factor of what a matrix is multiplied with
EPSILON = 1e-6
Weights = dict[str, Tensor]

# For each part of a block, what its rows are called in Marian; the first {} is W or b, or scale or bias of a norm.
FEED_FORWARD = {
    "feed_forward.inner": ("ffn_{}1",),
    "feed_forward.outer": ("ffn_{}2",),
    "feed_forward_residual.norm": ("ffn_ffn_ln_{}",),
}
PARTS = {
    "encoder": {
        "mixer.in_projection": ("self_{}q", "self_{}k", "self_{}v"),
        "mixer.out_projection": ("self_{}o",),
        "mixer_residual.norm": ("self_Wo_ln_{}",),
        **FEED_FORWARD,
    },
    "decoder": {
        "mixer.in_projection": ("rnn_{}", "rnn_{}f"),
        "mixer": ("rnn_{}f",),
        "mixer_residual.norm": ("rnn_ffn_ln_{}",),
        "cross.query_projection": ("context_{}q",),
        "cross.memory_projection": ("context_{}k", "context_{}v"),
        "cross.out_projection": ("context_{}o",),
        "cross_residual.norm": ("context_Wo_ln_{}",),
        **FEED_FORWARD,
    },
}  # fmt: skip
EMBEDDINGS = ("source_embedding.tokens.weight", "target_embedding.tokens.weight", "projection.weight")


def marian_parts(name: str) -> tuple[str, ...] | None:
    """What the rows of a tensor of headway's are called in Marian, from the first to the last; None for no part."""
    stack, _, rest = name.partition(".")
    number, _, place = rest.partition(".")
    module, _, kind = place.rpartition(".")
    parts = PARTS.get(stack, {}).get(module)
    if parts is None:
        return {"projection.bias": (OUTPUT_BIAS,)}.get(name, (EMBEDDING,) if name in EMBEDDINGS else None)
    kinds = {"weight": "scale", "bias": "bias"} if module.endswith("norm") else {"weight": "W", "bias": "b"}
    return tuple(f"{stack}_l{int(number) + 1}_{part.format(kinds[kind])}" for part in parts)


def rows_of(size: int) -> list[int]:
    """For each id of an engine's vocabulary the id in headway's of this size; -1 for one that fills it up to eights."""
    rows = [EOS, UNKNOWN, *range(len(SPECIALS), size)]
    return [*rows, *[-1] * (-len(rows) % EIGHT)]


def engine_vocabulary(vocabulary: SubwordVocabulary, size: int) -> bytes:
    """The SentencePiece model of a vocabulary as an engine reads it: `rows_of` its pieces, `size` of them."""
    from sentencepiece import sentencepiece_model_pb2

    messages: Any = sentencepiece_model_pb2
    model = messages.ModelProto.FromString(vocabulary.serialised)
    pieces = list(model.pieces)
    del model.pieces[:]
    for row, id in enumerate(rows_of(len(pieces))):
        if id >= 0:
            model.pieces.append(pieces[id])
        else:
            model.pieces.add(piece=f"<unused-{row}>", score=0.0, type=messages.ModelProto.SentencePiece.UNUSED)
    trainer = model.trainer_spec
    trainer.pad_id, trainer.bos_id, trainer.eos_id, trainer.unk_id, trainer.vocab_size = -1, -1, 0, 1, size
    serialised: bytes = model.SerializeToString()
    return serialised


def student_arrays(weights: Mapping[str, Tensor], rows: Sequence[int]) -> dict[str, Floats]:
    """The weights of a student under Marian's names, matrices (out, in), with these rows of its vocabulary."""
    arrays: dict[str, Floats] = {}
    for name, tensor in weights.items():
        parts = marian_parts(name)
        if parts is None or (parts == (EMBEDDING,) and EMBEDDING in arrays):
            continue
        array = tensor.detach().to("cpu", torch.float32).numpy()
        if parts in ((EMBEDDING,), (OUTPUT_BIAS,)):
            filled = np.concatenate([array, np.full_like(array[:1], NEVER if array.ndim == 1 else 0)])
            array = filled[list(rows)]
        for part, rows_of_part in zip(parts, np.split(array, len(parts)), strict=True):
            arrays[part] = rows_of_part if rows_of_part.ndim == 2 else rows_of_part[None]
    return arrays


def student_items(arrays: Mapping[str, Floats], heads: int) -> Items:
    """The items of a file but for the factors of activations: the configuration, and matrices as integers."""
    matrices = {name: quantized(array) if len(array) > 1 else array for name, array in arrays.items()}
    return {CONFIG: _config(arrays, heads).encode() + b"\0", **matrices}


def _config(arrays: Mapping[str, Floats], heads: int) -> str:
    """The configuration as Marian writes it."""
    size, dim = arrays[EMBEDDING].shape
    depth = {side: sum(name.endswith("ffn_W1") and name.startswith(side) for name in arrays) for side in PARTS}
    keys: dict[str, Any] = {
        "type": "transformer",
        "dim-emb": dim,
        "dim-vocabs": f"\n  - {size}\n  - {size}",
        "enc-depth": depth["encoder"],
        "dec-depth": depth["decoder"],
        "transformer-heads": heads,
        "transformer-dim-ffn": len(arrays["encoder_l1_ffn_W1"]),
        "transformer-ffn-depth": 2,
        "transformer-ffn-activation": "relu",
        "transformer-decoder-autoreg": "rnn",
        "dec-cell": "ssru",
        "dec-cell-base-depth": 2,
        "dec-cell-high-depth": 1,
        "transformer-preprocess": '""',
        "transformer-postprocess": "dan",
        "transformer-postprocess-emb": "d",
        "transformer-train-position-embeddings": "false",
        "transformer-tied-layers": "[]",
        "transformer-guided-alignment-layer": "last",
        "tied-embeddings-all": "true",
        "skip": "false",
        "version": "headway",
    }
    return "".join(f"{key}: {value}\n".replace(": \n", ":\n") for key, value in keys.items())


class Shape:
    """The sizes of a student, as its configuration says and its items have.

    Raises:
        UserError: options that a student does not have, or items that are missing, of another shape or of no student.
    """

    def __init__(self, items: Mapping[str, Item], where: str) -> None:
        self.where, keys = where, dict(config_lines(items, where))
        for key, values in ALLOWED.items():
            if keys.get(key, values[0]).strip("\"'") not in values:
                what = "a student has no such option"
                raise UserError(what, where=f"{where}: {key}", received=keys[key], allowed=" or ".join(values))
        sizes = "dim-emb", "transformer-heads", "enc-depth", "dec-depth", "transformer-dim-ffn"
        self.dim, self.heads, self.encoder, self.decoder, self.feed_forward = (self._size(keys, key) for key in sizes)
        if self.encoder + self.decoder > len(items):
            received = f"{self.encoder} and {self.decoder}"
            raise UserError("there are not so many layers", where=f"{where}: enc-depth, dec-depth", received=received)
        embedding = items.get(EMBEDDING)
        self.size = len(embedding.values) if isinstance(embedding, Quantized) else 0
        if self.dim % self.heads:
            what = "the heads do not divide the model"
            raise UserError(what, where=f"{where}: transformer-heads", received=self.heads, allowed=str(self.dim))
        wanted, found = self.shapes(), {name: _shape(item) for name, item in items.items() if name != CONFIG}
        for name, shape in wanted.items():
            if found.get(name) != shape:
                received = found.get(name, "nothing of that name")
                raise UserError(
                    f"the weight {name} is not that of a student", where=where, received=received, allowed=shape
                )
        if others := [name for name in found if name not in wanted and not name.endswith(FACTOR)]:
            raise UserError("a student has no such weights", where=where, received=", ".join(others[:9]))

    def _size(self, keys: Mapping[str, str], key: str) -> int:
        value = keys.get(key, "")
        if not (value.isdecimal() and value.isascii() and 0 < len(value) < 6 and int(value)):
            raise UserError("this is no size of a student", where=f"{self.where}: {key}", received=value)
        return int(value)

    def shapes(self) -> dict[str, tuple[Any, ...]]:
        """Of each item its type and shape, matrices (out, in)."""
        dim, hidden = self.dim, self.feed_forward
        shapes: dict[str, Any] = {EMBEDDING: ("int8", self.size, dim), OUTPUT_BIAS: ("float32", 1, self.size)}
        for stack, layers in (("encoder", self.encoder), ("decoder", self.decoder)):
            for module, parts in PARTS[stack].items():
                for layer, part in ((layer, part) for layer in range(1, layers + 1) for part in parts):
                    width = hidden if module == "feed_forward.inner" else dim
                    read = hidden if module == "feed_forward.outer" else dim
                    name = f"{stack}_l{layer}_{part}"
                    if module.endswith("norm"):
                        shapes |= {name.format(kind): ("float32", 1, dim) for kind in ("scale", "bias")}
                        continue
                    if module != "mixer":
                        matrix = name.format("W")
                        shapes |= {matrix: ("int8", width, read), matrix + FACTOR: ("float32", 1)}
                    if (stack, module) != ("decoder", "mixer.in_projection"):
                        shapes[name.format("b")] = ("float32", 1, width)
        return shapes | {f"none{FACTOR}": ("float32", 1)}


ALLOWED = {
    "type": ("transformer",),
    "transformer-decoder-autoreg": ("rnn",),
    "dec-cell": ("ssru",),
    "transformer-preprocess": ("",),
    "transformer-postprocess": ("dan",),
    "transformer-ffn-activation": ("relu",),
    "transformer-ffn-depth": ("2",),
    "transformer-train-position-embeddings": ("false",),
    "transformer-tied-layers": ("[]", ""),
    "tied-embeddings-all": ("true",),
}


def _shape(item: Item) -> tuple[Any, ...]:
    if isinstance(item, bytes):
        return ("bytes",)
    return ("int8", *item.values.shape) if isinstance(item, Quantized) else ("float32", *item.shape)
