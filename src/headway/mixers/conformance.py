"""The contract of mixers as checks that run on any mixer, in the registry or outside, and a short trial of kinds and
shapes alone, before a training that would find a broken contract late.

    from headway.mixers.conformance import CHECKS
    for check in CHECKS:
        check(lambda causal: MyMixer(12, causal, heads=3), dim=12, causal=True)

A check raises `ConformanceError` with what it saw. Each takes a `device` and, but for the one of bf16, a `dtype`. Sizes
are small and all different, so that an axis taken for another one shows. Shapes: B batch, L length, K heads, D model.
"""

import copy
import functools
import inspect
import random
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from headway.core.errors import UserError
from headway.core.registry import is_own
from headway.mixers.mixer import Decomposable, Mixed, Mixer, MixerState
from headway.tensors.masks import padding_mask
from headway.tensors.names import counted_from_1

Build = Callable[[bool], Mixer]
Check = Callable[..., None]
BATCH, LENGTH = 5, 7
LENGTHS = (7, 4, 1, 6, 0)  # the last row is all padding
STEPS = 100  # that a state is to serve in constant shapes

BF16_UNITS = 4 * torch.finfo(torch.bfloat16).eps

# The largest difference between two ways to the same values that are of the order of one.
TOLERANCES = {torch.float64: 1e-12, torch.float32: 1e-4, torch.bfloat16: 0.1, torch.float16: 0.02}


class ConformanceError(AssertionError):
    """A mixer broke the contract."""


def check(condition: bool | Tensor, message: str) -> None:
    """Raise `ConformanceError` with `message` unless `condition` holds."""
    if not bool(condition):
        raise ConformanceError(message)


def close(one: Tensor, other: Tensor, message: str, tolerance: float | None = None) -> None:
    """Raise `ConformanceError` unless two tensors agree, element by element, to `tolerance` or that of their type."""
    allowed = TOLERANCES[one.dtype] if tolerance is None else tolerance
    difference = float((one - other).detach().abs().max()) if one.numel() else 0.0
    check(difference <= allowed, f"{message}: the largest difference is {difference:.3g}, allowed is {allowed:.3g}")


@dataclass(frozen=True)
class Trial:
    """A mixer on trial: how it is built, D, whether it is causal, where and with which numbers it computes."""

    build: Build
    dim: int
    causal: bool
    device: torch.device | str
    dtype: torch.dtype

    def mixer(self, seed: int = 11) -> Mixer:
        """The mixer, whose random weights depend on the seed alone."""
        torch.manual_seed(seed)
        return self.build(self.causal).to(self.device, self.dtype).eval()

    def input(self, length: int = LENGTH) -> Tensor:
        """(B, L, D)."""
        generator = torch.Generator().manual_seed(13)
        x = torch.randn(BATCH, length, self.dim, generator=generator, dtype=torch.float64)
        return x.to(self.device, self.dtype)

    def mask(self, length: int = LENGTH) -> Tensor:
        """(B, L)."""
        return padding_mask(torch.tensor(LENGTHS), length).to(self.device)


def _on_any_mixer(check: Callable[[Trial], None]) -> Check:
    """The check of a trial as one of what a trial is made of."""

    @functools.wraps(check)
    def checked(
        build: Build,
        *,
        dim: int,
        causal: bool,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float64,
    ) -> None:
        check(Trial(build, dim, causal, device, dtype))

    return checked


@_on_any_mixer
def check_shapes(trial: Trial) -> None:
    """Values are (B, L, D), finite, zero at padding; an all-padding row gives zeros, also to the gradient."""
    mixer, x, mask = trial.mixer(), trial.input(), trial.mask()
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


@_on_any_mixer
def check_causality(trial: Trial) -> None:
    """Another future leaves the past of a causal mixer as it was; a mixer that is not causal sees it."""
    mixer, x = trial.mixer(), trial.input()
    changed = x.clone()
    changed[:, 4:] += 1
    difference = (mixer(x, None).values - mixer(changed, None).values).abs().amax(dim=(0, 2))
    if trial.causal:
        check((difference[:4] == 0).all(), "the future changed the past of a causal mixer")
    else:
        check(difference[3] > 0, "a mixer that is not causal does not see the next position")


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
    """A batch is its rows, each alone and without padding."""
    mixer, x, mask = trial.mixer(), trial.input(), trial.mask()
    values = mixer(x, mask).values
    for row, length in enumerate(LENGTHS):
        if length:
            alone = mixer(x[row : row + 1, :length], None).values[0]
            close(values[row, :length], alone, f"row {row} differs from the same sequence alone")


@_on_any_mixer
def check_states(trial: Trial) -> None:
    """Causal mixers give states whose tensors have the same shapes over 100 positions, others refuse to."""
    mixer = trial.mixer()
    if not trial.causal:
        try:
            mixer.initial_state(BATCH, LENGTH)
        except ValueError:
            return
        raise ConformanceError("a mixer that is not causal gave a state for decoding")
    x, state = trial.input(STEPS), mixer.initial_state(BATCH, STEPS)
    check(state.lengths.tolist() == [0] * BATCH, "the lengths of an initial state are not zero")
    first = _shapes(state)
    with torch.no_grad():
        whole = mixer(x, None).values
        for position in range(STEPS):
            value, state = mixer.extend(x[:, position : position + 1], state)
            check(_shapes(state) == first, f"the shapes {first} of a state are {_shapes(state)} at {position + 1}")
    check(state.lengths.tolist() == [STEPS] * BATCH, f"the lengths are not {STEPS} after {STEPS} positions")
    close(value, whole[:, -1:], f"position {STEPS} differs from the whole")


