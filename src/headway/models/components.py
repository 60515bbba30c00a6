"""The registries of models and of what they are built from; classes are imported when they are first asked for."""

from torch import nn

from headway.models.cross_attention import CrossMixer
from headway.models.feed_forwards import FeedForward
from headway.models.model import Model
from headway.registry import Registry

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
    "headway.models.feed_forwards:FeedForward",
    {
        "relu": "headway.models.feed_forwards:ReluFeedForward",
        "gelu": "headway.models.feed_forwards:GeluFeedForward",
        "swish": "headway.models.feed_forwards:SwishFeedForward",
        "swiglu": "headway.models.feed_forwards:SwigluFeedForward",
    },
)

NORMS: Registry[nn.Module] = Registry(
    "norm",
    "torch.nn:Module",
    {"layer": "headway.models.norms:LayerNorm", "rms": "headway.models.norms:RmsNorm"},
)
