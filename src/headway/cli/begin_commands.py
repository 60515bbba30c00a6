"""The verbs new, demo, doctor, recipes, list, and check (of the lessons)."""

import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from headway.cli.console import allow_command, say_command
from headway.cli.shell import argument, flag, flag_of, verb
from headway.cli.standard_streams import write
from headway.core.config import WRITES_FOLDER, Count, Seed
from headway.core.errors import UserError, check_companions, option
from headway.core.registry import CATALOGUE, listing
from headway.experiments.student_options import StudentOptions


@verb()
def new(
    file: Annotated[Path | None, argument("FILE", "A pair a row (.tsv, .jsonl); or, with TARGET, the sources.")] = None,
    target: Annotated[Path | None, argument("TARGET", "The sources' targets, a line each.")] = None,
    /,
    *,
    options: StudentOptions,
    output: Annotated[Path | None, WRITES_FOLDER, flag("The folder to make.", "the name of FILE")] = None,
    for_: Annotated[
        Literal["ctranslate2", "browser", "research"],
        flag("ctranslate2, argos and onnx; firefox and page; or n-grams.", "ctranslate2", name="--for"),
    ] = "ctranslate2",
    source_language: Annotated[str | None, flag("Such as ja.", "by the names of files, or by the text")] = None,
    target_language: Annotated[str | None, flag("Such as en.", "likewise")] = None,
    columns: Annotated[
        tuple[str, str] | None, flag("Those of source and target in FILE: numbers or names.", "1 2")
    ] = None,
    minutes: Annotated[
        Annotated[float, Field(gt=0, le=10**6)] | None,
        flag("The most that training may take, with its evaluations.", "as long as suits the data"),
    ] = None,
    skip_broken: Annotated[bool, flag("Leave out rows that cannot be read, instead of stopping.", negative=())] = False,
) -> int:
    if options.student is not None:
        if file is not None:
            raise UserError("a student's pairs have an option", where="FILE", received=file, allowed=option("data"))
        idle = {"output": output, "columns": columns, "minutes": minutes, "skip_broken": skip_broken}
        if given := [name for name, value in idle.items() if value]:
            raise UserError("this option does nothing for a student", where=option(given[0]))
        return _make_student(options, source_language, target_language)
    check_companions(options.model_fields_set, dict.fromkeys(StudentOptions.model_fields, ("student",)))
    if file is None:
        raise UserError("pairs are needed", where="FILE", allowed=f"FILE, or {option('student')} and its options")
    from headway.experiments.new import begin
    from headway.export.exporting import destinations

    if target is not None and columns is not None:
        raise UserError("pairs stand in columns or in two files, not both", where=option("columns"))
    folder = output or Path(file.name.partition(".")[0])
    files, languages = [file] if target is None else [file, target], (source_language, target_language)
    broken: Any = "skip" if skip_broken else "error"
    begun = begin(files, folder, columns or ("1", "2"), languages, minutes, broken, for_, destinations)
    run, said = folder / "run", folder / "test.out"
    commands = (
        ["headway", "train", begun.recipe, "--output", run],
        ["headway", "predict", run, "--input", begun.sources, "--output", said],
        ["headway", "score", "--metric", "bleu", "chrf", "--hypotheses", said, "--references", begun.targets],
    )
    write("\n".join([begun.account, "", *(shlex.join(map(str, words)) for words in commands)]))
    return 0


def _make_student(options: StudentOptions, source: str | None, target: str | None) -> int:
    """Make a student for browsers by commands of this program. Returns its exit code."""
    from headway.cli.verbs import app
    from headway.experiments.steps import Commands
    from headway.experiments.student import make_student

    def allow(command: str) -> None:
        allow_command(command, "the teacher", option("teacher"), yes=options.yes)

    commands = Commands(_spelled, lambda words: app(words) or 0)
    return make_student(options, (source, target), commands, allow)


def _spelled(words: Sequence[str], options: Mapping[str, Any]) -> list[str]:
    """The words of a command with its options as flags."""
    spelled = [*words]
    for name, value in options.items():
        values = [] if value is True else value if isinstance(value, tuple) else [value]
        spelled += [flag_of(name), *map(str, values)]
    return spelled


