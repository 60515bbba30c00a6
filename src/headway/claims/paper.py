"""A document's claims in one file: what was trained, all outputs and findings, to be decided again elsewhere.

The weights stay behind: a claim is decided from the outputs. A pack of unfinished runs has the finished ones, so that
another machine trains the rest.
"""

from __future__ import annotations

import re
import shutil
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from headway.claims.claims import ClaimFile, ClaimPath, read_claims
from headway.claims.reproduce import DATA, PREPARED, RECORD, claimed_grid, measured_now, read_record, reproduce
from headway.comparison.cells import corpus_files, read_kept, write_result
from headway.comparison.options import ReproduceOptions
from headway.core.archives import opened_zip
from headway.core.config import Section
from headway.core.documents import dump_yaml, read_json, read_yaml, shaped
from headway.core.errors import UserError, option
from headway.core.files import sha256, write_json, write_text
from headway.core.log import say, warn
from headway.core.storage import check_new, put_in_place, workspace
from headway.core.system import sync
from headway.core.tables import Table
from headway.formats.lines import check_file
from headway.grids.grid import CELL, CELLS, CHECKS, TUNING, CellJob, Grid, PlannedRun, RunKind
from headway.recipe import read_tree
from headway.runs.run_folder import RunFolder, portable

PAPER, RUNS, CLAIMS = "paper.json", "runs", "claims"
OUTPUT = "$OUTPUT"  # stands for the folder of the prepared data
NAMED = re.compile(r"[\w./-]+")  # what may be a path in a command
LARGEST = 1 << 20  # bytes of a file beside a claim file that is packed
MEMBER = re.compile(r"[\w@+=-][\w.@+=-]*(?:/[\w@+=-][\w.@+=-]*)*")  # no way out of the folder, and nothing hidden
KINDS: tuple[RunKind, ...] = (CELLS, TUNING, CHECKS)  # cells before the checks beside them
SAME_TIME = (1980, 1, 1, 0, 0, 0)


class PaperConfig(Section):
    """The facts of a pack. `data` and `tests`: hashes of the prepared files, and of those with test sets."""

    claims: str
    budget: str
    machine: str
    commit: str
    date: str
    data: dict[str, str]
    tests: dict[str, str]


def renamed(value: Any, old: str, new: str) -> Any:
    """A tree with `new` in place of `old` at the beginning of its paths."""
    if isinstance(value, Mapping):
        return {key: renamed(each, old, new) for key, each in value.items()}
    if isinstance(value, list):
        return [renamed(each, old, new) for each in value]
    begins = isinstance(value, str) and (value == old or value.startswith(f"{old}/"))
    return new + value[len(old) :] if begins else value


def files_beside(claims: ClaimFile, path: Path, budget: str) -> Iterator[Path]:
    """The recipes and scripts that a claim file names, with the bases of recipes and what lies beside scripts."""

    def recipes(value: Any, folder: Path) -> Iterator[Path]:
        for key, each in value.items() if isinstance(value, Mapping) else ():
            if key in ("recipe", "base") and isinstance(each, str):
                found = (folder / each).resolve()
                yield found
                yield from recipes(read_yaml(found, "recipe"), found.parent)
            elif isinstance(each, str) and each.endswith(".yaml"):
                yield from recipes({"recipe": each}, folder)
            else:
                yield from recipes(each, folder)

    yield from recipes(claims.tree(budget), path.parent)
    for word in NAMED.findall(claims.data_of(budget).prepare):
        named = (path.parent / word).resolve()
        if named.suffix == ".yaml" and named.is_file():
            yield from recipes({"recipe": word}, path.parent)
        elif named.is_file():
            yield from (each for each in sorted(named.parent.iterdir()) if each.is_file())


