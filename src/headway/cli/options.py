"""Parameters of commands, made from the models that declare the options: each option is said once, in its model.

A command is a function. Where a parameter's annotation is a pydantic model, every field of it becomes a flag, and the
function gets a validated instance whose `model_fields_set` are the options that stand on the command line. Where it is
`Annotated[dict[str, Any], Given(models)]`, the fields of all models become flags, and the function gets those given.

    class PageOptions(Section):
        sentences: PositiveInt = Field(100, description="Most sentences that are shown.")
        json_output: bool = Field(False, description="Write JSON.", json_schema_extra={"flag": "json"})

    @command(app, "page")
    def page(run: RunArgument, options: PageOptions) -> None:
        \"\"\"Help of the command.\"\"\"

A field's `description` is its help, and its bounds are checked as the flags are read. `json_schema_extra` may hold:

- `flag`: the flag's name, where it is not the field's; None for a field that has none. `no-x` alone switches off.
- `flag_help`: the help of a flag that switches off, in the place of the description.
- `alias`: another name of the flag.
- `group`: the panel of the help in which it stands.
- `metavar`: the name of its value in help. A list whose metavar ends in `...` takes several values after one flag.
- `default_text`: what stands for it when it is not given, in words.
"""

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import GenericAlias, NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, Union, cast, get_args, get_origin

import annotated_types
import typer
from pydantic import AfterValidator, BaseModel
from pydantic.fields import FieldInfo
from typer.core import TyperCommand

from headway.cli.failures import failures_told
from headway.cli.given_flags import GivenArgument, check_given_once, given_arguments, spread_variadic, variadic_flags
from headway.cli.help_pages import ALL, write_command_help
from headway.cli.standard_streams import write
from headway.config import validated_options
from headway.errors import UserError
from headway.errors import option as named_option

Function = TypeVar("Function", bound=Callable[..., Any])

CONTEXT = "command_context"
# Positional arguments that errors name by key in a command that has no parameter of this name.
POSITIONAL = {"run": "RUN", "runs": "RUN", "file": "FILE", "files": "FILE", "recipe": "RECIPE.yaml"}


class Given:
    """Marks the parameter of a command that gets the options given, unvalidated, of any of several models."""

    def __init__(self, models: Iterable[type[BaseModel]]) -> None:
        self.models = tuple(models)


class Command(TyperCommand):
    """A command that spells the options in errors as its own flags; the error is one message and an exit code."""

    written: Mapping[str, str] = {}  # the flags that stand on the command line, by their options' keys

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments; `--references a b` is `--references a --references b`."""
        if ALL in args:
            formatter = ctx.make_formatter()
            write_command_help(self, ctx, formatter, whole=True)
            write(formatter.getvalue(), end="")
            ctx.exit()
        spread = spread_variadic(args, variadic_flags(self))
        if ctx.resilient_parsing:  # completion goes on whatever stands there
            return super().parse_args(ctx, spread)
        self.written = {
            each.option.name: each.flag for each in given_arguments(self, args) if each.option and each.flag
        }
        with failures_told(self.spell):
            check_given_once(self, args)
        try:
            return super().parse_args(ctx, spread)
        except typer.BadParameter as error:
            if not error.message:  # of a parameter that is missing
                raise
            with failures_told(self.spell):
                raise _bad_value(error, given_arguments(self, args)) from error

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help in the space of a screen."""
        write_command_help(self, ctx, formatter)

    def invoke(self, ctx: Any) -> Any:
        """Run the command; a mistake of the user's is 2, and what failed is 1."""
        with failures_told(self.spell):
            return super().invoke(ctx)

    def spell(self, name: str) -> str:
        """An option or argument, named by key, as it is written in this command: by the flag that was given."""
        if name in self.written:
            return self.written[name]
        for parameter in self.params:
            if parameter.name == name:
                if parameter.param_type_name == "argument":
                    return str(parameter.metavar or name.upper()).strip("[].")
                off = parameter.default is True and parameter.secondary_opts
                return str((parameter.secondary_opts if off else parameter.opts)[0])
        return POSITIONAL.get(name, flag_of(name))


def _bad_value(error: typer.BadParameter, given: Iterable[GivenArgument]) -> UserError:
    """The value of an option that typer refuses, as a mistake like any other."""
    received = next((each.value for each in given if error.param is not None and each.option is error.param), None)
    what = error.message.rstrip(".")
    where = None if error.param is None else named_option(str(error.param.name))
    return UserError(what[:1].lower() + what[1:], where=where, received=received)


def command(app: typer.Typer, name: str | None = None, group: str | None = None) -> Callable[[Function], Function]:
    """Make a function, as described above, a command of `app`, in a group of its help; it stays what it was."""

    def decorate(function: Function) -> Function:
        app.command(name, cls=Command, rich_help_panel=group)(with_flags(function))
        return function

    return decorate


