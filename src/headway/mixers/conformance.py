"""What every mixer must keep to, as checks that run on any mixer, in the registry or outside.

    from headway.mixers.conformance import CHECKS
    for check in CHECKS:
        check(lambda causal: MyMixer(12, causal, heads=3), dim=12, causal=True)

A check raises `ConformanceError` with what it found. Sizes are small and all different, so that an
axis taken for another one shows. Shapes: B batch, L length, K heads, D model.
"""

import copy
from collections.abc import Callable

import torch
from torch import Tensor

from headway.mixers.mixer import Mixer
from headway.tensors.masks import padding_mask

Build = Callable[[bool], Mixer]
BATCH, LENGTH = 5, 7
LENGTHS = (7, 4, 1, 6, 0)  # the last row is all padding


class ConformanceError(AssertionError):
    """A mixer broke the contract."""


def check(condition: bool | Tensor, message: str) -> None:
    """Raise `ConformanceError` with `message` unless `condition` holds."""
    if not bool(condition):
        raise ConformanceError(message)


def close(one: Tensor, other: Tensor, tolerance: float, message: str) -> None:
    """Raise `ConformanceError` unless two tensors agree, element by element, to `tolerance`."""
    difference = float((one - other).detach().abs().max()) if one.numel() else 0.0
    check(difference <= tolerance, f"{message}: the largest difference is {difference:.3g}, allowed is {tolerance:.3g}")


def _mixer(build: Build, causal: bool, dtype: torch.dtype = torch.float64) -> Mixer:
    torch.manual_seed(11)
    return build(causal).to(dtype).eval()


