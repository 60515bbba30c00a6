"""Decode a corpus with a run, or pair it with the outputs of another system, into a new corpus with its provenance.

Backtranslation (Sennrich et al. 2016) reads text in the later model's target language; each line becomes the target of
the run's output. Distillation (Kim and Rush 2016) reads sources; the run's outputs become their targets. The outputs of
another system are read from a file.

Beside the new folder, `.NAME.work` stores decoded chunks until all are complete. A killed process resumes after the
last chunk, and the corpus is the same.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import TypeAdapter

from headway.augment.bulk_options import BulkOptions, DecodedOptions
from headway.core.documents import read_json, shaped
from headway.core.errors import UserError, option
from headway.core.files import sha256, write_json
from headway.core.languages import look_unspaced
from headway.core.log import Progress, progress, say
from headway.core.processes import batched
from headway.core.storage import check_new, locked, put_in_place, workspace
from headway.core.system import sync
from headway.core.version import VERSION
from headway.formats.lines import TextFile, check_file, lines_of
from headway.formats.pairs import SideLines, open_source
from headway.predictors.input_account import accounted
from headway.predictors.predict_options import PredictOptions
from headway.predictors.sequence_predictor import SequencePredictor
from headway.processing.text.text_processor import TextProcessor
from headway.runs.load import AnyPredictor
from headway.runs.run import open_run
from headway.tasks import build_task

Kind = Literal["backtranslate", "distill"]
IDENTITY, MANIFEST = "work.json", "manifest.json"
SOURCE, TARGET = "source.txt", "target.txt"
REASONS = ("empty", "too long for the model", "min_score", "max_ratio")
SHOWN = 5  # lines per reason in the manifest
LARGEST_CHUNK = 2**32  # bytes


class DecodedLine(NamedTuple):
    """A line and the run's output for it.

    Attributes:
        score: the mean log probability per token, including the end mark; 0 if it is not known.
        lengths: the numbers of tokens of both.
        truncated: whether the model could only read a part of the line.
        at_limit: whether the output has the maximum length, so that its end may be missing.
    """

    read: str
    written: str
    score: float
    lengths: tuple[int, int]
    truncated: bool
    at_limit: bool


CHUNK = TypeAdapter(list[DecodedLine])


class ForeignTeacher(NamedTuple):
    """Another system that wrote an output for each line of a file.

    Attributes:
        name: its name in the provenance.
        licence: the terms under which its outputs may be used.
    """

    outputs: Path
    name: str
    licence: str


@dataclass(frozen=True)
class BulkInput:
    """The lines to decode, which can be iterated repeatedly, with a hash of their content and their files."""

    lines: Iterable[str]
    fingerprint: str
    files: Sequence[str]


def decode_corpus(
    kind: Kind, predictor: AnyPredictor, input: Path | None, options: BulkOptions, loaded: dict[str, Any]
) -> dict[str, Any]:
    """Decode a corpus into a new one: `source.txt`, `target.txt` and `manifest.json` in the folder `options.output`.

    Args:
        kind: whether outputs become the sources or the targets of the input lines.
        predictor: of one run, or of several.
        input: a file of lines to decode; by default the sources of the run's training data.
        options: where to write the corpus, how to decode, and which pairs to keep.
        loaded: the options that the runs were loaded with, for the provenance.

    Returns:
        The manifest.

    Raises:
        UserError: the folder exists or has unfinished other work, a run does not read lines of text, a file is missing
            or empty, or no pairs are left.
    """
    output = check_output(options)
    filters = {"min_score": options.min_score, "max_ratio": options.max_ratio}
    if not isinstance(predictor, SequencePredictor) or not isinstance(predictor.source, TextProcessor):
        raise UserError("only models that read and write lines of text decode a corpus", where=option("runs"))
    if predictor.recipe.data.context.most:
        what = "lines that are decoded in bulk stand alone, and this model reads those before them"
        raise UserError(what, where=option("runs"), allowed="a run without data.context")
    given = _input(predictor, input)
    search = options.decoding()
    resolved = PredictOptions(**search).search(predictor.recipe.decoding).model_dump()
    paths = [run.path for run in predictor.runs if run.path is not None]
    runs = [{"run": str(path), "model_sha256": open_run(path).manifest.get("model_sha256")} for path in paths]
    begun: dict[str, Any] = {"command": f"headway augment {kind}", "runs": runs, "loaded": loaded}
    begun |= {"input": given.fingerprint, "decoding": resolved | search, "chunk": options.chunk}
    work = output.absolute().with_name(f".{output.absolute().name}.work")
    if (manifest := _made_before(output, begun | {"filters": filters})) is None:
        total = 0
        with lines_of(input):
            for chunk in batched(given.lines, options.chunk):  # check all lines before any is decoded
                predictor.check_texts(chunk, first_line=total + 1)
                total += len(chunk)
        with ExitStack() as stack:
            _begin(work, begun, output, stack)
            with accounted(), progress(kind, total, "lines", long=True) as shown:
                chunks = _decode(predictor, given, search, options.chunk, work, shown)
            lines = (
                line
                for file in chunks
                for line in shaped(read_json(file, list, "chunk", most=LARGEST_CHUNK), CHUNK, str(file), "the chunk")
            )
            manifest = _write(kind, lines, options, begun | {"files": list(given.files), "filters": filters}, output)
    shutil.rmtree(work, ignore_errors=True)
    _report(manifest, output)
    return manifest


def pair_corpus(kind: Kind, teacher: ForeignTeacher, input: Path, options: DecodedOptions) -> dict[str, Any]:
    """Make a corpus as `decode_corpus` does, from lines and another system's outputs for them.

    Lengths are counted in words, or in characters if a text has no spaces.

    Raises:
        UserError: files are missing or of different lengths, the folder exists, a filter needs probabilities, or no
            pairs are left.
    """
    output = check_output(options)
    if options.min_score is not None:
        what = "the probabilities of another system's outputs are not known"
        raise UserError(what, where=option("min_score"), received=options.min_score)
    files = (input, teacher.outputs)
    pairs = open_source({"source": input, "target": teacher.outputs}, option("outputs"))
    identity = {
        "command": f"headway augment {kind}",
        "teacher": {"name": teacher.name, "licence": teacher.licence},
        "files": [{"path": str(file.absolute()), "sha256": sha256(file)} for file in files],
        "filters": {"max_ratio": options.max_ratio},
    }
    if (manifest := _made_before(output, identity)) is None:
        count = [_counter(texts) for texts in ((pair.source for pair in pairs), (pair.target for pair in pairs))]
        lines = (
            DecodedLine(pair.source, pair.target, 0, (count[0](pair.source), count[1](pair.target)), False, False)
            for pair in pairs
        )
        manifest = _write(kind, lines, options, identity, output)
    _report(manifest, output)
    return manifest


def _counter(texts: Iterable[str]) -> Callable[[str], int]:
    """Return the function that measures such texts: in characters if they are written without spaces, else in words."""
    return len if look_unspaced(texts) else lambda text: len(text.split())


def _report(manifest: dict[str, Any], output: Path) -> None:
    """Log how many pairs a corpus has, and how many were left out."""
    counts = manifest["counts"]
    reasons = ", ".join(f"{reason} ({count:,})" for reason, count in counts["dropped"].items())
    left_out = f"; left out: {reasons}" if reasons else ""
    say(f"{output}: {counts['kept']:,} of {counts['read']:,} pairs are kept{left_out}")
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


def _input(predictor: SequencePredictor, input: Path | None) -> BulkInput:
    if input is not None:
        check_file(input, option("input"))
        return BulkInput(TextFile(input), sha256(input), [str(input.absolute())])
    recipe = predictor.recipe
    build_task(recipe.task).check(recipe)
    corpus = open_source(recipe.data.train, "data.train", recipe.data.broken)
    files = [str(path) for path in corpus.files]
    return BulkInput(SideLines(corpus, "source"), corpus.fingerprint(), files)


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


def _decode(
    predictor: SequencePredictor, given: BulkInput, search: dict[str, Any], size: int, work: Path, shown: Progress
) -> list[Path]:
    """The files of all chunks, in order. Chunks that exist are not decoded again."""
    files, number = list[Path](), 0
    for chunk in batched(given.lines, size):
        file = work / f"{len(files):08d}.json"
        if not file.is_file():
            decoded = []
            predictions = predictor.predict(chunk, first_line=number + 1, truncate=True, **search)
            for read, prediction in zip(chunk, predictions, strict=True):
                best, logs = prediction.hypotheses[0], prediction.hypotheses[0].log_probabilities
                score, lengths = sum(logs) / max(1, len(logs)), (len(prediction.source_tokens), len(best.tokens))
                cut = prediction.truncated and predictor.recipe.data.truncate_source is None
                decoded.append(DecodedLine(read, best.text, score, lengths, cut, prediction.at_limit))
            write_json(file, decoded)
        files.append(file)
        number += len(chunk)
        shown.update(number)
    return files


def _write(
    kind: Kind, lines: Iterable[DecodedLine], options: DecodedOptions, begun: dict[str, Any], output: Path
) -> dict[str, Any]:
    """Write the corpus of the pairs that are kept, atomically."""
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
            "sha256": {name: sha256(folder / name) for name in (SOURCE, TARGET)},
        }
        write_json(folder / MANIFEST, manifest)
        put_in_place(folder, output)
    return manifest
