"""Trained runs for other people's engines and libraries: formats, the proof that they answer alike, and cards."""

from typing import TYPE_CHECKING

from headway.core.registry import Registry

if TYPE_CHECKING:
    from headway.export.exporter import Exporter

EXPORTERS: "Registry[Exporter]" = Registry(
    "exporter",
    "headway.export.exporter:Exporter",
    {
        "ctranslate2": "headway.export.ctranslate2_export:CTranslate2Exporter",
        "argos": "headway.export.argos_export:ArgosExporter",
        "onnx": "headway.export.onnx_export:OnnxExporter",
        "marian": "headway.export.marian_export:MarianExporter",
        "huggingface": "headway.export.huggingface_export:HuggingFaceExporter",
    },
)
