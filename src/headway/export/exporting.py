"""`headway export`: write a run in a format, with its card and a comparison of the outputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from headway.core.config import validated_options
from headway.core.errors import UserError, missing_packages, option, require_installed
from headway.core.files import write_json, write_text
from headway.core.log import progress, say
from headway.core.registry import config_of
from headway.core.storage import check_new, put_in_place, workspace
from headway.core.tables import Cell, Column, Table
from headway.export import EXPORTERS
from headway.export.export_options import ExportOptions
from headway.export.exporter import Exporter
from headway.export.parity import ParityReport, compare, longest_output, parity_examples
from headway.predictors.predictor import Run
from headway.runs.model_card import card_of
from headway.runs.run import open_run
from headway.runs.run_folder import CARD
from headway.tensors.linear import undo_rounding

PARITY = "parity.json"


def build_exporter(name: str, given: Mapping[str, Any]) -> Exporter:
    """Build the exporter of a format with its options.

    Raises:
        UserError: the format is unknown, has no such option, or its package is not installed.
    """
    kind = EXPORTERS.get(name, option("format"))
    section = config_of(kind)
    for key in given:
        if key not in section.model_fields:
            names = list(map(option, section.model_fields)) or "no options of its own"
            raise UserError(f"the format {name} has no such option", where=option(key), allowed=names)
    return kind(validated_options(section, given))


def formats_of(path: Path) -> Table:
    """A table of the formats: whether they support a run, and how or why not. Raises UserError if it has no weights."""
    rows = list[list[Cell]]()
    for exporter, answer, how in _answers(open_run(path).loaded()):
        missing = answer == "yes" and missing_packages(exporter.packages)
        rows.append(
            [exporter.name, answer, f"{how}; needs pip install 'headway[{exporter.extra}]'" if missing else how]
        )
    return Table([Column("format"), Column("can"), Column("how, or why not")], rows)


def destinations(run: Run) -> list[str]:
    """Lines that list the formats that support a run, trained or not, and the others with short reasons."""
    can, reasons = list[str](), dict[str, list[str]]()
    for exporter, answer, how in _answers(run):
        (can if answer == "yes" else reasons.setdefault(how.partition("; ")[0], [])).append(exporter.name)
    refused = (f"not to {', '.join(names)}: {how}" for how, names in reasons.items())
    return [f"can go to: {', '.join(can) or 'headway alone'}", *refused]


def _answers(run: Run) -> Iterator[tuple[Exporter, str, str]]:
    """For every format its exporter, whether it supports a run, and how or why not."""
    for name in EXPORTERS:
        exporter = build_exporter(name, {})
        refusal = _refusal(exporter, run)
        yield exporter, "no" if refusal or _alone(exporter, run) else "yes", refusal or exporter.form(run)


def _alone(exporter: Exporter, run: Run) -> bool:
    """Whether only headway can read the format's output for a run."""
    return exporter.card(run).get("library_name") == "headway"


def _refusal(exporter: Exporter, run: Run) -> str | None:
    """The reason why a format does not support a run; None if it does."""
    if run.recipe.data.context.most:
        return "it reads the sentences before another (data.context), which no engine does; headway pack carries it"
    return exporter.refusal(run)


def check_expressible(exporter: Exporter, run: Run) -> None:
    """Raise UserError if a format does not support a run, naming the formats that do."""
    refusal = _refusal(exporter, run)
    if refusal is not None:
        others = [name for name in EXPORTERS if _refusal(build_exporter(name, {}), run) is None]
        raise UserError(
            f"{exporter.name} cannot express this run: {refusal}",
            where=str(run.path),
            allowed=", ".join(others),
        )


def prepare_export(exporter: Exporter, run: Run) -> None:
    """Check that a format supports a run, and undo the rounding of its model unless the format stores the integers.

    Raises:
        UserError: the format does not support the run.
    """
    check_expressible(exporter, run)
    if not exporter.integers:
        undo_rounding(run.model)


def export_run(name: str, path: Path, options: ExportOptions, given: Mapping[str, Any]) -> ParityReport:
    """Write a run in a format, with `README.md` and `parity.json`, and compare its outputs with the run's.

    The folder appears when it is complete. An export whose outputs differ is kept, and its report says so.

    Args:
        name: of the exporter.
        path: the run folder.
        options: the options of all formats.
        given: the options of this format.

    Raises:
        UserError: there is no run or no weights, the format does not support it or is not installed, the folder exists,
            or there is nothing to compare.
    """
    output = options.output
    if output is None:
        raise UserError("an export needs a folder to write to", where=option("output"), allowed="a folder to make")
    check_new(output, "output")
    exporter = build_exporter(name, given)
    require_installed(f"the format {exporter.name}", exporter.packages, exporter.extra, option("format"))
    run = open_run(path).loaded()
    with run.trusted():
        prepare_export(exporter, run)
        examples = parity_examples(run, options.input, options.sentences)
        lines = [example.source for example in examples]
        search = exporter.search(run, options.beam, longest_output(run, lines))
        with workspace(output.absolute().parent, output) as space:
            folder = space / "export"
            with progress(f"export to {exporter.name}") as line:
                exporter.write(run, folder)
                line.update(0, f"comparing {len(lines)} lines")
                report: ParityReport = compare(
                    exporter.name, run, exporter.open(folder, run), lines, search, exact=exporter.exact
                )
                report = exporter.examined(run, folder, report, examples)
            write_json(folder / PARITY, report.to_json())
            usage = exporter.usage(run)
            if (truncation := run.recipe.data.truncation()) is not None:
                usage += f"\n\nThe run reads the first {truncation} of a source. Longer sources have to be cut there."
            if run.recipe.decoding.kind == "mbr":
                usage += "\n\nThe run decodes by minimum Bayes risk. Programs that read this export search."
            card = card_of(run, usage, head=exporter.card(run), licence=options.licence, export=_told(report))
            write_text(folder / CARD, card)
            exporter.finish(run, folder, card)
            put_in_place(folder, output)
    size = sum(file.stat().st_size for file in output.rglob("*") if file.is_file())
    say(f"{output}: {size / 1e6:.1f} MB" + (f", {exporter.form(run)}" if _alone(exporter, run) else ""))
    return report


def _told(report: ParityReport) -> str:
    """The text about the export for the model card."""
    kind = "labels" if report.search.longest == 1 else f"beam {report.search.beam}, no length penalty"
    text = (
        f"Exported as `{report.format}`. {report.equal} of {report.lines} best outputs equal the run's ({kind}). "
        f"The largest difference of a log probability is {report.score_difference:.1e}. `parity.json` has all numbers."
    )
    if report.unknown:
        text += f" {report.unknown} outputs have unknown tokens, which libraries write in ways of their own."
    return text
