"""Recording work as CUDA graphs, and whether tensor values may be read: not while recording or on an accelerator."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

Work = Callable[[], None]
_recorded = False


@contextmanager
def recorded() -> Iterator[None]:
    """Return a context for recorded work, in which control flow must not depend on values of tensors."""
    global _recorded
    before, _recorded = _recorded, True
    try:
        yield
    finally:
        _recorded = before


def is_recorded() -> bool:
    return _recorded


def may_look(x: Tensor) -> bool:
    """Whether control flow may depend on values of `x`, and reading them is cheap."""
    return x.device.type == "cpu" and not (_recorded or torch.compiler.is_compiling())


class Recorder:
    """Runs work on the CPU; recording it returns the work itself."""

    def warm(self, work: Work) -> None:
        work()

    def record(self, work: Work) -> Work:
        """Record the work without running it, and return a function that runs it."""
        return work


class GraphRecorder(Recorder):
    """Records work on a GPU as CUDA graphs, and warms up on a separate stream.

    Recordings take turns, and share a memory pool.
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
        graph, mode = torch.cuda.CUDAGraph(), "thread_local"  # another thread may be pinning memory
        with torch.cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode=mode):
            work()
        return graph.replay
