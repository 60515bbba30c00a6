"""Conformance checks of the interface of mixers, for any mixer, and a short trial of types and shapes, which finds
errors before a long training.

    from headway.mixers.conformance import CHECKS
    for check in CHECKS:
        check(lambda causal: MyMixer(12, causal, heads=3), dim=12, causal=True)

A check raises `ConformanceError` with its observation, and returns whether it applied. Each takes a `device` and a
`dtype`. Sizes are small and all different, to detect exchanged axes. Shapes: B batch, L length, K heads, D model.
"""

import copy
import functools
import inspect
import itertools
import random
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from headway.core.errors import UserError
from headway.core.registry import is_own
from headway.mixers.mixer import Decomposable, Mixed, Mixer, MixerState, State
from headway.mixers.points import Edit
from headway.tensors.masks import padding_mask
from headway.tensors.names import counted_from_1

Build = Callable[[bool], Mixer]
Check = Callable[..., bool]
BATCH, LENGTH = 5, 7
LENGTHS = (7, 4, 1, 6, 0)  # the last row is all padding
STEPS = 100  # of decoding, over which the shapes of a state must be constant
EDGES = (15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 130)  # lengths around the ends of chunks of usual sizes
LONG = EDGES[-1]

BF16_UNITS = 4 * torch.finfo(torch.bfloat16).eps

# The largest difference between two computations of the same values, relative for values above one.
TOLERANCES = {torch.float64: 1e-12, torch.float32: 1e-4, torch.bfloat16: 0.1, torch.float16: 0.02}


class ConformanceError(AssertionError):
    """A mixer violates the interface."""


class _DoesNotApply(Exception):  # noqa: N818
    """The check does not apply to this mixer."""


def applies(condition: bool) -> None:
    if not condition:
        raise _DoesNotApply


def check(condition: bool | Tensor, message: str) -> None:
    if not bool(condition):
        raise ConformanceError(message)


def close(one: Tensor, other: Tensor, message: str, tolerance: float | None = None) -> None:
    """Raise `ConformanceError` unless two tensors agree elementwise to `tolerance`, by default that of their type."""
    sizes = [float(each.detach().abs().max()) for each in (one, other, one - other)] if one.numel() else [0.0] * 3
    difference = sizes.pop()
    allowed = TOLERANCES[one.dtype] * max(1.0, min(sizes)) if tolerance is None else tolerance
    check(difference <= allowed, f"{message}: the largest difference is {difference:.3g}, allowed is {allowed:.3g}")


@dataclass(frozen=True)
class Trial:
    """A mixer under test: its builder, D, whether it is causal, and the device and type it computes with."""

    build: Build
    dim: int
    causal: bool
    device: torch.device | str
    dtype: torch.dtype

    def mixer(self, seed: int = 11) -> Mixer:
        torch.manual_seed(seed)
        return self.build(self.causal).to(self.device, self.dtype).eval()

    def input(self, length: int = LENGTH) -> Tensor:
        generator = torch.Generator().manual_seed(13)
        x = torch.randn(BATCH, length, self.dim, generator=generator, dtype=torch.float64)
        return x.to(self.device, self.dtype)

    def mask(self, length: int = LENGTH) -> Tensor:
        return padding_mask(torch.tensor(LENGTHS), length).to(self.device)


def _on_any_mixer(check: Callable[[Trial], None]) -> Check:
    """Turn a check of a `Trial` into one that takes the fields of a trial as arguments."""

    @functools.wraps(check)
    def checked(
        build: Build,
        *,
        dim: int,
        causal: bool,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float64,
    ) -> bool:
        try:
            check(Trial(build, dim, causal, device, dtype))
        except _DoesNotApply:
            return False
        return True

    return checked


