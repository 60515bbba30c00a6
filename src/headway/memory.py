"""Memory that runs out, told from other failures, with what to do about it."""

from collections.abc import Iterator
from contextlib import contextmanager

from headway.errors import RunError

# How torch, oneDNN, cuBLAS, cuDNN and the C++ library say that memory ran out, each by a RuntimeError.
SAYINGS = ("allocate", "alloc_failed", "bad_alloc", "out of memory", "could not create a memory")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory ran out, of Python, numpy or torch, on a CPU or an accelerator."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":  # torch's, not imported here
        return True
    return isinstance(error, RuntimeError) and any(saying in str(error).lower() for saying in SAYINGS)


@contextmanager
def memory_named(work: str, remedy: str) -> Iterator[None]:
    """Raise RunError where memory runs out within this context.

    Args:
        work: what was done, as in `memory ran out in a batch of 30 examples`.
        remedy: what to do about it.
    """
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        raise RunError(f"memory ran out {work}; {remedy}") from error
