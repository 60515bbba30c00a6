"""The presets of papers, and the reading of a `model` section."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from headway.config import explain, merge, named
from headway.errors import UserError, shortened
from headway.models.components import MODELS
from headway.models.model import ModelSection
from headway.registry import config_of

# Vaswani et al. (2017), table 3 (base, big); small and tiny are the sizes used for corpora of tens of thousands of
# pairs. The n of multi-head neural n-grams is not in their paper; these come near its numbers of parameters (62M for
# translation, 52M for speech). Sutskever et al. (2014), section 3.4; Bahdanau et al. (2015), A.2.3
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


def model_section(value: Any) -> ModelSection:
    """A checked `model` section: a preset's name, `{preset: NAME, ...}` with changes to it, or keys.

    Its class is the `Config` of the model that `kind` names, a Transformer by default.

    Raises:
        UserError: an unknown preset, kind or key, or values that are not allowed; every mistake with its key.
    """
    if isinstance(value, ModelSection):
        return value
    tree = _expanded(value)
    section = config_of(MODELS.get(tree["kind"], "model.kind"))
    try:
        checked = section.model_validate(tree)
    except ValidationError as error:
        raise UserError(explain(error, section, "model")) from error
    if not isinstance(checked, ModelSection):
        raise UserError("the Config of this model is no ModelSection", where="model.kind", received=tree["kind"])
    return checked


def _expanded(value: Any) -> dict[str, Any]:
    """The settings that a preset's name stands for, with changes to them."""
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
