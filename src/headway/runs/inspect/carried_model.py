"""The small model that a page carries, so that its heads and offsets can be switched off there (`page/model.js`).

Shapes: L positions, D model, V vocabulary.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor, nn

from headway.mixers.attention import Attention
from headway.mixers.ngram import Ngram
from headway.mixers.positions import NoPosition
from headway.mixers.relative import RelativePosition
from headway.models.block import Block, Residual
from headway.models.components import LayerNorm, ReluFeedForward, RmsNorm, SwishFeedForward
from headway.models.cross_attention import MultiHeadCross
from headway.models.embeddings import Embedding
from headway.models.transformer import Transformer
from headway.predictors.output import Example
from headway.predictors.sequence_predictor import SequencePredictor
from headway.runs.inspect.capture import search_options
from headway.tensors.batch import EOS

MOST_PARAMETERS = 1_000_000
ACTIVATIONS = {ReluFeedForward: "relu", SwishFeedForward: "swish"}


class _Weights:
    """Tensors as one array of float32; one that is in two parts of a model is there once."""

    def __init__(self) -> None:
        self.arrays: dict[int, tuple[Tensor, int]] = {}
        self.size = 0

    def __call__(self, tensor: Tensor | None) -> list[int] | None:
        """The place and the number of a tensor's values."""
        if tensor is None:
            return None
        if id(tensor) not in self.arrays:
            self.arrays[id(tensor)] = tensor, self.size
            self.size += tensor.numel()
        return [self.arrays[id(tensor)][1], tensor.numel()]

    def linear(self, layer: Any) -> dict[str, Any]:
        """A linear map."""
        return {"weight": self(layer.weight), "bias": self(layer.bias)}

    def norm(self, norm: Any) -> dict[str, Any] | None:
        """A norm; None for what leaves vectors as they are. Raises ValueError for one of another kind."""
        if isinstance(norm, nn.Identity | None):
            return None
        _require(type(norm) in (LayerNorm, RmsNorm), f"norms are not {type(norm).__name__}")
        bias = self(norm.bias) if isinstance(norm, LayerNorm) else None
        return {"centred": isinstance(norm, LayerNorm), "weight": self(norm.weight), "bias": bias, "eps": norm.eps}

    def packed(self) -> str:
        """All values in base64, little end first."""
        values = [tensor.detach().float().cpu().numpy().astype("<f4").ravel() for tensor, _ in self.arrays.values()]
        return base64.b64encode(np.concatenate(values).tobytes()).decode()


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise ValueError(otherwise)


def carried_model(predictor: Any, examples: Sequence[Example], nbest: int) -> dict[str, Any]:
    """The model with its search, and the ids and the longest output of each sentence of a page; or why it has none."""
    try:
        return _carried(predictor, examples, nbest)
    except ValueError as error:
        return {"why": f"Heads have no switches here: {error}."}


