"""Models in ONNX, run by onnxruntime, with the methods that headway's search asks for.

Shapes: B sources, S source, R rows of a step, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headway.documents import read_json
from headway.errors import UserError
from headway.export.onnx_model import DECODER, DESCRIPTION, ENCODER, FORMAT
from headway.mixers import State
from headway.models import Memory


@dataclass(frozen=True)
class OnnxMemory(Memory):
    """Sources (B, S) that are encoded once it is known how long outputs can be; `values` (B, 0) say how many."""

    source: Tensor


@dataclass(frozen=True)
class OnnxState(State):
    """The tensors of a state, and the rows (R,) of them that are gone on with, which the next step chooses."""

    tensors: tuple[NDArray[Any], ...]
    rows: Tensor

    def select(self, index: Tensor) -> Self:
        """Rows `index` of this state."""
        return replace(self, rows=self.rows.index_select(0, index.reshape(-1)))


class OnnxModel:
    """An exported model, as `search` asks for it.

    Args:
        folder: what `write_onnx` wrote.

    Raises:
        UserError: no such folder, or one of another format.
    """

    def __init__(self, folder: Path) -> None:
        from onnxruntime import InferenceSession, SessionOptions

        if not (folder / DESCRIPTION).is_file():
            raise UserError("this folder is no export to ONNX", where=str(folder))
        description = read_json(folder / DESCRIPTION, what="description of an export to ONNX")
        if description.get("format") != FORMAT:
            what = "a format that this headway does not read"
            raise UserError(what, where=str(folder), received=description.get("format"), allowed=str(FORMAT))
        self._state: list[str] = description["state"]
        options = SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = torch.get_num_threads(), 3
        self._encoder, self._decoder = (
            InferenceSession(str(folder / name), options, providers=["CPUExecutionProvider"])
            for name in (ENCODER, DECODER)
        )

    def encode(self, source: Tensor, mask: Tensor) -> OnnxMemory:
        """Keep sources (B, S) until `start`."""
        return OnnxMemory(torch.zeros(len(source), 0), mask, source)

    def start(self, memory: Memory, capacity: int) -> OnnxState:
        """Encode the sources; the state has room for `capacity` tokens."""
        assert isinstance(memory, OnnxMemory)
        given = {"source": memory.source, "mask": memory.mask, "room": torch.zeros(capacity, dtype=torch.bool)}
        tensors = self._encoder.run(
            None, self._read(self._encoder, {name: each.numpy() for name, each in given.items()})
        )
        return OnnxState(tuple(tensors), torch.arange(len(memory.mask)))

    def extend(self, tokens: Tensor, state: State) -> tuple[Tensor, OnnxState]:
        """Log probabilities (R, V) of the token after tokens (R, n), and the state after these."""
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
        """Those of the inputs that the graph reads: one that changes nothing is not in it."""
        return {each.name: np.ascontiguousarray(given[each.name]) for each in session.get_inputs()}
