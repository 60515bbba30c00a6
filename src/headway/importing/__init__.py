"""Runs of models that others have trained: formats that are read, and the run folder that becomes of each."""

from typing import TYPE_CHECKING

from headway.core.registry import Registry

if TYPE_CHECKING:
    from headway.importing.importer import Importer

IMPORTERS: "Registry[Importer]" = Registry(
    "importer",
    "headway.importing.importer:Importer",
    {
        "marian": "headway.importing.marian_import:MarianImporter",
        "hf": "headway.importing.huggingface_import:HuggingFaceImporter",
    },
)
