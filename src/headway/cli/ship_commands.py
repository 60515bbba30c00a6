"""The verbs import, export, serve, pack and site."""

from pathlib import Path
from typing import Annotated

from headway.cli.shell import Device, EngineName, Precision, argument, flag, flag_of, keys_given, verb
from headway.cli.standard_streams import write
from headway.core.config import WRITES_FOLDER
from headway.core.errors import UserError, option
from headway.export.export_options import FORMAT_OPTIONS, ExportOptions
from headway.serving.options import ServeOptions


@verb()
def import_(
    *words: Annotated[
        str,
        argument(
            "FORMAT FILES [KEY=VALUE]",
            "The format; `headway list importers` has all. Then its files, and changes to the recipe that is made of "
            "them, such as text.source.language=ja. hf:NAME stands for hf NAME.",
            required=True,
        ),
    ],
    output: Annotated[Path, WRITES_FOLDER, flag("The run folder to make.", "run")] = Path("run"),
    licence: Annotated[
        str | None, flag("The licence of the weights, for the card, such as cc-by-4.0.", "what the files tell")
    ] = None,
    verify: Annotated[
        Path | None,
        flag("Make no run, but a row: of 100 lines of this file, how many are written as transformers writes them."),
    ] = None,
) -> None:
    from headway.importing.importing import import_run

    keys = [word for word in words if "=" in word and not Path(word).exists()]
    places = [word for word in words if word not in keys]
    if verify is None:
        import_run(places, output, keys, licence)
    else:
        from headway.importing.verification import verify as compared

        write(compared(places, verify, keys).markdown())


@verb(loads_runs=True)
def export(
    format: Annotated[str | None, argument("FORMAT", "The format; `headway list exporters` has all.")] = None,
    run: Annotated[Path | None, argument("RUN", "The run folder, or a pack.")] = None,
    /,
    *keys: Annotated[
        str,
        argument(
            "RUN_BACK|KEY=VALUE",
            "For a page, the run of the other direction; options of the format, of which `headway list exporters` "
            "has all.",
        ),
    ],
    options: ExportOptions,
    list: Annotated[Path | None, flag("Say which formats can express this run, and why not.")] = None,
) -> int:
    from headway.export import EXPORTERS
    from headway.export.exporting import export_run, formats_of

    if list is not None:
        write(formats_of(list).text())
        return 0
    if format is None or run is None:
        what, allowed = "an export needs a format and a run", f"headway export FORMAT RUN {option('output')} DIR"
        raise UserError(what, where="headway export", allowed=allowed)
    if str(run) in EXPORTERS and format not in EXPORTERS:
        format, run = str(run), Path(format)
    runs = [word for word in keys if "=" not in word]
    given = keys_given([word for word in keys if word not in runs], FORMAT_OPTIONS[0])
    if len(runs) > 1:
        raise UserError("a page has two directions at most", where="RUN_BACK", received=runs[1], allowed="one run")
    if runs:
        given["back"] = runs[0]
    report = export_run(format, run, options, given)
    write(report.text())
    return 0 if report.passed else 1


@verb(loads_runs=True)
def serve(
    *runs: Annotated[
        str,
        argument(
            "RUN",
            "The runs, one for each direction of a translation or other task; NAME=RUN gives one a name, and en-de=RUN "
            "says what it translates.",
        ),
    ],
    options: ServeOptions,
    records: Annotated[
        Path | None,
        flag("Serve records of models to a Firefox instead: an export, or a folder of exports."),
    ] = None,
    wasm: Annotated[
        Path | None, flag("With records, a folder with a copy of the record of Firefox's engine, and of its file.")
    ] = None,
    engine: EngineName = None,
    device: Device = "auto",
    precision: Precision = None,
) -> None:
    if records is not None and not runs:
        from headway.serving.records import serve_records

        serve_records(records, wasm, options)
        return
    if records is not None or wasm is not None or not runs:
        allowed = f"headway serve RUN ..., or headway serve {option('records')} FOLDER"
        raise UserError("runs are served, or the records of exports", where="headway serve", allowed=allowed)
    from headway.serving.server import serve as serve_runs

    serve_runs(runs, options, engine=engine, device=device, precision=precision)


@verb()
def pack(
    run: Annotated[Path | None, argument("RUN", "The run folder.")] = None,
    /,
    output: Annotated[Path | None, flag("The pack, a name.zip.", "the name of RUN")] = None,
    paper: Annotated[Path | None, flag("Pack a document's claims instead: the claim file.")] = None,
    runs: Annotated[Path | None, flag("With a paper, the folder that `reproduce` made.")] = None,
) -> None:
    if paper is not None and runs is not None and run is None:
        from headway.claims.paper import pack_paper

        output = output or Path(f"{paper.stem}.zip")
        names = pack_paper(paper, runs, output)
    elif run is not None and paper is None and runs is None:
        from headway.runs.packing import pack_run

        output = output or Path(f"{run.resolve().name}.zip")
        names = pack_run(run, output)
    else:
        allowed = f"headway pack RUN, or headway pack {option('paper')} CLAIMS.yaml {option('runs')} DIR"
        raise UserError("one run is packed, or the runs of one paper", where="headway pack", allowed=allowed)
    write(f"{output}: {len(names)} files, {output.stat().st_size / 1e6:.1f} MB")


@verb()
def site(
    *packs: Annotated[Path, argument("PACK", "The packs, made by `headway pack` of papers.", required=True)],
    output: Annotated[Path, flag("The folder to make.", "site")] = Path("site"),
) -> None:
    from headway.claims.site import write_site

    for line in write_site(packs, output, flag_of):
        write(line)
    write(str(output / "index.html"))
