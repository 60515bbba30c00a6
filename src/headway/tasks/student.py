"""Students of browsers' engines: models of Marian's whose matrices are integers.

An engine has two special ids, the end of a sentence (0) and the unknown token (1). So the pieces of a vocabulary change
places, and the vectors of padding and of the begin mark are not in its files.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from headway.core.documents import dump_yaml
from headway.processing.marian_binary import EMBEDDING, Floats, Item, Items, Quantized, quantized
from headway.processing.marian_npz import CONFIG, Arrays, read_options
from headway.processing.shortlist import EIGHT
from headway.processing.text.subwords import SubwordVocabulary
from headway.tasks.marian import NEVER
from headway.tasks.marian_transformer import TOKENS, arrays_of, options_of
from headway.tensors.batch import EOS, SPECIALS, UNKNOWN

FACTOR = "_QuantMultA"  # ends the name of the factor of what a matrix is multiplied with
EPSILON = 1e-6  # of its norms
END = 0
# What an engine computes where a model does not say so.
ENGINE_OPTIONS = {
    "transformer-decoder-autoreg": "rnn",
    "dec-cell": "ssru",
    "transformer-ffn-activation": "relu",
    "transformer-postprocess": "dan",
}


def engine_rows(size: int) -> list[int]:
    """For each id of an engine's vocabulary the id in headway's of this size; -1 for one that fills it up to eights."""
    rows = [EOS, UNKNOWN, *range(len(SPECIALS), size)]
    return [*rows, *[-1] * (-len(rows) % EIGHT)]


def vocabulary_fault(vocabulary: SubwordVocabulary) -> str | None:
    """The lack of a vocabulary whose SentencePiece model does not tell its ids; None where it does."""
    own = SubwordVocabulary(vocabulary.serialised)
    pieces, special = list(map(own.token, range(len(own)))), {*own.special_ids().values(), -1}
    ordinary = [piece for id, piece in enumerate(pieces) if id not in special]
    if ordinary == list(map(vocabulary.token, range(len(SPECIALS), len(vocabulary)))):
        return None
    return "a vocabulary whose ids are those of its SentencePiece model"


def engine_vocabulary(vocabulary: SubwordVocabulary) -> bytes:
    """The SentencePiece model of a vocabulary as an engine reads it, with the pieces of `engine_rows`."""
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
    """A student's items but for the factors of activations, and its matrices (out, in) or, of embeddings, (V, D).

    Args:
        weights: those of a Transformer with one embedding, each once.
        heads: of its attention.
    """
    filled = {name: weight.detach().to("cpu", torch.float32) for name, weight in weights.items()}
    size = len(filled[TOKENS[3]])
    for name, value in ((TOKENS[0], 0.0), (TOKENS[3], NEVER)):
        filled[name] = torch.cat([filled[name], torch.full_like(filled[name][:1], value)])
    rows = [size if id < 0 else id for id in engine_rows(size)]
    arrays = arrays_of(filled, [rows, rows])
    options = options_of(weights, heads, "relu", [len(rows)] * 2)
    matrices = {
        name: array if name == EMBEDDING else np.ascontiguousarray(array.T)
        for name, array in arrays.items()
        if len(array) > 1
    }
    integers = {name: quantized(matrices[name]) if name in matrices else array for name, array in arrays.items()}
    return {CONFIG: dump_yaml(options).encode() + b"\0", **integers}, matrices


def float_arrays(items: Mapping[str, Item]) -> Arrays:
    """A student's arrays as Marian has them before it is made of integers."""
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
    """The name of the factor of what a matrix is multiplied with; that of the embedding has a name of its own."""
    return ("none" if matrix == EMBEDDING else matrix) + FACTOR


def student_options(items: Mapping[str, Item], where: str) -> dict[str, Any]:
    """The options of a student. Raises UserError where there are none."""
    return read_options(float_arrays({CONFIG: items.get(CONFIG, b"")}), Path(where))
