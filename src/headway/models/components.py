"""The registries of models and their components, norms and feed-forward networks, presets from papers, and the
validation of `model` sections.

Shapes: D model.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from headway.core.config import Section, Width, merge, named, validated
from headway.core.errors import UserError, shortened
from headway.core.registry import Registry, config_of
from headway.models.cross_attention import CrossMixer
from headway.models.model import Model, ModelSection
from headway.tensors.linear import Linear


class FeedForward(nn.Module, ABC):
    """A map applied to each position. A subclass takes `dim` and its `Config`, or keyword-only options."""

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor:
        """Map (..., D) to (..., D)."""


class HiddenFeedForward(FeedForward):
    """A feed-forward network whose hidden layer can be modified before its activation.

    Attributes:
        width: H, the size of the hidden layer before its activation.
    """

    width: int

    @abstractmethod
    def hidden(self, x: Tensor) -> Tensor:
        """The hidden layer (..., H) of x (..., D), before the activation."""

    @abstractmethod
    def finish(self, hidden: Tensor) -> Tensor:
        """The output (..., D): the activation of `hidden` (..., H), and the output layer."""

    def forward(self, x: Tensor) -> Tensor:
        return self.finish(self.hidden(x))


class FeedForwardConfig(Section):
    """The options of feed-forward networks. `hidden`: the size of the hidden layer."""

    hidden: Width = 2048


class BiasedConfig(FeedForwardConfig):
    """The options of networks that may have biases. `bias`: whether both maps have one."""

    bias: bool = True


class ReluFeedForward(HiddenFeedForward):
    """ReLU(x W1 + b1) W2 + b2 (Vaswani et al. 2017, equation 2)."""

    Config: ClassVar = BiasedConfig

    def __init__(self, dim: int, config: BiasedConfig) -> None:
        super().__init__()
        self.width = config.hidden
        self.inner = Linear(dim, config.hidden, bias=config.bias)
        self.outer = Linear(config.hidden, dim, bias=config.bias)
        for layer in (self.inner, self.outer):
            nn.init.xavier_uniform_(layer.weight)
            if config.bias:
                nn.init.zeros_(layer.bias)

    def hidden(self, x: Tensor) -> Tensor:
        return self.inner(x)  # type: ignore[no-any-return]

    def finish(self, hidden: Tensor) -> Tensor:
        return self.outer(self.activation(hidden))  # type: ignore[no-any-return]

    def activation(self, hidden: Tensor) -> Tensor:
        return F.relu(hidden)


class GeluFeedForward(ReluFeedForward):
    """GELU(x W1 + b1) W2 + b2 (Hendrycks and Gimpel 2016)."""

    def activation(self, hidden: Tensor) -> Tensor:
        return F.gelu(hidden)


class SwishFeedForward(ReluFeedForward):
    """Swish(x W1 + b1) W2 + b2, where Swish(x) is x sigmoid(x) (Ramachandran et al. 2017)."""

    def activation(self, hidden: Tensor) -> Tensor:
        return F.silu(hidden)


class SwigluFeedForward(HiddenFeedForward):
    """(SiLU(x W1) * x V) W2, a hidden layer with a gate and no biases (Shazeer 2020, equation 6)."""

    Config: ClassVar = FeedForwardConfig

    def __init__(self, dim: int, config: FeedForwardConfig) -> None:
        super().__init__()
        self.width = 2 * config.hidden
        self.gate, self.inner = Linear(dim, config.hidden, bias=False), Linear(dim, config.hidden, bias=False)
        self.outer = Linear(config.hidden, dim, bias=False)
        for layer in (self.gate, self.inner, self.outer):
            nn.init.xavier_uniform_(layer.weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.outer(self.activation(self.gate(x)) * self.inner(x))  # type: ignore[no-any-return]

    def hidden(self, x: Tensor) -> Tensor:
        return torch.cat([self.gate(x), self.inner(x)], -1)

    def finish(self, hidden: Tensor) -> Tensor:
        gate, inner = hidden.chunk(2, -1)
        return self.outer(self.activation(gate) * inner)  # type: ignore[no-any-return]

    def activation(self, gate: Tensor) -> Tensor:
        return F.silu(gate)


class GegluFeedForward(SwigluFeedForward):
    """(GELU(x W1) * x V) W2, with the GELU approximated by tanh, as in T5 1.1 (Shazeer 2020)."""

    def activation(self, gate: Tensor) -> Tensor:
        return F.gelu(gate, approximate="tanh")


class LayerNorm(nn.LayerNorm):
    """Each vector minus its mean, over its deviation, with a learned scale and shift (Ba et al. 2016).

    Args:
        dim: D.
        eps: added to the variance.
    """

    def __init__(self, dim: int, *, eps: Annotated[float, Field(gt=0, le=1)] = 1e-5) -> None:
        super().__init__(dim, eps=eps)


class RmsNorm(nn.RMSNorm):
    """Each vector over its root mean square, with a learned scale (Zhang and Sennrich 2019).

    Args:
        dim: D.
        eps: added to the mean square.
    """

    def __init__(self, dim: int, *, eps: Annotated[float, Field(gt=0, le=1)] = 1e-6) -> None:
        super().__init__(dim, eps=eps)


MODELS: Registry[Model] = Registry(  # type: ignore[type-arg]
    "model",
    "headway.models.model:Model",
    {
        "transformer": "headway.models.transformer:Transformer",
        "decoder_only": "headway.models.decoder_only:DecoderOnly",
        "recurrent": "headway.models.recurrent.recurrent_model:Recurrent",
        "tagger": "headway.models.tagger:Tagger",
    },
)

CROSS_ATTENTIONS: Registry[CrossMixer] = Registry(
    "cross attention",
    "headway.models.cross_attention:CrossMixer",
    {
        "multi_head": "headway.models.cross_attention:MultiHeadCross",
        "dot": "headway.models.scored_attention:DotAttention",
        "general": "headway.models.scored_attention:GeneralAttention",
        "additive": "headway.models.scored_attention:AdditiveAttention",
        "concat": "headway.models.scored_attention:AdditiveAttention",
        "location": "headway.models.scored_attention:LocationAttention",
    },
)

FEED_FORWARDS: Registry[FeedForward] = Registry(
    "feed-forward network",
    "headway.models.components:FeedForward",
    {
        "relu": "headway.models.components:ReluFeedForward",
        "gelu": "headway.models.components:GeluFeedForward",
        "swish": "headway.models.components:SwishFeedForward",
        "swiglu": "headway.models.components:SwigluFeedForward",
        "geglu": "headway.models.components:GegluFeedForward",
    },
)

NORMS: Registry[nn.Module] = Registry(
    "norm",
    "torch.nn:Module",
    {"layer": "headway.models.components:LayerNorm", "rms": "headway.models.components:RmsNorm"},
)


# Vaswani et al. (2017), table 3 (base, big); small and tiny are the usual sizes for corpora of tens of thousands of
# pairs; modern has the block of recent language models, whose gated network is 2/3 as wide for the same number of
# parameters. The n of multi-head neural n-grams is not in their paper; these are close to its numbers of parameters
# (62M for translation, 52M for speech). Sutskever et al. (2014), section 3.4; Bahdanau et al. (2015), A.2.3 (whose
# maxout has 500 units, here the size of the embedding); Luong et al. (2015), section 4.1. student is the model of
# translation engines in browsers, with the decoder of Kim et al. (2019). firefox-* are the sizes that Mozilla trains.
_FIREFOX: dict[str, Any] = {
    "feed_forward": 1536, "heads": 8, "output_bias": True, "first_input": "zero",
    "norm_kind": {"kind": "layer", "eps": 1e-6}, "position": {"kind": "sinusoidal", "arrangement": "halves"},
    "encoder": {"layers": 6}, "decoder": {"layers": 2, "mixer": "ssru"},
}  # fmt: skip
_STUDENT: dict[str, Any] = {"dim": 384, **_FIREFOX}
PRESETS: dict[str, dict[str, Any]] = {
    "transformer-base": {"kind": "transformer"},
    "transformer-big": {"dim": 1024, "feed_forward": 4096, "heads": 16, "dropout": 0.3},
    "transformer-small": {
        "dim": 256, "feed_forward": 1024, "heads": 4, "encoder": {"layers": 3}, "decoder": {"layers": 3},
    },
    "transformer-tiny": {
        "dim": 128, "feed_forward": 256, "heads": 4, "dropout": 0.3, "encoder": {"layers": 4}, "decoder": {"layers": 4},
    },
    "transformer-modern": {
        "norm": "pre", "norm_kind": "rms", "feed_forward": {"kind": "swiglu", "hidden": 1365}, "position": "rotary",
        "bias": False, "query_key_norm": True, "value_residual": True,
    },
    "student": _STUDENT,
    "student-tiny": {
        **_STUDENT, "dim": 256, "feed_forward": 1024, "encoder": {"layers": 2},
    },
    "firefox-tiny": {"dim": 256, **_FIREFOX},
    "firefox-base-memory": {"dim": 384, **_FIREFOX, "decoder": {"layers": 4, "mixer": "ssru"}},
    "firefox-base": {"dim": 512, **_FIREFOX, "feed_forward": 2048},
    "multinn-base": {
        "encoder": {"mixer": {"kind": "ngram", "n": 12, "global_context": True}},
        "decoder": {"mixer": {"kind": "ngram", "n": 12}},
    },
    "multinn-speech": {
        "front_end": {},
        "encoder": {"mixer": {"kind": "ngram", "n": 11, "global_context": True}},
        "decoder": {"mixer": {"kind": "ngram", "n": 11}},
    },
    "sutskever": {
        "kind": "recurrent", "cell": "lstm", "dim": 1000, "dropout": 0.0, "tied": "none", "readout": "state",
        "scale_embeddings": False,
        "encoder": {"layers": 4, "hidden": 1000, "reverse": True}, "decoder": {"layers": 4, "hidden": 1000},
        "attention": {"kind": "none"},
    },
    "bahdanau": {
        "kind": "recurrent", "cell": "gru", "dim": 620, "dropout": 0.0, "tied": "none", "readout": "maxout",
        "scale_embeddings": False,
        "encoder": {"layers": 1, "hidden": 2000, "bidirectional": True},
        "decoder": {"layers": 1, "hidden": 1000, "start": "project"},
        "attention": {"score": "additive", "timing": "bahdanau"},
    },
    "luong": {
        "kind": "recurrent", "cell": "lstm", "dim": 1000, "dropout": 0.2, "tied": "none", "readout": "tanh",
        "scale_embeddings": False,
        "encoder": {"layers": 4, "hidden": 1000, "reverse": True}, "decoder": {"layers": 4, "hidden": 1000},
        "attention": {"score": "general", "timing": "luong", "input_feeding": True},
    },
}  # fmt: skip


def model_section(value: Any) -> ModelSection:
    """Validate a `model` section: a preset's name, `{preset: NAME, ...}` with changes to it, or keys.

    The class of the result is the `Config` of the model that `kind` names, a Transformer by default.

    Raises:
        UserError: an unknown preset, kind or key, or values that are not allowed; lists every mistake with its key.
    """
    if isinstance(value, ModelSection):
        return value
    tree = _expanded(value)
    section = config_of(MODELS.get(tree["kind"], "model.kind"))
    checked = validated(section, tree, "model")
    if not isinstance(checked, ModelSection):
        raise UserError("the Config of this model is no ModelSection", where="model.kind", received=tree["kind"])
    return checked


def _expanded(value: Any) -> dict[str, Any]:
    """The keys of a `model` section with its preset filled in."""
    value = named(value, "preset")
    if not isinstance(value, dict):
        raise UserError("input should be a valid dictionary", where="model", received=value)
    if "preset" in value:
        changes = {key: change for key, change in value.items() if key != "preset"}
        preset = value["preset"]
        if not (isinstance(preset, str) and preset in PRESETS):
            raise UserError(f"unknown preset {shortened(preset)}", where="model", allowed=PRESETS)
        value = merge(PRESETS[preset], changes)
    return {"kind": "transformer", **value}