@_on_any_mixer
def check_shapes(trial: Trial) -> None:
    """Values are (B, L, D) of the input's type, finite, zero at padding; gradients reach all and are finite."""
    mixer, x, mask = trial.mixer(), trial.input(), trial.mask()
    x.requires_grad_()
    values = mixer(x, mask).values
    check(values.shape == x.shape, f"values have shape {tuple(values.shape)} for an input of {tuple(x.shape)}")
    check(values.dtype == x.dtype, f"values are {values.dtype} for an input of {x.dtype}")
    check(values.isfinite().all(), "values are not all finite")
    check((values[~mask] == 0).all(), "values at padding are not zero")
    values.square().sum().backward()
    gradients = {"x": x.grad, **{name: parameter.grad for name, parameter in mixer.named_parameters()}}
    for name, gradient in gradients.items():
        check(gradient is not None, f"no gradient reaches {name}")
        assert gradient is not None
        check(gradient.isfinite().all(), f"the gradient of {name} is not all finite")


@_on_any_mixer
def check_causality(trial: Trial) -> None:
    """A causal mixer sees no later position, at any distance; a mixer that is not causal sees the next one."""
    mixer = trial.mixer()
    for length, cuts in ((EDGES[5], range(1, EDGES[5])), (LONG, EDGES[:-1])):
        x = trial.input(length)[:1].repeat(len(cuts), 1, 1)
        future = torch.arange(length) >= torch.tensor(cuts)[:, None]  # (cuts, L)
        future = future.to(x.device)
        with torch.no_grad():
            changed = mixer(torch.where(future[..., None], x.flip(1) + 1, x), None).values
            moved = (changed - mixer(x, None).values).abs().amax(2).masked_fill(future, 0)
        if trial.causal:
            cut, position = divmod(int(moved.argmax()), length)
            message = f"position {position} of a causal mixer sees the future, position {cuts[cut]} or one after it"
            close(moved, torch.zeros_like(moved), message)
        else:
            check(moved[0, cuts[0] - 1] > 0, "a mixer that is not causal does not see the next position")


@_on_any_mixer
def check_padding(trial: Trial) -> None:
    """The content of padding, and how much of it there is, change nothing at real positions."""
    mixer, x, mask = trial.mixer(), trial.input(), trial.mask()
    values = mixer(x, mask).values
    other = torch.where(mask[..., None], x, x + 3)
    close(mixer(other, mask).values, values, "what stands at padding changed a real position")
    longer = torch.cat([x, torch.ones_like(x[:, :3])], 1)
    more = trial.mask(LENGTH + 3)
    close(mixer(longer, more).values[:, :LENGTH], values, "more padding changed a real position")
    full = mixer(x, torch.ones_like(mask)).values
    close(full, mixer(x, None).values, "a mask without padding differs from no mask")


@_on_any_mixer
def check_batch(trial: Trial) -> None:
    """A batch is its rows, each alone, with its padding and without."""
    mixer, x, mask = trial.mixer(), trial.input(), trial.mask()
    values = mixer(x, mask).values
    for row, length in enumerate(LENGTHS):
        if length:
            alone = mixer(x[row : row + 1, :length], None).values[0]
            close(values[row, :length], alone, f"row {row} differs from the same sequence alone, without other rows")
        alone = mixer(x[row : row + 1], mask[row : row + 1]).values[0]
        close(values[row], alone, f"row {row} differs alone with its padding, whose mask a batch of one row may skip")


@_on_any_mixer
def check_left_padding(trial: Trial) -> None:
    """Padding before the real positions changes nothing."""
    mixer, x, mask = trial.mixer(), trial.input(), trial.mask().flip(1)
    applies(_takes_left_padding(mixer, trial))
    values = mixer(x, mask).values
    check((values[~mask] == 0).all(), "values at padding on the left are not zero")
    for row, length in enumerate(LENGTHS):
        if length:
            alone = mixer(x[row : row + 1, -length:], None).values[0]
            close(values[row, -length:], alone, f"padding on the left changes row {row}")


def _takes_left_padding(mixer: Mixer, trial: Trial) -> bool:
    """Whether `forward` supports padding before real positions (see `Mixer.forward`)."""
    return not (mixer.needs_padding_last or (trial.causal and torch.device(trial.device).type != "cpu"))


