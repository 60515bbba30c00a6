"""Conformance checks of a mixer by name: as cases for pytest, and as a table of all results for a README."""

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

import torch

from headway.core.errors import UserError, option
from headway.core.log import progress
from headway.core.tables import Table
from headway.core.version import VERSION
from headway.mixers import MIXERS, Mixer, build_mixer
from headway.mixers.conformance import CHECKS, Build, Check, ConformanceError
from headway.tensors.precision import exact_dtype

DIM = 48  # divisible by most numbers of heads, with even quotients
DIRECTIONS = {True: "causal", False: "both directions"}


@dataclass(frozen=True)
class Case:
    """A check of a mixer in one direction, for each of the `dtypes`: a callable without arguments that has a name."""

    check: Check
    build: Build
    dim: int
    causal: bool
    device: torch.device | str = "cpu"

    @property
    def __name__(self) -> str:
        return f"{_name(self.check)}, {DIRECTIONS[self.causal]}"

    def __call__(self) -> bool:
        """Whether the check applied. Raises ConformanceError for any failure."""
        applied = False
        for dtype in dtypes(self.device):
            try:
                applied |= self.check(self.build, dim=self.dim, causal=self.causal, device=self.device, dtype=dtype)
            except Exception as error:  # raised by foreign code
                own = isinstance(error, ConformanceError)
                words = str(error) if own else f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
                raise ConformanceError(f"{str(dtype).removeprefix('torch.')}: {words}") from error
        return applied


def dtypes(device: torch.device | str) -> list[torch.dtype]:
    return list(dict.fromkeys((exact_dtype(torch.device(device)), torch.float32)))


def _name(check: Check) -> str:
    return check.__name__.removeprefix("check_").replace("_", " ")


def mixer_checks(
    build: Build, dim: int, *, directions: Sequence[bool] = (True, False), device: torch.device | str = "cpu"
) -> list[Case]:
    """All checks of a mixer, for `pytest.mark.parametrize`.

    Args:
        build: builds the mixer, causal or not.
        dim: D.
        directions: the values of `causal` to check.
        device: the device to compute on.
    """
    return [Case(check, build, dim, causal, device) for check in CHECKS for causal in directions]


def named_mixer_checks(
    name: str, options: Mapping[str, Any], dim: int = DIM, device: torch.device | str = "cpu"
) -> tuple[list[Case], dict[bool, str]]:
    """All checks of a mixer by name, with its options, and, by direction, why it cannot be built.

    Raises:
        UserError: no such mixer or options, or one that can be built in neither direction.
    """
    MIXERS.get(name, option("check"))
    refused: dict[bool, str] = {}

    def build(causal: bool) -> Mixer:
        return build_mixer({**options, "kind": name}, dim, causal, where="")

    for causal in DIRECTIONS:
        try:
            build(causal)
        except Exception as error:  # raised by foreign code
            refused[causal] = str(error)
            if len(refused) == len(DIRECTIONS):
                if isinstance(error, UserError):
                    raise
                what = f"this mixer cannot be built ({type(error).__name__}: {error})"
                raise UserError(what, where=option("check"), received=name) from error
    directions = [causal for causal in DIRECTIONS if causal not in refused]
    return mixer_checks(build, dim, directions=directions, device=device), refused


def conformance_table(
    name: str, options: Mapping[str, Any], dim: int = DIM, device: torch.device | str = "cpu"
) -> tuple[Table, bool]:
    """The table of check results of a mixer with notes on failures, and whether any check failed. Raises as above."""
    cases, refused = named_mixer_checks(name, options, dim, device)
    found: dict[tuple[Check, bool], str] = {}
    notes = [f"{DIRECTIONS[causal]}: cannot be built: {why}" for causal, why in refused.items()]
    with progress(f"checking {name}", len(cases), "checks") as work:
        for case in work.over(cases):
            try:
                found[case.check, case.causal] = "pass" if case() else "does not apply"
            except ConformanceError as error:
                found[case.check, case.causal] = "broken"
                notes.append(f"{case.__name__}, {error}")
    rows = [
        [_name(check), " ".join((check.__doc__ or "").replace("`", "").split())]
        + [found.get((check, causal), "does not apply") for causal in DIRECTIONS]
        for check in CHECKS
    ]
    title = " ".join([name, *(f"{key}={value}" for key, value in options.items())])
    versions = f"headway {VERSION}, torch {torch.__version__}, Python {platform.python_version()}"
    widths = " and ".join(str(dtype).removeprefix("torch.") for dtype in dtypes(device))
    notes.append(f"dim {dim}, {device}, {widths}; {versions}; {date.today()}")
    return Table(
        ["check", "property", *DIRECTIONS.values()], rows, title=title, notes=notes
    ), "broken" in found.values()