def _input(dim: int, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(13)
    x = torch.randn(BATCH, LENGTH, dim, generator=generator, dtype=torch.float64).to(dtype)
    return x, padding_mask(torch.tensor(LENGTHS), LENGTH)


def check_shapes(build: Build, *, dim: int, causal: bool) -> None:
    """Values are (B, L, D), finite, zero at padding; an all-padding row gives zeros, also to the gradient."""
    mixer, (x, mask) = _mixer(build, causal), _input(dim)
    x.requires_grad_()
    values = mixer(x, mask).values
    check(values.shape == x.shape, f"values have shape {tuple(values.shape)} for an input of {tuple(x.shape)}")
    check(values.isfinite().all(), "values are not all finite")
    check((values[~mask] == 0).all(), "values at padding are not zero")
    values.square().sum().backward()
    gradients = {"x": x.grad, **{name: parameter.grad for name, parameter in mixer.named_parameters()}}
    for name, gradient in gradients.items():
        check(gradient is not None, f"no gradient reaches {name}")
        assert gradient is not None
        check(gradient.isfinite().all(), f"the gradient of {name} is not all finite")


def check_causality(build: Build, *, dim: int, causal: bool) -> None:
    """Another future leaves the past of a causal mixer as it was; a mixer that is not causal sees it."""
    mixer, (x, _) = _mixer(build, causal), _input(dim)
    changed = x.clone()
    changed[:, 4:] += 1
    difference = (mixer(x, None).values - mixer(changed, None).values).abs().amax(dim=(0, 2))
    if causal:
        check((difference[:4] == 0).all(), "the future changed the past of a causal mixer")
    else:
        check(difference[3] > 0, "a mixer that is not causal does not see the next position")


def check_padding(build: Build, *, dim: int, causal: bool) -> None:
    """What stands at padding, and how much of it there is, changes nothing at real positions."""
    mixer, (x, mask) = _mixer(build, causal), _input(dim)
    values = mixer(x, mask).values
    other = torch.where(mask[..., None], x, x + 3)
    close(mixer(other, mask).values, values, 1e-12, "what stands at padding changed a real position")
    longer = torch.cat([x, torch.ones(BATCH, 3, dim, dtype=x.dtype)], 1)
    more = padding_mask(torch.tensor(LENGTHS), LENGTH + 3)
    close(mixer(longer, more).values[:, :LENGTH], values, 1e-12, "more padding changed a real position")
    full = mixer(x, torch.ones_like(mask)).values
    close(full, mixer(x, None).values, 1e-12, "a mask without padding differs from no mask")


def check_batch(build: Build, *, dim: int, causal: bool) -> None:
    """A batch is its rows, each alone and without padding."""
    mixer, (x, mask) = _mixer(build, causal), _input(dim)
    values = mixer(x, mask).values
    for row, length in enumerate(LENGTHS):
        if length:
            alone = mixer(x[row : row + 1, :length], None).values[0]
            close(values[row, :length], alone, 1e-12, f"row {row} differs from the same sequence alone")


def check_steps(build: Build, *, dim: int, causal: bool) -> None:
    """Step by step equals all at once; states are values; `select` reorders, repeats and drops rows."""
    mixer, (x, _) = _mixer(build, causal), _input(dim)
    if not causal:
        try:
            mixer.initial_state(BATCH)
        except ValueError:
            return
        raise ConformanceError("a mixer that is not causal gave a state for decoding")
    values, state = mixer(x, None).values, mixer.initial_state(BATCH)
    order = torch.tensor([3, 3, 0, 4])
    for position in range(LENGTH):
        before = state
        step, state = mixer.step(x[:, position], before)
        close(step, values[:, position], 1e-12, f"step {position} differs from the whole")
        again, _ = mixer.step(x[:, position], before)
        close(again, step, 0.0, "stepping the same state twice differs: a state must be a value")
        chosen, _ = mixer.step(x[order, position], before.select(order))
        close(chosen, values[order, position], 1e-12, "select changed more than the order of rows")


def check_prefill(build: Build, *, dim: int, causal: bool) -> None:
    """The first positions at once, then step by step, equal the whole, wherever the one gives way to the other."""
    if not causal:
        return
    mixer, (x, _) = _mixer(build, causal), _input(dim)
    values = mixer(x, None).values
    for first in (1, 2, LENGTH - 1):
        filled, state = mixer.prefill(x[:, :first])
        close(filled, values[:, :first], 1e-12, f"the first {first} positions at once differ from the whole")
        state = state.select(torch.arange(BATCH))
        for position in range(first, LENGTH):
            step, state = mixer.step(x[:, position], state)
            close(step, values[:, position], 1e-12, f"step {position} after {first} at once differs from the whole")


def check_weights(build: Build, *, dim: int, causal: bool) -> None:
    """Weights, where they exist, sum to one over what may be seen and are zero elsewhere; asking changes no value."""
    mixer, (x, mask) = _mixer(build, causal), _input(dim)
    mixed = mixer(x, mask, need_weights=True)
    close(mixed.values, mixer(x, mask).values, 1e-12, "asking for weights changed the values")
    if mixed.weights is None:
        return
    weights = mixed.weights
    check(weights.shape[0::2] == (BATCH, LENGTH) and weights.shape[3] == LENGTH, f"weights have shape {weights.shape}")
    sums = mask[:, None, :].expand(weights.shape[:3]).to(weights)
    close(weights.sum(-1), sums, 1e-12, "weights do not sum to one at real positions and to zero at padding")
    seen = mask[:, None, :, None] & mask[:, None, None, :]
    check((weights.masked_fill(seen, 0) == 0).all(), "a weight from or to padding is not zero")
    if causal:
        check((weights.triu(1) == 0).all(), "a causal mixer has weights on the future")


def check_shares(build: Build, *, dim: int, causal: bool) -> None:
    """Shares, where they exist: `forward` can be had from them, and each depends on the positions of its part alone."""
    mixer, (x, mask) = _mixer(build, causal), _input(dim)
    found = mixer.shares(x, mask)
    if found is None:
        return
    shape, count = found.shares.shape, len(found.parts)
    check(shape[0::2][:2] == (BATCH, LENGTH) and shape[3] == count, f"shares of {count} parts have shape {shape}")
    close(found.values, mixer(x, mask).values, 1e-12, "the values from the shares differ from forward's")
    check((found.shares.transpose(1, 2)[~mask] == 0).all(), "a share at padding is not zero")
    (gradient,) = torch.autograd.grad(found.values.square().sum(), found.shares, allow_unused=True)
    check(gradient is not None and gradient.isfinite().all(), "no gradient reaches the shares")
    place = 3
    changed = x.clone()
    changed[:, place] += 1
    again = mixer.shares(changed, None)
    before = mixer.shares(x, None)
    assert again is not None
    assert before is not None
    moved = (again.shares - before.shares).abs().amax((0, 1, 4))  # (L, P)
    for t in range(LENGTH):
        for number, part in enumerate(found.parts):
            within = (part.first is None or place - t >= part.first) and (part.last is None or place - t <= part.last)
            check(within or moved[t, number] == 0, f"share {part.name} of position {t} depends on position {place}")
            check(not within or part.first is None or moved[t, number] > 0, f"share {part.name} does not see its part")


def check_save_and_load(build: Build, *, dim: int, causal: bool) -> None:
    """The state dict carries all that the values depend on."""
    mixer, (x, mask) = _mixer(build, causal), _input(dim)
    torch.manual_seed(17)
    fresh = build(causal).double().eval()
    fresh.load_state_dict(copy.deepcopy(mixer.state_dict()))
    close(fresh(x, mask).values, mixer(x, mask).values, 0.0, "a mixer loaded from the state dict differs")


def check_bf16(build: Build, *, dim: int, causal: bool) -> None:
    """bf16 stays close to float32: within 3 % of the largest value."""
    mixer, (x, mask) = _mixer(build, causal, torch.float32), _input(dim, torch.float32)
    values = mixer(x, mask).values
    with torch.autocast("cpu", torch.bfloat16):
        low = mixer(x, mask).values.float()
    close(low, values, 0.03 * float(values.detach().abs().max()), "bf16 is far from float32")


def check_compile(build: Build, *, dim: int, causal: bool) -> None:
    """torch.compile takes the whole mixer without a graph break, and gives the same values."""
    mixer, (x, mask) = _mixer(build, causal), _input(dim)
    torch.compiler.reset()
    compiled = torch.compile(mixer, fullgraph=True, backend="aot_eager")
    close(compiled(x, mask).values, mixer(x, mask).values, 1e-12, "the compiled mixer differs")


CHECKS: tuple[Callable[..., None], ...] = (
    check_shapes,
    check_causality,
    check_padding,
    check_batch,
    check_steps,
    check_prefill,
    check_weights,
    check_shares,
    check_save_and_load,
    check_bf16,
    check_compile,
)
