"""A message says what, where, what was received and what is allowed."""

import pytest

from headway.errors import HeadwayError, RunError, UserError, nearest


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
