"""Models of Firefox's translation engine: model.*.bin with vocab.*.spm. Shortlist and metadata are optional."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import BaseModel, TypeAdapter

from headway.core.documents import read_bytes, read_json, shaped
from headway.core.errors import UserError, option
from headway.core.files import sha256
from headway.core.languages import is_language
from headway.importing.importer import Imported, Importer
from headway.processing.firefox_files import METADATA, PARTS, SHORTLIST, check_parts
from headway.processing.marian_binary import EMBEDDING, read_items
from headway.processing.marian_npz import TABLES, read_options, read_vocabularies
from headway.processing.shortlist import read_shortlist
from headway.tasks.marian_transformer import marian_section, weights_of
from headway.tasks.student import ENGINE_OPTIONS, factors_of, float_arrays

# The codes of both sides, as in model.ende.intgemm.alphas.bin; a code of three letters stands beside English.
LANGUAGES = re.compile(r"\.(?:(en)([a-z]{2,3})|([a-z]{2,3})(en)|([a-z]{2})([a-z]{2}))\.")


class Metadata(BaseModel):
    """The keys of `metadata.json` that are read."""

    hash: str
    sourceLanguage: str  # noqa: N815 - the name in the file
    targetLanguage: str  # noqa: N815
    licences: dict[str, str | None] | None = None


class FirefoxImporter(Importer):
    """Students with quantized integer weights."""

    name = "firefox"
    places = "MODEL.bin, then VOCAB.spm or that of source and of target, LEX.s2t.bin and metadata.json"

    def read(self, places: Sequence[str]) -> Imported:
        read = list(map(Path, places))
        files = [file for file in read if file.name != METADATA]
        lists = [file for file in files if file.name.endswith(SHORTLIST)]
        models = [file for file in files if file.suffix == ".bin" and file not in lists]
        single = len(models) == 1 and len(lists) < 2 and len(read) - len(files) < 2
        if not single or any(file.suffix in TABLES for file in files):
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
        if shared and not sides[0].shares_ids_with(sides[1]):
            what = "this model has one embedding, which needs one vocabulary of both sides"
            raise UserError(what, where=where, received=" ".join(map(str, vocabularies)), allowed="vocab.*.spm")
        sections: dict[str, Any] = {
            "model": section,
            "vocabulary": {"kind": "marian", "shared": sides[0].shares_ids_with(sides[1])},
            "decoding": {"beam": 1},
        }
        codes = [code for code in found.groups() if code] if (found := LANGUAGES.search(model.name)) else []
        described = next((_described(file, model) for file in read if file not in files), None)
        if described is not None:
            codes = [described.sourceLanguage, described.targetLanguage]
        if codes and all(map(is_language, codes)):
            sections["text"] = {
                side: {"language": code} for side, code in zip(("source", "target"), codes, strict=True)
            }
        weights = partial(weights_of, arrays, (source.rows, target.rows), where)
        licences = None if described is None else described.licences
        return Imported(sections, sides, weights, read, factors=factors_of(items), licences=licences, kept=lists)


def _described(file: Path, model: Path) -> Metadata:
    """The metadata of a model. Raises UserError if the file is damaged, or of another model."""
    found = shaped(read_json(file), TypeAdapter(Metadata), str(file))
    if found.hash != (received := sha256(model)):
        what = "this model has another hash than in its metadata"
        raise UserError(what, where=str(model), received=received, allowed=found.hash)
    return found


def _content(file: Path) -> bytes:
    """The content of a file, read with no more memory than its size. Raises UserError if it does not exist."""
    return read_bytes(file, file.stat().st_size if file.is_file() else 0)