def pack_paper(path: Path, runs: Path, output: Path) -> list[str]:
    """Write the claims of a file, with the finished runs in the output folder of `reproduce`, into a zip file.

    The runs are those of the file's usual budget. Returns the names of the files in it.

    Raises:
        UserError: the claims or the runs are missing, `output` is no new name.zip, or a file that the claims name lies
            outside of the folder above theirs.
    """
    claims, folder = read_claims(path), runs / path.stem
    budget, data = claims.usual_budget, (folder / DATA).absolute()
    if not (folder / CELLS).is_dir():
        what = "there are no runs of these claims"
        raise UserError(what, where=option("runs"), received=str(folder), allowed=f"{option('output')} of `reproduce`")
    if output.suffix != ".zip":
        raise UserError("a pack is a zip file", where=option("output"), received=str(output), allowed="a name.zip")
    check_new(output, "output")
    grid, root = claimed_grid(claims, path, data, budget), path.resolve().parent.parent
    members = {f"{CLAIMS}/{path.name}": path}
    for file in dict.fromkeys(files_beside(claims, path, budget)):
        beside = file.is_relative_to(path.resolve().parent)
        name = f"{CLAIMS}/{file.relative_to(path.resolve().parent).as_posix()}" if beside else ""
        if not beside and not file.is_relative_to(root):
            raise UserError("this file lies outside of the pack", where=str(file), allowed=f"files in {root}")
        if file.stat().st_size > LARGEST:
            warn(f"not in the pack, since it has more than {LARGEST:,} bytes: {file}")
            continue
        members[name or file.relative_to(root).as_posix()] = file
    if odd := [name for name in members if not MEMBER.fullmatch(name)]:
        raise UserError("this name cannot be packed", where=odd[0], allowed="letters, digits and -_.@+=")
    if (folder / RECORD).is_file():
        members[RECORD] = folder / RECORD
    with workspace(output.absolute().parent, output) as place:
        for kind in KINDS:
            for run in sorted((folder / kind).glob("*/")):
                members |= _packed_run(run, place / RUNS / kind / run.name, str(data), f"{RUNS}/{kind}/{run.name}")
        measured, tests = measured_now((), ()), {file for test in _tests(grid) for file in corpus_files(test.corpus)}
        hashes = _hashes(data)
        about = PaperConfig(
            claims=path.stem, budget=budget, machine=measured.machine, commit=measured.commit, date=measured.date,
            data=hashes, tests={name: value for name, value in hashes.items() if data / name in tests},
        )  # fmt: skip
        write_json(place / PAPER, about.model_dump(mode="json"))
        members[PAPER] = place / PAPER
        with zipfile.ZipFile(place / "paper.zip", "w", zipfile.ZIP_STORED) as archive:
            for name in sorted(members):
                archive.writestr(zipfile.ZipInfo(name, SAME_TIME), members[name].read_bytes())
        sync(place / "paper.zip")
        (place / "paper.zip").replace(output)
    return sorted(members)


def _packed_run(run: Path, place: Path, data: str, name: str) -> dict[str, Path]:
    """Copies of a finished run's recipe, manifest and result that name no folder of this machine; else nothing."""
    kept, folder = read_kept(run / CELL), RunFolder(run)
    if kept is None:
        return {}
    place.mkdir(parents=True)

    def carried(value: Any) -> Any:
        return portable(renamed(value, data, OUTPUT))

    write_text(place / "recipe.yaml", dump_yaml(carried(read_tree(folder.recipe_file, alone=True))))
    write_json(place / "manifest.json", carried(folder.read_manifest()))
    write_result(place / CELL, replace(kept.result, path=None), {})
    return {f"{name}/{file.name}": file for file in place.iterdir()}


def _tests(grid: Grid) -> list[Any]:
    return [*grid.tests, *([grid.tuning_set] if grid.tuning_set else [])]


