"""Help that fits a screen: an option a line where it can be, in groups, with its default in brackets.

Where a page would have more than `SCREEN` lines, the groups after the first name their options alone; `--help-all`
explains these, too.
"""

import re
import shutil
import sys
import textwrap
from collections.abc import Sequence
from typing import Any

import typer
from typer.core import TyperGroup

from headway.cli.arguments import MODEL

SCREEN = 40  # lines
WIDEST = 100  # columns
LEFT = 24  # columns of flags and their values
ALL = "--help-all"
UNGROUPED = "Options"
VALUES = {"int": "N", "float": "X", "text": "TEXT", "path": "PATH", "file": "FILE"}

Row = tuple[str, str]  # what is typed, and what it does


class Group(TyperGroup):
    """A group of commands whose help is a command a line, in the groups that they name.

    Attributes:
        order: the groups of the help, where they have an order.
    """

    order: tuple[str, ...] = ()

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments; without any, show the help, which typer would leave to a formatter of its own."""
        if not args and self.no_args_is_help and not ctx.resilient_parsing:
            sys.stderr.write(f"{ctx.get_help().rstrip()}\n")
            ctx.exit(2)
        return super().parse_args(ctx, args)

    def lacks_verb(self, args: Sequence[str]) -> bool:
        """Whether arguments name no verb, and ask for no help, which the group itself gives."""
        return bool(args) and args[0] not in self.commands and not {"--help", "-h"} & set(args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help of the group."""
        sections: dict[str, list[Row]] = {name: [] for name in self.order}
        for name in self.list_commands(ctx):
            verb = self.get_command(ctx, name)
            assert verb is not None
            panel = getattr(verb, "rich_help_panel", None)
            rows = sections.setdefault(panel if isinstance(panel, str) else "Commands", [])
            rows.append((name, gist(verb.short_help or verb.help or "")))
        options = _option_rows(ctx, [each for each in self.get_params(ctx) if not _is_help(each)])
        width = max(len(name) for name in self.list_commands(ctx))
        lines = [*_head(self, ctx), *_sections(sections, [width] * len(sections))]
        formatter.write(
            "\n".join([*lines, "", *(_named(name, rows) for name, rows in options.items())]).rstrip() + "\n"
        )


def write_command_help(command: Any, ctx: Any, formatter: Any, *, whole: bool = False) -> None:
    """Write the help of a command; `whole` explains all options however many there are."""
    parameters = [each for each in command.get_params(ctx) if not _is_help(each)]
    arguments = [
        (str(each.metavar or each.name), each.help or "") for each in parameters if each.param_type_name == "argument"
    ]
    options = _option_rows(ctx, parameters)
    head = _head(command, ctx)
    head += _sections({"": arguments}, [LEFT]) if arguments else []
    lines = [*head, *_sections(options, [LEFT] * len(options))]
    if len(lines) > SCREEN and not whole:
        lines = [*head, *_folded(options, SCREEN - len(head) - 2), "", f"{ALL} explains all of them."]
    formatter.write("\n".join(lines) + "\n")


def gist(text: str) -> str:
    """The text before the first full stop or colon of a help text."""
    return re.split(r"[.:] ", " ".join(text.split()) + " ")[0]


def _is_help(parameter: Any) -> bool:
    return parameter.param_type_name == "option" and "--help" in parameter.opts


def _width() -> int:
    return min(shutil.get_terminal_size().columns, WIDEST)


def _head(command: Any, ctx: Any) -> list[str]:
    arguments = [str(each.metavar or each.name) for each in command.params if each.param_type_name == "argument"]
    verb = ["COMMAND"] if isinstance(command, Group) else []
    usage = " ".join(["Usage:", ctx.command_path, *arguments, *verb, "[OPTIONS]"])
    text = " ".join((command.help or "").split())
    return [*textwrap.wrap(usage, _width(), subsequent_indent="  "), "", *textwrap.wrap(text, _width())]