@verb()
def demo(
    *,
    output: Annotated[Path, WRITES_FOLDER, flag("The run folder to make.", "runs/dates")] = Path("runs/dates"),
    seed: Annotated[Seed, flag("The seed of data and model.", "1")] = 1,
    resume: Annotated[bool, flag("Go on with the demo that is there, as it does without.", negative=())] = False,
) -> int:
    from headway.experiments.demo import run_demo

    code = run_demo(output, seed, resume=resume)
    if code:
        moved = [] if output == Path("runs/dates") else ["--output", str(output)]
        say_command("to go on", "demo", "--resume", *moved, *([] if seed == 1 else ["--seed", str(seed)]))
    return code


@verb()
def doctor() -> int:
    from headway.experiments.doctor import run_doctor

    return run_doctor(write)


@verb()
def recipes(
    *name: Annotated[
        str,
        argument("NAME|WORD", "The recipe to show, such as tanaka/mixers/ngram; or words that the listed ones have."),
    ],
    task: Annotated[str | None, flag("List those of one task.")] = None,
    output: Annotated[Path | None, WRITES_FOLDER, flag("Copy the recipe into this folder.")] = None,
) -> None:
    from headway.experiments.recipe_library import copy_recipe, recipe_facts, recipe_list, recipe_names

    if output is not None:
        if len(name) != 1:
            raise UserError("a recipe is copied by its name", where=option("output"), allowed="one NAME before it")
        write("\n".join(map(str, copy_recipe(name[0], output))))
    elif len(name) != 1 or name[0].removesuffix(".yaml") not in recipe_names():
        write(recipe_list(task, name))
    elif task is not None:
        raise UserError("a recipe is of one task", where=option("task"), received=task, allowed="without NAME")
    else:
        write(recipe_facts(name[0]))


@verb()
def list_components(
    kind: Annotated[str | None, argument("KIND", f"{', '.join(CATALOGUE)}; all without.")] = None,
    /,
    *keys: Annotated[str, argument("KEY=VALUE", "Options of the mixer that is checked, such as heads=4.")],
    check: Annotated[
        str | None,
        flag("Check that this mixer, NAME or module:Class, keeps the contract; a file gets Markdown, for its README."),
    ] = None,
    dim: Annotated[Count | None, flag("Size of the vectors of the mixer that is checked.", "48")] = None,
    device: Annotated[str | None, flag("Where it is checked: cpu, cuda, ...", "cpu")] = None,
) -> int:
    given = {"check": check, "dim": dim, "device": device, "keys": keys}
    needs = {name: ["check"] for name in ("dim", "device", "keys")}
    check_companions([name for name, value in given.items() if value], needs)
    if check is not None:
        if kind not in (None, "mixers"):
            raise UserError("only mixers are checked", where="KIND", received=kind, allowed="mixers, before all else")
        from headway.core.device import pick_device
        from headway.mixers.conformance_report import DIM, conformance_table
        from headway.recipe.reading import apply_overrides

        options: dict[str, Any] = {}
        apply_overrides(options, keys)
        table, broken = conformance_table(check, options, dim or DIM, pick_device(device or "cpu"))
        write(table.text() if sys.stdout.isatty() else table.markdown().rstrip())
        return int(broken)
    if kind is not None:
        write("\n".join(listing(kind)))
        return 0
    sections = ("\n".join([f"{name}:", *(f"  {line}" for line in listing(name))]) for name in CATALOGUE)
    write("\n\n".join(sections))
    return 0


@verb()
def check(
    lesson: Annotated[int, argument("LESSON", "The number of the lesson, 1 to 8.")],
    /,
    *files: Annotated[Path, argument("FILE", "Answers: Python files, or notebooks of the lesson.", required=True)],
    allow_code: Annotated[bool, flag("Run the code of these files.", negative=())] = False,
) -> int:
    if not allow_code:
        what = "answers are run to be checked, and can do whatever you can"
        raise UserError(
            what, where="FILE", received=str(files[0]), allowed=f"{option('allow_code')}, with files you trust"
        )
    from headway.lessons import check_file

    right = True
    for file in files:
        checked = check_file(lesson, file)
        right &= checked.right
        write(f"{file}: {checked.said}")
    return int(not right)
