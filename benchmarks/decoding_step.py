"""A decoding step of self-attention: keys and values written in place, beside caches that grow by concatenation.

Each turn is a step of R rows at position n and, as in beam search, the selection of as many rows for the next one.
"""

from functools import partial

import torch
from rounds import print_medians
from torch import Tensor

from headway.core.device import keep_freed_memory
from headway.mixers import Mixer, MixerState, build_mixer
from headway.mixers.attention import Attention, attend

DIM, CAPACITY = 256, 128


def in_place(mixer: Mixer, x: Tensor, state: MixerState, rows: Tensor) -> None:
    """headway: memory for the whole capacity, of which the filled part is read and selected."""
    _, after = mixer.extend(x, state)
    after.select(rows)


def growing(mixer: Attention, x: Tensor, cache: tuple[Tensor, Tensor], rows: Tensor) -> None:
    """Caches (n, R, K, d), copied to be one position longer."""
    query, key, value = mixer._project(x, torch.zeros(1, dtype=torch.int64))
    keys, values = (torch.cat([old, new.permute(2, 0, 1, 3)]) for old, new in zip(cache, (key, value), strict=True))
    read, _ = attend(query, keys.permute(1, 2, 0, 3), values.permute(1, 2, 0, 3), None)
    mixer._finish(read, None, None)
    for slots in (keys, values):
        slots.index_select(1, rows)


def main() -> None:
    """Beams of one to sixteen sentences."""
    mixer = build_mixer("attention", DIM, causal=True, heads=8).eval()
    for count in (4, 16, 64):
        for position in (10, 50, 100):
            x, rows = torch.randn(count, 1, DIM), torch.randint(count, (count,))
            _, state = mixer.extend(torch.randn(count, position, DIM), mixer.initial_state(count, CAPACITY))
            cache = state.keys[:position].clone(), state.values[:position].clone()
            functions = {
                "in place": partial(in_place, mixer, x, state, rows),
                "growing": partial(growing, mixer, x, cache, rows),
            }
            print_medians(f"{count} rows at {position}", functions, turns=60)


if __name__ == "__main__":
    keep_freed_memory()
    with torch.inference_mode():
        main()
