"""Decode a corpus with a teacher into a new corpus with its provenance.

Backtranslation (Sennrich et al. 2016) reads text in the later model's target language; each line becomes the target of
the teacher's output. Distillation (Kim and Rush 2016) reads sources; the teacher's outputs become their targets.

Beside the new folder, `.NAME.work` stores decoded chunks until all are complete. A killed process resumes after the
last chunk, and the corpus is the same.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter

from headway.augment.bulk_input import BulkInput
from headway.augment.bulk_options import DecodedOptions
from headway.augment.marks import Unmarked
from headway.augment.teacher import DecodedLine, Teacher
from headway.core.documents import read_json, shaped
from headway.core.errors import UserError, option
from headway.core.files import sha256, write_json
from headway.core.log import Progress, progress, say
from headway.core.processes import batched
from headway.core.storage import check_new, locked, put_in_place, workspace
from headway.core.system import sync
from headway.core.version import VERSION
from headway.formats.lines import lines_of

Kind = Literal["backtranslate", "distill"]
IDENTITY, MANIFEST = "work.json", "manifest.json"
SOURCE, TARGET = "source.txt", "target.txt"
REASONS = ("empty", "too long for the model", "unknown words", "min_score", "max_ratio")
SHOWN = 5  # lines per reason in the manifest
LARGEST_CHUNK = 2**32  # bytes
CHUNK = TypeAdapter(list[DecodedLine])


def decode_corpus(kind: Kind, teacher: Teacher, given: BulkInput, options: DecodedOptions) -> dict[str, Any]:
    """Decode a corpus into a new one: `source.txt`, `target.txt` and `manifest.json` in the folder `options.output`.

    Args:
        kind: whether outputs become the sources or the targets of the input lines.
        teacher: writes the outputs.
        given: the lines to decode.
        options: where to write the corpus, and which pairs to keep.

    Returns:
        The manifest.

    Raises:
        UserError: the folder exists or has unfinished other work, the teacher cannot read the lines, a filter needs
            probabilities that are not known, or no pairs are left.
        RunError: the teacher failed.
    """
    output = check_output(options)
    if options.min_score is not None and not teacher.scores:
        what = "the probabilities of another system's outputs are not known"
        raise UserError(what, where=option("min_score"), received=options.min_score)
    marks = options.marks or teacher.marks
    filters: dict[str, Any] = {"min_score": options.min_score, "max_ratio": options.max_ratio}
    filters |= {"marks": marks} if marks != "none" else {}
    begun = {"command": f"headway augment {kind}", **teacher.identity}
    begun |= {"input": given.fingerprint, "chunk": options.chunk}
    work = output.absolute().with_name(f".{output.absolute().name}.work")
    if (manifest := _made_before(output, begun | {"filters": filters})) is None:
        with lines_of(given.file):
            total = teacher.check(batched(given.lines, options.chunk))
        with ExitStack() as stack:
            _begin(work, begun, output, stack)
            with progress(kind, total, "lines", long=True) as shown:
                chunks = _decode(teacher, given, options.chunk, work, shown)
            lines = (
                line
                for file in chunks
                for line in shaped(read_json(file, list, "chunk", most=LARGEST_CHUNK), CHUNK, str(file), "the chunk")
            )
            unmarked = Unmarked(lines) if marks == "apertium" else None
            paired, record = given.paired(unmarked or lines), unmarked.record if unmarked else dict[str, Any]
            manifest = _write(kind, paired, options, begun | given.record | {"filters": filters}, record, output)
    shutil.rmtree(work, ignore_errors=True)
    _report(manifest, output)
    return manifest


def _report(manifest: dict[str, Any], output: Path) -> None:
    """Log how many pairs a corpus has, and how many were left out."""
    counts = manifest["counts"]
    reasons = ", ".join(f"{reason} ({count:,})" for reason, count in counts["dropped"].items())
    left_out = f"; left out: {reasons}" if reasons else ""
    say(f"{output}: {counts['kept']:,} of {counts['read']:,} pairs are kept{left_out}")
    if "unknown_words" in manifest:
        say(f"{manifest['unknown_words']:.1%} of the words in the outputs were marked as unknown")
    if count := counts["at_limit"]:
        say(f"{count:,} of the outputs that are kept are as long as they may be: their ends may be missing")


def check_output(options: DecodedOptions) -> Path:
    """The folder to make. Raises UserError if there is none, or if it exists and is not a corpus."""
    if options.output is None:
        raise UserError("a new corpus needs a folder", where=option("output"), allowed="a folder to make")
    if not (options.output / MANIFEST).is_file():
        check_new(options.output, "output")
    return options.output


def _made_before(output: Path, identity: dict[str, Any]) -> dict[str, Any] | None:
    """The manifest of a corpus that an earlier run of the same work has completed; None if there is none.

    Raises:
        UserError: the folder is something else, or the corpus was changed.
    """
    if not os.path.lexists(output):
        return None
    manifest: dict[str, Any] = read_json(output / MANIFEST, what="manifest of the corpus")
    same = {name: manifest.get(name) for name in identity} == identity
    hashes = {name: sha256(output / name) for name in (SOURCE, TARGET) if (output / name).is_file()}
    if not same or manifest.get("sha256") != hashes:
        check_new(output, "output")
    say(f"{output}: this is made already")
    return manifest


def _begin(work: Path, begun: dict[str, Any], output: Path, stack: ExitStack) -> None:
    """Create the work folder, or check that an existing one belongs to the same job, and lock it within `stack`."""
    identity = work / IDENTITY
    try:
        stack.enter_context(locked(work / ".lock"))
        if not identity.is_file():
            for chunk in work.glob("*.json"):  # left by a process that was killed during removal
                chunk.unlink()
            write_json(identity, begun)
            sync(work.parent)
            return
    except OSError as error:
        what = f"the folder of work cannot be made ({error.strerror})"
        raise UserError(what, where=option("output"), received=str(output)) from error
    before = read_json(identity, what="identity of the work")
    changed = [name for name in begun if before.get(name) != begun[name]]
    if changed:
        raise UserError(
            f"another work was begun here; it differs in {', '.join(changed)}", where=option("output"),
            received=str(output), allowed=f"the same runs, input and options; another folder; this one without {work}",
        )  # fmt: skip


def _decode(teacher: Teacher, given: BulkInput, size: int, work: Path, shown: Progress) -> list[Path]:
    """The files of all chunks, in order. Chunks that exist are not decoded again."""
    files = [work / f"{number:08d}.json" for number, _ in enumerate(batched(given.lines, size))]
    done = next((number for number, file in enumerate(files) if not file.is_file()), len(files))
    shown.update(done * size)
    if done < len(files):
        rest = islice(batched(given.lines, size), done, None)
        for file, decoded in zip(files[done:], teacher.write(rest, done * size + 1), strict=True):
            write_json(file, decoded)
            done += 1
            shown.update(done * size)
    return files


def _write(
    kind: Kind, lines: Iterable[DecodedLine], options: DecodedOptions, begun: dict[str, Any],
    record: Callable[[], dict[str, Any]], output: Path,
) -> dict[str, Any]:  # fmt: skip
    """Write the corpus of the pairs that are kept, atomically. `record` adds to the manifest after the last line."""
    counts, first, at_limit = Counter[str](), dict[str, list[int]](), 0
    with workspace(output.absolute().parent, output) as space:
        folder = space / "corpus"
        folder.mkdir()
        names = (TARGET, SOURCE) if kind == "backtranslate" else (SOURCE, TARGET)
        with ExitStack() as stack:
            read, written = (
                stack.enter_context((folder / name).open("w", encoding="utf-8", newline="\n")) for name in names
            )
            for number, line in enumerate(lines, start=1):
                shorter, longer = sorted(line.lengths)
                faults = {
                    "empty": not (line.read.strip() and line.written.strip()),
                    "too long for the model": line.truncated,
                    "unknown words": line.unknown,
                    "min_score": options.min_score is not None and line.score < options.min_score,
                    "max_ratio": options.max_ratio is not None and longer > options.max_ratio * shorter,
                }
                fault = next(filter(faults.get, faults), None)  # a pair without faults is kept
                counts[fault or "kept"] += 1
                if fault is None:
                    read.write(f"{line.read}\n")
                    written.write(f"{line.written}\n")
                    at_limit += line.at_limit
                elif len(shown := first.setdefault(fault, [])) < SHOWN:
                    shown.append(number)
        dropped = {reason: counts[reason] for reason in REASONS if counts[reason]}
        if not counts["kept"]:
            most = max(dropped, key=dropped.__getitem__, default="empty")
            where, allowed = (
                (option(most), "a weaker filter") if most in DecodedOptions.model_fields else (option("input"), None)
            )
            raise UserError("no pair is left", where=where, received=dropped, allowed=allowed)
        manifest = {
            "headway": VERSION,
            **begun,
            "counts": {"read": counts.total(), "kept": counts["kept"], "at_limit": at_limit, "dropped": dropped},
            "first_dropped": first,
            **record(),
            "sha256": {name: sha256(folder / name) for name in (SOURCE, TARGET)},
        }
        write_json(folder / MANIFEST, manifest)
        put_in_place(folder, output)
    return manifest
