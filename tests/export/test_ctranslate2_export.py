"""A model that CTranslate2 runs gives every target the log probabilities that headway gives it."""

from pathlib import Path

import pytest
import torch

from headway.core.errors import UserError
from headway.export.ctranslate2_export import ctranslate2_folder
from headway.mixers.relative import Rotary
from headway.models.components import LayerNorm
from headway.tensors.batch import SPECIALS
from tests.models import toys

ctranslate2 = pytest.importorskip("ctranslate2")

SOURCE = [*SPECIALS, *(f"s{id}" for id in range(len(SPECIALS), toys.SOURCE_SIZE))]
TARGET = [*SPECIALS, *(f"t{id}" for id in range(len(SPECIALS), toys.TARGET_SIZE))]


def tokens(ids: torch.Tensor, mask: torch.Tensor, names: list[str]) -> list[list[str]]:
    """The tokens of each row without its end mark."""
    return [[names[id] for id in row[real][:-1].tolist()] for row, real in zip(ids, mask, strict=True)]


class Halved(LayerNorm):
    """A norm that computes something else than what it inherits from."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 0.5 * super().forward(x)


class Interpolated(Rotary):
    """Positions that lie closer together."""

    def rotate(self, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        return super().rotate(x, positions * 0.5)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"norm": "pre", "position": {"kind": "none"}},
        {"norm": "pre", "norm_kind": {"kind": "rms"}, "activation": "gelu"},
        {"norm_kind": {"kind": "layer", "eps": 0.1}, "feed_forward": {"kind": "swiglu", "hidden": 12}},
        {"position": {"kind": "learned"}, "decoder": {"layers": 1}, "scale_embeddings": False},
        {"first_input": "zero", "position": {"kind": "sinusoidal", "arrangement": "halves"}, "output_bias": True},
        {"head_dim": 6, "position": {"kind": "rotary", "share": 0.7, "base": 500}},
    ],
    ids=str,
)
def test_ctranslate2_gives_targets_the_same_log_probabilities(tmp_path: Path, changes: dict) -> None:
    model, batch = toys.model(dtype=torch.float32, **changes), toys.batch()
    ctranslate2_folder(model, SOURCE, TARGET, tmp_path / "model")
    translator = ctranslate2.Translator(str(tmp_path / "model"), intra_threads=1)
    scored = translator.score_batch(
        tokens(batch.source, batch.source_mask, SOURCE), tokens(batch.target_output, batch.target_mask, TARGET)
    )
    with torch.no_grad():
        expected = model(batch).logits.log_softmax(-1).gather(2, batch.target_output[..., None]).squeeze(2)
    for row, (found, mask) in enumerate(zip(scored, batch.target_mask, strict=True)):
        torch.testing.assert_close(torch.tensor(found.log_probs), expected[row][mask], rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"encoder": {"layers": 2, "mixer": [{"kind": "attention", "position": "rotary"}, "attention"]}},
            "or rotary ones",
        ),
        (
            {"encoder": {"layers": 2, "mixer": ["attention", {"kind": "attention", "position": "rotary"}]}},
            "the same positions in every layer",
        ),
        ({"decoder": {"layers": 2, "mixer": ["attention", {"kind": "attention", "position": "alibi"}]}}, "Alibi"),
    ],
)
def test_positions_that_differ_by_layer_are_refused(tmp_path: Path, changes: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        ctranslate2_folder(toys.model(**changes), SOURCE, TARGET, tmp_path / "model")


@pytest.mark.parametrize(
    ("changes", "received"),
    [
        ({"decoder": {"layers": 1, "mixer": {"kind": "ngram", "n": 2}}}, "Ngram"),
        ({"decoder": {"layers": 1, "mixer": "ssru"}}, "Ssru"),
        ({"position": {"kind": "alibi"}}, "Alibi"),
        ({"norm_kind": {"kind": f"{__name__}:Halved"}}, "Halved"),
        ({"position": {"kind": f"{__name__}:Interpolated"}}, "Interpolated"),
        ({"encoder": {"layers": 1, "canon": "C"}}, "Canon"),
        ({"decoder": {"layers": 1, "cross": {"kind": "dot"}}}, "DotAttention"),
    ],
)
def test_what_ctranslate2_does_not_have_is_refused_by_name(tmp_path: Path, changes: dict, received: str) -> None:
    with pytest.raises(UserError, match=f"CTranslate2 has no such .*{received}"):
        ctranslate2_folder(toys.model(**changes), SOURCE, TARGET, tmp_path / "model")
    assert not list(tmp_path.iterdir())


def test_layers_with_other_heads_are_refused(tmp_path: Path) -> None:
    decoder = {"layers": 2, "mixer": [{"kind": "attention"}, {"kind": "attention", "heads": 4}]}
    for changes in ({"decoder": decoder}, {"value_dim": 3}):
        with pytest.raises(UserError, match="as many heads in every layer, with keys and values of one size"):
            ctranslate2_folder(toys.model(**changes), SOURCE, TARGET, tmp_path / "model")
