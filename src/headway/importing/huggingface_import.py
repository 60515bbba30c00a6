"""Models of Hugging Face's hub, or of folders in its arrangement."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import ClassVar

from headway.core.errors import UserError, option
from headway.importing.importer import Imported, Importer
from headway.processing.marian_files import (
    PREFIX,
    marian_folder,
    marian_section,
    marian_vocabulary,
    read_config,
    read_tokenizers,
)
from headway.tasks.marian import marian_weights


class HuggingFaceImporter(Importer):
    """Marian models, such as those of OPUS-MT."""

    name = "hf"
    places = "NAME_OR_FOLDER"
    extra = "pretrained"
    packages: ClassVar[tuple[str, ...]] = ("huggingface_hub",)

    def read(self, places: Sequence[str]) -> Imported:
        if len(places) > 1:
            what = "one model is imported at a time"
            raise UserError(what, where=option("places"), received=" ".join(places), allowed=self.places)
        folder = marian_folder(f"{PREFIX}{places[0]}")
        config, tokenizers = read_config(folder), read_tokenizers(folder)
        files = [path for path in sorted(folder.iterdir()) if path.suffix in (".json", ".spm", ".safetensors")]
        return Imported(
            {"model": marian_section(config), "vocabulary": marian_vocabulary(config)},
            (tokenizers.source, tokenizers.target),
            partial(marian_weights, folder),
            files,
        )
