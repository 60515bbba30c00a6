"""The engine of Firefox in Python: greedy search with the files of a firefox export and products of 8-bit integers."""

from __future__ import annotations

import math
from pathlib import Path
from threading import local
from typing import Any, ClassVar

from headway.core.errors import UserError, option
from headway.core.log import say
from headway.export.exporter import text_processors
from headway.export.exporting import prepare_export
from headway.export.firefox_export import FirefoxExporter, translator_of
from headway.export.int8_reference import longest_of
from headway.predictors.backend import Backend, SearchRequest
from headway.predictors.predict_options import PredictOptions
from headway.predictors.predictor import Run
from headway.processing.firefox_files import files_of
from headway.processing.text.subwords import SPACE
from headway.processing.text.text_processor import TextProcessor
from headway.runs.engines import Engine
from headway.search.decoding_options import SearchOptions
from headway.search.limits import Hypothesis


class FirefoxBackend(Backend):
    """Greedy search by the engine, which reads and writes text, and returns no probabilities.

    A translator can only be used by the thread that made it, so each thread has its own.
    """

    name = "firefox"
    lacks: ClassVar[tuple[str, ...]] = (
        "sample", "kind", "capture", "prefixes", "max_source_length", "truncate", "no_repeat_ngram", "min_length",
        "unknown_words",
    )  # fmt: skip

    def __init__(self, folder: Path, source: TextProcessor, target: TextProcessor) -> None:
        self._files, self._source, self._target, self._own = files_of(folder), source, target, local()

    @classmethod
    def check(cls, options: PredictOptions, search: SearchOptions) -> None:
        super().check(options, search)
        given = options.given()
        if given.get("beam", 1) > 1 or options.nbest > 1:
            name = "beam" if given.get("beam", 1) > 1 else "nbest"
            raise UserError("the engine firefox is greedy", where=option(name), received=given[name], allowed="1")
        for name in ("length_penalty", "max_length", "max_length_ratio", "max_length_offset"):
            if name in given:
                what, allowed = "the engine firefox has no such option", f"no {option('engine')}"
                raise UserError(what, where=option(name), received=given[name], allowed=allowed)

    def longest(self, source_length: int) -> int:
        return longest_of(source_length + 1)

    def hypotheses(self, request: SearchRequest) -> list[list[Hypothesis]]:
        found = [self._translator().translate(engine_text(self._source, row.text)) for row in request.rows]
        ids = self._target.encode_lines(found)
        return [
            [Hypothesis(tuple(some), (math.nan,) * (len(some) + 1), math.nan, text)]
            for some, text in zip(ids, found, strict=True)
        ]

    def _translator(self) -> Any:
        if not hasattr(self._own, "translator"):
            self._own.translator = translator_of(self._files)
        return self._own.translator


def engine_text(source: TextProcessor, line: str) -> str:
    """A line prepared for the engine, with SentencePiece's space mark replaced by spaces."""
    return source.prepare(line).replace(SPACE, " ")


class FirefoxEngine(Engine):
    """fxtranslate, on one thread."""

    name, decodes = "firefox", FirefoxBackend
    packages = ("fxtranslate",)

    def export(self, run: Run, folder: Path) -> None:
        exporter = FirefoxExporter()
        prepare_export(exporter, run)
        exporter.write(run, folder)

    def backend(self, folder: Path, run: Run) -> Backend:
        if (truncation := run.recipe.data.truncation()) is not None:
            what = f"the engine firefox reads lines whole, and this run the first {truncation} of a source"
            raise UserError(what, where=option("engine"), received="firefox")
        if (beam := run.recipe.decoding.beam) > 1:
            say(f"the engine firefox is greedy; the recipe's beam of {beam} does not hold")
        return FirefoxBackend(folder, *text_processors(run))
