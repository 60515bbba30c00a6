"""CTranslate2 in the place of torch: predictions with the options of headway."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from headway.errors import UserError, option
from headway.export.ctranslate2_export import CTranslate2Exporter
from headway.export.ctranslate2_model import POSITIONS
from headway.export.ctranslate2_search import CTranslate2Search
from headway.export.exporting import check_expressible
from headway.export.tokenizer_files import text_processors, tokens_of
from headway.predictors.backend import Backend, SearchRequest
from headway.predictors.run import Run
from headway.runs.engines import Engine
from headway.search.hypotheses import Hypothesis


class CTranslate2Backend(Backend):
    """Beam search by CTranslate2.

    What may not come next gives its probability to the other tokens there, which changes the ranks of hypotheses. So
    the options that forbid tokens are not offered.
    """

    name = "ctranslate2"
    lacks: ClassVar[tuple[str, ...]] = ("sample", "capture", "no_repeat_ngram", "min_length")

    def __init__(self, search: CTranslate2Search) -> None:
        self._engine = search

    def hypotheses(self, request: SearchRequest) -> list[list[Hypothesis]]:
        search = request.search
        for line, source in zip(request.lines, request.sources, strict=True):
            if len(source) >= POSITIONS:
                what, received = "this line is longer than what the engine ctranslate2 reads", f"{len(source)} tokens"
                allowed = f"up to {POSITIONS - 1}, or no {option('engine')}"
                raise UserError(what, where=f"line {line}", received=received, allowed=allowed)
        limits = replace(request.limits, longest=[min(longest, POSITIONS - 1) for longest in request.limits.longest])
        return self._engine.search(
            request.sources, limits,
            beam=search.beam, alpha=search.length_penalty, count=request.options.nbest,
        )  # fmt: skip


class CTranslate2Engine(Engine):
    """CTranslate2, in float32."""

    name = "ctranslate2"
    packages = ("ctranslate2",)

    def export(self, run: Run, folder: Path) -> None:
        exporter = CTranslate2Exporter()
        check_expressible(exporter, run)
        exporter.write(run, folder)

    def backend(self, folder: Path, run: Run) -> Backend:
        source, target = text_processors(run)
        return CTranslate2Backend(CTranslate2Search(folder, tokens_of(source), tokens_of(target)))