@_on_any_mixer
def check_chunks(trial: Trial) -> None:
    """Lengths on both sides of 16, 32, 64 and 128 make no difference: no edge of a chunk shows."""
    ahead = 5
    mixer, x = trial.mixer(), trial.input(ahead + LONG)[:2]
    with torch.no_grad():
        if not trial.causal:
            ahead = ahead if _takes_left_padding(mixer, trial) else 0
            for length in EDGES:
                new = x[:, :length]
                padded = F.pad(new, (0, 0, ahead, LONG - length), value=3)  # the number 3 is the padding
                mask = F.pad(torch.ones_like(new[..., 0], dtype=torch.bool), (ahead, LONG - length))
                values = mixer(padded, mask).values[:, ahead : ahead + length]
                close(values, mixer(new, None).values, f"a sequence of {length} positions differs once it is padded")
            return
        state, steps, begun = mixer.initial_state(2, ahead + LONG), list[Tensor](), None
        for position in range(ahead + LONG):
            begun = state.select(torch.arange(2, device=x.device)) if position == ahead else begun
            value, state = mixer.extend(x[:, position : position + 1], state)
            steps.append(value)
        one_by_one = torch.cat(steps, 1)
        assert begun is not None
        for length in EDGES:
            where = f"a sequence of {length} positions differs from the same read one by one"
            close(mixer(x[:, :length], None).values, one_by_one[:, :length], where)
            values, _ = mixer.extend(x[:, ahead : ahead + length], begun.select(torch.arange(2, device=x.device)))
            where = f"{length} positions read at once after {ahead} others differ from the same read one by one"
            close(values, one_by_one[:, ahead : ahead + length], where)


@_on_any_mixer
def check_repeated_calls(trial: Trial) -> None:
    """In evaluation nothing is drawn at random, and no call leaves a trace."""
    mixer, x, mask = trial.mixer(), trial.input(), trial.mask()
    values = mixer(x, mask).values
    close(mixer(x, mask).values, values, "the same call gives other values: something is drawn at random or kept")
    mixer(x + 1, None)
    if trial.causal:
        mixer.extend(x + 1, mixer.initial_state(BATCH, LENGTH))
    close(mixer(x, mask).values, values, "other calls in between change the values: something of them is left behind")


STEP, SLOPE_TOLERANCE, GRADIENT_TOLERANCE = 1e-7, 1e-5, 1e-9


@_on_any_mixer
def check_gradients(trial: Trial) -> None:
    """Gradients are those of finite differences; those through a state, where it has them, are those of the whole."""
    applies(trial.dtype is torch.float64)
    mixer = trial.mixer()
    for length in (LENGTH, LONG):
        x = trial.input(length)[:1].requires_grad_()
        tensors = {"x": x, **{name: each for name, each in mixer.named_parameters() if each.requires_grad}}
        values = mixer(x, None).values
        upstream = torch.randn_like(values)
        gradients = torch.autograd.grad(
            values, [*tensors.values()], upstream, allow_unused=True, materialize_grads=True
        )
        for (name, tensor), gradient in zip(tensors.items(), gradients, strict=True):
            tries = [_slopes(mixer, x, tensor, gradient, upstream) for _ in range(2)]  # one may hit a kink
            difference, slope = min((abs(one - other), abs(other)) for one, other in tries)
            message = f"the gradient of {name} at {length} positions is off by {difference:.3g} of {slope:.3g}"
            check(difference <= SLOPE_TOLERANCE * max(1.0, slope), message)
    if not trial.causal:
        return
    cut = EDGES[8]
    earlier, state = mixer.extend(x[:, :cut], mixer.initial_state(1, LONG))
    later, _ = mixer.extend(x[:, cut:], state.select(torch.arange(1, device=x.device)))
    cuts = torch.cat([earlier, later], 1)
    carried = cuts.requires_grad and any(tensor.requires_grad for tensor in _tensors(state))
    if carried and torch.allclose(cuts, values):  # different values are reported by other checks
        through = torch.autograd.grad(cuts, [*tensors.values()], upstream, allow_unused=True, materialize_grads=True)
        for name, gradient, other in zip(tensors, through, gradients, strict=True):
            size = max(1.0, float(other.abs().max()))
            close(
                gradient, other, f"the gradient of {name} through a state is not the whole's", GRADIENT_TOLERANCE * size
            )


