"""Exports of trained runs for other engines and libraries: formats, checks that outputs are equal, and model cards."""

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
        "page": "headway.export.page_export:PageExporter",
        "onnx": "headway.export.onnx_export:OnnxExporter",
        "marian": "headway.export.marian_export:MarianExporter",
        "huggingface": "headway.export.huggingface_export:HuggingFaceExporter",
        "firefox": "headway.export.firefox_export:FirefoxExporter",
    },
)
