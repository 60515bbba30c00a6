"""Runs for Hugging Face's transformers, and for its hub.

A Transformer that is one of Marian's becomes a `MarianMTModel` with its tokenizer. A tagger that reads the last layer
of its encoder becomes the encoder's own class for token classification. Everything else stays what it is: the run
itself, weights in safetensors, which headway loads.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from headway.export.exporter import Answering, Exporter
from headway.export.marian_export import marian_refusal, open_marian, write_marian
from headway.export.run_copy import copy_run, open_copy
from headway.export.tagger_export import is_classifier, open_classifier, write_classifier
from headway.models import Tagger
from headway.predictors.run import Run
from headway.registry import import_paths

MARIAN = """```python
from transformers import AutoTokenizer, MarianMTModel

tokenizer, model = AutoTokenizer.from_pretrained(FOLDER), MarianMTModel.from_pretrained(FOLDER)
ids = model.generate(**tokenizer(["..."], return_tensors="pt", padding=True, truncation=True))
print(tokenizer.batch_decode(ids, skip_special_tokens=True))
```

`generate` ranks hypotheses by log probability over length to an exponent, headway by another formula. The exponent in
`generation_config.json` is the nearest."""
CLASSIFIER = """```python
from transformers import pipeline

print(pipeline("token-classification", FOLDER)("..."))
```

A word has the label of its first piece."""
COPY = """```python
import headway

print(headway.load(FOLDER).predict(["..."]))
```"""
WITH_CODE = COPY.replace("FOLDER", "FOLDER, allow_code=True")  # code that is installed


class HuggingFaceExporter(Exporter):
    """A folder for Hugging Face's transformers where it has such a model, else the run itself in safetensors."""

    name = "huggingface"
    extra = "pretrained"
    packages: ClassVar[tuple[str, ...]] = ("transformers",)

    def refusal(self, run: Run) -> str | None:
        return None

    def form(self, run: Run) -> str:
        if isinstance(run.model, Tagger):
            return "AutoModelForTokenClassification" if is_classifier(run) else "a folder for headway.load"
        fault = marian_refusal(run)
        return "MarianMTModel" if fault is None else f"a folder for headway.load: {fault}"

    def write(self, run: Run, folder: Path) -> None:
        if is_classifier(run):
            write_classifier(run, folder)
        elif marian_refusal(run) is None:
            write_marian(run, folder)
        else:
            copy_run(run, folder)

    def open(self, folder: Path, run: Run) -> Answering:
        if is_classifier(run):
            return open_classifier(folder, run)
        return open_marian(folder) if marian_refusal(run) is None else open_copy(folder)

    def usage(self, run: Run) -> str:
        if is_classifier(run):
            return CLASSIFIER
        if marian_refusal(run) is None:
            return MARIAN
        return WITH_CODE if import_paths(run.recipe.model_dump(mode="json")) else COPY

    def card(self, run: Run) -> Mapping[str, Any]:
        library = "transformers" if is_classifier(run) or marian_refusal(run) is None else "headway"
        return {"library_name": library}
