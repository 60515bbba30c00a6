"""The arguments of a command, before they are read: which flags are given, and with which values."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

from headway.errors import UserError


class GivenArgument(NamedTuple):
    """A flag with its value, or an argument without a flag.

    Attributes:
        flag: as it stands on the command line; None of an argument that has none.
        option: that of the command to which the flag belongs, if it has one.
        value: of a switch, or of a flag that the command has not, an empty text.
    """

    flag: str | None
    option: Any
    value: str


def given_arguments(verb: Any, arguments: Sequence[str]) -> Iterator[GivenArgument]:
    """The arguments of a command in their order, each flag with its value."""
    options = [parameter for parameter in verb.params if parameter.param_type_name == "option"]
    by_flag = {flag: option for option in options for flag in (*option.opts, *option.secondary_opts)}
    rest = iter(spread_variadic(arguments, variadic_flags(verb)))
    for argument in rest:
        if argument == "--":
            yield from (GivenArgument(None, None, value) for value in rest)
        elif argument == "-" or not argument.startswith("-"):
            yield GivenArgument(None, None, argument)
        else:
            flag, equals, value = argument.partition("=")
            option = by_flag.get(flag)
            several = 0 if option is None or option.is_flag else option.nargs - bool(equals)
            yield GivenArgument(flag, option, " ".join([*([value] if equals else []), *islice(rest, several)]))


def check_given_once(verb: Any, arguments: Sequence[str]) -> None:
    """Raise UserError where a flag that the command takes once is given twice."""
    given: dict[str, GivenArgument] = {}
    for part in given_arguments(verb, arguments):
        if part.option is None or part.option.multiple:
            continue
        first = given.setdefault(part.option.name, part)
        if first is not part:
            received = [first.value or first.flag, part.value or part.flag]
            raise UserError("this option is given twice", where=first.flag, received=received)


def spread_variadic(arguments: Sequence[str], flags: Iterable[str]) -> list[str]:
    """`--references a b` as `--references a --references b`, for each of the flags."""
    variadic = set(flags)
    spread: list[str] = []
    flag = None
    for argument in arguments:
        if argument.startswith("-") and argument != "-":
            name = argument.partition("=")[0]
            flag = name if name in variadic else None
        elif flag is not None and spread[-1] != flag:
            spread.append(flag)
        spread.append(argument)
    return spread


def variadic_flags(verb: Any) -> list[str]:
    """The flags of a command that take several values after one flag."""
    options = (parameter for parameter in verb.params if parameter.param_type_name == "option" and parameter.multiple)
    return [flag for parameter in options if str(parameter.metavar).endswith("...") for flag in parameter.opts]
