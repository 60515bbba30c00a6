"""The options of `headway new` for a model for browsers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from headway.core.config import WRITES_FOLDER, Count, Section

ROUNDED = 2000  # updates with rounding


class StudentOptions(Section):
    """The data, the teacher and the length of training of a student for browsers."""

    student: Annotated[Path | None, WRITES_FOLDER] = Field(
        None, description="Make a model for browsers in this folder, by all steps; the same command goes on."
    )
    data: Path | None = Field(
        None, description="A table of pairs, or a folder with train.tsv, dev.tsv and test.tsv (or train.en, ...)."
    )
    teacher: str | None = Field(
        None, description="A run, hf:NAME, 'command: PROGRAM ...', or the name of the system whose outputs there are."
    )
    outputs: Path | None = Field(None, description="The teacher's outputs: a line for each pair in train.")
    through: int | None = Field(
        None, description="The teacher translates this column of the data; the other one is the source.", ge=1, le=2
    )
    licence: str | None = Field(None, description="The licence of the teacher's outputs, such as GPL-2.0.")
    data_licence: str | None = Field(None, description="The licence of the data, such as MPL-2.0.")
    preset: Literal["student-tiny", "firefox-tiny", "firefox-base-memory", "firefox-base"] | None = Field(
        None, description="The size of the student.", json_schema_extra={"default_text": "by the number of pairs"}
    )
    passes: Count | None = Field(
        None, description="Passes of training over the pairs.", json_schema_extra={"default_text": "by their number"}
    )
    rounded: Count = Field(
        ROUNDED, description="Updates with rounding.", json_schema_extra={"default_text": f"{ROUNDED:,}"}
    )
    yes: bool = Field(False, description="Run the teacher's command without being asked.")
    dry_run: bool = Field(False, description="List the steps and their estimated time; run nothing.")