def _option_rows(ctx: Any, parameters: Sequence[Any]) -> dict[str, list[Row]]:
    """The options by group, those without one first."""
    options = [each for each in parameters if each.param_type_name == "option" and not each.hidden]
    groups = [*dict.fromkeys([UNGROUPED, *(group_of(each) for each in options)])]
    groups.sort(key=lambda group: group == MODEL)  # what few change comes last
    rows = {
        group: [(_typed(ctx, each), _what_it_does(each)) for each in options if group_of(each) == group]
        for group in groups
    }
    return {group: entries for group, entries in rows.items() if entries}


def group_of(option: Any) -> str:
    """The group of the help in which an option stands."""
    panel = getattr(option, "rich_help_panel", None)
    return panel if isinstance(panel, str) else UNGROUPED


def _typed(ctx: Any, option: Any) -> str:
    """The flags of an option, with the name of its value."""
    flags = ", ".join(flag for flag in (*option.opts, *option.secondary_opts) if flag.strip())
    return flags if option.is_flag else f"{flags} {_value(ctx, option)}"


def _value(ctx: Any, option: Any) -> str:
    if option.metavar and not option.metavar.startswith("["):
        return str(option.metavar)
    kinds = re.findall(r"int|float|path|file", option.display_type(ctx).lower()) or ["text"]
    several = "..." if option.metavar and option.metavar.endswith("...") else ""
    return " ".join(VALUES[kind] for kind in kinds) + several


def _what_it_does(option: Any) -> str:
    """The text of an option, the choices that it has, and what stands for it when it is not given."""
    text = str(option.help or "")
    if option.metavar and option.metavar.startswith("["):
        choices = option.metavar.strip("[].").split("|")
        text += "" if all(choice in text for choice in choices) else f" One of {', '.join(choices)}."
    default = default_text(option)
    return f"{text} [{default}]" if default else text


def default_text(option: Any) -> str:
    """The default of an option in words; empty for a switch, or where nothing stands for it."""
    if option.required:
        return "required"
    if isinstance(option.show_default, str):
        return option.show_default
    if option.is_flag or option.default is None or not option.show_default:
        return ""
    if isinstance(option.default, list | tuple):
        return " ".join(map(str, option.default))
    return str(option.default)


def _sections(sections: dict[str, list[Row]], lefts: Sequence[int]) -> list[str]:
    lines = list[str]()
    for (title, rows), left in zip(sections.items(), lefts, strict=True):
        lines += ["", *([typer.style(title, bold=True)] if title else [])]
        for row in rows:
            lines += _row(*row, left)
    return lines


def _row(typed: str, told: str, left: int) -> list[str]:
    """An option in two columns; the second begins a line below where the first is too long."""
    lines = textwrap.wrap(told, max(20, _width() - left - 4), break_on_hyphens=False) or [""]
    below = [f"{'':{left + 4}}{line}" for line in lines]
    if len(typed) > left:
        return [f"  {typed}", *below]
    return [f"  {typed:{left}}  {lines[0]}".rstrip(), *below[1:]]


def _named(group: str, rows: Sequence[Row]) -> str:
    """The options of a group without what they do."""
    return f"{typer.style(group, bold=True)}: " + ", ".join(typed.split()[0].strip(",") for typed, _ in rows)


def _folded(options: dict[str, list[Row]], room: int) -> list[str]:
    """The options in at most `room` lines where that can be: as many groups as possible with what their options do."""
    names = list(options)
    for explained in range(len(names), 0, -1):
        lines = _sections({name: options[name] for name in names[:explained]}, [LEFT] * explained)
        lines += [""] if names[explained:] else []
        for name in names[explained:]:
            lines += textwrap.wrap(
                _named(name, options[name]), _width(), subsequent_indent="  ", break_on_hyphens=False
            )
        if len(lines) <= room:
            break
    return lines
