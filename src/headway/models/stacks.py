"""Stacks of blocks: the options of a recipe, and the blocks built from them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator
from torch import nn

from headway.core.config import Component, Layers, Mixers, Probability, Section, Width, named
from headway.core.errors import UserError
from headway.core.registry import construct
from headway.mixers import MIXERS, Mixer, build_mixer
from headway.mixers.canon import Canon
from headway.mixers.relative import RelativePosition, RelativePositions, is_relative
from headway.models.block import Block, DepthAttention, DepthResidual, Residual
from headway.models.components import CROSS_ATTENTIONS, FEED_FORWARDS, NORMS, FeedForward, HiddenFeedForward
from headway.models.cross_attention import CrossMixer
from headway.models.merged_attention import MergedAttention
from headway.models.model import ModelConfig

MERGED = {"kind": "merged"}


class ResidualConfig(Section):
    """The residual connections of a stack: `plain` sums, or `attention` of each sublayer to the outputs before it.

    `kind`: `plain` or `attention`. `over`: the outputs of all sublayers (`layers`, the default) or of `blocks`, within
    which outputs are summed (Kimi Team 2026). A sublayer reads h = sum of w_i h_i, w = softmax_i(q . RMSNorm(h_i)),
    where h_0 are the embeddings, h_i the outputs, and q is a learned vector of each sublayer and of the top of the
    stack, which begins at zero, where h is a plain mean. With `layers`, an output is Sublayer(Norm(h)) if the norm is
    pre, and Norm(Sublayer(h)) if it is post. With `blocks`, a sublayer also reads the sum of its block so far, and a
    post-norm follows each sum.
    """

    kind: Literal["plain", "attention"] = "plain"
    over: Literal["layers", "blocks"] | None = None

    @model_validator(mode="after")
    def _over_depth(self) -> Self:
        if self.over is not None and self.kind == "plain":
            raise ValueError("plain residuals are sums over all that came before: over is of kind attention")
        return self

    @property
    def depth(self) -> str | None:
        """The outputs that sublayers attend to, `layers` or `blocks`; None for plain residuals."""
        return None if self.kind == "plain" else self.over or "layers"


def _points(value: Any) -> str | None:
    if value is None:
        return None
    if not (isinstance(value, str) and value and len(set(value)) == len(value) and set(value) <= set("ABCD")):
        raise ValueError(f"canon is some of the letters A, B, C and D, each once; received {value!r}")
    return "".join(sorted(value))


class StackConfig(Section):
    """One side of a Transformer.

    `layers`: the number of layers. `mixer`: a mixer, or one with its options, for all layers, or a list with one for
    each, lowest first. `residual`: `plain`, or `{kind: attention, over: layers | blocks}`. `canon`: the positions of
    Canon layers in each layer (Allen-Zhu 2025), some of the letters ABCD: A before its mixer, B on the mixer's queries,
    keys and values, C before its feed-forward network, D on the hidden layer of that network, in `swiglu` also on the
    gate. A Canon layer adds to each vector those of four positions, channel by channel, with learned weights that begin
    as zeros: in a decoder the position and the three before it, in an encoder the position, two before it and one after
    it. A and C are within the residual connection, after a pre-norm.
    """

    layers: Layers = 6
    mixer: Mixers = Field(default={"kind": "attention"}, validate_default=True)
    canon: Annotated[str | None, BeforeValidator(_points)] = None
    residual: Annotated[ResidualConfig, BeforeValidator(lambda value: named(value, "kind"))] = ResidualConfig()

    @model_validator(mode="after")
    def _one_mixer_a_layer(self) -> Self:
        if isinstance(self.mixer, list) and len(self.mixer) != self.layers:
            raise ValueError(f"mixer is a list of {len(self.mixer)} for {self.layers} layers; give one per layer")
        return self

    def mixers(self) -> list[dict[str, Any]]:
        return list(self.mixer) if isinstance(self.mixer, list) else [self.mixer] * self.layers


class ReadingStackConfig(StackConfig):
    """A stack that also reads an encoded source.

    `cross`: the kind of cross-attention (multi_head, dot, general, additive, concat, location), or a kind with its
    options; `merged` lets each layer's attention read source and prefix at once, by one softmax and one set of maps,
    softmax(Q [K_source; K]^T / sqrt(d)) [V_source; V] (Zhang et al. 2025). A layer then has two sublayers, relative
    positions are those of the prefix, and every mixer has to be `attention`.
    """

    cross: Component = Field(default={"kind": "multi_head"}, validate_default=True)

    @model_validator(mode="after")
    def _merged_by_attention(self) -> Self:
        if self.merged:
            if self.cross != MERGED:
                raise ValueError("merged cross-attention has no options: it is the attention of its layer")
            if others := sorted({str(mixer.get("kind")) for mixer in self.mixers()} - {"attention"}):
                raise ValueError(f"merged cross-attention needs mixer attention in each layer, not {', '.join(others)}")
        return self

    @property
    def merged(self) -> bool:
        return self.cross.get("kind") == MERGED["kind"]


class MatchConfig(Section):
    """The options for matching the number of parameters of another model.

    `to`: the number, or another recipe (its `model` section is copied when the recipe is read). `by`: the option that
    is adjusted; `head_dim`, `n` and `hidden` are those of every mixer of the stacks that has this option. `within`: the
    largest relative difference between the numbers.
    """

    to: Annotated[int, Field(gt=0, le=10**12)] | dict[str, Any]
    by: Literal["feed_forward", "head_dim", "n", "hidden"] = "feed_forward"
    within: Annotated[float, Field(gt=0, lt=1)] = 0.01


class StackedConfig(ModelConfig):
    """The options that all models made of Transformer blocks share.

    Options of a mixer override those of the model.

    `heads`: the number of heads of mixers and cross-attention. `head_dim`: the size of a head, by default dim / heads.
    `key_dim`: the size of queries and keys only, d_k of Vaswani et al. (2017). `value_dim`: that of values, d_v.
    `attention_dropout`: the dropout of attention weights. `bias`: whether the linear maps of mixers, feed-forward
    networks and `multi_head` cross-attention have one. `query_key_norm`: whether self-attention normalises queries and
    keys. `value_residual`: whether self-attention mixes the values of the lowest layer into its own. `feed_forward`:
    the hidden size of a network with `activation`, or a kind with its options, such as `{kind: swiglu, hidden: 1024}`.
    `activation`: that of a `feed_forward` by size. `norm`: the position of the norm, after or before each sublayer.
    `norm_kind`: layer or rms. `position`: a kind, or a kind with its options; a kind that attention reads is passed to
    every mixer that can use it. `match_parameters`: the number of parameters that a size is adjusted to; a number or a
    recipe is short for `{to: ...}`.
    """

    feed_forward: Width | dict[str, Any] = 2048
    heads: Width = 8
    head_dim: Width | None = None
    key_dim: Width | None = None
    value_dim: Width | None = None
    attention_dropout: Probability = 0.0
    bias: bool = True
    query_key_norm: bool = False
    value_residual: bool = False
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
        return tuple(name for name in type(self).model_fields if isinstance(getattr(self, name), StackConfig))

    def feed_forward_options(self) -> dict[str, Any]:
        given = {"hidden": self.feed_forward} if isinstance(self.feed_forward, int) else self.feed_forward
        return {"kind": self.activation, **given}

    def trained_positions(self) -> int | None:
        """The maximum number of positions of a sequence, or None if there is no limit."""
        return self.max_position if self.position.get("kind") == "learned" else None


def build_norm(config: StackedConfig) -> nn.Module:
    return NORMS.build(config.norm_kind, config.dim, where="model.norm_kind")


def last_norm(config: StackedConfig) -> nn.Module:
    """The norm at the top of a stack: one more for pre-norm; the identity for post-norm, whose blocks end in a norm."""
    return build_norm(config) if config.norm == "pre" else nn.Identity()


def stack_end(config: StackedConfig, stack: StackConfig) -> nn.Module:
    return nn.Identity() if stack.residual.depth is None else DepthAttention(config.dim)


def build_blocks(config: StackedConfig, stack: StackConfig, causal: bool, where: str) -> nn.ModuleList:
    """Build the blocks of a stack, lowest first.

    Args:
        config: the model.
        stack: its encoder or decoder.
        causal: whether positions may only attend to earlier ones.
        where: the recipe key of the stack.

    Raises:
        UserError: options that do not exist or do not fit.
    """
    points = stack.canon or ""

    post, over = config.norm == "post", stack.residual.depth
    sublayers = count()

    def residual(first: bool) -> Residual:
        norm = build_norm(config)
        if over is None:
            return Residual(norm, config.dropout, post)
        depth = DepthAttention(config.dim) if next(sublayers) else None
        return DepthResidual(norm, config.dropout, post, depth, begins=first or over == "layers")

    def block(mixer: Mixer) -> Block:
        cross = None
        if isinstance(stack, ReadingStackConfig) and not stack.merged:
            cross = _build_cross(config, stack.cross, f"{where}.cross")
        options = config.feed_forward_options()
        feed_forward = FEED_FORWARDS.build(
            options, config.dim, defaults={"bias": config.bias}, where="model.feed_forward"
        )
        mixed, fed = (Canon(config.dim, causal) if point in points else None for point in "AC")
        return Block(mixer, cross, feed_forward, residual, mixed, fed, inner_canon(feed_forward))

    def inner_canon(feed_forward: FeedForward) -> Canon | None:
        if "D" not in points:
            return None
        if not isinstance(feed_forward, HiddenFeedForward):
            what = "point D of Canon layers is within a hidden layer, which this feed-forward network does not show"
            raise UserError(what, where=f"{where}.canon", received=stack.canon, allowed="A, B and C")
        return Canon(feed_forward.width, causal)

    return nn.ModuleList(map(block, _stack_mixers(config, stack, causal, where)))


def _attention_options(config: StackedConfig) -> dict[str, Any]:
    sizes = {name: getattr(config, name) for name in ("heads", "head_dim", "key_dim", "value_dim")}
    return sizes | {"dropout": config.attention_dropout, "bias": config.bias}


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
    """Build the mixers of a stack; those that can use relative positions share one module of these."""
    defaults = _attention_options(config) | {
        "query_key_norm": config.query_key_norm, "value_residual": config.value_residual
    }  # fmt: skip
    if "B" in (stack.canon or ""):
        kinds = [str(options.get("kind")) for options in stack.mixers()]
        without = [kind for kind in kinds if "canon" not in MIXERS.options(kind, f"{where}.mixer.kind")]
        if without:
            what = f"point B of Canon layers is on queries, keys and values, which {without[0]} does not have"
            raise UserError(what, where=f"{where}.canon", received=stack.canon, allowed="A, C and D, or other mixers")
        defaults["canon"] = True
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
    keys = [f"{where}.mixer[{number}]" for number in range(stack.layers)]
    if isinstance(stack, ReadingStackConfig) and stack.merged:
        given = [
            {**defaults, **{name: value for name, value in options.items() if name != "kind"}}
            for options in stack.mixers()
        ]
        mixers: list[Mixer] = [
            construct(MergedAttention, options, config.dim, causal, where=key)
            for key, options in zip(keys, given, strict=True)
        ]
    else:
        mixers = [
            build_mixer(options, config.dim, causal, defaults=defaults, where=key)
            for key, options in zip(keys, stack.mixers(), strict=True)
        ]
    _share_values(mixers, stack, where)
    return mixers


def _share_values(mixers: Sequence[Mixer], stack: StackConfig, where: str) -> None:
    """Let the lowest attention of a stack pass its values to the higher ones that mix them in (Zhou et al. 2024)."""
    able = [number for number, options in enumerate(stack.mixers()) if options["kind"] == "attention"]
    readers = [mixers[number] for number in able[1:] if mixers[number].shares_values]
    if not readers and any(options.get("value_residual") for options in stack.mixers()):
        raise UserError(
            "the values of the first layer are mixed into those of attention above it, of which there is none",
            where=f"{where}.mixer", received="value_residual: true", allowed="value_residual in a higher layer",
        )  # fmt: skip
    if not able:
        return
    lowest: Any = mixers[able[0]]
    lowest.shares_values, lowest.value_share = bool(readers), None
    sizes: set[Any] = {(each.key_value_heads, each.value_dim) for each in (lowest, *readers)}
    if len(sizes) > 1:
        what = "values can be mixed where layers have as many heads, with values of one size"
        raise UserError(what, where=f"{where}.mixer", received=sizes)


def shared_positions(model: nn.Module) -> Sequence[nn.Module]:
    """The modules of relative positions that have weights: layers share them, so they are sharded first."""
    positions = (module for module in model.modules() if isinstance(module, RelativePosition))
    return [module for module in positions if list(module.parameters())]
