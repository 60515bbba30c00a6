"""Models of Firefox's translation engine: model.*.bin with vocab.*.spm. The shortlist is not needed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from headway.core.documents import read_bytes
from headway.core.errors import UserError, option
from headway.core.languages import is_language
from headway.importing.importer import Imported, Importer
from headway.processing.firefox_files import PARTS, check_parts
from headway.processing.marian_binary import EMBEDDING, read_items
from headway.processing.marian_npz import TABLES, read_options, read_vocabularies
from headway.processing.shortlist import read_shortlist
from headway.tasks.marian_transformer import marian_section, weights_of
from headway.tasks.student import ENGINE_OPTIONS, factors_of, float_arrays

# The codes of both sides, as in model.ende.intgemm.alphas.bin; a code of three letters stands beside English.
LANGUAGES = re.compile(r"\.(?:(en)([a-z]{2,3})|([a-z]{2,3})(en)|([a-z]{2})([a-z]{2}))\.")


class FirefoxImporter(Importer):
    """Students with quantized integer weights."""

    name = "firefox"
    places = "MODEL.bin, then VOCAB.spm or that of source and of target, and LEX.s2t.bin"

    def read(self, places: Sequence[str]) -> Imported:
        files = list(map(Path, places))
        lists = [file for file in files if file.name.endswith(".s2t.bin")]
        models = [file for file in files if file.suffix == ".bin" and file not in lists]
        if len(models) != 1 or len(lists) > 1 or any(file.suffix in TABLES for file in files):
            what = "one model is imported at a time, with SentencePiece models"
            raise UserError(what, where=option("places"), received=" ".join(places), allowed=self.places)
        (model,), where = models, str(models[0])
        vocabularies = [file for file in files if file not in (model, *lists)]
        if named := [part for file in vocabularies if (part := file.name.partition(".")[0]) in PARTS]:
            check_parts(["model", *named], " ".join(places))
        items = read_items(_content(model), where)
        arrays = float_arrays(items)
        shared = EMBEDDING in arrays
        options = {**ENGINE_OPTIONS, "tied-embeddings-all": shared, "tied-embeddings": not shared}
        options |= read_options(arrays, model)
        section = marian_section(options, arrays, model)
        source, target = read_vocabularies(sorted(vocabularies, key=lambda file: file.name.startswith("trgvocab.")))
        for file in lists:
            read_shortlist(_content(file), max(source.rows) + 1, str(file), targets=max(target.rows) + 1)
        sides = source.vocabulary, target.vocabulary
        sections: dict[str, Any] = {
            "model": section,
            "vocabulary": {"kind": "marian", "shared": sides[0].shares_ids_with(sides[1])},
            "decoding": {"beam": 1},
        }
        codes = [code for code in found.groups() if code] if (found := LANGUAGES.search(model.name)) else []
        if codes and all(map(is_language, codes)):
            sections["text"] = {
                side: {"language": code} for side, code in zip(("source", "target"), codes, strict=True)
            }
        weights = partial(weights_of, arrays, (source.rows, target.rows), where)
        return Imported(sections, sides, weights, files, factors=factors_of(items))


def _content(file: Path) -> bytes:
    """The content of a file, read with no more memory than its size. Raises UserError if it does not exist."""
    return read_bytes(file, file.stat().st_size if file.is_file() else 0)
