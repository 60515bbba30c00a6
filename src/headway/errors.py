"""What went wrong, where, what was received and what is allowed.

Every mistake a user can make raises a `UserError`; the command line prints it without a traceback and exits with 2.
`RunError` is for work that failed although the request was sound (a diverged loss, a full disk); it exits with 1.
"""

import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence


class HeadwayError(Exception):
    """The base of all errors that headway raises on purpose."""

    exit_code = 1


class RunError(HeadwayError):
    """The request was sound, the work failed."""


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
        super().__init__(self.spelled(lambda name: name))

    def spelled(self, spell: Callable[[str], str]) -> str:
        """The message, with each option that it names as `spell` writes it: a keyword, a flag, a field of JSON."""
        message = f"{self.where}: {self.what}" if self.where else self.what
        if self.received is not None:
            message += f"; received {self.received!r}"
        if self.allowed is not None:
            message += f"; allowed: {self.allowed}"
        return re.sub(r"\0([a-z_]+)\0", lambda named: spell(named[1]), message)


def option(name: str) -> str:
    """An option in the text of an error, by its key; each shell spells it in its own way."""
    return f"\0{name}\0"


def flag(name: str) -> str:
    """An option, or an argument in capitals, as it is written on the command line."""
    if name == "files":
        return "FILE"
    return name if name.isupper() else "--" + name.removesuffix("_output").replace("_", "-")


def check_companions(given: Iterable[str], needs: Mapping[str, Sequence[str]]) -> None:
    """Raise UserError where an option would do nothing, for want of any of those that it `needs` beside it."""
    options = list(given)
    for option in options:
        wanted = needs.get(option, ())
        if wanted and not any(each in options for each in wanted):
            allowed = "beside " + " or ".join(map(flag, wanted))
            raise UserError("alone, this option does nothing", where=flag(option), allowed=allowed)


def nearest(name: str, names: Iterable[str]) -> str:
    """A hint that names the closest of `names`, or an empty string when none is close."""
    close = difflib.get_close_matches(name, list(names), n=1, cutoff=0.6)
    return f"; did you mean {close[0]!r}?" if close else ""
