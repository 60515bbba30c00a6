"""Groups of verbs in which the verb may be left out: `headway score RUN --source F` is `headway score targets RUN ...`.

The verb is then the first that understands the arguments: that has all their flags, takes as many positional arguments,
and gets all that it needs.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from headway.cli.failures import failures_told
from headway.cli.given_flags import given_arguments
from headway.cli.help_pages import Group
from headway.cli.options import flag_of

BEGIN, TRAIN, COMPARE, SHIP = "To begin", "From data to outputs", "Comparing", "Shipping"


class Root(Group):
    """The group of all commands, which tells what fails before one of them runs."""

    order = (BEGIN, TRAIN, COMPARE, SHIP)

    def make_context(self, *arguments: Any, **options: Any) -> Any:
        """Read the arguments of the group itself."""
        with failures_told(flag_of):
            return super().make_context(*arguments, **options)

    def invoke(self, ctx: Any) -> Any:
        """Read the rest of the arguments, and run the command."""
        with failures_told(flag_of):
            return super().invoke(ctx)


class VerbGroup(Group):
    """A group that finds the verb by the arguments where none is named."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the verb before the arguments where it is left out; the help of the group needs none."""
        if self.lacks_verb(args):
            args = [verb_of(self.commands, args), *args]
        return super().parse_args(ctx, args)


def verb_of(verbs: Mapping[str, Any], arguments: Sequence[str]) -> str:
    """The name of the first verb that understands the arguments, else of that which has most of their flags."""
    fits = {name: _fit(verb, arguments) for name, verb in verbs.items()}
    return max(fits, key=lambda name: fits[name])


class _Fit(NamedTuple):
    """The degree to which a verb understands arguments; greater is better."""

    whole: bool
    known: int  # flags that it has, less those that it has not
    complete: bool


def _fit(verb: Any, arguments: Sequence[str]) -> _Fit:
    options = [parameter for parameter in verb.params if parameter.param_type_name == "option"]
    arguments_given = list(given_arguments(verb, arguments))
    given = {part.option.name for part in arguments_given if part.option is not None}
    unknown = sum(part.option is None and part.flag is not None for part in arguments_given)
    positional = sum(part.flag is None for part in arguments_given)
    positions = [parameter for parameter in verb.params if parameter.param_type_name == "argument"]
    most = sum(len(arguments) if parameter.nargs < 0 else parameter.nargs for parameter in positions)
    least = sum(parameter.required for parameter in positions)
    complete = positional >= least and all(parameter.name in given for parameter in options if parameter.required)
    fits = not unknown and positional <= most
    return _Fit(fits and complete, len(given) - unknown - max(0, positional - most), complete)
