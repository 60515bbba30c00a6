"""Graphs of ONNX give the run's outputs under headway's own search, whatever the model is made of."""

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import headway
from headway.core.errors import RunError, UserError
from headway.export.export_options import ExportOptions
from headway.export.exporting import export_run
from headway.export.onnx_export import OnnxExporter, OnnxModel, tensors_of, write_onnx
from headway.mixers.mixer import mapped
from headway.models import build_model, model_section
from headway.search.beam import beam_search
from headway.search.limits import Limits
from headway.tensors.batch import EOS, collate
from tests.conftest import Reversal
from tests.models import toys
from tests.runs.old_runs import copied

pytest.importorskip("onnxruntime")

SMALL = {"dim": 8, "heads": 2, "feed_forward": 10, "dropout": 0.0, "encoder": {"layers": 1}, "decoder": {"layers": 1}}
RECURRENT = {"kind": "recurrent", "dim": 8, "dropout": 0.0}
BOTH = {"layers": 1, "hidden": 8, "bidirectional": True}
SHARED = {"kind": "attention", "key_value_heads": 1, "query_key_norm": True}
MODELS: dict[str, dict[str, Any]] = {
    "learned, pre-norm, swiglu": SMALL
    | {"position": "learned", "norm": "pre", "feed_forward": {"kind": "swiglu", "hidden": 6}},
    "sources longer than the table of positions": SMALL | {"max_position": 6},
    "n-grams": SMALL
    | {
        "encoder": {"layers": 1, "mixer": {"kind": "ngram", "n": 3, "global_context": True}},
        "decoder": {"layers": 1, "mixer": {"kind": "ngram", "n": 3}},
    },
    "local, t5": SMALL
    | {
        "position": "t5",
        "encoder": {"layers": 1, "mixer": "local"},
        "decoder": {"layers": 2, "mixer": ["local", "attention"]},
    },
    "lightweight convolution": SMALL
    | {
        "encoder": {"layers": 1, "mixer": {"kind": "lightconv", "width": 3}},
        "decoder": {"layers": 1, "mixer": {"kind": "lightconv", "width": 4}},
    },
    "merged, values of the first layer": SMALL
    | {"position": "rotary", "value_residual": True, "bias": False, "decoder": {"layers": 2, "cross": "merged"}},
    "depth": SMALL | {
        "encoder": {"layers": 2, "residual": "attention"},
        "decoder": {"layers": 2, "residual": {"kind": "attention", "over": "blocks"}},
    },
    "forget, shared heads, norms": SMALL
    | {side: {"layers": 1, "mixer": SHARED | {"forget": True}} for side in ("encoder", "decoder")}
    | {"position": "rotary"},
    "student": SMALL
    | {
        "first_input": "zero",
        "position": {"kind": "sinusoidal", "arrangement": "halves"},
        "norm_kind": {"kind": "layer", "eps": 1e-6},
        "output_bias": True,
        "decoder": {"layers": 2, "mixer": "ssru"},
    },
    "ssru": SMALL | {"decoder": {"layers": 2, "mixer": ["ssru", "attention"]}},
    "linear": SMALL | {"encoder": {"layers": 1, "mixer": "linear"}, "decoder": {"layers": 2, "mixer": [
        {"kind": "linear", "gate": "vector"}, {"kind": "linear", "gate": "scalar", "canon": True}]}},
    "delta": SMALL | {"decoder": {"layers": 2, "mixer": [
        {"kind": "delta", "gate": "vector", "negative_eigenvalues": True}, {"kind": "delta", "gate": "scalar"}]}},
    "canon": SMALL | {"encoder": {"layers": 1, "canon": "ABCD"}, "decoder": {"layers": 2, "canon": "ABCD"}},
    "nplm, rotary": SMALL | {"position": "rotary", "decoder": {"layers": 2, "mixer": ["nplm", "attention"]}},
    "decoder-only": {"kind": "decoder_only", "dim": 8, "heads": 2, "feed_forward": 10, "decoder": {"layers": 2}},
    "lstm, input feeding": RECURRENT
    | {
        "encoder": {"layers": 2, "hidden": 8}, "decoder": {"layers": 2, "hidden": 8},
        "attention": {"input_feeding": True},
    },
    "gru, bahdanau": RECURRENT
    | {
        "cell": "gru", "readout": "maxout", "encoder": BOTH, "decoder": {"layers": 1, "hidden": 8, "start": "project"},
        "attention": {"score": "additive", "timing": "bahdanau"},
    },
    "gru, the last state": RECURRENT
    | {
        "cell": "gru", "readout": "maxout", "encoder": BOTH, "decoder": {"layers": 1, "hidden": 8, "start": "project"},
        "attention": {"kind": "last", "timing": "bahdanau"},
    },
}  # fmt: skip


