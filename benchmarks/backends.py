"""Products of float32 matrices by the library that torch was built with, beside those of oneDNN (tensors.backends).

A product is a map of many rows, forward and backward, as a training step has it.
"""

from functools import partial

import torch
from rounds import print_medians

from headway.core.device import instruction_set, keep_freed_memory, processor
from headway.tensors.linear import BACKENDS, linear

SIZES = ((256, 256), (256, 1024), (1024, 256), (256, 8000), (512, 512), (512, 2048), (2048, 512), (512, 10000))
ROWS = 3000


def step(inputs: int, outputs: int, backend: str) -> None:
    """A pass forward and backward."""
    x, weight = torch.ones(ROWS, inputs, requires_grad=True), torch.ones(outputs, inputs, requires_grad=True)
    y = linear(x, weight, None, backend)
    torch.autograd.grad(y, (x, weight), torch.ones_like(y))


def main() -> None:
    """Sizes of transformer-small and transformer-base."""
    keep_freed_memory()
    print(f"{processor()}, {instruction_set()}, {torch.get_num_threads()} threads")
    for inputs, outputs in SIZES:
        print_medians(
            f"{inputs} to {outputs}", {backend: partial(step, inputs, outputs, backend) for backend in BACKENDS}
        )


if __name__ == "__main__":
    main()
