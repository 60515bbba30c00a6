"""Lines that name recordings, for the commands that read speech."""

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from headway.errors import UserError
from headway.formats.corpus_config import AnyCorpus, parts
from headway.formats.pair_formats import field_of

AUDIO_FIELD = "audio"  # of a JSON line on standard input


def recording_paths(corpus: AnyCorpus, lines: Iterable[str], origin: str, folder: Path = Path()) -> Iterator[str]:
    """The recordings that lines name: paths, rows of a TSV manifest or JSON lines, as in a run's `corpus`.

    A blank line names none, and is passed on, so that its output is empty.

    Args:
        corpus: what the run was trained on, with the columns or fields of its manifest.
        lines: one recording each.
        origin: where they come from, for errors.
        folder: what paths are relative to.

    Raises:
        UserError: a line without a path, or a header without the column.
    """
    _, first = parts(corpus, "data.train")[0]
    name = (getattr(first, "columns", None) or (1,))[0]
    index = name - 1 if isinstance(name, int) else 0
    field = name if isinstance(name, str) else AUDIO_FIELD
    for number, line in enumerate(lines, start=1):
        cells, where = line.split("\t"), f"{origin}:{number}"
        if number == 1 and isinstance(name, str) and not line.startswith("{"):
            if name in cells:
                index = cells.index(name)
                continue
            if len(cells) > 1 and first.kind == "tsv":
                raise UserError("no column has this name", where=where, received=name, allowed=cells)
        path = _recording_in(line, cells[index : index + 1] if len(cells) > 1 else cells, field, where)
        yield str(folder / path) if line.strip() else ""


def _recording_in(line: str, cells: Sequence[str], field: str, where: str) -> str:
    """The path in a line of JSON, or in the one cell that holds it; empty in a blank line. Raises UserError."""
    try:
        path = field_of(json.loads(line), field, where) if line.startswith("{") else "".join(cells)
    except (ValueError, RecursionError) as error:
        raise UserError(f"this line is not JSON ({error})", where=where, received=line) from error
    if line.strip() and not path.strip():
        raise UserError("this line names no recording", where=where, received=line)
    return path.strip()