def _slopes(mixer: Mixer, x: Tensor, tensor: Tensor, gradient: Tensor, upstream: Tensor) -> tuple[float, float]:
    """The derivative of the weighted sum of values in a random direction of `tensor`: by gradient, by difference."""
    direction, before, sums = torch.randn_like(tensor), tensor.detach().clone(), list[Tensor]()
    with torch.no_grad():
        for sign in (1, -1):
            tensor.copy_(before + sign * STEP * direction)
            sums.append((mixer(x, None).values * upstream).sum())
        tensor.copy_(before)
    return float((gradient * direction).sum()), float(sums[0] - sums[1]) / (2 * STEP)


@_on_any_mixer
def check_states(trial: Trial) -> None:
    """Causal mixers give states whose tensors keep shapes and types over 100 positions, others refuse to."""
    mixer = trial.mixer()
    if not trial.causal:
        try:
            mixer.initial_state(BATCH, LENGTH)
        except ValueError:
            return
        raise ConformanceError("a mixer that is not causal gave a state for decoding")
    x, state = trial.input(STEPS), mixer.initial_state(BATCH, STEPS)
    check(state.lengths.tolist() == [0] * BATCH, "the lengths of an initial state are not zero")
    first = [(tuple(each.shape), each.dtype) for each in _tensors(state)]
    with torch.no_grad():
        whole = mixer(x, None).values
        for position in range(STEPS):
            value, state = mixer.extend(x[:, position : position + 1], state)
            now = [(tuple(each.shape), each.dtype) for each in _tensors(state)]
            check(now == first, f"the shapes and types {first} of a state are {now} at {position + 1}")
    check(state.lengths.tolist() == [STEPS] * BATCH, f"the lengths are not {STEPS} after {STEPS} positions")
    close(value, whole[:, -1:], f"position {STEPS} differs from the whole")


def _tensors(state: Any) -> Iterator[Tensor]:
    if isinstance(state, Tensor):
        yield state
    elif isinstance(state, tuple | State):
        for part in state if isinstance(state, tuple) else vars(state).values():
            yield from _tensors(part)


@_on_any_mixer
def check_extend(trial: Trial) -> None:
    """`extend` in any cuts equals the whole; `select` copies rows, reorders and repeats them and leaves some out."""
    applies(trial.causal)
    mixer, x = trial.mixer(), trial.input()
    everyone, some = torch.arange(BATCH, device=x.device), torch.tensor([3, 3, 0, 4], device=x.device)
    with torch.no_grad():
        whole = mixer(x, None).values
        for cuts in _cuts(LENGTH):
            state, start = mixer.initial_state(BATCH, LENGTH), 0
            for stop in cuts:
                before, new, where = state, x[:, start:stop], f"{start} to {stop} of a sequence cut at {list(cuts)}"
                copied, other, selected = before.select(everyone), before.select(everyone), before.select(some)
                values, state = mixer.extend(new, before)
                close(values, whole[:, start:stop], f"{where}: the values differ from the whole")
                close(mixer.extend(new, before)[0], values, f"{where}: extending the same state twice differs")
                close(mixer.extend(new, copied)[0], values, f"{where}: extending a copy of the state differs")
                close(mixer.extend(new[some], selected)[0], values[some], f"{where}: select changes more than the rows")
                mixer.extend(new + 1, other)  # must not change `state`, which the next cut verifies
                start = stop


