"""Heads that are cut and inputs that are asked, beside other libraries, which read the exported model."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import headway
from headway.export.export_options import ExportOptions
from headway.export.exporting import export_run
from headway.models.model import log_probabilities
from headway.predictors.sequence_predictor import SequencePredictor
from headway.tensors.batch import collate
from tests.conftest import Reversal
from tests.export.test_exporting import other_run

transformers = pytest.importorskip("transformers")

ORACLES = Path(sys.prefix) / "oracles"  # where `make test-all` puts other libraries, without what they ask for

HEADS, SIZE = 2, 4
SIDE = {"layers": 2}
MODEL = {
    "dim": HEADS * SIZE, "heads": HEADS, "feed_forward": 16, "norm": "post", "dropout": 0.0, "encoder": SIDE,
    "decoder": SIDE,
    "scale_embeddings": False,  # inseq scales them, and the decoder of transformers would scale them once more
}  # fmt: skip
SOURCE, TARGET = "abcd", "dcba"
# The names of one attention: headway's, transformers' and TransformerLens'.
PARTS = [
    ("encoder.2.self", "model.encoder.layers.1.self_attn", "encoder_blocks.1.attn"),
    ("decoder.1.self", "model.decoder.layers.0.self_attn", "decoder_blocks.0.self_attn"),
    ("decoder.2.cross", "model.decoder.layers.1.encoder_attn", "decoder_blocks.1.cross_attn"),
]


@pytest.fixture(scope="module")
def run(reversal: Reversal, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with as many layers in the encoder as in the decoder, with random weights."""
    return other_run(reversal, tmp_path_factory.mktemp("run") / "run", **MODEL)


@pytest.fixture(scope="module")
def predictor(run: Path) -> SequencePredictor:
    found = headway.load(run, device="cpu")
    assert isinstance(found, SequencePredictor)
    return found


@pytest.fixture(scope="module")
def folder(run: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The exported run."""
    folder = tmp_path_factory.mktemp("exported") / "marian"
    export_run("huggingface", run, ExportOptions(output=folder, sentences=2), {})
    return str(folder)


@pytest.fixture
def exported(folder: str) -> tuple[Any, Any]:
    """The model and the tokenizer that transformers reads, which other libraries change."""
    model = transformers.MarianMTModel.from_pretrained(folder).eval()
    return model, transformers.AutoTokenizer.from_pretrained(folder)


def oracle(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A library that is found behind all others. Without it, the test is skipped."""
    monkeypatch.setattr(sys, "path", [*sys.path, str(ORACLES)])
    found: ModuleType = pytest.importorskip(name)
    return found


def without_head(values: Tensor, head: int) -> Tensor:
    """The outputs of all heads before they are projected, with zeros for one head, counted from 1."""
    by_head = values.reshape(*values.shape[:2], HEADS, SIZE).clone()
    by_head[:, :, head - 1] = 0
    return by_head.view_as(values)


@contextmanager
def cut_in_transformers(model: Any, part: str, head: int) -> Iterator[Any]:
    def hook(module: torch.nn.Module, given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return (without_head(given[0], head),)

    handle = model.get_submodule(f"{part}.out_proj").register_forward_pre_hook(hook)
    try:
        yield model
    finally:
        handle.remove()


def ours(predictor: SequencePredictor, rules: dict[str, Any]) -> tuple[Tensor, Any]:
    """The log probabilities of all tokens of the target, with interventions; and the batch."""
    source, target = predictor.read(SOURCE).values, predictor.target.encode_lines([TARGET])[0]
    batch, (model,) = collate([np.asarray(source)], [np.asarray(target)]), predictor.models
    with torch.no_grad(), model.intervened(rules) as reached:
        found = log_probabilities(model(batch).logits)
    assert all(reached.values())
    return found, batch


@pytest.mark.parametrize(("part", "other"), [(part, other) for part, other, _ in PARTS])
def test_a_head_is_cut_as_by_hooks_of_transformers(
    part: str, other: str, predictor: SequencePredictor, exported: tuple[Any, Any]
) -> None:
    whole, batch = ours(predictor, {})
    for head in (1, 2):
        found, _ = ours(predictor, {f"{part}:head={head}": "zero"})
        with torch.no_grad(), cut_in_transformers(exported[0], other, head) as model:
            theirs = log_probabilities(model(batch.source, decoder_input_ids=batch.target_input).logits)
        torch.testing.assert_close(found, theirs, atol=1e-4, rtol=1e-4)
        assert (found - whole).abs().max() > 1e-3, "a head makes a difference"


@pytest.mark.slow
@pytest.mark.parametrize(("part", "other"), [(part, other) for part, _, other in PARTS])
def test_a_head_is_cut_as_transformerlens_cuts_it(
    part: str, other: str, predictor: SequencePredictor, exported: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    bridges = oracle("transformer_lens.model_bridge", monkeypatch)
    model, tokenizer = exported
    bridge = bridges.TransformerBridge.boot_transformers(
        model.name_or_path, hf_model=model, tokenizer=tokenizer, device="cpu"
    )
    for head in (1, 2):
        found, batch = ours(predictor, {f"{part}:head={head}": "zero"})

        def hook(values: Tensor, hook: Any, head: int = head) -> Tensor:
            return without_head(values, head)

        hooks = [(f"{other}.hook_z", hook)]
        with torch.no_grad():
            logits = bridge.run_with_hooks(batch.source, decoder_input=batch.target_input, fwd_hooks=hooks)
        torch.testing.assert_close(found, log_probabilities(logits), atol=1e-4, rtol=1e-4)


@pytest.mark.slow
def test_inputs_have_the_gradients_of_inseq(
    predictor: SequencePredictor, exported: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    inseq = oracle("inseq", monkeypatch)
    model, tokenizer = exported

    def score(args: Any) -> Tensor:
        logits = args.attribution_model.output2logits(args.forward_output)
        return log_probabilities(logits).gather(-1, args.target_ids.reshape(-1, 1)).squeeze(-1)

    inseq.register_step_function(score, "log_probability", overwrite=True)
    asked = inseq.load_model(model, "input_x_gradient", tokenizer=tokenizer)
    attributed = asked.attribute(
        SOURCE, TARGET, attribute_target=True, attributed_fn="log_probability", show_progress=False
    )
    (found,) = attributed.sequence_attributions
    # (C, T, D): the source, `<s>` and the target; the last token predicts nothing.
    parts = torch.cat([found.source_attributions, found.target_attributions[:-1].nan_to_num()])
    (output,) = predictor.force([SOURCE], [TARGET])
    (view,) = predictor.attribute(output, "gradient_input")
    values = view["gradient_input"][0]
    assert np.abs(values).max() > 1e-2
    np.testing.assert_allclose(values, parts.sum(-1).T, atol=1e-4, rtol=1e-3)
