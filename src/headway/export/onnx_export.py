"""Runs as ONNX, which runtimes for many languages and devices read: the encoder, and a step of the decoder.

`encoder.onnx` computes the state before the first token of sources. `decoder.onnx` selects rows of a state, reads one
more token of each, and returns log probabilities and the next state. A search, or a greedy loop, needs nothing else.

Shapes: B sources, S source, C capacity, R rows of a step, V vocabulary.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from headway.core.documents import read_json
from headway.core.errors import RunError
from headway.core.files import write_json
from headway.export.exporter import Answering, Exporter, write_tokenizers
from headway.export.exporting import prepare_export
from headway.export.parity import answering_by, predictor_of
from headway.mixers import State
from headway.mixers.linear_attention import LinearAttention
from headway.mixers.matrix_memory import MatrixMemory
from headway.mixers.mixer import mapped
from headway.mixers.ngram import Ngram
from headway.mixers.ssru import Ssru
from headway.models import Memory, Seq2Seq
from headway.models.decoder_only import DecoderOnly
from headway.models.recurrent.cells import ChoGru
from headway.predictors.backend import Backend, TorchBackend
from headway.predictors.predictor import Run
from headway.predictors.sequence_predictor import SequencePredictor
from headway.processing.text.text_processor import TextProcessor
from headway.runs.engines import Engine
from headway.tensors.batch import BOS, collate

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
ENCODER, DECODER, DESCRIPTION = "encoder.onnx", "decoder.onnx", "onnx.json"
FORMAT = 1
# Sizes of two examples, all different: dimensions in which their states differ are dynamic.
EXAMPLES = (((5, 3, 2), 11), ((8, 1, 4, 6, 2), 13))
FRAMES_A_TOKEN = 16  # in a recording, whose front end reduces the number of positions


class OnnxBackend(TorchBackend):
    """headway's own search over a model that onnxruntime runs."""

    name = "onnx"
    lacks: ClassVar[tuple[str, ...]] = ("capture",)


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
        # They need whole sequences; a decoder reads token by token.
        whole = [
            module
            for name, module in run.model.named_modules()
            if isinstance(run.model, DecoderOnly) or not name.startswith("decoder.")
        ]
        if any(isinstance(module, Ngram) and module.prefix and module.global_weight is not None for module in whole):
            return "a graph has no highest value of each beginning, which n-grams with global_context: prefix need"
        if any(isinstance(module, Ssru) for module in whole):
            return "a graph has no running mean over a whole sequence, which ssru in an encoder needs"
        memories = [module for module in whole if isinstance(module, MatrixMemory)]
        if any(
            module.causal or not isinstance(module, LinearAttention) or module.gate != "none" for module in memories
        ):
            return (
                "a graph has no chunks of a whole sequence, which delta, and linear with a gate or causal, needs there"
            )
        return None

    def form(self, run: Run) -> str:
        return "encoder.onnx and decoder.onnx, a step with its state"

    def write(self, run: Run, folder: Path) -> None:
        assert isinstance(run.model, Seq2Seq)
        write_onnx(run.model, folder)
        write_tokenizers(run, folder)

    def open(self, folder: Path, run: Run) -> Answering:
        predictor = predictor_of(run)
        assert isinstance(predictor, SequencePredictor)
        predictor.backend = OnnxBackend(OnnxModel(folder), predictor.device)
        return answering_by(predictor)

    def usage(self, run: Run) -> str:
        ends, source = TOKENS if isinstance(run.source, TextProcessor) else FRAMES
        return USAGE.replace("{ends}", ends).replace("{source}", source)


def tensors_of(value: Any, name: str = "") -> Iterator[tuple[str, Tensor]]:
    """The tensors of a state, with the names of their fields."""
    if isinstance(value, Tensor):
        yield name, value
        return
    if isinstance(value, tuple):
        parts = [(str(index), part) for index, part in enumerate(value)]
    elif is_dataclass(value):
        parts = [(field.name, getattr(value, field.name)) for field in fields(value)]
    else:
        return
    for part, inner in parts:
        yield from tensors_of(inner, f"{name}.{part}" if name else part)


class EncoderGraph(nn.Module):
    """Computes the state before the first token, with capacity C, from sources (B, S) or frames."""

    def __init__(self, model: Seq2Seq) -> None:
        super().__init__()
        self.model = model

    def forward(self, source: Tensor, mask: Tensor, room: Tensor) -> tuple[Tensor, ...]:
        """The tensors of the state; only the length of `room` (C,) is used."""
        state = self.model.start(self.model.encode(source, mask), room.shape[0])
        return tuple(tensor for _, tensor in tensors_of(state))


