"""Students for the engines of browsers: models in Marian's format with integer matrices.

An engine has two special ids, the end-of-sentence token (0) and the unknown token (1). So the pieces of a vocabulary
are permuted, and the files lack the embeddings of padding and begin-of-sentence tokens.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from headway.core.documents import dump_yaml
from headway.processing.marian_binary import (
    EMBEDDING,
    MOST,
    TWO_EMBEDDINGS,
    Floats,
    Item,
    Items,
    Quantized,
    quantized,
)
from headway.processing.marian_npz import CONFIG, Arrays, read_options
from headway.processing.shortlist import EIGHT, END
from headway.processing.text.subwords import SubwordVocabulary
from headway.tasks.marian import NEVER
from headway.tasks.marian_transformer import TOKENS, arrays_of, marian_names, options_of
from headway.tensors.batch import EOS, SPECIALS, UNKNOWN
from headway.tensors.linear import integer_matrices

FACTOR = "_QuantMultA"  # suffix of the factor of a matrix's input
EPSILON = 1e-6  # of the normalisation layers
# The fixed settings of an engine.
ENGINE_OPTIONS = {
    "transformer-decoder-autoreg": "rnn",
    "dec-cell": "ssru",
    "transformer-ffn-activation": "relu",
    "transformer-postprocess": "dan",
}


def engine_rows(size: int) -> list[int]:
    """The ids in headway's vocabulary of the engine's ids; -1 for the padding to a multiple of 8."""
    rows = [EOS, UNKNOWN, *range(len(SPECIALS), size)]
    return [*rows, *[-1] * (-len(rows) % EIGHT)]


def vocabulary_fault(vocabulary: SubwordVocabulary) -> str | None:
    """The fault of a vocabulary whose ids do not follow from its SentencePiece model; None if they do."""
    own = SubwordVocabulary(vocabulary.serialised)
    pieces, special = list(map(own.token, range(len(own)))), {*own.special_ids().values(), -1}
    ordinary = [piece for id, piece in enumerate(pieces) if id not in special]
    if ordinary == list(map(vocabulary.token, range(len(SPECIALS), len(vocabulary)))):
        return None
    return "a vocabulary whose ids are those of its SentencePiece model"


def engine_vocabulary(vocabulary: SubwordVocabulary) -> bytes:
    """The SentencePiece model of a vocabulary for an engine, with the pieces in the order of `engine_rows`."""
    from sentencepiece import sentencepiece_model_pb2

    messages: Any = sentencepiece_model_pb2
    model = messages.ModelProto.FromString(vocabulary.serialised)
    special = SubwordVocabulary(vocabulary.serialised).special_ids()
    ordinary = [piece for id, piece in enumerate(model.pieces) if id not in special.values()]
    pieces = [model.pieces[special[EOS]], model.pieces[special[UNKNOWN]], *ordinary]
    del model.pieces[:]
    model.pieces.extend(pieces)
    for row in range(len(pieces), len(engine_rows(len(vocabulary)))):
        model.pieces.add(piece=f"<unused-{row}>", score=0.0, type=messages.ModelProto.SentencePiece.UNUSED)
    trainer = model.trainer_spec
    trainer.pad_id, trainer.bos_id, trainer.eos_id, trainer.unk_id = -1, -1, END, 1
    trainer.vocab_size = len(model.pieces)
    serialised: bytes = model.SerializeToString()
    return serialised


def student_items(weights: Mapping[str, Tensor], heads: int) -> tuple[Items, dict[str, Floats]]:
    """The items of a student without the factors of activations, and the matrices: (out, in), or (V, D) for embeddings.

    Args:
        weights: the weights of a Transformer whose output is tied to the target's embedding, without duplicates.
        heads: the number of attention heads.
    """
    filled = {name: weight.detach().to("cpu", torch.float32) for name, weight in weights.items()}
    sizes = len(filled[TOKENS[0]]), len(filled[TOKENS[3]])
    for name in filled.keys() & TOKENS:
        absent = torch.full_like(filled[name][:1], NEVER if name == TOKENS[3] else 0.0)
        filled[name] = torch.cat([filled[name], absent])
    rows = [[size if id < 0 else id for id in engine_rows(size)] for size in sizes]
    arrays = arrays_of(filled, rows)
    options = options_of(weights, heads, "relu", list(map(len, rows)))
    matrices = {
        name: array if name.endswith(EMBEDDING) else np.ascontiguousarray(array.T)
        for name, array in arrays.items()
        if len(array) > 1
    }
    integers = {name: quantized(matrices[name]) if name in matrices else array for name, array in arrays.items()}
    return {CONFIG: dump_yaml(options).encode() + b"\0", **integers}, matrices


def with_factors(items: Items, matrices: Mapping[str, Floats], model: nn.Module) -> Items:
    """The items of a student whose training fixed all factors, with these factors and the integers that they make.

    Args:
        items: the items of `student_items`.
        matrices: the matrices of `student_items`.
        model: the student, after `round_to_int8` with `fixed`.
    """
    found, names = dict(items), marian_names(dict(model.named_parameters()))
    for weight, (_, factors, of_inputs) in integer_matrices(model).items():
        for name, factor in zip(
            names[weight], factors.cpu().numpy()[:: len(factors) // len(names[weight])], strict=True
        ):
            found[name] = quantized(matrices[name], factor=factor)
            if of_inputs is not None:
                found[factor_name(name)] = of_inputs.cpu().numpy()[None]
    return found


def float_arrays(items: Mapping[str, Item]) -> Arrays:
    """The arrays of a student in float32, as in Marian before the conversion to integers."""
    arrays: Arrays = {}
    for name, item in items.items():
        if isinstance(item, bytes):
            arrays[name] = np.frombuffer(item, np.uint8)
        elif isinstance(item, Quantized) and not name.endswith(FACTOR):
            arrays[name] = item.floats if name.endswith(EMBEDDING) else item.floats.T
        elif not name.endswith(FACTOR):
            arrays[name] = np.asarray(item)
    return arrays


def factor_name(matrix: str) -> str:
    """The name of the factor of a matrix's input. The factor of the embedding that makes logits has a special name."""
    return ("none" if matrix in (EMBEDDING, TWO_EMBEDDINGS[1]) else matrix) + FACTOR


