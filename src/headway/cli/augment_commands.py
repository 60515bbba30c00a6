"""`headway augment`: make a corpus from the outputs of a teacher."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from headway.augment.bulk_options import BulkOptions, DecodedOptions
from headway.cli.console import allow_command
from headway.cli.shell import Average, Device, EngineName, Precision, Workers, argument, keys_given, verb
from headway.cli.standard_streams import write
from headway.core.config import Section, validated_options
from headway.core.errors import UserError, check_companions, option
from headway.predictors.predict_options import SamplingOptions
from headway.search.decoding_options import SearchOptions

if TYPE_CHECKING:
    from headway.augment.bulk_input import BulkInput
    from headway.augment.teacher import Teacher

DECODING = [*SearchOptions.model_fields, *SamplingOptions.model_fields]
BEGIN = "command:"


def _option(description: str, default: Any = None, **extra: Any) -> Any:
    return Field(default=default, description=description, json_schema_extra={"group": "Teachers", **extra})


class TeacherOptions(Section):
    """The teacher, and the lines that it reads."""

    input: Path | None = Field(
        default=None,
        description="Lines that the teacher reads.",
        json_schema_extra={"default_text": "for distill, what the run was trained on"},
    )
    through: str | None = Field(
        default=None,
        description="Translate this column of the input, a table with tabs, by its number or its name in the first row;"
        " the outputs are paired with the first other column.",
        json_schema_extra={"metavar": "COLUMN"},
    )
    teacher: str | None = _option(
        "A run; 'command: PROGRAM ARGUMENT ...', which reads lines and writes a line for each; or the name of the"
        " system that wrote --outputs.",
        default_text="RUN",
    )
    outputs: Path | None = _option("A line for each line of the input, which another system wrote.")
    licence: str | None = _option("The licence of another system's outputs, for the provenance, such as cc-by-4.0.")
    silence: Annotated[float, Field(gt=0, le=1e6)] = _option(
        "Stop if a command writes no output for so many seconds.", 60.0, default_text="60"
    )
    yes: bool = _option("Run a command without being asked.", False)

    def is_command(self) -> bool:
        return self.teacher is not None and self.teacher.startswith(BEGIN)

    def is_run(self) -> bool:
        return not self.is_command() and self.outputs is None and self.licence is None

    def check(self, runs_and_keys: Sequence[str]) -> None:
        """Raise UserError unless the options of one kind of teacher are complete."""
        given, command = self.model_fields_set, f"'{BEGIN} PROGRAM ...'"
        check_companions(given, {"through": ("input",)})
        if not self.is_command() and (idle := sorted(given & {"silence", "yes"})):
            what, allowed = "alone, this option does nothing", f"beside {option('teacher')} {command}"
            raise UserError(what, where=option(idle[0]), allowed=allowed)
        if self.is_run():
            if self.teacher is not None and not Path(self.teacher).exists():
                allowed = f"a run, {command}, or a name beside {option('outputs')}"
                raise UserError("there is no such run", where=option("teacher"), received=self.teacher, allowed=allowed)
            return
        needed = ["input", "teacher", "licence"] + ["outputs"] * (not self.is_command())
        wrong = [name for name in needed if name not in given] or sorted(given & {"outputs"} - {*needed})
        if runs_and_keys or wrong:
            raise UserError(
                "outputs of another system are paired with the lines that it read, without a run",
                where=option(wrong[0]) if wrong else "headway augment", received=" ".join(runs_and_keys) or None,
                allowed=f"all of {', '.join(map(option, needed))}, and no RUN",
            )  # fmt: skip

    def lines(self) -> "BulkInput":
        """The lines of the input. Raises UserError if the file is missing, empty or lacks the column."""
        from headway.augment.bulk_input import lines_of_column, lines_of_file

        assert self.input is not None
        return lines_of_file(self.input) if self.through is None else lines_of_column(self.input, self.through)

    def other_system(self) -> "Teacher":
        """The teacher that is no run. A command may run after a question at a terminal. Raises UserError."""
        assert self.teacher is not None
        assert self.licence is not None
        if self.outputs is not None:
            from headway.augment.outputs_teacher import OutputsTeacher

            return OutputsTeacher(self.outputs, self.teacher, self.licence)
        from headway.augment.command_teacher import CommandTeacher, program_of

        command = self.teacher.removeprefix(BEGIN).strip()
        words = program_of(command)
        allow_command(command, "the teacher", option("teacher"), yes=self.yes)
        return CommandTeacher(words, self.licence, self.silence)


@verb(loads_runs=True)
def augment(
    method: Annotated[
        Literal["backtranslate", "distill"],
        argument("METHOD", "backtranslate: the outputs are the sources of the lines; distill: they are their targets."),
    ],
    /,
    *runs_and_keys: Annotated[
        str,
        argument(
            "RUN [KEY=VALUE]",
            f"One run, or several as an ensemble; then how to decode: {', '.join(DECODING)}.",
        ),
    ],
    options: DecodedOptions,
    teaching: TeacherOptions,
    average: Average = None,
    engine: EngineName = None,
    device: Device = "auto",
    precision: Precision = None,
    workers: Workers = None,
) -> None:
    from headway.augment.bulk_decoding import check_output, decode_corpus

    teaching.check(runs_and_keys)
    if not teaching.is_run():
        check_output(options)
        lines = teaching.lines()
        counts = decode_corpus(method, teaching.other_system(), lines, options)["counts"]
        write(json.dumps(counts, ensure_ascii=False))
        return
    from headway.augment.run_teacher import RunTeacher
    from headway.cli.streams import check_engine
    from headway.runs.load import load

    keys = [word for word in runs_and_keys if "=" in word and not Path(word).exists()]
    runs = [Path(word) for word in runs_and_keys if word not in keys]
    runs += [Path(teaching.teacher)] if teaching.teacher is not None else []
    if not runs:
        what = "a corpus is made by a run, or of the outputs of another system"
        raise UserError(what, where="headway augment", allowed=f"RUN, or {option('outputs')}, or {option('teacher')}")
    if method == "backtranslate" and teaching.input is None:
        raise UserError("the text in the language that the model is to write is needed", where=option("input"))
    given = {name: getattr(options, name) for name in options.model_fields_set}
    checked = validated_options(BulkOptions, given | keys_given(keys, BulkOptions))
    check_output(checked)
    check_engine(engine, runs[0], checked.model_dump(exclude_unset=True))
    predictor = load(*runs, average=average, engine=engine, device=device, precision=precision, workers=workers)
    teacher = RunTeacher(predictor, checked, {"average": average, "engine": engine, "precision": precision})
    lines = teacher.trained_on() if teaching.input is None else teaching.lines()
    write(json.dumps(decode_corpus(method, teacher, lines, checked)["counts"], ensure_ascii=False))
