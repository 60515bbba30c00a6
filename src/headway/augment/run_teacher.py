"""A run, or an ensemble of runs, as a teacher."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

from headway.augment.bulk_input import BulkInput
from headway.augment.bulk_options import BulkOptions
from headway.augment.teacher import DecodedLine, Teacher
from headway.core.errors import UserError, option
from headway.formats.pairs import SideLines, open_source
from headway.predictors.input_account import accounted
from headway.predictors.predict_options import PredictOptions
from headway.predictors.sequence_predictor import SequencePredictor
from headway.processing.text.text_processor import TextProcessor
from headway.runs.load import AnyPredictor
from headway.runs.run import open_run
from headway.tasks import build_task


class RunTeacher(Teacher):
    """Decodes lines with a predictor.

    Args:
        predictor: of one run, or of several.
        options: how to decode.
        loaded: the options that the runs were loaded with, for the provenance.

    Raises:
        UserError: a run does not read single lines of text.
    """

    scores: ClassVar[bool] = True

    def __init__(self, predictor: AnyPredictor, options: BulkOptions, loaded: dict[str, Any]) -> None:
        if not isinstance(predictor, SequencePredictor) or not isinstance(predictor.source, TextProcessor):
            raise UserError("only models that read and write lines of text decode a corpus", where=option("runs"))
        if predictor.recipe.data.context.most:
            what = "lines that are decoded in bulk stand alone, and this model reads those before them"
            raise UserError(what, where=option("runs"), allowed="a run without data.context")
        self.predictor, self.search = predictor, options.decoding()
        resolved = PredictOptions(**self.search).search(predictor.recipe.decoding).model_dump()
        paths = [run.path for run in predictor.runs if run.path is not None]
        runs = [{"run": str(path), "model_sha256": open_run(path).manifest.get("model_sha256")} for path in paths]
        if loaded.get("precision", "") is None:
            fixed = predictor.recipe.training.int8_rounding == "fixed"
            loaded = {**loaded, "precision": "fixed" if fixed else "float32"}
        self.identity = {"runs": runs, "loaded": loaded, "decoding": resolved | self.search}

    def trained_on(self) -> BulkInput:
        """The sources of the run's training data."""
        recipe = self.predictor.recipe
        build_task(recipe.task).check(recipe)
        corpus = open_source(recipe.data.train, "data.train", recipe.data.broken)
        return BulkInput(SideLines(corpus, "source"), corpus.fingerprint(), {"files": list(map(str, corpus.files))})

    def check(self, chunks: Iterable[list[str]]) -> int:
        total = 0
        for chunk in chunks:
            self.predictor.check_texts(chunk, first_line=total + 1)
            total += len(chunk)
        return total

    def write(self, chunks: Iterable[list[str]], first_line: int) -> Iterator[list[DecodedLine]]:
        truncates = self.predictor.recipe.data.truncate_source is not None
        with accounted():
            for chunk in chunks:
                decoded = []
                predictions = self.predictor.predict(chunk, first_line=first_line, truncate=True, **self.search)
                for read, prediction in zip(chunk, predictions, strict=True):
                    best, logs = prediction.hypotheses[0], prediction.hypotheses[0].log_probabilities
                    score, lengths = sum(logs) / max(1, len(logs)), (len(prediction.source_tokens), len(best.tokens))
                    cut = prediction.truncated and not truncates
                    decoded.append(DecodedLine(read, best.text, score, lengths, cut, prediction.at_limit))
                yield decoded
                first_line += len(chunk)
