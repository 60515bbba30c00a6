"""The small model that is embedded in a page, whose parts can be switched off there (`page/model.js`)."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from headway.inspect.capture import search_options
from headway.mixers import Mixer
from headway.mixers.positions import AbsolutePosition, NoPosition
from headway.mixers.relative import ScoreBias
from headway.models.decoder_only import DecoderOnly
from headway.models.recurrent.recurrent_model import Reinforce
from headway.predictors.output import Example
from headway.predictors.sequence_predictor import SequencePredictor
from headway.tensors.batch import EOS
from headway.tensors.dropout import Dropout

MOST_PARAMETERS = 1_000_000
SILENT = nn.Identity, Dropout, Reinforce  # modules without effect in evaluation
KNOWN = {  # classes of headway and torch that the scripts of the page compute, by name
    "Transformer", "DecoderOnly", "Recurrent", "Embedding", "TokenEmbedding", "Block", "Residual", "DepthResidual",
    "DepthAttention", "Linear", "Canon", "LayerNorm", "RmsNorm", "RMSNorm", "ReluFeedForward", "GeluFeedForward",
    "SwishFeedForward", "SwigluFeedForward", "GegluFeedForward", "Attention", "LocalAttention", "DependencyAttention",
    "MergedAttention", "Ngram", "LightConv", "Nplm", "Ssru", "LinearAttention", "DeltaRule", "NoPosition", "Sinusoidal",
    "Learned", "RelativePosition", "Rotary", "Alibi", "T5Bias", "MultiHeadCross", "DotAttention", "GeneralAttention",
    "AdditiveAttention", "LocationAttention", "Dot", "General", "Additive", "Location", "Global", "LocalMonotonic",
    "LocalPredictive", "Encoder", "Decoder", "Start", "Readout", "LSTM", "GRU", "ChoGru",
}  # fmt: skip


class _Modules:
    """Modules as trees, and their tensors as one float32 array, in which shared tensors are stored once.

    Args:
        positions: the largest number of positions that are read at once.
    """

    def __init__(self, positions: int) -> None:
        self.arrays: dict[int, tuple[Tensor, int]] = {}
        self.size, self.positions = 0, positions

    def tensor(self, tensor: Tensor | None) -> list[int] | None:
        """The offset and the number of a tensor's values in the array."""
        if tensor is None:
            return None
        if id(tensor) not in self.arrays:
            self.arrays[id(tensor)] = tensor, self.size
            self.size += tensor.numel()
        return [self.arrays[id(tensor)][1], tensor.numel()]

    def tree(self, module: Any) -> Any:
        """The class, options, tensors and submodules of a module. Raises ValueError if its class is not in `KNOWN`."""
        if isinstance(module, nn.ModuleList | nn.Sequential):
            return [self.tree(each) for each in module]
        if module is None or isinstance(module, SILENT):
            return None
        name, room = type(module).__name__, type(module).__module__.partition(".")[0]
        _require(name in KNOWN and room in ("headway", "torch"), f"no page computes a {name}")
        content = {"type": name, **{each: self.tree(part) for each, part in module._modules.items()}}
        for each, value in vars(module).items():
            if not each.startswith("_") and isinstance(value, bool | int | float | str | None):
                content[each] = value
        if isinstance(module, AbsolutePosition):
            whole = not isinstance(module, NoPosition)
            return content | {"table": self.tensor(module.between(0, self.positions)) if whole else None}
        if isinstance(module, ScoreBias):
            (device,) = {each.device for each in [*module.parameters(), *module.buffers()]}
            offsets = torch.arange(1 - self.positions, self.positions, device=device)
            return content | {"bias": self.tensor(module.bias(offsets))}
        if isinstance(module, Mixer):
            content["spans"] = [span.name for span in module.spans()]
        tensors = module._parameters | module._buffers
        return content | {each: self.tensor(tensor) for each, tensor in tensors.items()}

    def packed(self) -> str:
        """All values in base64, in little-endian order."""
        values = [tensor.detach().float().cpu().numpy().astype("<f4").ravel() for tensor, _ in self.arrays.values()]
        return base64.b64encode(np.concatenate(values).tobytes()).decode()


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise ValueError(otherwise)


def carried_model(predictor: Any, examples: Sequence[Example], nbest: int) -> dict[str, Any]:
    """The model, its search options, and the ids and maximum length of each sentence; or why it is not embedded."""
    try:
        return _carried(predictor, examples, nbest)
    except ValueError as error:
        return {"why": f"Parts have no switches here: {error}."}


def _carried(predictor: Any, examples: Sequence[Example], nbest: int) -> dict[str, Any]:
    _require(isinstance(predictor, SequencePredictor), "the model does not write token by token")
    _require(not predictor.recipe.model.reads_frames(), "the model reads speech")
    _require(not predictor.recipe.data.context.most, "outputs depend on the sentences before")
    (model,) = predictor.models
    count = sum(parameter.numel() for parameter in model.parameters())
    _require(count <= MOST_PARAMETERS, f"a page carries models of up to a million parameters, and this has {count:,}")
    search = search_options(predictor, nbest)
    request = predictor.request([example.source for example in examples], predictor.Options(**search), 1)
    options = request.search
    _require(options.unknown_words == "keep", "decoding.unknown_words is set")
    _require(not any(row.prefix for row in request.rows), "outputs have a forced beginning")
    sizes = [(len(row.encoded.values) + 1, row.longest + 1) for row in request.rows]
    modules = _Modules(max(map(sum if isinstance(model, DecoderOnly) else max, sizes)))
    return {
        "model": modules.tree(model),
        "weights": modules.packed(),
        "switches": [name for name in model.points() if not name.endswith(".residual")],
        "tokens": predictor.target.tokens(range(model.projection.out_features)),
        "search": {"beam": options.beam, "nbest": nbest, "ranking": asdict(options.ranking)}
        | {"shortest": options.min_length, "no_repeat": options.no_repeat_ngram},
        "sentences": [
            {"ids": [*map(int, row.encoded.values), EOS], "longest": row.longest} if len(row.encoded.values) else None
            for row in request.rows
        ],
    }