def built(section: dict[str, Any]) -> Any:
    torch.manual_seed(1)
    model = build_model(model_section(section), toys.SOURCE_SIZE, toys.TARGET_SIZE, False).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.5)  # outputs that differ from source to source
    return model


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_graphs_decode_as_the_model_does(tmp_path: Path, name: str) -> None:
    model = built(MODELS[name])
    write_onnx(model, tmp_path / "model")
    graphs = OnnxModel(tmp_path / "model")
    for lengths in ((4, 2, 9), (1,), (3, 3)):
        random = torch.Generator().manual_seed(len(lengths))
        sources = [torch.randint(4, toys.SOURCE_SIZE, (length,), generator=random).numpy() for length in lengths]
        batch = collate(sources, None)
        limits = Limits(0, [7] * len(lengths))
        with torch.inference_mode():
            memory = model.encode(batch.source, batch.source_mask)
        ours = beam_search(model, memory, limits, beam=3)
        theirs = beam_search(graphs, graphs.encode(batch.source, batch.source_mask), limits, beam=3)
        for own, other in zip(ours, theirs, strict=True):
            assert [each.ids for each in own] == [each.ids for each in other]
            assert [each.score for each in own] == pytest.approx([each.score for each in other], abs=1e-4)


@pytest.mark.slow
def test_a_run_is_exported_and_the_engine_has_all_options_of_search(reversal: Reversal, tmp_path: Path) -> None:
    report = export_run("onnx", reversal.run, ExportOptions(output=tmp_path / "model"), {})
    assert report.passed
    assert report.equal_lists == report.lines == 16
    words = [word for word in reversal.words if len(word) == 4][:12]
    run = shutil.copytree(reversal.run, tmp_path / "run")
    ours, theirs = headway.load(reversal.run, device="cpu"), headway.load(run, engine="onnx")
    drawn = {"seed": 3, "nbest": 2}
    for options in (
        {},
        {"sample": True, **drawn},
        {"kind": "mbr", "samples": 4, **drawn},
        {"no_repeat_ngram": 1, "min_length": 3, "beam": 2},
    ):
        own, other = ours.predict(words, **options), theirs.predict(words, **options)
        assert [each.text for each in own] == [each.text for each in other]
        assert [each.score for each in own] == pytest.approx([each.score for each in other], abs=1e-4)
    with pytest.raises(UserError, match="capture: the engine onnx has no such option"):
        theirs.predict("abc", capture="all")
    ids = ours.source.encode("abcd").values
    values = example_of(ours, tmp_path / "model", {"[5, 6, 7, 2]": str([*ids, 2])})
    assert ours.target.decode(values["output"]) == "dcba"


@pytest.mark.slow
def test_the_example_of_a_card_reads_recordings(tmp_path: Path) -> None:
    case = copied("speech_recognition", tmp_path / "case")
    speech = headway.load(case.run, device="cpu")
    OnnxExporter().write(speech.runs[0], tmp_path / "model")
    recording = np.random.default_rng(1).normal(size=speech.source.config.sample_rate).astype(np.float32)
    np.save(tmp_path / "frames.npy", speech.source.encode(recording).values)
    values = example_of(speech, tmp_path / "model", {"FRAMES.npy": str(tmp_path / "frames.npy")})
    (expected,) = speech.predict([recording], beam=1, max_length=50)
    assert speech.target.decode([id for id in values["output"] if id != EOS]) == expected.text