def with_flags(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function that typer reads: models among the parameters are spread into one flag a field.

    Raises:
        TypeError: two parameters of one name, or a field whose type no flag can have.
    """
    parameters = list(inspect.signature(function, eval_str=True).parameters.values())
    spread = {parameter.name: models for parameter in parameters if (models := _models_of(parameter.annotation))}
    shown = [parameter.replace(kind=parameter.KEYWORD_ONLY) for parameter in parameters if parameter.name not in spread]
    fields = {name: _fields(models) for name, models in spread.items()}
    shown += [_parameter(name, field) for group in fields.values() for name, field in group.items()]
    context = next((parameter.name for parameter in shown if parameter.annotation is typer.Context), CONTEXT)
    if context == CONTEXT:
        shown.append(inspect.Parameter(CONTEXT, inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context))
    names = [parameter.name for parameter in shown]
    if twice := {name for name in names if names.count(name) > 1}:
        raise TypeError(f"{function.__name__} has two parameters named {', '.join(sorted(twice))}")

    @functools.wraps(function)
    def run(**values: Any) -> Any:
        given = given_options(values[context])
        for name, check in checks:
            _check(check, name, values[name])
        for name, group in fields.items():
            values = {key: value for key, value in values.items() if key not in group}
            chosen = {key: value for key, value in given.items() if key in group}
            is_model = inspect.isclass(annotations[name])
            values[name] = validated_options(annotations[name], chosen) if is_model else chosen
        if context == CONTEXT:
            del values[CONTEXT]
        return function(**values)

    checks = [(item.name, check) for item in parameters for check in _validators(item.annotation)]
    annotations = {parameter.name: parameter.annotation for parameter in parameters}
    run.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in shown}
    return run


def _validators(annotation: Any) -> list[Callable[[Any], Any]]:
    """The functions that check a parameter, as they would check the field of a model."""
    marks = get_args(annotation)[1:] if get_origin(annotation) is Annotated else ()
    return [cast("Callable[[Any], Any]", mark.func) for mark in marks if isinstance(mark, AfterValidator)]


def _check(check: Callable[[Any], Any], name: str, value: Any) -> None:
    try:
        check(value)
    except ValueError as error:
        raise UserError(str(error), where=named_option(name), received=str(value)) from error


def given_options(context: typer.Context, *but: str) -> dict[str, Any]:
    """The options and arguments that stand on the command line, apart from those named."""
    source = context.get_parameter_source
    given = [name for name in context.params if getattr(source(name), "name", "") == "COMMANDLINE"]
    return {name: context.params[name] for name in given if name not in but}


def _models_of(annotation: Any) -> tuple[type[BaseModel], ...]:
    """The models whose fields stand for a parameter; none where it is a parameter of its own."""
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        return (annotation,)
    marks = get_args(annotation)[1:] if get_origin(annotation) is Annotated else ()
    return next((mark.models for mark in marks if isinstance(mark, Given)), ())


class _Option(NamedTuple):
    """An option on its way from a field to a flag."""

    type: Any  # with None taken out, and what annotates it
    optional: bool
    metadata: tuple[Any, ...]
    default: Any
    required: bool
    help: str
    extra: Mapping[str, Any]


def _fields(models: Sequence[type[BaseModel]]) -> dict[str, _Option]:
    """The options of all models. One that several have is one flag: with the help, and the choices, of all."""
    options: dict[str, _Option] = {}
    for model in models:
        for name, field in model.model_fields.items():
            option = _option(field)
            if option.extra.get("flag", name) is None:
                continue
            options[name] = _joined(options[name], option, name) if name in options else option
    return options if len(models) == 1 else {name: option._replace(required=False) for name, option in options.items()}


def _option(field: FieldInfo) -> _Option:
    kind, optional, metadata = _bare(field.annotation)
    default = None if field.is_required() else field.get_default(call_default_factory=True)
    extra = field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
    metadata += tuple(field.metadata)
    told = str(extra.get("flag_help") or field.description or "")
    return _Option(kind, optional, metadata, default, field.is_required(), told, extra)


def _bare(annotation: Any) -> tuple[Any, bool, tuple[Any, ...]]:
    """A type without None and without what annotates it; whether None was in it; and the annotations."""
    if get_origin(annotation) is Annotated:
        kind, optional, metadata = _bare(get_args(annotation)[0])
        return kind, optional, (*metadata, *get_args(annotation)[1:])
    if get_origin(annotation) in (Union, UnionType) and NoneType in get_args(annotation):
        kinds = [kind for kind in get_args(annotation) if kind is not NoneType]
        kind, _, metadata = _bare(kinds[0]) if len(kinds) == 1 else (str, True, ())
        return kind, True, metadata
    return annotation, False, ()


def _joined(first: _Option, second: _Option, name: str) -> _Option:
    """An option of two models."""
    if first == second:
        return first
    choices = [*dict.fromkeys((*_choices(first), *_choices(second)))]
    if first.type != second.type and not (_choices(first) and _choices(second)):
        raise TypeError(f"two models have an option {name} of other types: {first.type} and {second.type}")
    texts = dict.fromkeys(text for text in (first.help, second.help) if text)
    same = first.default == second.default
    return first._replace(
        type=Literal[tuple(choices)] if choices else first.type,
        optional=first.optional or second.optional or not same,
        metadata=first.metadata if first.metadata == second.metadata else (),
        default=first.default if same else None,
        help=" ".join(texts),
    )


def _choices(option: _Option) -> tuple[str, ...]:
    return tuple(map(str, get_args(option.type))) if get_origin(option.type) is Literal else ()


def _parameter(name: str, option: _Option) -> inspect.Parameter:
    """The keyword that typer makes a flag of."""
    kind, several = _typer_type(name, option)
    default = list(option.default) if several and option.default is not None else option.default
    default = None if default == [] else default
    low, high = _bounds(option, kind)
    shown = option.extra.get("default_text")  # "" shows none
    declared = typer.Option(
        *_declarations(name, option),
        help=option.help,
        min=low,
        max=high,
        metavar=_metavar(option, several),
        show_default=(shown or False) if shown is not None else default is not None and not isinstance(default, bool),
        rich_help_panel=option.extra.get("group"),
    )
    annotation: Any = GenericAlias(list, (kind,)) if several else kind
    if default is None and not option.required:
        annotation = annotation | None
    annotation = Annotated[annotation, declared]
    default = inspect.Parameter.empty if option.required else default
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)


def _typer_type(name: str, option: _Option) -> tuple[Any, bool]:
    """A type that flags can have, of one value, and whether there may be several."""
    kind = option.type
    if get_origin(kind) in (tuple, list, Sequence):
        items = [item for item in get_args(kind) if item is not ...]
        if get_origin(kind) is tuple and len(get_args(kind)) == len(items):
            return kind, False
        item = _option_type(_bare(items[0])[0])
        return item, True
    if inspect.isclass(kind) and (issubclass(kind, BaseModel) or issubclass(kind, Mapping)):
        raise TypeError(f"no flag can have the type of the option {name}: {kind}")
    return _option_type(kind), False


def _option_type(kind: Any) -> Any:
    return kind if kind in (bool, int, float, str, Path) else str


def flag_of(name: str) -> str:
    """The flag of an option."""
    return "--" + name.replace("_", "-")


def _declarations(name: str, option: _Option) -> list[str]:
    flag = flag_of(option.extra.get("flag", name))
    if option.type is bool and flag.startswith("--no-"):
        return [f" /{flag}"]
    if option.type is bool and (option.default is True or option.optional):
        return [f"{flag}/--no-{flag.removeprefix('--')}"]
    alias = option.extra.get("alias")
    return [flag] if alias is None else [flag, flag_of(alias)]


def _metavar(option: _Option, several: bool) -> str | None:
    metavar: str | None = option.extra.get("metavar")
    if metavar is not None:
        return metavar
    item = option.type if not several else _bare(get_args(option.type)[0])[0]
    if get_origin(item) is Literal:
        return f"[{'|'.join(map(str, get_args(item)))}]" + ("..." if several else "")
    names = {int: "INTEGER", float: "FLOAT", Path: "FILE"}
    return f"{names.get(item, 'TEXT')}..." if several else None


def _bounds(option: _Option, kind: Any) -> tuple[float | None, float | None]:
    """The bounds that typer checks, both inclusive; those that no inclusive bound can say are left to the model."""
    low = high = None
    step = 1 if kind is int else None
    for mark in _flattened(option.metadata):
        if isinstance(mark, annotated_types.Ge):
            low = mark.ge
        elif isinstance(mark, annotated_types.Le):
            high = mark.le
        elif isinstance(mark, annotated_types.Gt) and step:
            low = mark.gt + step  # type: ignore[operator]
        elif isinstance(mark, annotated_types.Lt) and step:
            high = mark.lt - step  # type: ignore[operator]
    return low, high  # type: ignore[return-value]


def _flattened(metadata: Iterable[Any]) -> list[Any]:
    """The constraints of annotations, those within a `Field` too."""
    flat: list[Any] = []
    for mark in metadata:
        flat += mark.metadata if isinstance(mark, FieldInfo) else [mark]
    return flat
