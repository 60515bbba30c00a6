"""Errors that say what went wrong, where, what was received and what is allowed.

Every mistake a user can make raises a `UserError`; the command line prints it without a traceback and exits with 2.
`RunError` is for work that failed although the request was sound (a diverged loss, a full disk); it exits with 1.
"""

import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence


class HeadwayError(Exception):
    """The base of all errors that headway raises on purpose. `str` gives options by their keys."""

    exit_code = 1

    def __str__(self) -> str:
        return self.spelled(str)

    def spelled(self, spell: Callable[[str], str]) -> str:
        """The message, with each option that it names as `spell` writes it: a keyword, a flag, a field of JSON."""
        return spelled(super().__str__(), spell)


class RunError(HeadwayError):
    """The request was sound, the work failed."""


class NotFiniteError(RunError):
    """A model computed numbers that are not finite."""


class UserError(HeadwayError):
    """A mistake in what was asked: a recipe key, a file, an option.

    Args:
        what: the mistake, one sentence without a full stop.
        where: a recipe key (`model.heads`), `file:line` or an option (`option("beam")`).
        received: the value that was given.
        allowed: the values that would have been right, in words or as a list of names.
    """

    exit_code = 2

    def __init__(
        self,
        what: str,
        *,
        where: str | None = None,
        received: object = None,
        allowed: str | Iterable[str] | None = None,
    ) -> None:
        self.what, self.where, self.received = what, where, received
        self.allowed = allowed if allowed is None or isinstance(allowed, str) else ", ".join(allowed)
        message = f"{where}: {what}" if where else what
        if received is not None:
            message += f"; received {received!r}"
        if self.allowed is not None:
            message += f"; allowed: {self.allowed}"
        super().__init__(message)


def option(name: str) -> str:
    """An option in the text of an error, by its key; each shell spells it in its own way."""
    return f"\0{name}\0"


def spelled(text: str, spell: Callable[[str], str]) -> str:
    """A text in which every option named by `option` stands as `spell` writes it."""
    return re.sub(r"\0(\w+)\0", lambda named: spell(named[1]), text)


def check_companions(given: Iterable[str], needs: Mapping[str, Sequence[str]]) -> None:
    """Raise UserError where an option would do nothing, for want of any of those that it `needs` beside it."""
    options = list(given)
    for name in options:
        wanted = needs.get(name, ())
        if wanted and not any(other in options for other in wanted):
            allowed = "beside " + " or ".join(map(option, wanted))
            raise UserError("alone, this option does nothing", where=option(name), allowed=allowed)


def nearest(name: str, names: Iterable[str]) -> str:
    """A hint that names the closest of `names`, or an empty string when none is close."""
    close = difflib.get_close_matches(name, list(names), n=1, cutoff=0.6)
    return f"; did you mean {close[0]!r}?" if close else ""
