"""Imports of models that others have trained: the formats, and the run folder that is made from each."""

from typing import TYPE_CHECKING

from headway.core.registry import Registry

if TYPE_CHECKING:
    from headway.importing.importer import Importer

IMPORTERS: "Registry[Importer]" = Registry(
    "importer",
    "headway.importing.importer:Importer",
    {
        "marian": "headway.importing.marian_import:MarianImporter",
        "firefox": "headway.importing.firefox_import:FirefoxImporter",
        "hf": "headway.importing.huggingface_import:HuggingFaceImporter",
    },
)
