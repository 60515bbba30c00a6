"""The `model` section: one class a kind of model, and the presets."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, PositiveInt, ValidationError, model_validator

from headway.config import Component, Mixers, Probability, Section, explain, merge, named
from headway.errors import UserError


class StackConfig(Section):
    """One side of a Transformer: its layers, and how information moves in them (one mixer, or a list, one a layer)."""

    layers: PositiveInt = 6
    mixer: Mixers = Field(default={"kind": "attention"}, validate_default=True)

    @model_validator(mode="after")
    def _one_mixer_a_layer(self) -> StackConfig:
        if isinstance(self.mixer, list) and len(self.mixer) != self.layers:
            raise ValueError(f"mixer is a list of {len(self.mixer)} for {self.layers} layers; give one per layer")
        return self

    def mixers(self) -> list[dict[str, Any]]:
        """The mixer options of each layer, lowest first."""
        return list(self.mixer) if isinstance(self.mixer, list) else [self.mixer] * self.layers


class ModelSection(Section):
    """A `model` section, whatever its kind.

    A model may be written as a preset's name, or as `{preset: NAME, ...}` with changes to it.
    """

    kind: str

    def width(self) -> int | None:
        """D, or None where the recipe alone does not say it."""
        return None


class ModelConfig(ModelSection):
    """What every kind of sequence-to-sequence model has.

    `max_position`: longer inputs are refused (end mark included), since no model was trained on such; what a model
    reads as one sequence, as a decoder-only model does source and target, counts as one input. `tied`: `all`
    shares source, target and output embeddings, `target` the last two, `none` nothing; by default `all` where the
    vocabulary is shared and `target` elsewhere.
    """

    dim: PositiveInt = 512
    dropout: Probability = 0.1
    max_position: PositiveInt = 1024
    tied: Literal["all", "target", "none"] | None = None

    def width(self) -> int | None:
        return self.dim

    def trained_positions(self) -> int | None:
        """The most positions that the model can ever read, or None where it has no such limit."""
        return None

    def reads_frames(self) -> bool:
        """Whether a source is frames of numbers, as speech is, instead of pieces of text."""
        return False

    def longest_source(self) -> int:
        """The most pieces, or frames, that a source may have."""
        return self.max_position - 1

    def longest_target(self, source_length: int) -> int | None:
        """The most pieces that a target can have beside a source of so many pieces, or None where there is no limit."""
        trained = self.trained_positions()
        return None if trained is None else trained - 1


def _match(value: Any) -> Any:
    return value if value is None or isinstance(value, dict | MatchConfig) else {"to": value}


class MatchConfig(Section):
    """The model gets as many parameters as another, within 1 %.

    `to`: their number, or another recipe (its `model` section is taken over when the recipe is read). `by`: what is
    sized for it; `head_dim`, `n` and `hidden` are those of every mixer of the stacks that has such an option.
    """

    to: PositiveInt | dict[str, Any]
    by: Literal["feed_forward", "head_dim", "n", "hidden"] = "feed_forward"


class FrontEndConfig(Section):
    """Convolutions over frames, each with a gated linear unit, before the encoder of a model that reads speech.

    Every layer leaves one of `stride` positions. `channels`: the size between layers, before the gate halves it.
    """

    layers: PositiveInt = 2
    kernel: PositiveInt = 5
    stride: PositiveInt = 2
    channels: PositiveInt = 1024

    @model_validator(mode="after")
    def _halves(self) -> FrontEndConfig:
        if self.channels % 2 or not self.kernel % 2:
            raise ValueError("channels must be even, for the gate to halve them, and kernel odd, to have a middle")
        return self


class StackedConfig(ModelConfig):
    """What the models made of Transformer blocks share. `head_dim` frees the size of a head from dim / heads.

    `position`: a kind, or a kind with its options; one that attention itself reads goes to every mixer that can use it.
    `match_parameters`: see `MatchConfig`; a number or a recipe stands for `{to: ...}`.
    """

    feed_forward: PositiveInt = 2048
    heads: PositiveInt = 8
    head_dim: PositiveInt | None = None
    attention_dropout: Probability = 0.0
    activation: Literal["relu", "gelu"] = "relu"
    norm: Literal["post", "pre"] = "post"
    position: Component = Field(default={"kind": "sinusoidal"}, validate_default=True)
    match_parameters: Annotated[MatchConfig | None, BeforeValidator(_match)] = None

    @model_validator(mode="after")
    def _heads_fit(self) -> Self:
        if self.head_dim is None and self.dim % self.heads:
            raise ValueError(
                f"heads ({self.heads}) do not divide dim ({self.dim}); set head_dim or another number of heads"
            )
        return self

    def stacks(self) -> tuple[str, ...]:
        """The names of the fields that hold a stack."""
        return tuple(name for name in type(self).model_fields if isinstance(getattr(self, name), StackConfig))

    def trained_positions(self) -> int | None:
        return self.max_position if self.position.get("kind") == "learned" else None


class TransformerConfig(StackedConfig):
    """The encoder-decoder of Vaswani et al. (2017). With a `front_end` its source are frames instead of pieces."""

    kind: Literal["transformer"] = "transformer"
    front_end: FrontEndConfig | None = None
    encoder: StackConfig = StackConfig()
    decoder: StackConfig = StackConfig()

    def reads_frames(self) -> bool:
        return self.front_end is not None

    def longest_source(self) -> int:
        if self.front_end is None:
            return super().longest_source()
        return int(self.max_position * self.front_end.stride**self.front_end.layers)


class DecoderOnlyConfig(StackedConfig):
    """One causal stack that reads source and target as one sequence; the loss is on the target alone."""

    kind: Literal["decoder_only"] = "decoder_only"
    decoder: StackConfig = StackConfig()

    def longest_source(self) -> int:
        return self.max_position - 2  # two marks stand between source and target

    def longest_target(self, source_length: int) -> int | None:
        trained = self.trained_positions()
        return None if trained is None else trained - 2 - source_length


class RecurrentEncoderConfig(Section):
    """The encoder of a recurrent model. `hidden` is the size of its states, both directions together.

    `reverse` reads the words of the source from last to first (Sutskever et al. 2014), the end mark still last.
    """

    layers: PositiveInt = 2
    hidden: PositiveInt = 512
    bidirectional: bool = False
    reverse: bool = False

    @model_validator(mode="after")
    def _directions_fit(self) -> Self:
        if self.bidirectional and self.hidden % 2:
            raise ValueError(f"two directions share hidden, and {self.hidden} is odd")
        if self.bidirectional and self.reverse:
            raise ValueError("reverse changes nothing in an encoder that reads in both directions")
        return self


class RecurrentDecoderConfig(Section):
    """The decoder of a recurrent model.

    `start`: where its first state comes from. `copy`: the last states of the encoder, layer by layer. `project`: tanh
    of a linear map of the encoder's top layer at the end of its reading, backwards if it has both directions (Bahdanau
    et al. 2015, A.2.2).
    """

    layers: PositiveInt = 2
    hidden: PositiveInt = 512
    start: Literal["copy", "project"] = "copy"


class RecurrentAttentionConfig(Section):
    """How the decoder of a recurrent model reads the source; may be written as its kind alone.

    `kind`: `soft` takes the weighted sum of all positions, `hard` one position, `monotonic` one position that never
    moves back, `none` nothing. `score`: dot, general, concat or location (Luong et al. 2015), additive (Bahdanau et
    al. 2015), the same function as concat. `scaled`: dot, general and location scores, sums of as many products as
    `decoder.hidden`, over its root (Vaswani et al. 2017), so that attention begins soft. `timing`: attention before the
    state's update, from where the context enters the recurrence (`bahdanau`), or after it (`luong`). `window`:
    `global`, or positions up to `width` from a centre: the target's own position (`local-m`) or a predicted one
    (`local-p`). `input_feeding`: with Luong's timing, the last readout enters the recurrence.

    Only for hard and monotonic, in training: `estimator`: `reinforce` or `straight_through`; for the former, `entropy`
    is the weight of the entropy bonus and `baseline_decay` that of the old moving average of rewards.
    """

    kind: Literal["soft", "hard", "monotonic", "none"] = "soft"
    score: Literal["dot", "general", "concat", "additive", "location"] = "general"
    scaled: bool = False
    timing: Literal["bahdanau", "luong"] = "luong"
    window: Literal["global", "local-m", "local-p"] = "global"
    width: PositiveInt = 10
    input_feeding: bool = False
    estimator: Literal["reinforce", "straight_through"] = "reinforce"
    entropy: Annotated[float, Field(ge=0)] = 0.01
    baseline_decay: Probability = 0.9

    @model_validator(mode="after")
    def _coherent(self) -> Self:
        if self.scaled and self.score in ("concat", "additive"):
            raise ValueError(f"scaled is for scores that are products; {self.score} has bounds: set scaled: false")
        if self.timing == "bahdanau" and self.input_feeding:
            raise ValueError("input_feeding belongs to timing luong: with bahdanau the context is fed as it is")
        if self.kind == "none" and self.input_feeding:
            raise ValueError("input_feeding feeds what attention found, and kind is none")
        if self.kind in ("hard", "monotonic") and self.window == "local-p":
            raise ValueError(
                f"window local-p weighs positions, and {self.kind} attention takes one: use soft attention"
            )
        return self


class RecurrentConfig(ModelConfig):
    """An encoder-decoder of recurrent layers, with or without attention.

    `dim` is the size of embeddings and of the readout. `cell` is that of both sides; `dropout` falls on embeddings,
    between layers and on the readout. `readout`, from which words are predicted: `state` is the decoder's state h,
    `tanh` is tanh(W [c; h]) with the context c, `maxout` the larger of each pair in W [c; h; y], y being the last word.
    """

    kind: Literal["recurrent"] = "recurrent"
    cell: Literal["gru", "lstm"] = "lstm"
    encoder: RecurrentEncoderConfig = RecurrentEncoderConfig()
    decoder: RecurrentDecoderConfig = RecurrentDecoderConfig()
    attention: Annotated[RecurrentAttentionConfig, BeforeValidator(lambda value: named(value, "kind"))] = (
        RecurrentAttentionConfig()
    )
    readout: Literal["state", "tanh", "maxout"] = "tanh"

    @model_validator(mode="after")
    def _parts_fit(self) -> Self:
        encoder, decoder, attention = self.encoder, self.decoder, self.attention
        if decoder.start == "copy" and (encoder.layers, encoder.hidden) != (decoder.layers, decoder.hidden):
            raise ValueError(
                "decoder.start copy needs as many layers and hidden in the encoder as in the decoder; set project"
            )
        if attention.kind != "none" and attention.score == "dot" and encoder.hidden != decoder.hidden:
            raise ValueError(
                f"attention.score dot compares states of one size, and encoder.hidden ({encoder.hidden}) is not"
                f" decoder.hidden ({decoder.hidden}); set general"
            )
        if attention.kind != "none" and attention.timing == "luong" and self.readout == "state":
            raise ValueError("readout state does not see what attention of timing luong found; set tanh or maxout")
        if self.readout == "state" and self.tied != "none" and decoder.hidden != self.dim:
            raise ValueError(
                f"readout state predicts from decoder.hidden ({decoder.hidden}), embeddings have dim ({self.dim});"
                " make them equal or set tied: none"
            )
        return self

    def trained_positions(self) -> int | None:
        located = self.attention.kind != "none" and self.attention.score == "location"
        return self.max_position if located else None


class TaggerConfig(ModelSection):
    """A pretrained encoder that labels words.

    `encoder`: a Hugging Face name or folder, or `package:NAME/FOLDER` in an installed Python package. `pretrained`:
    whether it begins with its weights or with random ones; `freeze`: whether they stay. `layers`: what a label is read
    from, the `last` layer, the `average` of a linear map of each, or multi-head `attention` over all; `heads` and
    `head_dim` (by default the encoder's size / heads) are that attention's. `dropout` falls on what is read, on the
    keys and on the weights.
    """

    kind: Literal["tagger"] = "tagger"
    encoder: str
    pretrained: bool = True
    freeze: bool = False
    layers: Literal["last", "average", "attention"] = "attention"
    heads: PositiveInt = 12
    head_dim: PositiveInt | None = None
    dropout: Probability = 0.3


# Vaswani et al. (2017), table 3 (base, big); small and tiny are the sizes used for corpora of tens of thousands of
# pairs. The n of multi-head neural n-grams is not in their paper; these fit its numbers of parameters (62M for
# translation with 32K pieces, 52M for speech). Sutskever et al. (2014), section 3.4; Bahdanau et al. (2015), A.2.3
# (whose maxout has 500 units, here as many as the embedding); Luong et al. (2015), section 4.1.
PRESETS: dict[str, dict[str, Any]] = {
    "transformer-base": {"kind": "transformer"},
    "transformer-big": {"dim": 1024, "feed_forward": 4096, "heads": 16, "dropout": 0.3},
    "transformer-small": {
        "dim": 256, "feed_forward": 1024, "heads": 4, "encoder": {"layers": 3}, "decoder": {"layers": 3},
    },
    "transformer-tiny": {
        "dim": 128, "feed_forward": 256, "heads": 4, "dropout": 0.3, "encoder": {"layers": 4}, "decoder": {"layers": 4},
    },
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
        "encoder": {"layers": 4, "hidden": 1000, "reverse": True}, "decoder": {"layers": 4, "hidden": 1000},
        "attention": {"kind": "none"},
    },
    "bahdanau": {
        "kind": "recurrent", "cell": "gru", "dim": 620, "dropout": 0.0, "tied": "none", "readout": "maxout",
        "encoder": {"layers": 1, "hidden": 2000, "bidirectional": True},
        "decoder": {"layers": 1, "hidden": 1000, "start": "project"},
        "attention": {"score": "additive", "timing": "bahdanau"},
    },
    "luong": {
        "kind": "recurrent", "cell": "lstm", "dim": 1000, "dropout": 0.2, "tied": "none", "readout": "tanh",
        "encoder": {"layers": 4, "hidden": 1000, "reverse": True}, "decoder": {"layers": 4, "hidden": 1000},
        "attention": {"score": "general", "timing": "luong", "input_feeding": True},
    },
}  # fmt: skip


MODELS: dict[str, type[ModelSection]] = {
    "transformer": TransformerConfig,
    "decoder_only": DecoderOnlyConfig,
    "recurrent": RecurrentConfig,
    "tagger": TaggerConfig,
}


def _expand(value: Any) -> Any:
    """The settings that a preset's name stands for, with changes to them; a model is a Transformer by default."""
    value = named(value, "preset")
    if not isinstance(value, dict):
        return value
    if "preset" in value:
        changes = {key: each for key, each in value.items() if key != "preset"}
        preset = value["preset"]
        if not (isinstance(preset, str) and preset in PRESETS):
            raise ValueError(f"unknown preset {preset!r}; allowed: {', '.join(PRESETS)}")
        value = merge(PRESETS[preset], changes)
    kind = value.get("kind", "transformer")
    if kind not in MODELS:
        raise ValueError(f"unknown model kind {kind!r}; allowed: {', '.join(MODELS)}")
    return value | {"kind": kind}


AnyModel = Annotated[
    TransformerConfig | DecoderOnlyConfig | RecurrentConfig | TaggerConfig,
    Field(discriminator="kind"),
    BeforeValidator(_expand),
]


class _ModelAlone(Section):
    model: AnyModel


def parse_model(value: Any) -> ModelSection:
    """A `model` section alone: a preset's name, or keys. Raises UserError."""
    try:
        return _ModelAlone.model_validate({"model": value}).model
    except ValidationError as error:
        raise UserError(explain(error, _ModelAlone)) from error
