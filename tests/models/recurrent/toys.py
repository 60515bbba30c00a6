"""Small recurrent models that tests share; sizes all differ where they may."""

from typing import Any

import torch

from headway.core.config import merge
from headway.models import build_model
from headway.models.recurrent import Recurrent, RecurrentConfig
from tests.models.toys import SOURCE_SIZE, TARGET_SIZE

BASE: dict[str, Any] = {
    "kind": "recurrent", "dim": 5, "dropout": 0.0, "max_position": 12, "tied": "none",
    "encoder": {"layers": 2, "hidden": 6}, "decoder": {"layers": 2, "hidden": 6}, "attention": {"width": 2},
}  # fmt: skip
ODD = {"encoder": {"layers": 1, "hidden": 8, "bidirectional": True}, "decoder": {"layers": 2, "start": "project"}}

# Each value of each option at least once, with what it is most likely to meet in the same code.
VARIANTS: dict[str, dict[str, Any]] = {
    "sutskever": {"attention": {"kind": "none"}, "readout": "state", "encoder": {"reverse": True}},
    "no attention, gru, projected": {"attention": {"kind": "none"}, "cell": "gru", "readout": "tanh", **ODD},
    "no attention, maxout": {"attention": {"kind": "none"}, "readout": "maxout"},
    "cho": {"attention": {"kind": "last", "timing": "bahdanau"}, "cell": "cho_gru", "readout": "maxout", **ODD},
    "cho, state": {"attention": {"kind": "last", "timing": "bahdanau"}, "readout": "state"},
    "cho, lstm, read at the end": {"attention": {"kind": "last"}, "encoder": {"bidirectional": True}},
    "bahdanau": {
        "attention": {"score": "additive", "timing": "bahdanau"}, "cell": "gru", "readout": "maxout", **ODD,
    },
    "bahdanau as printed": {
        "attention": {"score": "additive", "timing": "bahdanau"}, "cell": "cho_gru", **ODD,
        "readout": {"kind": "maxout", "size": 3, "state": "previous"},
    },
    "luong, cho, another size": {
        "attention": {"score": "general", "input_feeding": True}, "cell": "cho_gru",
        "readout": {"kind": "tanh", "size": 7}, "encoder": {"reverse": True},
    },
    "bahdanau, state": {"attention": {"score": "dot", "timing": "bahdanau"}, "readout": "state"},
    "luong dot": {"attention": {"score": "dot"}},
    "luong general": {"attention": {"score": "general"}, **ODD},
    "luong dot, scaled": {"attention": {"score": "dot", "scaled": True}, "cell": "gru"},
    "luong general, scaled": {"attention": {"score": "general", "scaled": True}, **ODD},
    "luong concat": {"attention": {"score": "concat"}, "cell": "gru", "encoder": {"reverse": True}},
    "luong location": {"attention": {"score": "location"}, "encoder": {"bidirectional": True}},
    "luong location, scaled": {"attention": {"score": "location", "scaled": True}},
    "luong fed": {"attention": {"score": "general", "input_feeding": True}, "cell": "gru"},
    "luong fed, unscaled embeddings": {"attention": {"input_feeding": True}, "scale_embeddings": False},
    "fed maxout": {"attention": {"score": "concat", "input_feeding": True}, "readout": "maxout", **ODD},
    "multi-head": {"attention": {"score": {"kind": "multi_head", "heads": 2}}, **ODD},
    "multi-head, fed": {"attention": {"score": {"kind": "multi_head", "heads": 3}, "input_feeding": True}},
    "multi-head, bahdanau": {
        "attention": {"score": {"kind": "multi_head", "heads": 1, "head_dim": 4}, "timing": "bahdanau"}, "cell": "gru",
    },
    "local-m": {"attention": {"window": "local-m", "width": 1}},
    "local-m, bahdanau": {"attention": {"window": "local-m", "width": 1, "timing": "bahdanau"}, "cell": "gru"},
    "local-p": {"attention": {"window": "local-p"}},
    "local-p, bahdanau": {"attention": {"window": "local-p", "timing": "bahdanau"}},
    "local-p, fed": {"attention": {"window": "local-p", "input_feeding": True, "score": "location"}},
    "hard": {"attention": {"kind": "hard"}},
    "hard, fed": {"attention": {"kind": "hard", "input_feeding": True}, "cell": "gru"},
    "monotonic": {"attention": {"kind": "monotonic", "score": "concat"}},
    "monotonic, bahdanau": {"attention": {"kind": "monotonic", "timing": "bahdanau"}},
    "monotonic, local-m": {"attention": {"kind": "monotonic", "window": "local-m", "width": 1}},
}  # fmt: skip


def config(**changes: Any) -> RecurrentConfig:
    return RecurrentConfig.model_validate(merge(BASE, changes))


def model(seed: int = 1, dtype: torch.dtype = torch.float64, **changes: Any) -> Recurrent:
    """Weights larger than those of a new model, so that scores differ and what attention finds matters."""
    torch.manual_seed(seed)
    built = build_model(config(**changes), SOURCE_SIZE, TARGET_SIZE, False)
    assert isinstance(built, Recurrent)
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.mul_(1.5)
    return built.to(dtype).eval()
