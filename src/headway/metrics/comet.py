"""COMET (Rei et al. 2020; 2022): translation scores of a neural network that is trained on human judgements.

Shapes: N segments, B texts of a batch, T tokens, D the hidden size of the encoder.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
import torch
from pydantic import BaseModel, Field
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from headway.core.config import validated
from headway.core.device import pick_device
from headway.core.documents import read_yaml
from headway.core.errors import UserError
from headway.core.files import exists
from headway.core.log import progress
from headway.core.processes import batched
from headway.core.storage import hashes_of
from headway.metrics.metric import Metric, Signature, Statistics, check_one_reference, check_segments, release
from headway.processing.hub_models import hub_folder, read_weights, weight_files
from headway.processing.pretrained import loading

WHERE = "comet"
HUB = "hf:"
HPARAMS = "hparams.yaml"
WEIGHTS = ("model.safetensors", "checkpoints/model.safetensors", "checkpoints/model.ckpt", "model.ckpt")
FILES = (HPARAMS, "*.json", "*.model", "*model*.safetensors")
OF_ENCODER = ("*.json", "*.model")  # without weights, which are in the metric's own file
# Weights that scoring does not use: word labels, the pretraining head, constants, dropout masks.
UNUSED = (
    "hidden2tag.", "encoder.model.pooler.", "encoder.model.embeddings.position_ids", "layerwise_attention.dropout",
)  # fmt: skip
# The number of vectors of size D that are concatenated for a segment.
EMBEDDINGS = {"regression_metric": 6, "referenceless_regression_metric": 4, "unified_metric": 1}
LATER = 4096  # segments whose embeddings are in memory at once
MANY = 20  # batches above which progress is shown
MOST_KNOWN = 20_000  # texts whose embeddings are cached

Item = TypeVar("Item")

Activation = Literal["Tanh", "Sigmoid"]
ACTIVATIONS: dict[Activation, type[nn.Module]] = {"Tanh": nn.Tanh, "Sigmoid": nn.Sigmoid}


class Hyperparameters(BaseModel):
    """The settings in `hparams.yaml` that determine the computation, with the defaults of the published classes."""

    class_identifier: Literal["regression_metric", "referenceless_regression_metric", "unified_metric"]
    encoder_model: Literal["XLM-RoBERTa", "XLM-RoBERTa-XL"] = "XLM-RoBERTa"
    pretrained_model: str
    pool: Literal["avg", "max", "cls", "default"] = "avg"
    layer: Literal["mix"] | Annotated[int, Field(ge=0)] = "mix"
    sent_layer: Literal["mix"] | Annotated[int, Field(ge=0)] = "mix"
    layer_transformation: Literal["softmax", "sparsemax", "sparsemax_patch"] | None = None
    layer_norm: bool = True
    hidden_sizes: Annotated[tuple[Annotated[int, Field(gt=0)], ...], Field(min_length=1)]
    activations: Activation = "Tanh"
    final_activation: Activation | None = None
    input_segments: tuple[Literal["mt", "src", "ref"], ...] = ("mt", "src", "ref")

    @property
    def is_unified(self) -> bool:
        """Whether the output is encoded together with its source, its reference or both, in one sequence."""
        return self.class_identifier == "unified_metric"

    @property
    def is_sparse(self) -> bool:
        """Whether layers are weighted by sparsemax; `sparsemax_patch` of CometKiwi was trained with softmax."""
        return (self.layer_transformation or ("sparsemax" if self.is_unified else "softmax")) == "sparsemax"

    def reads(self, part: Literal["src", "ref"]) -> bool:
        """Whether the metric uses sources or references."""
        if self.is_unified:
            return part in self.input_segments
        return part == "src" or self.class_identifier == "regression_metric"


class LayerwiseAttention(nn.Module):
    """A weighted sum of the hidden states of all layers, including the embeddings (Peters et al. 2018)."""

    def __init__(self, layers: int, config: Hyperparameters) -> None:
        super().__init__()
        self.scalar_parameters = nn.ParameterList(torch.zeros(1) for _ in range(layers))
        self.gamma = nn.Parameter(torch.ones(1))
        self.sparse, self.norm = config.is_sparse, config.layer_norm

    def forward(self, layers: Sequence[Tensor], mask: Tensor) -> Tensor:
        """The weighted sum (B, T, D). With `norm`, each layer is first standardised over all real tokens of a text."""
        scalars = torch.cat(list(self.scalar_parameters))
        weights = sparsemax(scalars) if self.sparse else scalars.softmax(0)
        layers = [normalised(layer, mask) for layer in layers] if self.norm else layers
        return self.gamma * torch.stack([weight * layer for weight, layer in zip(weights, layers, strict=True)]).sum(0)


def sparsemax(scores: Tensor) -> Tensor:
    """The Euclidean projection of scores (n,) onto the simplex (Martins and Astudillo 2016, algorithm 1)."""
    ordered = scores.sort(descending=True).values
    beyond = (ordered.cumsum(0) - 1) / torch.arange(1, len(scores) + 1, device=scores.device)
    return (scores - beyond[ordered > beyond][-1]).clamp(min=0)


def normalised(layer: Tensor, mask: Tensor) -> Tensor:
    """Standardise vectors (B, T, D) over each text; `mask` (B, T) is True at real tokens."""
    real = mask[:, :, None].to(layer.dtype)
    count = real.sum((1, 2), keepdim=True) * layer.shape[-1]
    mean = (layer * real).sum((1, 2), keepdim=True) / count
    variance = (((layer - mean) * real) ** 2).sum((1, 2), keepdim=True) / count
    return (layer - mean) / (variance + 1e-12).sqrt()


class Scorer(nn.Module):
    """The network, with the published names of its weights, and the encoder and tokenizer of transformers."""

    def __init__(self, config: Hyperparameters, encoder: Any, tokenizer: Any) -> None:
        super().__init__()
        self.config, self.tokenizer, sizes = config, tokenizer, encoder.config
        self.encoder = nn.ModuleDict({"model": encoder})
        self.layer = config.sent_layer if config.is_unified else config.layer
        if self.layer == "mix":
            self.layerwise_attention = LayerwiseAttention(sizes.num_hidden_layers + 1, config)
        widths, parts = [EMBEDDINGS[config.class_identifier] * sizes.hidden_size, *config.hidden_sizes, 1], []
        for width, following in pairwise(widths):
            # The published names of weights count a dropout layer at the third position.
            parts += [nn.Linear(width, following), ACTIVATIONS[config.activations](), nn.Identity()]
        last = [] if config.final_activation is None else [ACTIVATIONS[config.final_activation]()]
        self.estimator = nn.ModuleDict({"ff": nn.Sequential(*parts[:-2], *last)})
        self.longest = sizes.max_position_embeddings - 2
        self.known: dict[str, Tensor] = {}

    @torch.inference_mode()
    def scores(self, texts: dict[str, Sequence[str]], together: int) -> list[float]:
        """The scores (N,) of segments; `texts` has lists of N texts under `mt`, `src` and `ref`."""
        found: list[float] = []
        for start in range(0, len(texts["mt"]), LATER):
            some = {name: part[start : start + LATER] for name, part in texts.items()}
            if self.config.is_unified:
                found += self._joint(some, together)
                continue
            vectors = self._vectors(some, together)
            output, *others = (vectors[name] for name in ("mt", "ref", "src") if name in vectors)
            compared = [part for other in others for part in (output * other, (output - other).abs())]
            parts = [output, others[0], *compared]
            found += self.estimator["ff"](torch.cat(parts, 1)).view(-1).tolist()
        return found

    def _vectors(self, texts: dict[str, Sequence[str]], together: int) -> dict[str, Tensor]:
        """The sentence embeddings (N, D) of texts, computed once for each distinct text."""
        every = {text for part in texts.values() for text in part}
        if len(self.known) > MOST_KNOWN:
            self.known.clear()
        for some in batches(sorted(every - self.known.keys(), key=lambda text: (len(text), text)), together):
            pooled = self._pooled([torch.tensor(ids) for ids in self._ids(some)])
            self.known.update(zip(some, pooled, strict=True))
        return {name: torch.stack([self.known[text] for text in part]) for name, part in texts.items()}

    def _joint(self, texts: dict[str, Sequence[str]], together: int) -> list[float]:
        """The scores of outputs encoded together with sources, references and both, averaged."""
        cls, sep, pad = (getattr(self.tokenizer, f"{name}_token_id") for name in ("cls", "sep", "pad"))
        rows = {
            name: [[id for id in row if id != pad][1:-1] for row in self._ids(part)] for name, part in texts.items()
        }
        beside = [["mt", name] for name in ("src", "ref") if name in rows]
        beside += [["mt", "src", "ref"]] if len(beside) == 2 else []
        scores = torch.zeros(len(texts["mt"]), len(beside))
        order = sorted(range(len(scores)), key=lambda index: sum(len(part[index]) for part in rows.values()))
        for some in batches(order, together):
            for column, names in enumerate(beside):
                joined = [[id for name in names for id in [sep, sep, *rows[name][index]]] for index in some]
                ids = [torch.tensor([cls, *row[2:], sep][: self.longest]) for row in joined]
                scores[some, column] = self.estimator["ff"](self._pooled(ids)).view(-1).cpu()
        means: list[float] = scores.mean(1).tolist()
        return means

    def _ids(self, texts: Sequence[str]) -> list[list[int]]:
        ids: list[list[int]] = self.tokenizer(list(texts), truncation=True, max_length=self.longest - 2)["input_ids"]
        return ids

    def _pooled(self, ids: Sequence[Tensor]) -> Tensor:
        """The sentence embedding (B, D) of each sequence of ids."""
        padding, device = self.tokenizer.pad_token_id, next(self.parameters()).device
        tokens = pad_sequence(list(ids), batch_first=True, padding_value=padding).to(device)
        lengths = torch.tensor([len(each) for each in ids], device=device)
        mask = torch.arange(tokens.shape[1], device=device) < lengths[:, None]
        layers = self.encoder["model"](tokens, attention_mask=mask.long(), output_hidden_states=True).hidden_states
        if self.config.pool == "default" and not self.config.is_unified:
            return torch.as_tensor(layers[-1][:, 0])
        vectors: Tensor = self.layerwise_attention(layers, mask) if self.layer == "mix" else layers[self.layer]
        if self.config.pool == "cls" or self.config.is_unified:
            return vectors[:, 0]
        empty = (tokens == padding)[:, :, None]
        if self.config.pool == "max":
            return vectors.masked_fill(empty, -torch.inf).amax(1)
        return vectors.masked_fill(empty, 0).sum(1) / lengths[:, None]


def batches(items: Sequence[Item], size: int) -> Iterator[list[Item]]:
    """Split the items into lists of `size`, with a progress line if there are many."""
    every = list(batched(items, size))
    with progress("COMET", len(every), "batches", shown=len(every) > MANY) as line:
        yield from line.over(every)


@lru_cache(maxsize=2)
def load_scorer(folder: Path, encoder: Path, config_text: str, device: str) -> Scorer:
    """Load the network of a folder. Raises UserError if the encoder is of another kind, or the weights do not fit."""
    config = Hyperparameters.model_validate_json(config_text)
    kind = config.encoder_model.lower()
    with loading("this encoder", str(encoder), f"{WHERE}.encoder") as transformers:
        sizes = transformers.AutoConfig.from_pretrained(str(encoder), trust_remote_code=False)
        if (received := sizes.model_type) != kind:
            what, where = "this encoder is not of the metric's kind", f"{WHERE}.encoder"
            raise UserError(what, where=where, received=received, allowed=kind)
        tokenizer = transformers.AutoTokenizer.from_pretrained(str(encoder), trust_remote_code=False)
        with torch.random.fork_rng(devices=()):  # initialisation must not change the state of a training's generator
            scorer = Scorer(config, transformers.AutoModel.from_config(sizes, add_pooling_layer=False), tokenizer)
    weights = {name: tensor.float() for name, tensor in read_weights(folder, f"{WHERE}.model", WEIGHTS).items()}
    try:
        missing, others = scorer.load_state_dict(weights, strict=False)
    except RuntimeError as error:
        what = f"these are not the weights of this metric ({str(error).splitlines()[-1].strip()})"
        raise UserError(what, where=str(folder)) from error
    if wrong := [*missing, *(name for name in others if not name.startswith(UNUSED))]:
        state = "has no weights" if missing else "has no place for the weights"
        raise UserError(f"this metric {state} {wrong[0]}", where=str(folder), allowed=f"those that {HPARAMS} describes")
    return scorer.to(pick_device(device)).eval()


class Comet(Metric):
    """COMET, times 100: the mean score of a network that reads sources, outputs and, for most models, references.

    It computes in float32. Statistics: the score, and 1.

    Args:
        model: a folder with hparams.yaml and weights, as safetensors or as a checkpoint of tensors alone; or hf:NAME.
        encoder: a folder, or hf:NAME, with the encoder's configuration and tokenizer, unless `model` includes them.
        device: auto, cpu, cuda, ...
        batch_size: the number of texts that are encoded at once.

    Raises:
        UserError: the folder or its files are missing, or the metric is of another kind.
    """

    name = WHERE

    def __init__(
        self,
        *,
        model: str,
        encoder: str | None = None,
        device: str = "auto",
        batch_size: Annotated[int, Field(gt=0, le=4096)] = 16,
    ) -> None:
        self._folder = _located(model, "model", FILES, ("*.ckpt",))
        config = validated(Hyperparameters, read_yaml(self._folder / HPARAMS), str(self._folder / HPARAMS))
        if encoder is None and not (self._folder / "config.json").is_file():
            name = f"{HUB}{config.pretrained_model}"
            if not model.startswith(HUB):
                what = "this folder has no configuration and tokenizer of its encoder"
                raise UserError(what, where=f"{WHERE}.encoder", allowed=f"a folder that has them, or {name}")
            encoder = name
        self._encoder = self._folder if encoder is None else _located(encoder, "encoder", OF_ENCODER)
        self._files = weight_files(self._folder, f"{WHERE}.model", WEIGHTS)
        self._config, self._device, self._together = config, device, batch_size
        self._name = Path(model.removeprefix(HUB)).absolute().name
        self.reads_sources, self.reads_references = config.reads("src"), config.reads("ref")

    @property
    def label(self) -> str:
        return f"COMET {self._name}"

    @property
    def bounds(self) -> tuple[float, float]:
        return -np.inf, np.inf

    def statistics(
        self, hypotheses: Sequence[str], references: Sequence[Sequence[str]], sources: Sequence[str] = ()
    ) -> Statistics:
        check_segments(hypotheses, references)
        texts = {"mt": hypotheses}
        if self.reads_references:
            check_one_reference("COMET", hypotheses, references)
            texts["ref"] = references[0]
        if self.reads_sources:
            texts["src"] = sources
        scorer = load_scorer(self._folder, self._encoder, self._config.model_dump_json(), self._device)
        scores = scorer.scores(texts, self._together)
        return np.stack([scores, np.ones(len(scores))], axis=1)

    def aggregate(self, totals: Statistics) -> float:
        return float(100 * totals[0] / totals[1])

    def signature(self) -> Signature:
        weights = "+".join(hash[:12] for hash in hashes_of(self._files))
        return Signature.of(model=self._name, weights=weights, version=release())


def _located(name: str, option: str, files: Sequence[str], pickled: Sequence[str] = ()) -> Path:
    """The folder for a name. The hub is only used for names with `hf:`. Raises UserError if there is no such folder."""
    where = f"{WHERE}.{option}"
    if not name.startswith(HUB) and not exists(Path(name), "folder"):
        raise UserError("there is no such folder", where=where, received=name, allowed=f"a folder, or {HUB}OWNER/NAME")
    return hub_folder(name.removeprefix(HUB), where, files, pickled).absolute()