@_on_any_mixer
def check_rows(trial: Trial) -> None:
    """Rows of a state are apart: no row sees what another one reads, or what is read after a copy of it."""
    applies(trial.causal)
    mixer, x = trial.mixer(), trial.input()
    other = x.clone()
    other[0] += 1
    with torch.no_grad():
        _, gone_on = _read(mixer, x)
        values, _ = mixer.extend(x[:, 5:], gone_on)
        message = "rows of a state are shared: what row 0 read changed another row"
        close(mixer.extend(x[:, 5:], _read(mixer, other)[1])[0][1:], values[1:], message)
        begun, _ = _read(mixer, x)
        copied = begun.select(torch.arange(BATCH, device=x.device))
        _, gone_on = mixer.extend(x[:, 3:5], begun)
        mixer.extend(x[:, 3:] + 1, copied)
        close(mixer.extend(x[:, 5:], gone_on)[0], values, "select does not copy: what was read after a copy shows")
        lines = torch.tensor([[3, 3], [0, 4]], device=x.device)
        picked, _ = mixer.extend(x[lines.flatten(), 5:], gone_on.select(lines))
        close(picked, values[lines.flatten()], "select gives other rows than those that were asked for")


def _read(mixer: Mixer, x: Tensor) -> tuple[MixerState, MixerState]:
    """The states after 3 and after 5 positions of x."""
    _, begun = mixer.extend(x[:, :3], mixer.initial_state(BATCH, LENGTH))
    return begun, mixer.extend(x[:, 3:5], begun)[1]


def _cuts(length: int) -> Iterator[Sequence[int]]:
    """The ends of calls that divide a sequence: all at once, one by one, and random divisions."""
    yield [length]
    yield range(1, length + 1)
    generator = random.Random(19)
    for count in (1, 2, 2, 3):
        yield [*sorted(generator.sample(range(1, length), count)), length]


Counts = tuple[int, ...]

# For each call, the new positions of each row; None stands for one of every row, without `lengths`.
ROUNDS: tuple[tuple[Counts | None, ...], ...] = (
    (LENGTHS, (2, 0, 1, 3, 4), None, (1, 2, 0, 2, 1)),
    (None, LENGTHS, None, None),
    ((0, 3, 2, 3, 1), None, None),
)


@_on_any_mixer
def check_prompts(trial: Trial) -> None:
    """Rows with prompts and drafts of different lengths, padded on the right, stand at positions of their own."""
    applies(trial.causal)
    mixer, x = trial.mixer(), trial.input(3 * LENGTH)
    with torch.no_grad():
        whole = mixer(x, None).values
        for rounds, rows in itertools.product(ROUNDS, (BATCH, 1)):
            sequences, order = list(range(rows)), torch.tensor([4, 1, 0, 1, 2], device=x.device)[-rows:] % rows
            state, stood, padded = mixer.initial_state(rows, 2 * LENGTH), [0] * rows, ""
            for counts in rounds:
                taken = (counts or (1,) * BATCH)[:rows]
                spans = [slice(start, start + count) for start, count in zip(stood, taken, strict=True)]
                width = max(taken) + (counts is not None)
                new = x.new_full((rows, width, trial.dim), 3)  # the number 3 is the padding
                for row, (sequence, span) in enumerate(zip(sequences, spans, strict=True)):
                    new[row, : taken[row]] = x[sequence, span]
                lengths = None if counts is None else torch.tensor(taken, device=x.device)
                values, state = mixer.extend(new, state, lengths)
                for row, (sequence, span) in enumerate(zip(sequences, spans, strict=True)):
                    where = f"row {row} of {rows} with {taken[row]} of {width} positions after {span.start}{padded}"
                    close(
                        values[row, : taken[row]], whole[sequence, span], f"{where}: the values differ from the whole"
                    )
                padded = padded or ", once padding on the right was read" * (counts is not None)
                stood = [span.stop for span in spans]
                check(state.lengths.tolist() == stood, f"lengths are {state.lengths.tolist()} and should be {stood}")
                state, sequences, stood = state.select(order), *_reordered(order, sequences, stood)


def _reordered(order: Tensor, *lists: list[int]) -> list[list[int]]:
    return [[numbers[row] for row in order.tolist()] for numbers in lists]