def example_of(predictor: Any, folder: Path, changes: dict[str, str]) -> dict[str, Any]:
    """The names that the example of a model card has at its end."""
    example = OnnxExporter().usage(predictor.runs[0]).partition("```python\n")[2].removesuffix("```")
    for old, new in {"FOLDER": str(folder), **changes}.items():
        example = example.replace(old, new)
    values: dict[str, Any] = {}
    exec(example, values)
    return values


def test_a_state_is_taken_apart_and_put_together() -> None:
    model, batch = toys.model(), toys.batch()
    state = model.start(model.encode(batch.source, batch.source_mask), 5)
    names = [name for name, _ in tensors_of(state)]
    assert {"layers.0.keys", "sources.1.values", "lengths"} <= set(names)
    changed = mapped(state, lambda tensor: tensor + 1, torch.Tensor)
    assert [name for name, _ in tensors_of(changed)] == names
    assert torch.equal(changed.lengths, state.lengths + 1)
    assert changed.width == state.width


def test_a_model_that_torch_makes_no_graph_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object, **keywords: object) -> None:
        raise ValueError("no such operator")

    monkeypatch.setattr(torch.onnx, "export", fail)
    with pytest.raises(RunError, match=r"torch makes no graph of this model.*no such operator"):
        write_onnx(toys.model(dtype=torch.float32), tmp_path / "model")


PREFIX = {"layers": 1, "mixer": {"kind": "ngram", "n": 3, "global_context": "prefix"}}


@pytest.mark.parametrize(
    ("section", "refusal"),
    [
        (SMALL, "None"),
        (SMALL | {"decoder": PREFIX}, "None"),
        (SMALL | {"encoder": PREFIX}, "global_context: prefix"),  # it looks back over a whole sequence
        (MODELS["decoder-only"] | {"decoder": PREFIX}, "global_context: prefix"),
        (SMALL | {"encoder": {"layers": 1, "mixer": "ssru"}}, "which ssru in an encoder needs"),
        (SMALL | {side: {"layers": 1, "mixer": "linear"} for side in ("encoder", "decoder")}, "None"),
        (SMALL | {"encoder": {"layers": 1, "mixer": {"kind": "linear", "gate": "fixed"}}}, "no chunks of a whole"),
        (SMALL | {"encoder": {"layers": 1, "mixer": "delta"}}, "no chunks of a whole sequence"),
        (SMALL | {"decoder": {"layers": 1, "mixer": "delta"}}, "None"),
        (MODELS["decoder-only"] | {"decoder": {"layers": 1, "mixer": "linear"}}, "no chunks of a whole sequence"),
        (MODELS["decoder-only"] | {"decoder": {"layers": 1, "mixer": "delta"}}, "no chunks of a whole sequence"),
        (RECURRENT | {"cell": "gru"}, "None"),
        (RECURRENT | {"cell": "cho_gru"}, "the cell cho_gru"),
    ],
)
def test_models_without_a_graph_are_refused(section: dict[str, Any], refusal: str) -> None:
    assert refusal in str(OnnxExporter().refusal(SimpleNamespace(model=built(section))))  # type: ignore[arg-type]


@pytest.mark.slow
def test_graphs_read_frames_of_any_number(tmp_path: Path) -> None:
    """A front end makes a quarter of the positions, so that lengths that differ little become the same."""
    torch.manual_seed(1)
    model = build_model(model_section(SMALL | {"front_end": {}}), 6, toys.TARGET_SIZE, False).eval()
    write_onnx(model, tmp_path / "model")
    graphs = OnnxModel(tmp_path / "model")
    for lengths in ((90, 41, 7), (5,)):
        frames = [np.random.default_rng(length).normal(size=(length, 6)).astype(np.float32) for length in lengths]
        batch, limits = collate(frames, None), Limits(0, [5] * len(lengths))
        with torch.inference_mode():
            own, other = (
                beam_search(each, each.encode(batch.source, batch.source_mask), limits, beam=2)
                for each in (model, graphs)
            )
        assert [[each.ids for each in row] for row in own] == [[each.ids for each in row] for row in other]