def _shapes(state: Any) -> list[tuple[int, ...]]:
    """The shapes of all tensors of a state."""
    if isinstance(state, Tensor):
        return [tuple(state.shape)]
    if isinstance(state, tuple):
        return [shape for part in state for shape in _shapes(part)]
    if isinstance(state, MixerState):
        return [shape for field in fields(state) for shape in _shapes(getattr(state, field.name))]
    return []


@_on_any_mixer
def check_extend(trial: Trial) -> None:
    """`extend` in any cuts equals the whole; `select` copies rows, reorders and repeats them and leaves some out."""
    if not trial.causal:
        return
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
                mixer.extend(new + 1, other)  # leaves `state` as it is, which the next cut shows
                start = stop


def _cuts(length: int) -> Iterator[Sequence[int]]:
    """Where calls end: all at once, one by one, and some ways in between."""
    yield [length]
    yield range(1, length + 1)
    generator = random.Random(19)
    for count in (1, 2, 2, 3):
        yield [*sorted(generator.sample(range(1, length), count)), length]


Counts = tuple[int, ...]

# Of each row, the new positions of one call after the other; None stands for one of every row, without `lengths`.
ROUNDS: tuple[tuple[Counts | None, ...], ...] = (
    (LENGTHS, (2, 0, 1, 3, 4), None, (1, 2, 0, 2, 1)),
    (None, LENGTHS, None, None),
    ((0, 3, 2, 3, 1), None, None),
)


@_on_any_mixer
def check_prompts(trial: Trial) -> None:
    """Rows with prompts and drafts of different lengths, padded on the right, stand at positions of their own."""
    if not trial.causal:
        return
    mixer, x = trial.mixer(), trial.input(3 * LENGTH)
    with torch.no_grad():
        whole = mixer(x, None).values
        for rounds in ROUNDS:
            sequences, order = list(range(BATCH)), torch.tensor([4, 1, 0, 1, 2], device=x.device)
            state, stood = mixer.initial_state(BATCH, 2 * LENGTH), [0] * BATCH
            for counts in rounds:
                taken = counts or (1,) * BATCH
                spans = [slice(start, start + count) for start, count in zip(stood, taken, strict=True)]
                new = x.new_full((BATCH, max(taken), trial.dim), 3)  # the number 3 is the padding
                for row, (sequence, span) in enumerate(zip(sequences, spans, strict=True)):
                    new[row, : taken[row]] = x[sequence, span]
                lengths = None if counts is None else torch.tensor(counts, device=x.device)
                values, state = mixer.extend(new, state, lengths)
                for row, (sequence, span) in enumerate(zip(sequences, spans, strict=True)):
                    where = f"row {row} with {taken[row]} of {max(taken)} positions after {span.start}"
                    close(
                        values[row, : taken[row]], whole[sequence, span], f"{where}: the values differ from the whole"
                    )
                stood = [span.stop for span in spans]
                check(state.lengths.tolist() == stood, f"lengths are {state.lengths.tolist()} and should be {stood}")
                state, sequences, stood = state.select(order), *_reordered(order, sequences, stood)


def _reordered(order: Tensor, *lists: list[int]) -> list[list[int]]:
    return [[numbers[row] for row in order.tolist()] for numbers in lists]


@_on_any_mixer
def check_weights(trial: Trial) -> None:
    """Weights, where they exist, are zero on what may not be seen and sum to one, unless the mixer declares that they do
    not; asking changes no value.
    """
    mixer, x, mask = trial.mixer(), trial.input(), trial.mask()
    mixed = mixer(x, mask, need_weights=True)
    close(mixed.values, mixer(x, mask).values, "asking for weights changed the values")
    if mixed.weights is None:
        return
    weights = mixed.weights
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
    if not isinstance(mixer, Decomposable):
        return
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
def check_save_and_load(trial: Trial) -> None:
    """The state dict carries all that the values depend on."""
    mixer, x, mask = trial.mixer(), trial.input(), trial.mask()
    fresh = trial.mixer(seed=17)
    fresh.load_state_dict(copy.deepcopy(mixer.state_dict()))
    close(fresh(x, mask).values, mixer(x, mask).values, "a mixer loaded from the state dict differs")


@_on_any_mixer
def check_bf16(trial: Trial) -> None:
    """bf16 stays close to float32, whatever the type of the trial: within four of its units in the last place."""
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
    if not trial.causal:
        return
    from torch._dynamo.testing import CompileCounterWithBackend  # half a second, which a training has no use for

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
    check_states,
    check_extend,
    check_prompts,
    check_weights,
    check_contributions,
    check_save_and_load,
    check_bf16,
    check_compile,
    check_compiled_steps,
)


Result = TypeVar("Result")


def try_own_mixers(model: nn.Module, dim: int | None) -> None:
    """Let each mixer of `model` whose class is not headway's read a few positions, and decode where it is causal.

    Random numbers, and the mode of the model, stay as they are. A model whose class is not headway's may use its mixers
    in other ways, and is left alone.

    Args:
        model: on the device on which it will be trained.
        dim: D, the size of the vectors that its mixers read; None for a model without mixers.

    Raises:
        UserError: a mixer that fails, or that gives something else than the contract says (see `Mixer`).
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
    """A mixer on trial, and what messages call its place."""

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
        except Exception as error:  # of code that is not ours
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
    """The mixer in evaluation mode, without gradients; its mode and all random numbers are as before afterwards."""
    training = mixer.training
    accelerators = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(accelerators), torch.no_grad():
        mixer.eval()
        try:
            yield
        finally:
            mixer.train(training)
