"""A short trial of mixers that are not headway's own, before a training that would find a broken contract late.

The trial looks at kinds and shapes alone; the checks of `headway.mixers.conformance` look at values, too.
"""

import inspect
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from headway.errors import UserError
from headway.mixers.mixer import Mixed, Mixer, MixerState
from headway.registry import is_own
from headway.tensors.names import counted_from_1

ROWS, LENGTH = 2, 3

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
            trial = _Trial(mixer, f"model.{counted_from_1(name)}")
            with _undisturbed(mixer, device):
                trial.forward(torch.zeros(ROWS, LENGTH, dim, device=device))
                if mixer.causal:
                    trial.decoding(torch.zeros(ROWS, 1, dim, device=device))


@dataclass(frozen=True)
class _Trial:
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
            self._check_shape("forward", "weights", mixed.weights, (ROWS, *heads, LENGTH, LENGTH))

    def decoding(self, x: Tensor) -> None:
        state = self._called("initial_state", lambda: self.mixer.initial_state(ROWS, LENGTH))
        self._check("initial_state", isinstance(state, MixerState), state, "a headway.mixers.MixerState")
        extended = self._called("extend", lambda: self.mixer.extend(x, state))
        pair = isinstance(extended, tuple) and len(extended) == 2 and isinstance(extended[1], MixerState)
        self._check("extend", pair, extended, "(values, a headway.mixers.MixerState)")
        values, after = extended
        self._check_shape("extend", "values", values, tuple(x.shape))
        self._check_shape("extend", "lengths of the state", after.lengths, (ROWS,))

    def _called(self, method: str, call: Callable[[], Result]) -> Result:
        try:
            return call()
        except Exception as error:  # of code that is not ours
            what = f"{type(self.mixer).__name__}.{method} fails{self._line(error)}: {type(error).__name__}: {error}"
            raise UserError(what, where=self.where, allowed="what headway.mixers.conformance checks") from error

    def _line(self, error: Exception) -> str:
        """The last line of the mixer's own file that an error has passed."""
        file = inspect.getsourcefile(type(self.mixer))
        own = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
        return f" in {file}:{own[-1]}" if own else ""

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
