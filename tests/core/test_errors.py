"""A message says what, where, what was received and what is allowed."""

import pytest
import torch

from headway.core.errors import (
    HeadwayError,
    RunError,
    UserError,
    check_companions,
    in_lines,
    is_out_of_memory,
    memory_named,
    nearest,
    option,
)


def test_all_parts_in_their_order() -> None:
    error = UserError("this is wrong", where="model.dim", received="x", allowed=["a", "b"])
    assert str(error) == "model.dim: this is wrong; received 'x'; allowed: a, b"
    assert (error.what, error.where, error.received, error.allowed) == ("this is wrong", "model.dim", "x", "a, b")


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({}, "wrong"),
        ({"allowed": "1 or more"}, "wrong; allowed: 1 or more"),
        ({"allowed": {"bootstrap": 1, "randomisation": 2}}, "wrong; allowed: bootstrap, randomisation"),
        ({"received": 0}, "wrong; received 0"),
        ({"received": ""}, "wrong; received ''"),
        ({"where": "file:3"}, "file:3: wrong"),
    ],
)
def test_parts_may_be_left_out(parts: dict[str, object], message: str) -> None:
    assert str(UserError("wrong", **parts)) == message  # type: ignore[arg-type]


def test_exit_codes() -> None:
    assert UserError("x").exit_code == 2
    assert RunError("x").exit_code == 1
    assert issubclass(UserError, HeadwayError)
    assert issubclass(RunError, HeadwayError)


def test_nearest_names_the_closest_or_nothing() -> None:
    assert nearest("blue", ["chrf", "bleu", "ter"]) == "; did you mean 'bleu'?"
    assert nearest("zzz", ["chrf", "bleu"]) == ""
    assert nearest("x", []) == ""


@pytest.mark.parametrize("kind", [UserError, RunError])
def test_options_are_spelled_by_whoever_shows_the_error(kind: type[HeadwayError]) -> None:
    error = kind(f"stopped; {option('top_k')} goes on")
    assert str(error) == "stopped; top_k goes on"
    assert error.spelled(lambda name: f"<{name}>") == "stopped; <top_k> goes on"


def test_options_stand_in_every_part() -> None:
    error = UserError("wrong", where=option("beam"), received=3, allowed=[option("a"), option("b")])
    assert error.spelled(lambda name: f"--{name}") == "--beam: wrong; received 3; allowed: --a, --b"


def test_options_that_need_others() -> None:
    needs = {"seed": ("sample", "draw")}
    check_companions(["seed", "draw"], needs)
    check_companions(["beam"], needs)
    with pytest.raises(UserError, match="seed: alone, this option does nothing; allowed: beside sample or draw"):
        check_companions(["seed"], needs)


def test_a_long_place_is_cut_in_its_middle() -> None:
    message = str(UserError("wrong", where="a" + "/x" * 5000 + ":7"))
    assert len(message) < 1100
    assert message.startswith("a/x/x")
    assert message.endswith("/x:7: wrong")


def test_long_lines_of_a_message_are_cut_in_their_middle() -> None:
    message = str(UserError(f"cannot load this (no such name: {'9' * 5000} at the end)", where="model", received="9"))
    assert len(message) < 2100
    assert message.startswith("model: cannot load this (no such name: 999")
    assert message.endswith("999 at the end); received '9'")
    assert str(UserError("a\n" + "b" * 1600 + "\n" + "c" * 1600)).count("\n") == 2, "lines are cut one by one"


def test_long_lists_of_mistakes_are_cut() -> None:
    assert in_lines(["a: wrong", "b: wrong"]) == "a: wrong\nb: wrong"
    many = in_lines([f"key-{number:03}: this key is needed" for number in range(200)])
    assert many.endswith("key-067: this key is needed\nand 132 more mistakes")
    assert in_lines(["9" * 5000]) == f"{'9' * 500}...{'9' * 500}"


def test_long_lists_of_what_is_allowed_are_cut() -> None:
    few = UserError("no such column", allowed=["source", "target"])
    assert str(few) == "no such column; allowed: source, target"
    long = str(UserError("no such column", allowed=["9" * 5000, "target"]))
    assert long == f"no such column; allowed: {'9' * 500}..., target"
    many = str(UserError("no such column", allowed=[f"column-{number:03}" for number in range(200)]))
    assert many.endswith("column-081, column-082 and 117 more")


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
