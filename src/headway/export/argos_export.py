"""Runs as packages for Argos Translate and LibreTranslate.

A package is a zip file of one folder: a model for CTranslate2, one SentencePiece model, and the package's metadata.
Argos Translate tokenizes sources and detokenizes outputs with the same SentencePiece model.
"""

from __future__ import annotations

import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from headway.core.errors import UserError, option
from headway.core.files import write_bytes, write_json
from headway.core.languages import language_name
from headway.core.log import warn
from headway.export.ctranslate2_export import CTranslate2Exporter, answering_by_ctranslate2
from headway.export.export_options import ArgosOptions, CTranslate2Options
from headway.export.exporter import (
    Answer,
    Answering,
    Exporter,
    Search,
    language_codes,
    sentencepiece_fault,
    sentencepiece_of,
    text_processors,
)
from headway.predictors.predictor import Run
from headway.processing.text.subwords import SPACE
from headway.processing.text.text_processor import undetermined

ENDING = ".argosmodel"
MODEL = "model"
SENTENCEPIECE = "sentencepiece.model"
SENTENCES = "minisbd"
ARGOS_VERSION = "1.9.0"  # the first version of Argos Translate that reads these packages

USAGE = """```python
from argostranslate import package, translate  # pip install argostranslate

package.install_from_path("FILE.argosmodel")  # or drop the file into LibreTranslate's package folder
print(translate.translate("...", "FROM", "TO"))
```

Argos Translate ranks hypotheses by another length penalty than headway, and writes underscores as spaces."""


class ArgosExporter(Exporter):
    """A package that Argos Translate and LibreTranslate install."""

    Config: ClassVar = ArgosOptions
    name = "argos"
    packages: ClassVar[tuple[str, ...]] = ("ctranslate2",)
    config: ArgosOptions

    @property
    def exact(self) -> bool:
        return self._engine().exact

    def refusal(self, run: Run) -> str | None:
        for processor in (run.source, run.target):
            if (fault := sentencepiece_fault(processor)) is not None:
                return fault
        for side in undetermined(run.recipe.text):
            return f"a package is named by its languages, and text.{side}.language names none"
        return self._engine().refusal(run)

    def form(self, run: Run) -> str:
        return f"{package_name(run, self.config)}{ENDING}"

    def write(self, run: Run, folder: Path) -> None:
        model, (source, target) = self.config.sentence_model, language_codes(run)
        if model is not None and not model.is_file():
            raise UserError("there is no such file", where=option("sentence_model"), received=str(model))
        if source == target:
            warn(f"text.source.language and text.target.language are both {source}, as the package's are")
        folder.mkdir()
        name = package_name(run, self.config)
        with tempfile.TemporaryDirectory(dir=folder.parent) as space:
            package = Path(space) / name
            package.mkdir()
            self._engine().write_model(run, package / MODEL)
            write_bytes(package / SENTENCEPIECE, sentencepiece_of(run.source))
            metadata = {
                "package_version": self.config.package_version,
                "argos_version": ARGOS_VERSION,
                "from_code": source,
                "from_name": language_name(source),
                "to_code": target,
                "to_name": language_name(target),
                "type": "translate",
            }
            write_json(package / "metadata.json", metadata)
            if model is not None:
                (package / SENTENCES).mkdir()
                write_bytes(package / SENTENCES / model.with_suffix(".onnx").name, model.read_bytes())
            with zipfile.ZipFile(folder / f"{name}{ENDING}", "w", zipfile.ZIP_DEFLATED) as archive:
                for file in sorted(package.rglob("*")):
                    archive.write(file, file.relative_to(space))

    def finish(self, run: Run, folder: Path, card: str) -> None:
        """Add the model card, which Argos Translate shows as the description."""
        name = package_name(run, self.config)
        with zipfile.ZipFile(folder / f"{name}{ENDING}", "a", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(f"{name}/README.md", card)

    def open(self, folder: Path, run: Run) -> Answering:
        import sentencepiece

        name = package_name(run, self.config)
        with tempfile.TemporaryDirectory() as space:
            with zipfile.ZipFile(folder / f"{name}{ENDING}") as archive:
                archive.extractall(space)
            package = Path(space) / name
            reader = sentencepiece.SentencePieceProcessor(model_file=str(package / SENTENCEPIECE))
            answering = answering_by_ctranslate2(package / MODEL, *text_processors(run), run)

        def joined(tokens: Sequence[str]) -> str:
            text: str = reader.decode_pieces(list(tokens)).replace(SPACE, " ").replace("_", " ")
            return text.removeprefix(" ")

        def answer(lines: Sequence[str], search: Search) -> list[list[Answer]]:
            found = answering(lines, search)
            return [[each._replace(text=joined(each.tokens)) for each in answers] for answers in found]

        return answer

    def usage(self, run: Run) -> str:
        source, target = language_codes(run)
        names = {"FILE": package_name(run, self.config), "FROM": source, "TO": target}
        text = USAGE
        for old, new in names.items():
            text = text.replace(old, new)
        return text

    def _engine(self) -> CTranslate2Exporter:
        return CTranslate2Exporter(CTranslate2Options(quantization=self.config.quantization))


def package_name(run: Run, config: ArgosOptions) -> str:
    """The name of a package, in the format of the Argos index."""
    return "translate-{}_{}-{}".format(*language_codes(run), config.package_version.replace(".", "_"))
