"""An encoder that labels words: its layers are combined at each word's first piece, and mapped to labels.

Shapes: B batch, P tokens, W words, N words of the whole batch, L layers, D encoder, K heads, J heads over layers,
V labels.
"""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, ClassVar, Literal, Self

import torch
from pydantic import model_validator
from torch import Tensor, nn

from headway.core.config import Bytes, Count, Layers, Probability, Section, Width
from headway.core.errors import UserError, option
from headway.mixers.points import Edit, Place, Points, heads_of
from headway.models.layer_attention import LayerAttention, LayerMix, build_layer_mix
from headway.models.model import Model, ModelSection, Output, wanted
from headway.tensors.batch import TokenBatch
from headway.tensors.linear import Linear

LAYERS = "layers"  # the name of the attention over layers


class RecurrentWordsConfig(Section):
    """The encoder of a tagger that reads words by recurrent layers in both directions (Rei and Yannakoudakis 2016).

    `dim`: the size of word embeddings. `cell`: the kind of cell. `layers`: the number of recurrent layers. `hidden`:
    the size of the state of each direction. `output`: the size of the tanh layer above. `min_count`: words that occur
    fewer times in the training corpus are one unknown word. `lowercase`: whether the case of words is ignored.
    """

    kind: Literal["recurrent"] = "recurrent"
    dim: Width = 300
    cell: Literal["gru", "lstm", "cho_gru"] = "lstm"
    layers: Layers = 1
    hidden: Width = 200
    output: Width = 50
    min_count: Count = 2
    lowercase: bool = True


class TaggerConfig(ModelSection):
    """An encoder that labels words.

    `encoder`: a Hugging Face name or folder, or `package:NAME/FOLDER` in an installed Python package, or `{kind:
    recurrent}` for recurrent layers over words. `pretrained`: whether to start from its weights or from random ones;
    recurrent layers have random ones. `freeze`: whether these weights are kept. `cache_bytes`: the maximum size of a
    cache on disk with the layers of each sentence that a frozen encoder has read, for later epochs, evaluations and
    other runs; 0 for no cache. `layers`: the input of the labels, the `last` layer, the `average` of a linear map of
    each, or multi-head `attention` over all. `heads`: the number of heads of this attention. `head_dim`: the size of a
    head, by default the encoder's size / heads. `dropout`: on the layers, the keys and the weights, and in recurrent
    layers on the embeddings.
    """

    kind: Literal["tagger"] = "tagger"
    encoder: str | RecurrentWordsConfig
    pretrained: bool = True
    freeze: bool = False
    cache_bytes: Bytes = 0
    layers: Literal["last", "average", "attention"] = "attention"
    heads: Width = 12
    head_dim: Width | None = None
    dropout: Probability = 0.3

    @model_validator(mode="after")
    def _only_pretrained_encoders_are_frozen(self) -> Self:
        if self.freeze and not isinstance(self.encoder, str):
            raise ValueError("recurrent layers over words are not pretrained, and freeze would keep them random")
        return self


class Tagger(Model[TokenBatch]):
    """Labels for words from an encoder, of Hugging Face or recurrent (equation 10 over any mix of its layers).

    Attention names are `encoder.LAYER.self` (B, K, P, P), over tokens, and `layers` (B, J, W, L), over layers.

    Args:
        config: the recipe's model section.
        encoder: an encoder of Hugging Face's kind, whose `config` has its number of layers and its sizes.
        labels: V.

    Raises:
        UserError: the encoder's D is not divisible by the heads over layers.
    """

    Config: ClassVar = TaggerConfig

    def __init__(self, config: TaggerConfig, encoder: nn.Module, labels: int) -> None:
        super().__init__()
        self.encoder, self.frozen = encoder, config.freeze
        encoder.requires_grad_(not config.freeze)
        sizes: Any = encoder.config
        heads = config.heads if config.layers == "attention" else 1
        check_heads(config, sizes.hidden_size)
        self.mix = build_layer_mix(
            config.layers, sizes.num_hidden_layers, sizes.hidden_size, heads, config.head_dim, config.dropout
        )
        self.output = Linear(self.mix.size, labels)

    def train(self, mode: bool = True) -> Self:
        """Set training mode; a frozen encoder stays in evaluation mode."""
        super().train(mode)
        if self.frozen:
            self.encoder.eval()
        return self

    def points(self) -> Points:
        """Intervention points: encoder layers, their heads if named as in BERT, heads and inputs of the layer mix."""
        found: Points = {}
        sizes: Any = self.encoder.config
        for number, block in enumerate(self.blocks(), start=1):
            found[f"encoder.{number}"] = added_by(block)
            for name, dense in block.named_modules():
                if name == "attention.output.dense":
                    heads = heads_of(dense, sizes.num_attention_heads)
                    found |= {f"encoder.{number}.self{part}": place for part, place in heads.items()}
        if isinstance(self.mix, LayerAttention):
            found |= {f"{LAYERS}{part}": of_words(each) for part, each in heads_of(self.output, self.mix.heads).items()}
        lowest = sizes.num_hidden_layers - self.mix.depth + 1
        return found | {f"{LAYERS}:layer={lowest + each}": read_by(self.mix, each) for each in range(self.mix.depth)}

    def forward(self, batch: TokenBatch, *, capture: Sequence[str] = ()) -> Output:
        hidden, attention = self._encode(batch, capture)
        # (N,): the real words in the flattened (B, W). Counting them is the only synchronisation with an accelerator.
        words = batch.word_mask.flatten().nonzero().squeeze(1)
        rows = words // batch.first.shape[1]
        indices = rows * batch.tokens.shape[1] + batch.first.flatten().index_select(0, words)  # in the flattened (B, P)
        mixed, weights = self.mix([layer.flatten(0, 1).index_select(0, indices) for layer in hidden[-self.mix.depth :]])
        logits = _padded(self.output(mixed), words, batch.first)
        if weights is not None and wanted(LAYERS, capture):
            attention[LAYERS] = _padded(weights, words, batch.first).transpose(1, 2)
        return Output(logits, attention)

    def blocks(self) -> Sequence[nn.Module]:
        encoder: Any = self.encoder
        depth = encoder.config.num_hidden_layers
        stacks = (each for each in encoder.modules() if isinstance(each, nn.ModuleList) and len(each) == depth)
        return list(next(stacks, ()))

    def layers(self) -> Sequence[nn.Module]:
        return ()

    def _encode(self, batch: TokenBatch, capture: Sequence[str]) -> tuple[Sequence[Tensor], dict[str, Tensor]]:
        """The outputs (B, P, D) of the encoder's layers, lowest first, and the captured self-attention by name."""
        encoder: Any = self.encoder
        names = [f"encoder.{layer}.self" for layer in range(1, encoder.config.num_hidden_layers + 1)]
        need_weights = any(wanted(name, capture) for name in names)
        inputs = {"input_ids": batch.tokens, "attention_mask": batch.token_mask.long()}
        if need_weights:
            encoder = with_explicit_attention(encoder)
        with torch.no_grad() if self.frozen else nullcontext():
            read = encoder(**inputs, output_hidden_states=True, output_attentions=need_weights)
        given = zip(names, _weights(read.attentions, batch.tokens), strict=True) if need_weights else ()
        return read.hidden_states[1:], {name: weights for name, weights in given if wanted(name, capture)}


