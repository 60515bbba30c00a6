"""Stacks of blocks: the options of a recipe, and the blocks built from them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator
from torch import nn

from headway.core.config import Component, Layers, Mixers, Probability, Section, Width
from headway.core.errors import UserError
from headway.mixers import MIXERS, Mixer, build_mixer
from headway.mixers.canon import Canon
from headway.mixers.relative import RelativePosition, RelativePositions, is_relative
from headway.models.block import Block, Residual
from headway.models.components import CROSS_ATTENTIONS, FEED_FORWARDS, NORMS
from headway.models.cross_attention import CrossMixer
from headway.models.model import ModelConfig


class StackConfig(Section):
    """One side of a Transformer: its layers, and how information moves in them (one mixer, or a list, one a layer).

    `canon`: where each layer has a Canon layer (Allen-Zhu 2025): A before its mixer, C before its feed-forward network.
    """

    layers: Layers = 6
    mixer: Mixers = Field(default={"kind": "attention"}, validate_default=True)
    canon: Literal["A", "C", "AC"] | None = None

    @model_validator(mode="after")
    def _one_mixer_a_layer(self) -> Self:
        if isinstance(self.mixer, list) and len(self.mixer) != self.layers:
            raise ValueError(f"mixer is a list of {len(self.mixer)} for {self.layers} layers; give one per layer")
        return self

    def mixers(self) -> list[dict[str, Any]]:
        """The mixer options of each layer, lowest first."""
        return list(self.mixer) if isinstance(self.mixer, list) else [self.mixer] * self.layers


class ReadingStackConfig(StackConfig):
    """A stack that also reads an encoded source.

    `cross`: the kind of cross-attention (multi_head, dot, general, additive, concat, location), or a kind with its
    options.
    """

    cross: Component = Field(default={"kind": "multi_head"}, validate_default=True)


class MatchConfig(Section):
    """A wish for as many parameters as another model has.

    `to`: their number, or another recipe (its `model` section is taken over when the recipe is read). `by`: what is
    sized for it; `head_dim`, `n` and `hidden` are those of every mixer of the stacks that has such an option.
    `within`: the share by which the numbers may differ.
    """

    to: Annotated[int, Field(gt=0, le=10**12)] | dict[str, Any]
    by: Literal["feed_forward", "head_dim", "n", "hidden"] = "feed_forward"
    within: Annotated[float, Field(gt=0, lt=1)] = 0.01


class StackedConfig(ModelConfig):
    """The options that models made of Transformer blocks share.

    `head_dim` frees the size of a head from dim / heads; `key_dim` is that of queries and keys alone, `value_dim` that
    of values (d_k and d_v of Vaswani et al. 2017).
    `feed_forward`: the hidden size of a network with `activation`, or a kind with its options, such as
    `{kind: swiglu, hidden: 1024}`. `norm`: where the norm stands, `norm_kind` which one it is (layer, rms).
    `position`: a kind, or a kind with its options; one that attention itself reads goes to every mixer that can use it.
    `match_parameters`: see `MatchConfig`; a number or a recipe stands for `{to: ...}`.
    """

    feed_forward: Width | dict[str, Any] = 2048
    heads: Width = 8
    head_dim: Width | None = None
    key_dim: Width | None = None
    value_dim: Width | None = None
    attention_dropout: Probability = 0.0
    activation: Literal["relu", "gelu", "swish"] = "relu"
    norm: Literal["post", "pre"] = "post"
    norm_kind: Component = Field(default={"kind": "layer"}, validate_default=True)
    position: Component = Field(default={"kind": "sinusoidal"}, validate_default=True)
    match_parameters: Annotated[
        MatchConfig | None,
        BeforeValidator(lambda value: value if isinstance(value, dict | MatchConfig | None) else {"to": value}),
    ] = None

    @model_validator(mode="after")
    def _heads_fit(self) -> Self:
        given = self.head_dim or (self.key_dim and self.value_dim)
        if not given and self.dim % self.heads:
            raise ValueError(
                f"heads ({self.heads}) do not divide dim ({self.dim}); set head_dim or another number of heads"
            )
        return self

    def stacks(self) -> tuple[str, ...]:
        """The names of the fields that hold a stack."""
        return tuple(name for name in type(self).model_fields if isinstance(getattr(self, name), StackConfig))

    def feed_forward_options(self) -> dict[str, Any]:
        """The feed-forward network as a kind with its options."""
        given = {"hidden": self.feed_forward} if isinstance(self.feed_forward, int) else self.feed_forward
        return {"kind": self.activation, **given}

    def trained_positions(self) -> int | None:
        """The most positions that one sequence can have, or None where there is no such limit."""
        return self.max_position if self.position.get("kind") == "learned" else None


def build_norm(config: StackedConfig) -> nn.Module:
    """A new norm of the kind that the model asks for. Raises UserError where there is none."""
    return NORMS.build(config.norm_kind, config.dim, where="model.norm_kind")


def last_norm(config: StackedConfig) -> nn.Module:
    """The norm at the top of a stack: post-norm blocks end in one, a pre-norm stack needs one more."""
    return build_norm(config) if config.norm == "pre" else nn.Identity()


def build_blocks(
    config: StackedConfig, stack: StackConfig, causal: bool, where: str, *, cross: dict[str, Any] | None = None
) -> nn.ModuleList:
    """The blocks of a stack, lowest first.

    Args:
        config: the model.
        stack: its encoder or decoder.
        causal: whether positions may only see the past.
        where: the recipe key of the stack.
        cross: the cross-attention of each block; None in a stack that reads one sequence.

    Raises:
        UserError: options that do not exist or do not fit.
    """

    def residual() -> Residual:
        return Residual(build_norm(config), config.dropout, post=config.norm == "post")

    def block(mixer: Mixer) -> Block:
        reads = None if cross is None else _build_cross(config, cross, f"{where}.cross")
        options = config.feed_forward_options()
        feed_forward = FEED_FORWARDS.build(options, config.dim, where="model.feed_forward")
        canons = [Canon(config.dim, causal) if point in (stack.canon or "") else None for point in "AC"]
        return Block(mixer, reads, feed_forward, residual, *canons)

    return nn.ModuleList(map(block, _stack_mixers(config, stack, causal, where)))


def _attention_options(config: StackedConfig) -> dict[str, Any]:
    """The options that the model sets for all its attention, self and cross."""
    sizes = {name: getattr(config, name) for name in ("heads", "head_dim", "key_dim", "value_dim")}
    return sizes | {"dropout": config.attention_dropout}


def _build_cross(config: StackedConfig, options: dict[str, Any], where: str) -> CrossMixer:
    dim, defaults = config.dim, _attention_options(config)
    cross = CROSS_ATTENTIONS.build(options, dim, dim, config.max_position, defaults=defaults, where=where)
    if cross.ordered or cross.sampled:
        raise UserError(
            "only recurrent models have attention that remembers its last position or is trained by REINFORCE",
            where=where, received=options, allowed="choice soft, or hard with estimator straight_through",
        )  # fmt: skip
    if cross.size != dim:
        raise UserError("the values of this attention are not of the model's size", where=where, received=cross.size)
    return cross


def _stack_mixers(config: StackedConfig, stack: StackConfig, causal: bool, where: str) -> list[Mixer]:
    """The mixers of a stack; relative positions are one module for all that can use them."""
    defaults = _attention_options(config)
    if is_relative(str(config.position.get("kind")), "model.position"):
        kinds = [str(options.get("kind")) for options in stack.mixers()]
        if not any("position" in MIXERS.options(kind, f"{where}.mixer.kind") for kind in kinds):
            raise UserError(
                f"position {config.position['kind']} is a part of attention, which no mixer of this stack has",
                where="model.position",
                received=f"{where}.mixer: {', '.join(dict.fromkeys(kinds))}",
                allowed="sinusoidal, learned or none, or a stack with attention or local in it",
            )
        defaults["position"] = RelativePositions(config.position, causal, "model.position")
    return [
        build_mixer(options, config.dim, causal, defaults=defaults, where=f"{where}.mixer[{number}]")
        for number, options in enumerate(stack.mixers())
    ]


def shared_positions(model: nn.Module) -> Sequence[nn.Module]:
    """The relative positions in `model` that have weights: layers share them, so sharding takes them first."""
    positions = (module for module in model.modules() if isinstance(module, RelativePosition))
    return [module for module in positions if list(module.parameters())]
