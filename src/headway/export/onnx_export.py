"""Runs as ONNX, which runtimes of many languages and devices read."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from torch import nn

from headway.export.exporter import Answering, Exporter
from headway.export.onnx_model import write_onnx
from headway.export.onnx_search import OnnxModel
from headway.export.parity import answering_by
from headway.export.tokenizer_files import write_tokenizers
from headway.mixers.ngram import Ngram
from headway.models import Seq2Seq
from headway.models.decoder_only import DecoderOnly
from headway.models.recurrent.cells import ChoGru
from headway.predictors.backend import TorchBackend
from headway.predictors.run import Run
from headway.predictors.sequence_predictor import SequencePredictor
from headway.processing.text.text_processor import TextProcessor
from headway.tasks import build_task

USAGE = """`encoder.onnx` makes the state before the first token, `decoder.onnx` reads a token of each row. `onnx.json`
names the tensors of the state. Ids are those of `vocabulary/`; 1 begins an output, 2 ends it{ends}

```python
import numpy as np
from onnxruntime import InferenceSession

encoder, decoder = InferenceSession("FOLDER/encoder.onnx"), InferenceSession("FOLDER/decoder.onnx")
{source}
longest = 50
inputs = {"source": source, "mask": mask, "room": np.zeros(longest, bool)}
state = dict(zip((o.name for o in encoder.get_outputs()), encoder.run(None, inputs)))
token, output = np.array([[1]]), []
while token[0, 0] != 2 and len(output) < longest:
    inputs = {"tokens": token, "rows": np.array([0])} | state
    scores, *after = decoder.run(None, {i.name: inputs[i.name] for i in decoder.get_inputs()})
    state, token = dict(zip(state, after)), scores.argmax(1, keepdims=True)
    output.append(int(token[0, 0]))
```"""
TOKENS = (", and 2 ends a source.", "source = np.array([[5, 6, 7, 2]])\nmask = source > 0")
FRAMES = (
    '. A source\nis frames (1, F, M) as `headway.load(RUN).source.encode("FILE.wav").values` gives them.',
    'source = np.load("FRAMES.npy")[None]\nmask = np.ones(source.shape[:2], bool)',
)


class OnnxBackend(TorchBackend):
    """headway's own search over a model that onnxruntime runs."""

    name = "onnx"
    lacks: ClassVar[tuple[str, ...]] = ("capture",)


def _looks_back(name: str, module: nn.Module, model: Seq2Seq) -> bool:
    """Whether a module reads the context of each prefix of a whole sequence; a decoder reads token by token."""
    whole = isinstance(model, DecoderOnly) or not name.startswith("decoder.")
    return isinstance(module, Ngram) and module.prefix and module.global_weight is not None and whole


class OnnxExporter(Exporter):
    """An encoder and a decoding step as graphs of ONNX, for models of every kind that write token by token."""

    name = "onnx"
    packages: ClassVar[tuple[str, ...]] = ("onnx", "onnxruntime", "onnxscript")

    def refusal(self, run: Run) -> str | None:
        if not isinstance(run.model, Seq2Seq):
            return "a graph is made of models that write token by token"
        if any(isinstance(module, ChoGru) for module in run.model.modules()):
            return "a graph has no step for each word of a source, which the cell cho_gru needs; gru needs none"
        if any(getattr(module, "choice", "soft") != "soft" for module in run.model.modules()):
            return "a graph has no attention that chooses one position (choice hard or monotonic)"
        if any(_looks_back(name, module, run.model) for name, module in run.model.named_modules()):
            return "a graph has no highest value of each beginning, which n-grams with global_context: prefix need"
        return None

    def form(self, run: Run) -> str:
        return "encoder.onnx and decoder.onnx, a step with its state"

    def write(self, run: Run, folder: Path) -> None:
        assert isinstance(run.model, Seq2Seq)
        write_onnx(run.model, folder)
        write_tokenizers(run, folder)

    def open(self, folder: Path, run: Run) -> Answering:
        predictor = build_task(run.recipe.task).predictor([run], next(run.model.parameters()).device)
        assert isinstance(predictor, SequencePredictor)
        predictor.backend = OnnxBackend(OnnxModel(folder), predictor.device)
        return answering_by(predictor)

    def usage(self, run: Run) -> str:
        ends, source = TOKENS if isinstance(run.source, TextProcessor) else FRAMES
        return USAGE.replace("{ends}", ends).replace("{source}", source)
