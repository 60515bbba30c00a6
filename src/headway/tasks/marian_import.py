"""Marian models, such as those of OPUS-MT, as the beginning of a run: their weights in headway's Transformer."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from headway.errors import UserError
from headway.processing.marian_files import WHERE, marian_folder, read_tokenizers
from headway.processing.text.text_processor import TextProcessor
from headway.recipe import Recipe
from headway.tasks.marian_weights import Weights, from_marian
from headway.tensors.batch import BOS, PAD

NEVER = -100.0  # the logit of a token that the model does not have: its probability is zero in float32


def marian_processors(recipe: Recipe) -> tuple[TextProcessor, TextProcessor]:
    """The processors of the model that a recipe begins from.

    Raises:
        UserError: no such model, or a recipe that prepares text in a way that the model has not seen.
    """
    assert recipe.model.from_ is not None
    for name, config in (("source", recipe.text.source), ("target", recipe.text.target)):
        if config.normalise or config.segment != "none":
            what, allowed = "the model's own tokenizer prepares the text", "language alone"
            raise UserError(what, where=f"text.{name}", received=config.model_dump(), allowed=allowed)
    tokenizers = read_tokenizers(marian_folder(recipe.model.from_))
    return TextProcessor(recipe.text.source, tokenizers.source), TextProcessor(recipe.text.target, tokenizers.target)


def fill_from_marian(model: nn.Module, place: str) -> None:
    """Give a Transformer the weights of a Marian model.

    Args:
        model: of the shape that the model's configuration says.
        place: `hf:FOLDER_OR_NAME`.

    Raises:
        UserError: weights that are missing, damaged or of another shape.
    """
    folder = marian_folder(place)
    tokenizers, weights = read_tokenizers(folder), read_safetensors(folder)
    tensors = dict(model.named_parameters())
    try:
        rows = [torch.tensor(rows) for rows in (tokenizers.source_rows, tokenizers.target_rows)]
        carried = from_marian(weights, dict(model.state_dict()), *rows)
    except KeyError as error:
        raise UserError(f"this model lacks the weight {error.args[0]}", where=WHERE, received=str(folder)) from error
    except IndexError as error:
        raise _wrong_shape("its embeddings", folder) from error
    if tokenizers.target_rows[PAD] == tokenizers.target_rows[BOS]:
        carried["projection.bias"][BOS] = NEVER
    with torch.no_grad():
        for name, tensor in tensors.items():
            if tensor.shape != carried[name].shape:
                raise _wrong_shape(f"{name}: {tuple(carried[name].shape)}, not {tuple(tensor.shape)}", folder)
            tensor.copy_(carried[name])


def _wrong_shape(what: str, folder: Path) -> UserError:
    return UserError(
        f"the weights are not of the shape that config.json says ({what})", where=WHERE, received=str(folder)
    )


def read_safetensors(folder: Path) -> Weights:
    """All tensors of a model folder. Raises UserError where there are none, or they are damaged."""
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise UserError(
            "this model has no weights in safetensors, and nothing else is read", where=WHERE, received=str(folder),
            allowed="model.safetensors, which MarianMTModel.from_pretrained(...).save_pretrained(...) writes",
        )  # fmt: skip
    weights: dict[str, Tensor] = {}
    for file in files:
        try:
            with safe_open(file, "pt") as tensors:
                weights |= {name: tensors.get_tensor(name) for name in tensors.keys()}  # noqa: SIM118
        except (SafetensorError, OSError) as error:
            raise UserError(f"these weights cannot be read ({error})", where=str(file)) from error
    return weights
