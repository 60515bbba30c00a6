"""Memory that runs out is told from other failures."""

import pytest
import torch

from headway.errors import RunError
from headway.memory import is_out_of_memory, memory_named


@pytest.mark.parametrize(
    ("error", "ran_out"),
    [
        (MemoryError(), True),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), True),
        (RuntimeError("[enforce fail at alloc_cpu.cpp:124] DefaultCPUAllocator: can't allocate memory"), True),
        (RuntimeError("std::bad_alloc"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), True),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False),
        (ValueError("out of memory"), False),
        (RunError("out of memory"), False),
    ],
)
def test_what_says_that_memory_ran_out(error: Exception, ran_out: bool) -> None:
    assert is_out_of_memory(error) == ran_out


def test_it_is_named_with_a_remedy() -> None:
    with (
        pytest.raises(RunError, match=r"^memory ran out in a batch; take fewer$"),
        memory_named("in a batch", "take fewer"),
    ):
        torch.empty(2**60)
    with pytest.raises(ValueError, match="other"), memory_named("in a batch", "take fewer"):
        raise ValueError("other")
