"""Trained runs for other people's engines and libraries: formats, the proof that they answer alike, and cards."""

from headway.export.exporter import Exporter
from headway.registry import Registry

__all__ = ["EXPORTERS", "Exporter"]

EXPORTERS: Registry[Exporter] = Registry(
    "exporter",
    "headway.export.exporter:Exporter",
    {
        "huggingface": "headway.export.huggingface_export:HuggingFaceExporter",
    },
)
