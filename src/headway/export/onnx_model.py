"""Any model that writes token by token as two graphs of ONNX: the encoder, and a step of the decoder with its state.

`encoder.onnx` makes the state before the first token of sources. `decoder.onnx` chooses rows of a state, reads one more
token of each and gives log probabilities and the state after it. A search, or a greedy loop, needs nothing else.

Shapes: B sources, S source, C capacity, R rows of a step, V vocabulary.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from headway.errors import RunError
from headway.files import write_json
from headway.mixers import State
from headway.models import Seq2Seq
from headway.tensors.batch import BOS, collate

ENCODER, DECODER, DESCRIPTION = "encoder.onnx", "decoder.onnx", "onnx.json"
FORMAT = 1
# Sizes of two examples, all different: a dimension in which their states differ is free.
EXAMPLES = (((5, 3, 2), 11), ((8, 1, 4, 6, 2), 13))
FRAMES = 16  # in a recording, for each token of a sentence: a front end makes fewer positions of them
AnyState = TypeVar("AnyState")


def tensors_of(value: Any, name: str = "") -> Iterator[tuple[str, Tensor]]:
    """The tensors of a state, with the names of the fields that they stand in."""
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


def with_tensors(value: AnyState, tensors: Iterator[Tensor]) -> AnyState:
    """A state of the same make with other tensors, in the order in which `tensors_of` gives them."""
    made: Any = value
    if isinstance(value, Tensor):
        made = next(tensors)
    elif isinstance(value, tuple):
        made = tuple(with_tensors(part, tensors) for part in value)
    elif is_dataclass(value) and not isinstance(value, type):
        changed = {field.name: with_tensors(getattr(value, field.name), tensors) for field in fields(value)}
        made = replace(value, **changed)
    return made  # type: ignore[no-any-return]


class EncoderGraph(nn.Module):
    """From sources (B, S), or frames, to the state before the first token, with room for C tokens."""

    def __init__(self, model: Seq2Seq) -> None:
        super().__init__()
        self.model = model

    def forward(self, source: Tensor, mask: Tensor, room: Tensor) -> tuple[Tensor, ...]:
        """The tensors of the state; of `room` (C,) the length alone counts."""
        state = self.model.start(self.model.encode(source, mask), room.shape[0])
        return tuple(tensor for _, tensor in tensors_of(state))


class DecoderGraph(nn.Module):
    """One step: from the tokens (R, 1) of the chosen rows of a state to the log probabilities (R, V) of the next."""

    def __init__(self, model: Seq2Seq, like: State) -> None:
        super().__init__()
        self.model, self.like = model, like

    def forward(self, tokens: Tensor, rows: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Log probabilities, and the tensors of the state after; `rows` (R,) are those that are gone on with."""
        chosen = with_tensors(self.like, iter(state)).select(rows)
        scores, after = self.model.extend(tokens, chosen)
        return scores, *(tensor for _, tensor in tensors_of(after))


def write_onnx(model: Seq2Seq, folder: Path) -> None:
    """Write both graphs of a model, checked, and `onnx.json` with the names of the state's tensors.

    Args:
        model: in evaluation mode, on the CPU.
        folder: a folder that does not exist yet.

    Raises:
        RunError: torch cannot make a graph of the model.
    """
    free = torch.export.Dim.DYNAMIC
    with torch.no_grad(), _quiet():
        inputs = [_example(model, lengths, room) for lengths, room in EXAMPLES]
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


def _example(model: Seq2Seq, lengths: Sequence[int], room: int) -> tuple[Tensor, Tensor, Tensor]:
    """Sources of these lengths, and room for so many tokens."""
    times = FRAMES if model.trial_source(1).ndim > 1 else 1
    batch = collate([model.trial_source(times * length) for length in lengths], None)
    return batch.source, batch.source_mask, torch.zeros(room, dtype=torch.bool)


def _write(
    graph: nn.Module, example: tuple[Any, ...], dimensions: Any, file: Path, inputs: list[str], outputs: list[str]
) -> None:
    import onnx

    for operator in (torch.ops.aten.lstm.input, torch.ops.aten.gru.input):
        # While torch makes a graph, these have other kernels. It would use what it has kept since the last graph.
        operator._dispatch_cache.clear()
    try:
        program = torch.onnx.export(
            graph.eval(), example, dynamic_shapes=dimensions, input_names=inputs, output_names=outputs, dynamo=True,
            verbose=False,
        )  # fmt: skip
    except Exception as error:  # of torch's exporter, which raises what its parts raise
        cause = error.__cause__ or error
        what = f"{file.name}: torch makes no graph of this model ({type(cause).__name__}: {cause})"
        raise RunError(what) from error
    assert program is not None
    program.save(str(file))
    onnx.checker.check_model(str(file))


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the notices of torch's exporter."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