class DecoderGraph(nn.Module):
    """One step: from tokens (R, 1) for the selected rows of a state to the next token's log probabilities (R, V)."""

    def __init__(self, model: Seq2Seq, like: State) -> None:
        super().__init__()
        self.model, self.like = model, like

    def forward(self, tokens: Tensor, rows: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Log probabilities, and the tensors of the next state; `rows` (R,) selects rows of `state`."""
        tensors = iter(state)
        chosen = mapped(self.like, lambda _: next(tensors), Tensor).select(rows)
        scores, after = self.model.extend(tokens, chosen)
        return scores, *(tensor for _, tensor in tensors_of(after))


def write_onnx(model: Seq2Seq, folder: Path) -> None:
    """Write and check both graphs of a model (in evaluation mode, on the CPU) and `onnx.json` in a new folder.

    Raises:
        RunError: torch cannot export the model.
    """
    free, inputs = torch.export.Dim.DYNAMIC, []
    times = FRAMES_A_TOKEN if model.trial_source(1).ndim > 1 else 1
    for lengths, room in EXAMPLES:
        batch = collate([model.trial_source(times * length) for length in lengths], None)
        inputs.append((batch.source, batch.source_mask, torch.zeros(room, dtype=torch.bool)))
    with torch.no_grad(), _quiet():
        states = [
            model.start(model.encode(*each[:2]), len(each[2])).select(torch.arange(len(each[0]))) for each in inputs
        ]
        names = [name for name, _ in tensors_of(states[0])]
        tensors, others = ([tensor for _, tensor in tensors_of(state)] for state in states)
        frames = dict.fromkeys((0, 1), free)
        folder.mkdir()
        _write(
            EncoderGraph(model), inputs[0], (frames, {0: free, 1: free}, {0: free}), folder / ENCODER,
            ["source", "mask", "room"], names,
        )  # fmt: skip
        dimensions = tuple(
            {
                axis: free
                for axis, (one, other) in enumerate(zip(first.shape, second.shape, strict=True))
                if one != other
            }
            for first, second in zip(tensors, others, strict=True)
        )
        rows = torch.arange(len(inputs[0][0])).repeat_interleave(2)
        step = torch.full((len(rows), 1), BOS), rows, tuple(tensors)
        _write(
            DecoderGraph(model, states[0]), step, ({0: free}, {0: free}, dimensions), folder / DECODER,
            ["tokens", "rows", *names], ["log_probabilities", *(f"{name}.after" for name in names)],
        )  # fmt: skip
    write_json(folder / DESCRIPTION, {"format": FORMAT, "state": names})


def _write(
    graph: nn.Module, example: tuple[Any, ...], dimensions: Any, file: Path, inputs: list[str], outputs: list[str]
) -> None:
    import onnx

    for operator in (torch.ops.aten.lstm.input, torch.ops.aten.gru.input):
        # While torch exports, these have other kernels; without this, it would use those cached before.
        operator._dispatch_cache.clear()
    try:
        program = torch.onnx.export(
            graph.eval(), example, dynamic_shapes=dimensions, input_names=inputs, output_names=outputs, dynamo=True,
            verbose=False,
        )  # fmt: skip
    except Exception as error:  # torch's exporter may raise anything
        cause = error.__cause__ or error
        what = f"{file.name}: torch makes no graph of this model ({type(cause).__name__}: {cause})"
        raise RunError(what) from error
    assert program is not None
    program.save(str(file))
    onnx.checker.check_model(str(file))


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress the messages of torch's exporter."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


@dataclass(frozen=True)
class OnnxMemory(Memory):
    """Sources (B, S) that are encoded when the output capacity is known; `values` (B, 0) give their number."""

    source: Tensor


@dataclass(frozen=True)
class OnnxState(State):
    """The tensors of a state, and the indices (R,) of rows that the next step selects."""

    tensors: tuple[NDArray[Any], ...]
    rows: Tensor

    def select(self, index: Tensor) -> Self:
        return replace(self, rows=self.rows.index_select(0, index.reshape(-1)))


class OnnxModel:
    """An exported model, in a folder of `write_onnx`, with the methods that `search` needs."""

    def __init__(self, folder: Path) -> None:
        from onnxruntime import InferenceSession, SessionOptions

        self._state: list[str] = read_json(folder / DESCRIPTION)["state"]
        options = SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = torch.get_num_threads(), 3
        self._encoder, self._decoder = (
            InferenceSession(str(folder / name), options, providers=["CPUExecutionProvider"])
            for name in (ENCODER, DECODER)
        )

    def encode(self, source: Tensor, mask: Tensor) -> OnnxMemory:
        """Store sources (B, S) until `start`."""
        return OnnxMemory(torch.zeros(len(source), 0), mask, source)

    def start(self, memory: Memory, capacity: int) -> OnnxState:
        """Encode the sources into a state with capacity for `capacity` tokens."""
        assert isinstance(memory, OnnxMemory)
        given = {"source": memory.source, "mask": memory.mask, "room": torch.zeros(capacity, dtype=torch.bool)}
        tensors = self._encoder.run(
            None, self._read(self._encoder, {name: each.numpy() for name, each in given.items()})
        )
        return OnnxState(tuple(tensors), torch.arange(len(memory.mask)))

    def extend(self, tokens: Tensor, state: State) -> tuple[Tensor, OnnxState]:
        """Log probabilities (R, V) of the next token after tokens (R, n), and the next state."""
        assert isinstance(state, OnnxState)
        scores = None
        for token in torch.split(tokens, 1, dim=1):
            given = {"tokens": token.numpy(), "rows": state.rows.numpy()}
            given |= dict(zip(self._state, state.tensors, strict=True))
            scores, *tensors = self._decoder.run(None, self._read(self._decoder, given))
            state = OnnxState(tuple(tensors), torch.arange(len(token)))
        assert scores is not None
        return torch.from_numpy(scores), state

    @staticmethod
    def _read(session: Any, given: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """The inputs that the graph has. Inputs without effect are removed from it on export."""
        return {each.name: np.ascontiguousarray(given[each.name]) for each in session.get_inputs()}


class OnnxEngine(Engine):
    """onnxruntime, in float32, on the CPU."""

    name, decodes = "onnx", OnnxBackend
    packages = OnnxExporter.packages

    def export(self, run: Run, folder: Path) -> None:
        exporter = OnnxExporter()
        prepare_export(exporter, run)
        exporter.write(run, folder)

    def backend(self, folder: Path, run: Run) -> Backend:
        return OnnxBackend(OnnxModel(folder), torch.device("cpu"))