def _hashes(folder: Path) -> dict[str, str]:
    """The hashes of all files of the prepared data, by relative names."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != PREPARED)
    return {path.relative_to(folder).as_posix(): sha256(path) for path in files}


def replay(
    pack: Path,
    options: ReproduceOptions,
    overrides: Sequence[str] = (),
    command: str = "",
    confirmed: Callable[[Table], bool] = lambda commands: False,
) -> tuple[list[Table], int]:
    """Decide the claims of a pack again, as `reproduce` does, from its outputs or (`retrain`) from new trainings.

    Returns:
        The tables of `reproduce` and one of the findings then and now; 1 if one of them differs.

    Raises:
        UserError: as `reproduce`; the pack is damaged, or the data are other than those of its outputs.
    """
    if options.output is None:
        raise UserError("data and runs need a folder", where=option("output"))
    check_file(pack, "the pack")
    unpacked = options.output / f"paper-{sha256(pack)[:12]}"
    if others := [path for path in options.output.glob("paper-*") if path != unpacked]:
        what = "another pack was replayed in this folder, whose outputs would decide"
        raise UserError(what, where=option("output"), received=str(others[0]), allowed="a folder of its own")
    if not unpacked.is_dir():
        _unpack(pack, unpacked)
    about = shaped(read_json(unpacked / PAPER, what="pack"), TypeAdapter(PaperConfig), str(pack), "this pack")
    given = options.model_copy(update={"claims": unpacked / CLAIMS, "budget": about.budget})

    def restore(grid: Grid, folder: Path, data: Path) -> None:
        if not options.retrain:
            _restore(unpacked, about, grid, folder, data)

    chosen = ClaimPath.parse(about.claims.replace("-", "/", 1))
    tables, code = reproduce(chosen, given, overrides, command, confirmed, restore)
    now, then = options.output / about.claims / RECORD, unpacked / RECORD
    if options.dry_run or not (now.is_file() and then.is_file()):
        return tables, code
    before, after = ({one["says"]: one["finding"] for one in read_record(path).claims} for path in (then, now))
    differ = [says for says, finding in before.items() if after.get(says) != finding]
    rows = [[says, finding, after.get(says, "not decided")] for says, finding in before.items()]
    title = f"{len(differ)} of {len(before)} verdicts differ" if differ else "replayed: same verdicts"
    return [*tables, Table(["claim", "then", "now"], rows, title=title)], max(code, int(bool(differ)))


@contextmanager
def opened_paper(pack: Path) -> Iterator[zipfile.ZipFile]:
    """Open a pack for reading. Raises UserError if it is damaged, or has files that packs of papers do not have."""
    check_file(pack, "the pack")
    with opened_zip(pack, "pack") as archive:
        names = [entry.filename for entry in archive.infolist()]
        for name in names:
            if not MEMBER.fullmatch(name) or names.count(name) > 1:
                raise UserError("a paper has no such file", where=str(pack), received=name)
        if PAPER not in names:
            raise UserError(f"this is no pack of a paper: it has no {PAPER}", where=str(pack))
        yield archive


def _unpack(pack: Path, folder: Path) -> None:
    """Unpack a paper. Raises UserError as `opened_paper`, before anything is written."""
    with opened_paper(pack) as archive, workspace(folder.parent) as place:
        for name in archive.namelist():
            target = place / "paper" / name
            target.parent.mkdir(parents=True, exist_ok=True)
            with archive.open(name) as source, target.open("wb") as written:
                shutil.copyfileobj(source, written)
        put_in_place(place / "paper", folder)


def _restore(unpacked: Path, about: PaperConfig, grid: Grid, folder: Path, data: Path) -> None:
    """Put the finished runs of a pack into the folder of a grid, where it has none of that name."""
    hashes = _hashes(data)
    if others := [name for name, value in about.tests.items() if hashes.get(name) != value]:
        what = "the outputs of this pack are of other test sets than the commands make here"
        raise UserError(what, where=str(data), received=", ".join(others), allowed=option("retrain"))
    if others := [name for name, value in about.data.items() if hashes.get(name) != value]:
        say(f"other data than those of the pack, which no output depends on: {', '.join(others)}")
    recipe, found = grid.variants[0].recipe, 0
    for kind in KINDS:
        tests = grid.tests if kind == CELLS else (grid.tuning_set,) if grid.tuning_set else ()
        for run in sorted((unpacked / RUNS / kind).glob("*/")):
            target, kept = folder / kind / run.name, read_kept(run / CELL)
            if target.exists() or kept is None:
                continue
            planned = PlannedRun(run.name, kept.result.variant, kept.result.seed, recipe)
            beside = folder / CELLS / f"{planned.variant}-{planned.seed}" if kind == CHECKS else None
            with workspace(target.parent) as place:
                job = CellJob(planned, kind, place, tests, grid.config.predict, 1, beside)
                job.run.mkdir(parents=True)
                tree = renamed(read_tree(run / "recipe.yaml", alone=True), OUTPUT, str(data.absolute()))
                write_text(job.run / "recipe.yaml", dump_yaml(tree))
                write_json(job.run / "manifest.json", read_json(run / "manifest.json", what="manifest"))
                write_result(job.run / CELL, kept.result, job.stamp())
                put_in_place(job.run, target)
            found += 1
    say(f"{found} finished runs are those of the pack")