@_on_any_mixer
def check_weights(trial: Trial) -> None:
    """Weights, where they exist, are zero on what may not be seen and sum to one, unless the mixer declares that they
    do not; asking changes no value.
    """
    mixer, x, mask = trial.mixer(), trial.input(), trial.mask()
    mixed = mixer(x, mask, need_weights=True)
    close(mixed.values, mixer(x, mask).values, "asking for weights changed the values")
    weights = mixed.weights
    applies(weights is not None)
    assert weights is not None
    check(weights.shape[0::2] == (BATCH, LENGTH) and weights.shape[3] == LENGTH, f"weights have shape {weights.shape}")
    if mixer.weights_sum_to_one:
        sums = mask[:, None, :].expand(weights.shape[:3]).to(weights)
        close(weights.sum(-1), sums, "weights do not sum to one at real positions and to zero at padding")
    seen = mask[:, None, :, None] & mask[:, None, None, :]
    check((weights.masked_fill(seen, 0) == 0).all(), "a weight from or to padding is not zero")
    if trial.causal:
        check((weights.triu(1) == 0).all(), "a causal mixer has weights on the future")


@_on_any_mixer
def check_contributions(trial: Trial) -> None:
    """Contributions, where they exist, give the values of `forward`, and depend on their span alone."""
    mixer, x, mask = trial.mixer(), trial.input(), trial.mask()
    applies(isinstance(mixer, Decomposable))
    assert isinstance(mixer, Decomposable)
    spans, terms, values = mixer.contributions(x, mask)
    shape, count = terms.shape, len(spans)
    check(
        shape[0::2][:2] == (BATCH, LENGTH) and shape[3] == count, f"contributions of {count} spans have shape {shape}"
    )
    close(values, mixer(x, mask).values, "the values from the contributions differ from forward's")
    check((terms.transpose(1, 2)[~mask] == 0).all(), "a contribution at padding is not zero")
    (gradient,) = torch.autograd.grad(values.square().sum(), terms, allow_unused=True)
    check(gradient is not None and gradient.isfinite().all(), "no gradient reaches the contributions")
    position = 3
    changed = x.clone()
    changed[:, position] += 1
    difference = mixer.contributions(changed, None).contributions - mixer.contributions(x, None).contributions
    moved = difference.abs().amax((0, 1, 4))  # (L, P)
    for t in range(LENGTH):
        for index, (name, first, last) in enumerate(spans):
            within = (first is None or position - t >= first) and (last is None or position - t <= last)
            check(within or moved[t, index] == 0, f"contribution {name} of position {t} depends on {position}")
            check(not within or first is None or moved[t, index] > 0, f"contribution {name} does not see its span")