def added_by(block: nn.Module) -> Place:
    """The point of the difference between the output (B, P, D) of a layer and its input."""

    def edited(edit: Edit, given: tuple[Any, ...], after: Any) -> Any:
        values, *more = after if isinstance(after, tuple) else (after,)
        new = given[0] + edit(values - given[0])
        return (new, *more) if isinstance(after, tuple) else new

    def put(edit: Edit) -> Callable[[], None]:  # before the library's hook, which collects the layer's output
        return block.register_forward_hook(lambda _, given, after: edited(edit, given, after), prepend=True).remove

    return put


def of_words(place: Place) -> Place:
    """The same point with values (1, N, C) instead of (N, C), for all words of a batch."""
    return lambda edit: place(lambda values: edit(values[None])[0])


def read_by(mix: LayerMix, index: int) -> Place:
    """The point of one of the layers (N, D) that a mix of layers reads."""

    def edited(edit: Edit, layers: Sequence[Tensor]) -> tuple[list[Tensor]]:
        return ([*layers[:index], edit(layers[index][None])[0], *layers[index + 1 :]],)

    return lambda edit: mix.register_forward_pre_hook(lambda _, given: edited(edit, *given)).remove


def _weights(attentions: Any, tokens: Tensor) -> Sequence[Tensor]:
    """The attention weights of an encoder. Raises UserError unless they are (B, K, P, P), over all of its tokens."""
    length = tokens.shape[1]
    if not attentions or any(weights is None or weights.shape[2:] != (length, length) for weights in attentions):
        raise UserError("this encoder has no attention of all tokens to all", where=option("capture"), allowed=[LAYERS])
    return tuple(attentions)


def with_explicit_attention(encoder: nn.Module) -> Any:
    """Return a view of the encoder that returns attention weights, which fused attention does not.

    Its modules are copies that share all parameters and buffers with the encoder. They have their own configurations,
    which select the implementation of attention, and none of the hooks by which the library collects outputs of layers.
    The encoder is not modified, so threads may share it.
    """
    configs: dict[int, Any] = {}

    def explicit(config: Any) -> Any:
        if id(config) not in configs:
            configs[id(config)] = copy.deepcopy(config)
            configs[id(config)]._attn_implementation = "eager"
        return configs[id(config)]

    def twin(module: nn.Module) -> nn.Module:
        other = copy.copy(module)
        other._modules = {name: None if child is None else twin(child) for name, child in module._modules.items()}
        own = (each for each in module._forward_hooks.items() if not each[1].__module__.startswith("transformers"))
        other._forward_hooks = OrderedDict(own)
        vars(other).pop("_output_capturing_hooks_installed", None)
        if "config" in vars(module):
            vars(other)["config"] = explicit(module.config)
        return other

    return twin(encoder)


def check_heads(config: TaggerConfig, hidden: int) -> None:
    """Raise UserError if the encoder's D is not divisible by the heads over layers."""
    if config.layers == "attention" and config.head_dim is None and hidden % config.heads:
        raise UserError(
            f"heads do not divide the encoder's size of {hidden}; set head_dim or another number of heads",
            where="model.heads",
            received=config.heads,
        )


def _padded(values: Tensor, words: Tensor, like: Tensor) -> Tensor:
    """Scatter `values` (N, ...) to indices `words` (N,) of the flattened `like` (B, W): (B, W, ...), else zero."""
    flat = values.new_zeros(like.numel(), *values.shape[1:]).index_copy(0, words, values)
    return flat.view(*like.shape, *values.shape[1:])
