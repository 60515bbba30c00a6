"""Models of Marian: MODEL.npz with its vocabularies."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from headway.core.errors import UserError
from headway.core.files import exists
from headway.importing.importer import Imported, Importer
from headway.tasks.marian_transformer import read_marian


class MarianImporter(Importer):
    """Transformers that Marian has trained."""

    name = "marian"
    places = "MODEL.npz, then VOCAB.spm or VOCAB.yml, or both, each once or for each side"

    def read(self, places: Sequence[str]) -> Imported:
        files = list(map(Path, places))
        if missing := [file for file in files if not exists(file, "file")]:
            raise UserError("there is no such file", where=str(missing[0]))
        models = [file for file in files if file.suffix == ".npz"]
        if len(models) != 1:
            what = "one model is imported at a time"
            raise UserError(what, received=" ".join(places), allowed=self.places)
        sections, vocabularies, weights = read_marian(models[0], [file for file in files if file not in models])
        return Imported(sections, vocabularies, weights, files)
