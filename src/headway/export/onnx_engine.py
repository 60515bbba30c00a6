"""onnxruntime in the place of torch: predictions with the options of headway."""

from __future__ import annotations

from pathlib import Path

import torch

from headway.export.exporting import check_expressible
from headway.export.onnx_export import OnnxBackend, OnnxExporter
from headway.export.onnx_search import OnnxModel
from headway.predictors.backend import Backend
from headway.predictors.run import Run
from headway.runs.engines import Engine


class OnnxEngine(Engine):
    """onnxruntime, in float32, on the CPU."""

    name = "onnx"
    packages = OnnxExporter.packages

    def export(self, run: Run, folder: Path) -> None:
        exporter = OnnxExporter()
        check_expressible(exporter, run)
        exporter.write(run, folder)

    def backend(self, folder: Path, run: Run) -> Backend:
        return OnnxBackend(OnnxModel(folder), torch.device("cpu"))
