"""Verbs of the command line. cyclopts makes them from the models that declare the options, so that each option is
declared once.

A verb is a function. If a parameter's annotation is a pydantic model, each of its fields is a flag, and the function
gets an instance whose `model_fields_set` are the options of the user. If the annotation is `Annotated[dict[str, Any],
Given(models)]`, the fields of all models are flags, and the function gets the user's options, unvalidated. A verb
returns its exit code; None is 0. The help of a first-level verb is in `verbs.py`.

A field's `description` is its help. Its `json_schema_extra` may have:

- `flag`: the flag's name, if it is not the field's; None if the field has no flag.
- `alias`: another name of the flag.
- `group`: the panel of the help that shows the flag.
- `metavar`: for lists, the name of a single value, if the flag takes one value at a time.
- `default_text`: the default, as text.

pydantic is imported where a verb needs it, because the help of all verbs takes half the time without it.
"""

from __future__ import annotations

import errno
import functools
import inspect
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar, Union, get_args

from cyclopts import App, CycloptsError, Group, Parameter, ValidationError

from headway.cli.console import console
from headway.cli.interruption import received
from headway.core.errors import HeadwayError, RunError, UserError, is_out_of_memory, option, printable
from headway.core.system import STANDARD_INPUT

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic.fields import FieldInfo

Function = TypeVar("Function", bound=Callable[..., Any])

FLAT = Parameter(name="*")
ARGUMENTS, OPTIONS, MODEL = "Arguments", "Options", "Model"
BEGIN, TRAIN, COMPARE, SHIP, LEARN = "To begin", "From data to outputs", "Comparing", "Shipping", "Lessons"
ORDER = (BEGIN, TRAIN, COMPARE, SHIP, LEARN, ARGUMENTS, OPTIONS)  # of the groups on a help page


@functools.cache
def panel(name: str) -> Group:
    """A group of the help. Groups outside `ORDER` follow in the order of first use, the group of models last."""
    later = 1000 if name == MODEL else 100 + panel.cache_info().misses
    return Group(name, sort_key=ORDER.index(name) if name in ORDER else later)


def argument(metavar: str, help: str, *, required: bool | None = None) -> Parameter:
    return Parameter(name=metavar, help=help, required=required)


def flag(help: str, default_text: str = "", **others: Any) -> Parameter:
    """A flag that is not a field of a model. `default_text` shows its default."""
    return Parameter(help=help, show_default=(lambda _: default_text) if default_text else False, **others)


AllowCode = Annotated[
    bool,
    flag("Import what the run names by import path; it is not a part of headway.", group=panel(MODEL), negative=()),
]
RunArgument = Annotated[Path, argument("RUN", "The run folder, or a pack.")]
Overrides = Annotated[str, argument("KEY.PATH=VALUE", "Changes to the recipe, such as training.updates=2000.")]
Device = Annotated[str, flag("auto, cpu, cuda, ...", "auto", group=panel(MODEL))]
Average = Annotated[
    int | None, flag("Use the mean of the run's last N checkpoints.", "the run's weights", group=panel(MODEL))
]
EngineName = Annotated[
    str | None,
    flag("ctranslate2, onnx or firefox: decode with an export, kept in the cache.", "torch", group=panel(MODEL)),
]
Precision = Annotated[
    str | None,
    flag(
        "Of products with weights: float32, bf16, int8, or auto for the fastest on this machine.",
        "float32, or the run's integers",
        group=panel(MODEL),
    ),
]

Workers = Annotated[
    int | None,
    flag("Batches that are decoded at a time, on a core each.", "as many as there are cores", group=panel(MODEL)),
]


class Given(NamedTuple):
    """Marks the parameter of a verb that gets the user's unvalidated options of several models."""

    models: tuple[type[BaseModel], ...]


def new_app(name: str, help: str = "", **options: Any) -> App:
    """A group of verbs that raises errors, and returns the results of its functions."""
    return App(
        name,
        help=help,
        help_flags=("--help", "-h"),
        help_format="plaintext",
        default_parameter=Parameter(
            negative_iterable=(), negative_none=(), show_default=False, json_list=False, json_dict=False
        ),
        group_arguments=panel(ARGUMENTS),
        group_parameters=panel(OPTIONS),
        print_error=False,
        exit_on_error=False,
        suppress_keyboard_interrupt=False,
        result_action="return_value",
        error_console=console,
        version_flags=(),
        **options,
    )