def _carried(predictor: Any, examples: Sequence[Example], nbest: int) -> dict[str, Any]:
    _require(isinstance(predictor, SequencePredictor), "the model does not write token by token")
    (model,) = predictor.models
    count = sum(parameter.numel() for parameter in model.parameters())
    _require(count <= MOST_PARAMETERS, f"a page carries models of up to a million parameters, and this has {count:,}")
    _require(type(model) is Transformer, "only Transformers with encoder and decoder have them")
    assert isinstance(model, Transformer)
    source, target, weights = model.source_embedding, model.target_embedding, _Weights()
    _require(type(source) is Embedding, "the model reads speech")
    assert isinstance(source, Embedding)
    search = search_options(predictor, nbest)
    request = predictor.request([example.source for example in examples], predictor.Options(**search), 1)
    options = request.search
    _require(options.no_repeat_ngram == 0, "decoding.no_repeat_ngram is set")
    _require(options.unknown_words == "keep", "decoding.unknown_words is set")
    _require(not any(request.prefixes), "outputs have a forced beginning")
    room = max([len(each.values) + 1 for each in request.sources] + [length + 1 for length in request.longest])

    def embedding(part: Embedding) -> dict[str, Any]:
        positions = None if type(part.position) is NoPosition else weights(part.position.between(0, room))
        read = {"tokens": weights(part.tokens.weight), "positions": positions, "norm": weights.norm(part.norm)}
        return read | {"scale": part.scale, "zeroFirst": part.zero_first}

    content = {
        "dim": target.tokens.embedding_dim,
        "source": embedding(source),
        "target": embedding(target),
        "encoder": [_block(block, weights) for block in model.encoder],
        "decoder": [_block(block, weights) for block in model.decoder],
        "encoderNorm": weights.norm(model.encoder_norm),
        "decoderNorm": weights.norm(model.decoder_norm),
        "projection": weights.linear(model.projection),
        "switches": [name for name in model.points() if ":" in name],
        "tokens": predictor.target.tokens(range(target.tokens.num_embeddings)),
        "search": {"beam": options.beam, "nbest": nbest, "alpha": options.length_penalty}
        | {"shortest": options.min_length},
        "sentences": [
            {"ids": [*map(int, each.values), EOS], "longest": longest} if len(each.values) else None
            for each, longest in zip(request.sources, request.longest, strict=True)
        ],
    }
    return content | {"weights": weights.packed()}


def _block(block: Any, weights: _Weights) -> dict[str, Any]:
    """A block of a stack. Raises ValueError where the page cannot compute it."""
    canons = block.mixer_canon, block.feed_forward_canon, block.feed_forward_inner_canon
    _require(type(block) is Block and canons == (None,) * 3, "they have Canon layers")
    residuals = {"mixer": block.mixer_residual, "feedForward": block.feed_forward_residual}
    if block.cross is not None:
        residuals["cross"] = block.cross_residual
    _require(all(type(each) is Residual for each in residuals.values()), "sublayers attend to the outputs before them")
    feed_forward, cross = block.feed_forward, block.cross
    _require(type(feed_forward) in ACTIVATIONS, f"feed-forward networks are not {type(feed_forward).__name__}")
    network = {"inner": weights.linear(feed_forward.inner), "outer": weights.linear(feed_forward.outer)}
    content = {
        "post": block.mixer_residual.post,
        "norms": {name: weights.norm(each.norm) for name, each in residuals.items()},
        "mixer": _mixer(block.mixer, weights),
        "feedForward": network | {"activation": ACTIVATIONS[type(feed_forward)]},
        "cross": None,
    }
    if cross is not None:
        _require(type(cross) is MultiHeadCross, f"cross-attention is not {type(cross).__name__}")
        sizes = {"heads": cross.heads, "keyDim": cross.key_dim, "valueDim": cross.value_dim}
        content["cross"] = sizes | {
            "query": weights.linear(cross.query_projection),
            "memory": weights.linear(cross.memory_projection),
            "out": weights.linear(cross.out_projection),
        }
    return content


def _mixer(mixer: Any, weights: _Weights) -> dict[str, Any]:
    """A mixer. Raises ValueError where the page cannot compute it."""
    _require(type(mixer) in (Attention, Ngram), f"mixers are not {type(mixer).__name__}")
    maps = {"in": weights.linear(mixer.in_projection), "out": weights.linear(mixer.out_projection)}
    if isinstance(mixer, Ngram):
        content: dict[str, Any] = {"weight": weights(mixer.weight), "bias": weights(mixer.bias)}
        content |= {"spans": [span.name for span in mixer.spans()]}
        content |= {"global": weights(mixer.global_weight), "headDim": mixer.head_dim, "n": mixer.n}
        return maps | content | {"kind": "ngram", "heads": mixer.heads}
    plain = mixer.plain and type(mixer.position) is RelativePosition and mixer.value_share is None
    _require(plain, "their attention has relative positions, shared keys, norms, gates, or values of other layers")
    return maps | {"kind": "attention", "heads": mixer.heads, "keyDim": mixer.key_dim, "valueDim": mixer.value_dim}