@_on_any_mixer
def check_interventions(trial: Trial) -> None:
    """A rule for a head or a span, where there are such, reaches it in forward and extend alike, and nothing else."""
    mixer, x, mask = trial.mixer(), trial.input(), trial.mask()
    points, position = mixer.points(), 3
    applies(bool(points))

    def under(edits: Mapping[str, Edit], call: Callable[[], Tensor]) -> Tensor:
        with ExitStack() as stack, torch.no_grad():
            for name, edit in edits.items():
                stack.callback(points[name](edit))
            return call()

    def seen(edits: Mapping[str, Edit]) -> tuple[Tensor, dict[str, Tensor]]:
        kept: dict[str, Tensor] = {}

        def keep(name: str) -> Edit:
            return lambda values: kept.setdefault(name, values)

        edits = {name: keep(name) for name in points} | dict(edits)
        return under(edits, lambda: mixer(x, mask).values), kept

    def in_parts() -> Tensor:
        state, parts = mixer.initial_state(BATCH, LENGTH), []
        for part in torch.split(x, [3, 1, LENGTH - 4], 1):
            values, state = mixer.extend(part, state)
            parts.append(values)
        return torch.cat(parts, 1)

    def moved(values: Tensor) -> Tensor:
        at = torch.arange(values.shape[1], device=values.device) == min(position, values.shape[1] - 1)
        return values + at[:, None].to(values)

    def halved(values: Tensor) -> Tensor:
        check(
            values.ndim == 3 and len(values) == BATCH, f"a rule reads values {tuple(values.shape)}, and not (B, L, C)"
        )
        return 1 - values / 2

    before, as_they_were = seen({})
    close(before, mixer(x, mask).values.detach(), "a rule that changes nothing changed the values")
    unread = ", ".join(points.keys() - as_they_were.keys())
    check(not unread, f"forward does not read {unread}")
    sums: dict[str, Tensor] = {}  # equal changes of any term change the sum equally
    for name in points:
        after, others = seen({name: moved})
        for other, values in others.items():
            if other.partition("=")[0] == name.partition("=")[0]:  # heads depend on the terms of all spans
                close(values, as_they_were[other], f"a rule for {name} changed {other}")
        at = (torch.arange(LENGTH, device=x.device) == position) | (as_they_were[name].shape[1] == 1)
        close(after[:, ~at], before[:, ~at], f"a rule for {name} at one position reaches others")
        check((after - before)[mask & at].abs().max() > 0, f"a rule for {name} does not reach the values of forward")
        if ":offset" in name and as_they_were[name].shape[1] == LENGTH:
            first = next(iter(sums), name)
            close(after, sums.setdefault(first, after), f"a rule for {name} does not do what one for {first} does")
        if trial.causal:
            whole = under({name: halved}, lambda: mixer(x, None).values)
            close(under({name: halved}, in_parts), whole, f"under a rule for {name} extend differs from forward")
    close(mixer(x, mask).values.detach(), before, "a rule is left behind")


@_on_any_mixer
def check_save_and_load(trial: Trial) -> None:
    """The state dict carries all that the values depend on."""
    mixer, x, mask = trial.mixer(), trial.input(), trial.mask()
    fresh = trial.mixer(seed=17)
    fresh.load_state_dict(copy.deepcopy(mixer.state_dict()))
    close(fresh(x, mask).values, mixer(x, mask).values, "a mixer loaded from the state dict differs")


@_on_any_mixer
def check_bf16(trial: Trial) -> None:
    """bf16 stays close to float32: within four of its units in the last place."""
    trial = replace(trial, dtype=torch.float32)
    mixer, x, mask = trial.mixer(), trial.input(), trial.mask()
    values = mixer(x, mask).values
    with torch.autocast(x.device.type, torch.bfloat16):
        low = mixer(x, mask).values.float()
    close(low, values, "bf16 is far from float32", BF16_UNITS * float(values.detach().abs().max()))


@_on_any_mixer
def check_compile(trial: Trial) -> None:
    """torch.compile takes the whole mixer without a graph break, and gives the same values."""
    mixer, x, mask = trial.mixer(), trial.input(), trial.mask()
    torch.compiler.reset()
    compiled = torch.compile(mixer, fullgraph=True, backend="aot_eager")
    close(compiled(x, mask).values, mixer(x, mask).values, "the compiled mixer differs")


@_on_any_mixer
def check_compiled_steps(trial: Trial) -> None:
    """torch.compile takes `extend` by one position without a graph break, once for 100 positions."""
    applies(trial.causal)
    from torch._dynamo.testing import CompileCounterWithBackend  # takes half a second to import

    mixer, x = trial.mixer(), trial.input(STEPS)
    torch.compiler.reset()
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(mixer.extend, fullgraph=True, backend=counter)
    state = mixer.initial_state(BATCH, STEPS)
    with torch.no_grad():
        whole = mixer(x, None).values
        for position in range(STEPS):
            value, state = compiled(x[:, position : position + 1].clone(), state)
            close(value, whole[:, position : position + 1], f"compiled, position {position} differs from the whole")
            check(counter.frame_count == 1, f"position {position} compiled the step once more")


CHECKS: tuple[Check, ...] = (
    check_shapes,
    check_causality,
    check_padding,
    check_batch,
    check_left_padding,
    check_chunks,
    check_repeated_calls,
    check_gradients,
    check_states,
    check_extend,
    check_rows,
    check_prompts,
    check_weights,
    check_contributions,
    check_interventions,
    check_save_and_load,
    check_bf16,
    check_compile,
    check_compiled_steps,
)