def command(app: App, name: str | None = None) -> Callable[[Function], Function]:
    """A decorator that makes a function, as described above, a verb of `app`."""

    def decorate(function: Function) -> Function:
        app.command(with_flags(function), name=name or function.__name__.replace("_", "-"))
        return function

    return decorate


def verb(*, loads_runs: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator for functions that `verbs.py` names. `loads_runs` adds the flag `--allow-code`."""
    return functools.partial(with_flags, loads_runs=loads_runs)


def with_flags(function: Callable[..., Any], loads_runs: bool = False) -> Callable[..., Any]:
    """The function that cyclopts reads, with flags for the fields of the models among its parameters."""
    from pydantic import BaseModel

    from headway.core.registry import foreign_code

    shown, models, unvalidated = list[inspect.Parameter](), list[str](), list[str]()
    for parameter in inspect.signature(function, eval_str=True).parameters.values():
        annotation = parameter.annotation
        given = next((mark for mark in get_args(annotation)[1:] if isinstance(mark, Given)), None)
        is_model = inspect.isclass(annotation) and issubclass(annotation, BaseModel)
        if given is not None or is_model:
            model = _joined(given.models) if given is not None else _with_flags(annotation)
            needed = any(field.is_required() for field in model.model_fields.values())
            parameter = parameter.replace(
                annotation=Annotated[model, FLAT],
                default=inspect.Parameter.empty if needed else model(),
                kind=inspect.Parameter.KEYWORD_ONLY,
            )
            models.append(parameter.name)
            unvalidated += [parameter.name] if given is not None else []
        shown.append(parameter)
    if loads_runs:
        shown.append(
            inspect.Parameter("allow_code", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=AllowCode)
        )

    defaults = {each.name: each.default for each in shown if each.name in models and each.default is not each.empty}

    @functools.wraps(function)
    def run(*arguments: Any, **given: Any) -> Any:
        values = defaults | given
        for name in unvalidated:
            values[name] = {key: getattr(values[name], key) for key in values[name].model_fields_set}
        with foreign_code((loads_runs and values.pop("allow_code", False)) or None):
            return function(*arguments, **values)

    run.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in shown}
    return run


def _with_flags(model: type[BaseModel]) -> type[BaseModel]:
    """A copy of the model whose fields are annotated with their flags."""
    from pydantic import create_model

    fields: dict[str, Any] = {
        name: (Annotated[(field.annotation, *field.metadata, flag)], field)
        for name, field in model.model_fields.items()
        if (flag := _flag(name, field, field.description))
    }
    return create_model(model.__name__, __base__=model, __module__=model.__module__, **fields)


def _joined(models: Sequence[type[BaseModel]]) -> type[BaseModel]:
    """A model with the fields of all models, unvalidated. Fields of the same name are one flag with joined help."""
    from pydantic import create_model

    fields: dict[str, list[FieldInfo]] = {}
    for model in models:
        for name, field in model.model_fields.items():
            fields.setdefault(name, []).append(field)
    joined: dict[str, Any] = {}
    for name, same in fields.items():
        told = " ".join(dict.fromkeys(field.description or "" for field in same))
        if (flag := _flag(name, same[0], told)) is not None:
            kind: Any = Union[tuple(dict.fromkeys(field.annotation for field in same))]  # noqa: UP007
            marks = same[0].metadata if all(field.metadata == same[0].metadata for field in same) else []
            checked = Annotated[(kind, *marks)] if marks else kind  # the option may be left out
            joined[name] = (Annotated[checked | None, flag], None)
    return create_model("Options", **joined)


def _flag(name: str, field: FieldInfo, told: str | None) -> Parameter | None:
    extra: Any = field.json_schema_extra or {}
    names = [each for each in (extra.get("flag", name), extra.get("alias")) if each]
    if not names:
        return None
    default = None if field.is_required() else field.get_default(call_default_factory=True)
    plain = default is None or default == () or isinstance(default, bool)
    said = extra.get("default_text", "" if plain else str(default))
    return Parameter(
        name=[flag_of(each) for each in names],
        help=told,
        group=panel(extra.get("group", OPTIONS)),
        negative=None if default is True or bool in get_args(field.annotation) else (),
        consume_multiple=extra.get("metavar", "...").endswith("..."),
        show_default=(lambda _: said) if said else False,
    )


def flag_of(name: str) -> str:
    return "--" + name.replace("_", "-")


def keys_given(words: Iterable[str], section: type[BaseModel]) -> dict[str, Any]:
    """The options of `KEY=VALUE` words; a word without a key is the value of the first field."""
    from headway.recipe.reading import apply_overrides

    found: dict[str, Any] = {}
    for word in words:
        if word.partition("=")[0].isidentifier() and "=" in word:
            apply_overrides(found, [word])
        else:
            found[next(name for name in section.model_fields if name != "output")] = word
    return found


def section_of(words: Iterable[str], section: type[Any], given: Mapping[str, Any]) -> Any:
    """The validated options of `KEY=VALUE` words. Raises UserError, which names keys as the user wrote them."""
    from headway.core.config import validated

    return validated(section, {**given, **keys_given(words, section)})


def verbs(app: App, *path: str) -> Iterator[tuple[tuple[str, ...], App]]:
    """All commands without subcommands below a command, each with the words that call it."""
    names = [name for name in app if not name.startswith("-")]
    if not names:
        yield path, app
    for name in names:
        yield from verbs(app[name], *path, name)


def run(app: App, words: Sequence[str]) -> int:
    """Run a command line. Returns its exit code: 0 for success, 1 for failure, 2 for a user's mistake, with one
    message.

    Unreadable or unwritable files, and missing memory, are failures. Any other exception is a bug of headway, and keeps
    its traceback.
    """
    try:
        if sys.stdout is None:
            raise UserError("standard output is closed", allowed="a file, a pipe, a terminal or /dev/null")
        code = app.meta(_with_hyphens(words))
        sys.stdout.flush()
        return code or 0
    except HeadwayError as error:
        return _failed(error.spelled(lambda name: _spelled(app, words, name)), error.exit_code)
    except CycloptsError as error:
        return _failed(_explained(app, words, error), UserError.exit_code)
    except OSError as error:
        _forget_output()
        if error.errno == errno.EPIPE:  # the reader closed the pipe
            return RunError.exit_code
        file = "a file or a pipe " if error.filename is None else f"{error.filename}: "
        return _failed(f"{file}cannot be read or written ({error.strerror or error})", RunError.exit_code)
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        return _failed(f"out of memory ({str(error).strip() or 'there is no more'})", RunError.exit_code)
    except (KeyboardInterrupt, SystemExit):
        try:
            sys.stdout.flush()
        except (OSError, ValueError):  # the reader was interrupted too
            _forget_output()
        raise


def _with_hyphens(words: Sequence[str]) -> list[str]:
    """The words with `--output -` as `--output=-`, because cyclopts only accepts a hyphen as a value after `=`."""
    given = list[str]()
    for word in words:
        if word == "-" and given and given[-1].startswith("--"):
            given[-1] += "=-"
        else:
            given.append(word)
    return given


def _failed(message: str, code: int) -> int:
    if received:
        raise KeyboardInterrupt
    sys.stderr.write(f"{printable(f'error: {message}')}\n")
    return code


def _spelled(app: App, words: Sequence[str], name: str) -> str:
    """The spelling of an option or argument in the verb, by its key; other keys are returned unchanged."""
    for each in app.parse_commands(words)[1][-1].assemble_argument_collection():
        if name == (each.keys[-1] if each.keys else each.field_info.name):
            off = each.field_info.default is True
            return next((flag for flag in reversed(each.names) if off and flag.startswith("--no-")), each.name)
    return "RUN" if name in ("run", "runs") else name


def _explained(app: App, words: Sequence[str], error: CycloptsError) -> str:
    """The message for a wrong command line. Values that a model rejects get the usual message for mistakes."""
    from pydantic import BaseModel
    from pydantic import ValidationError as InvalidError

    from headway.core.config import explain

    if "-" in words:
        return str(UserError("a hyphen names no file", received="-", allowed=STANDARD_INPUT))
    cause = error.__cause__
    if isinstance(error, ValidationError) and isinstance(cause, InvalidError) and error.argument is not None:
        hint = error.argument.hint
        if inspect.isclass(hint) and issubclass(hint, BaseModel):
            text = explain(cause, hint, spell=option)
            return UserError(text).spelled(lambda name: _spelled(app, words, name))
        first = cause.errors()[0]
        message = first["msg"].removeprefix("Value error, ")
        what = message[:1].lower() + message[1:]
        return str(UserError(what, where=error.argument.name, received=str(first["input"])))
    page = " ".join(["headway", *app.parse_commands(words)[0], "--help"])
    message = " ".join(str(error).split()).split(" Available commands:")[0]
    return f"{message.rstrip('.')}; see {page}"


def _forget_output() -> None:
    """Drop unwritten standard output, so that the exit of the process does not try to write it again."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError, AttributeError):
        return