def statistics_of(items: Mapping[str, Item]) -> dict[str, int]:
    """The numbers of parameters of a model and of its stacks, and the bytes of its stacks and embeddings."""
    found = Counter[str]()
    for name, item in items.items():
        if isinstance(item, bytes) or name.endswith(FACTOR):
            continue
        array = item.values if isinstance(item, Quantized) else item
        found["parameters"] += array.size
        if name.endswith(EMBEDDING):
            found["embeddings_bytes"] += array.nbytes
        else:
            stack = name.partition("_")[0]
            found[f"{stack}_parameters"] += array.size
            found[f"{stack}_bytes"] += array.nbytes
    return dict(found)


def factors_of(items: Mapping[str, Item]) -> dict[str, float]:
    """The factors of all matrices, and of their inputs, by name."""
    found: dict[str, float] = {}
    for name, item in items.items():
        if name.endswith(FACTOR) and not isinstance(item, bytes):
            found[name] = float(item.factor if isinstance(item, Quantized) else item.flat[0])
        elif isinstance(item, Quantized):
            found[name] = float(item.factor)
    return found


def refactored(items: Items, floats: Mapping[str, Floats], factors: Mapping[str, float]) -> Items | None:
    """The items with the factors of a file. None if it lacks a factor, or the matrices are not that file's integers."""
    found = dict(items)
    products = [name for name in floats if name != TWO_EMBEDDINGS[0]]
    if not factors.keys() >= {*floats, *map(factor_name, products)}:
        return None
    for name, matrix in floats.items():
        factor = np.float32(factors[name])
        found[name] = kept = Quantized(np.clip(np.rint(matrix * factor), -MOST, MOST).astype(np.int8), factor)
        if not np.array_equal(kept.floats, matrix):
            return None
    return found | {factor_name(name): np.array([factors[factor_name(name)]], np.float32) for name in products}


def student_options(items: Mapping[str, Item], where: str) -> dict[str, Any]:
    """The options of a student. Raises UserError if they are missing."""
    return read_options(float_arrays({CONFIG: items.get(CONFIG, b"")}), Path(where))