Result = TypeVar("Result")


def try_own_mixers(model: nn.Module, dim: int | None) -> None:
    """Let each mixer of `model` that is not one of headway's read a few positions, and decode if it is causal.

    Random states and the mode of the model are not changed. A model whose class is not headway's may use its mixers in
    other ways, and is not checked.

    Args:
        model: on the device on which it will be trained.
        dim: D, the size of the vectors that its mixers read; None for a model without mixers.

    Raises:
        UserError: a mixer fails, or its results violate the interface (see `Mixer`).
    """
    if dim is None or not is_own(model):
        return
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    for name, mixer in model.named_modules():
        if isinstance(mixer, Mixer) and not is_own(mixer):
            trial = _ShortTrial(mixer, f"model.{counted_from_1(name)}")
            with _undisturbed(mixer, device):
                trial.forward(torch.zeros(2, 3, dim, device=device))
                if mixer.causal:
                    trial.decoding(torch.zeros(2, 1, dim, device=device))


@dataclass(frozen=True)
class _ShortTrial:
    """A mixer under test, and its name in messages."""

    mixer: Mixer
    where: str

    def forward(self, x: Tensor) -> None:
        mask = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)
        mask[0, 1:] = False
        mixed = self._called("forward", lambda: self.mixer(x, mask, need_weights=True))
        self._check("forward", isinstance(mixed, Mixed), mixed, "headway.mixers.Mixed(values, weights)")
        self._check_shape("forward", "values", mixed.values, tuple(x.shape))
        if mixed.weights is not None:
            heads = mixed.weights.shape[1:2] if isinstance(mixed.weights, Tensor) else ()
            self._check_shape("forward", "weights", mixed.weights, (len(x), *heads, x.shape[1], x.shape[1]))

    def decoding(self, x: Tensor) -> None:
        state = self._called("initial_state", lambda: self.mixer.initial_state(len(x), 3))
        self._check("initial_state", isinstance(state, MixerState), state, "a headway.mixers.MixerState")
        extended = self._called("extend", lambda: self.mixer.extend(x, state))
        pair = isinstance(extended, tuple) and len(extended) == 2 and isinstance(extended[1], MixerState)
        self._check("extend", pair, extended, "(values, a headway.mixers.MixerState)")
        values, after = extended
        self._check_shape("extend", "values", values, tuple(x.shape))
        self._check_shape("extend", "lengths of the state", after.lengths, (len(x),))

    def _called(self, method: str, call: Callable[[], Result]) -> Result:
        try:
            return call()
        except Exception as error:  # raised by foreign code
            file = inspect.getsourcefile(type(self.mixer))
            own = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
            line = f" in {file}:{own[-1]}" if own else ""
            what = f"{type(self.mixer).__name__}.{method} fails{line}: {type(error).__name__}: {error}"
            raise UserError(what, where=self.where, allowed="what headway.mixers.conformance checks") from error

    def _check_shape(self, method: str, name: str, given: Any, wanted: tuple[int, ...]) -> None:
        self._check(method, isinstance(given, Tensor), given, f"{name} that are a tensor")
        if tuple(given.shape) != wanted:
            what = f"{type(self.mixer).__name__}.{method} gives {name} of another shape than a mixer does"
            raise UserError(what, where=self.where, received=tuple(given.shape), allowed=str(wanted))

    def _check(self, method: str, holds: bool, received: Any, allowed: str) -> None:
        if not holds:
            what = f"{type(self.mixer).__name__}.{method} gives something else than a mixer does"
            raise UserError(what, where=self.where, received=type(received).__name__, allowed=allowed)


@contextmanager
def _undisturbed(mixer: Mixer, device: torch.device) -> Iterator[None]:
    """A context with the mixer in evaluation mode and without gradients; restores the mode and random states."""
    training = mixer.training
    accelerators = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(accelerators), torch.no_grad():
        mixer.eval()
        try:
            yield
        finally:
            mixer.train(training)
