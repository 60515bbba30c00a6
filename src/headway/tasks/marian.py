"""Marian models, such as OPUS-MT: convert weights between Hugging Face's layout and headway's Transformer.

Both add sinusoidal positions. headway interleaves the sine and cosine of each frequency; Hugging Face has all sines
before all cosines. So the elements of all vectors of size D are permuted. The results are the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor, nn

from headway.core.errors import UserError
from headway.processing.hub_models import read_weights
from headway.processing.marian_files import WHERE, marian_folder, read_tokenizers
from headway.processing.text.text_processor import TextProcessor
from headway.recipe import Recipe
from headway.tensors.batch import BOS, PAD

NEVER = -100.0  # the logit of a token that the model lacks: its probability is zero in float32
Weights = dict[str, Tensor]

# For each part of a block, the names in Marian of its rows, from the first to the last.
PARTS = {
    "mixer.in_projection": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "mixer.out_projection": ("self_attn.out_proj",),
    "mixer_residual.norm": ("self_attn_layer_norm",),
    "cross.query_projection": ("encoder_attn.q_proj",),
    "cross.memory_projection": ("encoder_attn.k_proj", "encoder_attn.v_proj"),
    "cross.out_projection": ("encoder_attn.out_proj",),
    "cross_residual.norm": ("encoder_attn_layer_norm",),
    "feed_forward.inner": ("fc1",),
    "feed_forward.outer": ("fc2",),
    "feed_forward_residual.norm": ("final_layer_norm",),
}
READING = ("in_projection", "query_projection", "memory_projection", "inner")  # their inputs are vectors of size D


def interleaving(dim: int) -> Tensor:
    """The index (D,) of each element of headway's vectors in Marian's vectors."""
    index = torch.arange(dim)
    return torch.where(index % 2 == 0, index // 2, (dim + 1) // 2 + index // 2)


def to_marian(weights: Mapping[str, Tensor], *, shared: bool) -> Weights:
    """Convert the weights of a Transformer to Marian's layout and names.

    Args:
        weights: the `state_dict` of a post-norm Transformer with sinusoidal positions.
        shared: whether both sides share the embedding.
    """
    source, target = weights["source_embedding.tokens.weight"], weights["target_embedding.tokens.weight"]
    back = interleaving(source.shape[1]).argsort()
    source, target, projection = (each[:, back] for each in (source, target, weights["projection.weight"]))
    bias = weights.get("projection.bias", target.new_zeros(len(target)))
    carried = {
        "final_logits_bias": bias[None],
        "lm_head.weight": projection,
        "model.encoder.embed_tokens.weight": source,
        "model.decoder.embed_tokens.weight": target,
    }
    if shared:
        carried["model.shared.weight"] = source
    for name, (marian, part, parts) in _names(weights):
        rows = _reordered(weights[name], name, back).chunk(parts)
        carried[marian] = rows[part].contiguous()
    return carried


def from_marian(weights: Mapping[str, Tensor], names: Mapping[str, Tensor], source: Tensor, target: Tensor) -> Weights:
    """Convert Marian's weights to headway's layout and names.

    Args:
        weights: the weights of a MarianMTModel.
        names: the tensors of the Transformer, for their names only.
        source: the row in Marian of each id of headway's source vocabulary, (V,).
        target: the same for the target vocabulary, (V,).

    Raises:
        KeyError: a weight is missing, by Marian's name.
        UserError: tied embeddings are not equal.
    """
    embeddings = [_first(weights, f"model.{side}.embed_tokens.weight") for side in ("encoder", "decoder")]
    order = interleaving(embeddings[0].shape[1])
    own = "projection.weight" in names
    projection = (
        weights["lm_head.weight"] if own else _first(weights, "lm_head.weight", "model.decoder.embed_tokens.weight")
    )
    carried = {
        "source_embedding.tokens.weight": embeddings[0][source][:, order],
        "target_embedding.tokens.weight": embeddings[1][target][:, order],
        "projection.weight": projection[target][:, order],
        "projection.bias": weights["final_logits_bias"].flatten()[target],
    }
    rows: dict[str, dict[int, Tensor]] = {}
    for name, (marian, part, _) in _names(names):
        rows.setdefault(name, {})[part] = weights[marian]
    for name, parts in rows.items():
        carried[name] = _reordered(torch.cat([parts[index] for index in sorted(parts)]), name, order)
    tied = ("projection.weight", "target_embedding.tokens.weight", "source_embedding.tokens.weight")
    for name, other in pairwise(tied):
        if name not in names and not torch.equal(carried[name], carried[other]):
            what = "these weights have embeddings, or a projection, of their own, which config.json does not say"
            raise UserError(what, where=WHERE, allowed="tie_word_embeddings: false")
    return {name: tensor.float().contiguous() for name, tensor in carried.items() if name in names}


def _first(weights: Mapping[str, Tensor], *names: str) -> Tensor:
    """The first of the weights `names` that exists, or the shared embedding."""
    return weights[next((name for name in names if name in weights), "model.shared.weight")]


def _names(weights: Mapping[str, Tensor]) -> Iterator[tuple[str, tuple[str, int, int]]]:
    """For each weight of a block, headway's name, and Marian's name, index and number of the parts of its rows."""
    for name in weights:
        stack, _, rest = name.partition(".")
        if stack in ("encoder", "decoder"):
            number, _, place = rest.partition(".")
            module, _, kind = place.rpartition(".")
            parts = PARTS[module]
            for index, part in enumerate(parts):
                yield name, (f"model.{stack}.layers.{number}.{part}.{kind}", index, len(parts))


def _reordered(weight: Tensor, name: str, order: Tensor) -> Tensor:
    """A weight or bias of a block, with the elements of the vectors of size D permuted by `order`."""
    module, kind = name.split(".")[-2:]
    if module in READING:
        return weight[:, order] if kind == "weight" else weight
    return weight[order]


def marian_processors(recipe: Recipe) -> tuple[TextProcessor, TextProcessor]:
    """The processors of the model in `model.from`.

    Raises:
        UserError: the model does not exist, or the recipe prepares text in another way than the model.
    """
    assert recipe.model.from_ is not None
    for name, config in (("source", recipe.text.source), ("target", recipe.text.target)):
        if config.normalise or config.segment != "none":
            what, allowed = "the model's own tokenizer prepares the text", "language alone"
            raise UserError(what, where=f"text.{name}", received=config.model_dump(), allowed=allowed)
    tokenizers = read_tokenizers(marian_folder(recipe.model.from_))
    return TextProcessor(recipe.text.source, tokenizers.source), TextProcessor(recipe.text.target, tokenizers.target)


def fill_from_marian(model: nn.Module, place: str) -> None:
    """Load the weights of a Marian model into a Transformer.

    Args:
        model: the Transformer, with the sizes in the Marian model's configuration.
        place: `hf:FOLDER_OR_NAME`.

    Raises:
        UserError: weights are missing, damaged or of another shape.
    """
    tensors = dict(model.named_parameters())
    carried = marian_weights(marian_folder(place), tensors)
    with torch.no_grad():
        for name, tensor in tensors.items():
            tensor.copy_(carried[name])


def marian_weights(folder: Path, tensors: Mapping[str, Tensor]) -> Weights:
    """The weights of a Marian model for a Transformer. Only the names and shapes of `tensors` are used.

    Raises:
        UserError: weights are missing, superfluous, damaged or of another shape.
    """
    tokenizers, weights = read_tokenizers(folder), read_weights(folder, WHERE)
    try:
        rows = [torch.tensor(rows) for rows in (tokenizers.source_rows, tokenizers.target_rows)]
        carried = from_marian(weights, tensors, *rows)
    except KeyError as error:
        raise UserError(f"this model lacks the weight {error.args[0]}", where=WHERE, received=str(folder)) from error
    except (IndexError, RuntimeError) as error:
        raise _wrong_shape(str(error).splitlines()[0], folder) from error
    if tokenizers.target_rows[PAD] == tokenizers.target_rows[BOS]:
        carried["projection.bias"][BOS] = NEVER
    for name, tensor in tensors.items():
        if tensor.shape != carried[name].shape:
            raise _wrong_shape(f"{name}: {tuple(carried[name].shape)}, not {tuple(tensor.shape)}", folder)
    for stack in ("encoder", "decoder"):
        layers = len({name.split(".")[1] for name in tensors if name.startswith(f"{stack}.")})
        if f"model.{stack}.layers.{layers}.fc1.weight" in weights:
            what = f"these weights have more layers than config.json says ({stack}_layers: {layers})"
            raise UserError(what, where=WHERE, received=str(folder))
    return carried


def _wrong_shape(what: str, folder: Path) -> UserError:
    return UserError(
        f"the weights are not of the shape that config.json says ({what})", where=WHERE, received=str(folder)
    )
