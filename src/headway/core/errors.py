"""Errors with the mistake, its location, the received value and the allowed values.

Every mistake of a user raises a `UserError`; the command line prints it without a traceback and exits with 2.
`RunError` is for work that failed although the request was valid (a diverged loss, a full disk); it exits with 1.
"""

import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import accumulate
from pathlib import PurePath

DIVERGED = "training has diverged"  # in the messages of runs whose loss or weights are not finite
LONGEST_VALUE = 500  # characters of a value in a message
LONGEST_PLACE = 1000  # characters of a file, a key or an override
LONGEST_LINE = 2000  # characters of a line of a message
AROUND = 40  # characters to show on each side of a mistake in a text
LONGEST_LIST = 2000  # characters of all mistakes in a message
# Parts of the RuntimeErrors of torch, oneDNN, cuBLAS, cuDNN and the C++ library if memory runs out.
OUT_OF_MEMORY = ("allocate", "alloc_failed", "bad_alloc", "out of memory", "could not create a memory")
# Characters that control a terminal: control characters except tab and line feed, marks of the writing direction,
# separators of lines and paragraphs; and lone surrogates, which cannot be encoded.
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """A text that is safe to print on any terminal: control characters are escaped as in Python, `\\x1b`.

    Names of files, keys and data come from others, and are printed through this function. Line feeds and tabs stay.
    """
    return CONTROL.sub(lambda control: repr(control[0])[1:-1], text)


def in_one_line(text: str) -> str:
    """A printable text without line feeds, for names of files and keys."""
    return printable(text).replace("\n", "\\n")


class HeadwayError(Exception):
    """The base class of all errors that headway raises on purpose. `str` shows options by their keys."""

    exit_code = 1

    def __str__(self) -> str:
        return self.spelled(str)

    def spelled(self, spell: Callable[[str], str]) -> str:
        """The printable message, with options formatted by `spell`: as keywords, flags, or JSON fields."""
        return spelled(super().__str__(), spell)


class RunError(HeadwayError):
    """The request was valid, but the work failed."""


class NotFiniteError(RunError):
    """A model computed values that are not finite."""


class UserError(HeadwayError):
    """A mistake of the user, in a recipe key, a file or an option.

    Args:
        what: the mistake, one sentence without a full stop. The middle of a long text is left out.
        where: a recipe key (`model.heads`), `file:line` or an option (`option("beam")`).
        received: the received value.
        allowed: the allowed values, in words or as a list of names.
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
        if allowed is not None and not isinstance(allowed, str):  # names of columns and files may be long
            cut = [name if len(name) <= LONGEST_VALUE else f"{name[:LONGEST_VALUE]}..." for name in map(str, allowed)]
            count = _fitting(cut, LONGEST_PLACE)
            allowed = ", ".join(cut[:count]) + (f" and {len(cut) - count:,} more" if count < len(cut) else "")
        self.allowed = allowed
        message = "\n".join(_cut_in_its_middle(line, LONGEST_LINE) for line in what.split("\n"))
        if where:
            message = "{}: {}".format(_cut_in_its_middle(where, LONGEST_PLACE).replace("\n", "\\n"), message)
        if received is not None:
            message += f"; received {shortened(received)}"
        if self.allowed is not None:
            message += f"; allowed: {self.allowed}"
        super().__init__(message)


def check_characters(text: str, where: str | None = None, what: str = "this text") -> None:
    """Raise UserError for a text with a lone surrogate, which neither encodings nor C++ libraries accept.

    Truncated JSON may have lone surrogates, and so may command line arguments that are not UTF-8.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        around = text[max(0, error.start - AROUND) : error.start + AROUND]
        what = f"{what} holds half of a surrogate pair, which is no character"
        raise UserError(what, where=where, received=around) from None


def not_installed(who: str, packages: Sequence[str], extra: str, where: str | None = None) -> UserError:
    """Build the UserError for a feature `who` whose packages, installed by `extra`, are missing."""
    what = f"{who} needs {', '.join(packages)}, which {'is' if len(packages) == 1 else 'are'} not installed"
    return UserError(what, where=where, allowed=f"pip install 'headway[{extra}]'")


def missing_packages(packages: Iterable[str]) -> list[str]:
    """The packages that are not installed."""
    return [package for package in packages if find_spec(package) is None]


def require_installed(who: str, packages: Iterable[str], extra: str, where: str | None = None) -> None:
    """Raise UserError if packages of a feature `who`, which `extra` installs, are missing."""
    if missing := missing_packages(packages):
        raise not_installed(who, missing, extra, where)


def shortened(value: object) -> str:
    """The `repr` of a value, truncated to `LONGEST_VALUE` characters."""
    text = repr(str(value) if isinstance(value, PurePath) else value)
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}..."


def in_lines(mistakes: Sequence[str]) -> str:
    """The mistakes, one on each line. The last ones are left out if the message would be too long."""
    cut = [_cut_in_its_middle(mistake, LONGEST_PLACE) for mistake in mistakes]
    count = _fitting(cut, LONGEST_LIST)
    return "\n".join(cut[:count] + ([f"and {len(cut) - count:,} more mistakes"] if count < len(cut) else []))


def _fitting(texts: Sequence[str], room: int) -> int:
    """The number of texts that fit into `room` characters together, at least one."""
    lengths = accumulate(len(text) + 2 for text in texts)
    return max(1, sum(length <= room for length in lengths))


def _cut_in_its_middle(line: str, longest: int) -> str:
    """A line without its middle if it is longer than `longest`."""
    return line if len(line) <= longest else f"{line[: longest // 2]}...{line[-(longest // 2) :]}"


def option(name: str) -> str:
    """Mark the key of an option in a message. `spelled` replaces the mark by a flag or keyword."""
    return f"\0{name}\0"


def spelled(text: str, spell: Callable[[str], str]) -> str:
    """A printable text, with the options marked by `option` formatted by `spell`."""
    parts = re.split(r"\0(\w+)\0", text)
    return "".join(spell(part) if index % 2 else printable(part) for index, part in enumerate(parts))


def check_companions(given: Iterable[str], needs: Mapping[str, Sequence[str]]) -> None:
    """Raise UserError if an option has no effect because none of the options in `needs` is set, too."""
    options = list(given)
    for name in options:
        wanted = needs.get(name, ())
        if wanted and not any(other in options for other in wanted):
            allowed = "beside " + " or ".join(map(option, wanted))
            raise UserError("alone, this option does nothing", where=option(name), allowed=allowed)


def nearest(name: str, names: Iterable[str]) -> str:
    """A hint with the most similar of `names`, or an empty string if none is similar."""
    close = difflib.get_close_matches(name, list(names), n=1, cutoff=0.6)
    return f"; did you mean {close[0]!r}?" if close else ""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error of Python, numpy or torch means that memory ran out, on a CPU or an accelerator."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":  # torch's, not imported here
        return True
    return isinstance(error, RuntimeError) and any(saying in str(error).lower() for saying in OUT_OF_MEMORY)


@contextmanager
def memory_named(work: str, remedy: str) -> Iterator[None]:
    """Raise RunError if memory runs out within this context.

    Args:
        work: the current work, as in `memory ran out in a batch of 30 examples`.
        remedy: advice for the user.
    """
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        raise RunError(f"memory ran out {work}; {remedy}") from error
