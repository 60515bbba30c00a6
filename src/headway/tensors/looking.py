"""Recordings of work, and whether numbers may be looked at: not in these, nor where that waits for a device."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

Work = Callable[[], None]
_recorded = False


@contextmanager
def recorded() -> Iterator[None]:
    """Let what runs within this context not depend on numbers, so that a device can repeat it without the program."""
    global _recorded
    before, _recorded = _recorded, True
    try:
        yield
    finally:
        _recorded = before


def is_recorded() -> bool:
    """Whether this runs within `recorded`."""
    return _recorded


def may_look(x: Tensor) -> bool:
    """Whether the program may depend on the numbers of `x`, and reading them costs little."""
    return x.device.type == "cpu" and not (_recorded or torch.compiler.is_compiling())


class Recorder:
    """Does work here, and replays it by calling it."""

    def warm(self, work: Work) -> None:
        """Do the work, for the first time."""
        work()

    def record(self, work: Work) -> Work:
        """Record the work without doing it. Gives what does it."""
        return work


class GraphRecorder(Recorder):
    """Does work on a GPU, on a stream of its own where libraries prepare themselves, and replays it as a graph.

    Its recordings take turns, so that they share what memory is free between them.
    """

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._pool = torch.cuda.graph_pool_handle()

    def warm(self, work: Work) -> None:
        current = torch.cuda.current_stream(self._stream.device)
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            work()
        current.wait_stream(self._stream)

    def record(self, work: Work) -> Work:
        graph, mode = torch.cuda.CUDAGraph(), "thread_local"  # another thread may pin memory at this moment
        with torch.cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode=mode):
            work()
        return graph.replay
