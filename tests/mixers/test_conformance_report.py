"""The table of a mixer's checks, what it says of a broken one, and its exit codes."""

import re

import pytest
import torch

from headway.mixers import Mixer, conformance_report
from headway.mixers.conformance import CHECKS, check_bf16, check_causality, check_left_padding, check_states
from headway.mixers.conformance_report import Case, dtypes, mixer_checks
from headway.mixers.lightconv import LightConv
from tests.conftest import Command
from tests.mixers.test_planted_faults import Faulty

HERE = "tests.mixers.test_conformance_report"


class Own(Faulty):
    """With a fault by option."""

    def __init__(self, dim: int, causal: bool, *, fault: str = "none") -> None:
        super().__init__(causal, fault)


class CausalAlone(Own):
    """Refuses both directions, as code of others does."""

    def __init__(self, dim: int, causal: bool) -> None:
        if not causal:
            raise NotImplementedError("no way back")
        super().__init__(dim, causal)


class Never(Own):
    """Cannot be built."""

    def __init__(self, dim: int, causal: bool) -> None:
        raise RuntimeError("no kernel for this device")


class Fails(LightConv):
    """Fails in its own way."""

    def initial_state(self, rows: int, capacity: int) -> None:
        raise KeyError("no state\nat all")


@pytest.fixture(autouse=True)
def _few_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those whose results are looked at here; all of them take half a minute."""
    monkeypatch.setattr(conformance_report, "CHECKS", (check_causality, check_left_padding, check_states, check_bf16))


def cells(table: str) -> dict[str, list[str]]:
    """The results by check."""
    rows = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| ")]
    return {row[0]: row[2:] for row in rows[2:]}


def test_a_mixer_that_keeps_the_contract(run_headway: Command) -> None:
    code, out, err = run_headway("list", "mixers", "--check", f"{HERE}:Own", "--dim", "6")
    assert (code, err) == (0, "")
    assert cells(out) == {key: ["pass", "pass"] for key in ("causality", "left padding", "states", "bf16")}
    assert re.search(r"\ndim 6, cpu, float64 and float32; headway [\d.]+, torch [\w.+]+, .*; \d{4}-\d\d-\d\d\n$", out)


def test_it_says_what_broke_and_by_how_much(run_headway: Command) -> None:
    fault = "fault=sees only the position ahead by 30"
    code, out, _ = run_headway("list", "mixers", "--check", f"{HERE}:Own", fault, "--dim", "6")
    assert code == 1
    assert cells(out)["causality"] == ["broken", "pass"]
    assert cells(out)["states"] == ["pass", "pass"]
    assert "\ncausality, causal, float64: position 0 of a causal mixer sees the future, position 1 or one" in out
    assert re.search(r"the largest difference is 0\.\d+, allowed is 1e-12\n", out)


def test_an_error_of_its_own_is_told(run_headway: Command) -> None:
    code, out, _ = run_headway("list", "mixers", "--check", f"{HERE}:Fails", "heads=3", "--dim", "6")
    assert (code, cells(out)["states"]) == (1, ["broken", "broken"])
    assert "\nstates, causal, float64: KeyError: 'no state\\\\nat all'\n" in out


def test_one_direction_alone_is_no_fault(run_headway: Command) -> None:
    code, out, _ = run_headway("list", "mixers", "--check", f"{HERE}:CausalAlone", "--dim", "6")
    assert (code, cells(out)["bf16"]) == (0, ["pass", "does not apply"])
    assert "\nboth directions: cannot be built: no way back\n" in out


def test_a_name_in_the_registry_with_options(run_headway: Command) -> None:
    code, out, _ = run_headway("list", "mixers", "--check", "attention", "position.kind=alibi", "heads=3")
    assert (code, cells(out)["states"]) == (0, ["pass", "pass"])
    assert out.startswith("**attention position={'kind': 'alibi'} heads=3**\n\n| check | property | causal | both")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("mixers", "--check", f"{HERE}:Never"),
            "--check: this mixer cannot be built (RuntimeError: no kernel for this",
        ),
        (("mixers", "--check", "ngrm"), "--check: unknown mixer; did you mean 'ngram'?"),
        (("mixers", "--check", "ngram", "m=3"), "m: unknown key"),
        (("mixers", "--check", "ngram", "heads=7"), "heads (7) do not divide dim (48)"),
        (("losses", "--check", "ngram"), "KIND: only mixers are checked"),
        (("mixers", "--dim", "6"), "--dim: alone, this option does nothing; allowed: beside --check"),
    ],
)
def test_mistakes(run_headway: Command, words: tuple[str, ...], message: str) -> None:
    code, out, err = run_headway("list", *words)
    assert (code, out) == (2, "")
    assert message in err


def build(causal: bool) -> Mixer:
    return LightConv(6, causal, heads=3)


@pytest.mark.parametrize("check", mixer_checks(build, dim=6, directions=[True]))
def test_checks_are_parameters(request: pytest.FixtureRequest, check: conformance_report.Case) -> None:
    assert request.node.name == f"test_checks_are_parameters[{check.__name__}]"
    if "compile" not in check.__name__:  # see test_conformance
        check()


def test_all_checks_are_among_them() -> None:
    assert [case.check for case in mixer_checks(build, dim=6, directions=[True])] == list(conformance_report.CHECKS)
    assert len(CHECKS) > len(conformance_report.CHECKS)


def test_float64_is_not_asked_of_a_device_without_it() -> None:
    asked: list[torch.dtype] = []

    def check(build: object, *, dtype: torch.dtype, **others: object) -> bool:
        asked.append(dtype)
        return True

    for device in ("mps", "cpu"):
        assert Case(check, Own, 4, True, device)()
    assert asked == [*dtypes("mps"), *dtypes("cpu")] == [torch.float32, torch.float64, torch.float32]
