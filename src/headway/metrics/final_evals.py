"""Final evaluations as files in the layout of the training pipeline of Firefox's models.

A folder DIR/SOURCE-TARGET/DATASET/TRANSLATOR/MODEL/TIME has the translations, and two files for each metric: the score
of the whole test set, and the scores of its segments. `latest` beside TIME is a copy of the last one.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from headway.core.errors import UserError, option
from headway.core.files import write_json
from headway.core.languages import base_language
from headway.core.storage import put_in_place, workspace
from headway.core.tables import Cell, Column, Table
from headway.metrics.metric import Metric

LATEST = "latest"
UNSPACED = {"zh", "ja", "ko"}  # the pipeline does not measure BLEU of words in these languages
TOKENIZER = "flores200"  # of spBLEU
ELSEWHERE = "no metric of headway"


class Evaluated(NamedTuple):
    """A test set, and a system's translations of it. `pair` is the languages, such as en-ast."""

    pair: str
    dataset: str
    translator: str
    model: str
    sources: Sequence[str]
    translations: Sequence[str]
    references: Sequence[str]


class Measured(NamedTuple):
    """The score of a test set, what describes it, and the scores of the segments."""

    score: float
    details: Mapping[str, Any]
    segments: Sequence[float]


def write_final_evals(folder: Path, test: Evaluated, comet: Metric | None = None) -> Table:
    """Write the evaluation of a system. Returns a table of the scores, and of the reasons why a metric has none.

    Args:
        folder: the folder of all evaluations.
        test: the test set and its translations.
        comet: the COMET metric of the pipeline, if its model is there.

    Raises:
        UserError: the files have different numbers of lines, or a name cannot be that of a folder.
    """
    counts = {"source": len(test.sources), "hypotheses": len(test.translations), "references": len(test.references)}
    if len(set(counts.values())) > 1:
        raise UserError("each source needs one hypothesis and one reference", where=option("source"), received=counts)
    named = {"pair": test.pair, "dataset": test.dataset, "translator": test.translator, "model": test.model}
    for name, text in named.items():
        if text in ("", "..") or Path(text).name != text:
            raise UserError("this becomes the name of a folder", where=option(name), received=text)
    found = {name: measure(test, comet) for name, measure in METRICS.items()}
    place = folder.joinpath(*named.values())
    columns = zip(test.sources, test.translations, test.references, strict=True)
    files: dict[str, Any] = {"translations": [dict(zip(("src", "trg", "ref"), row, strict=True)) for row in columns]}
    for name, result in found.items():
        if isinstance(result, Measured):
            files[f"{name}.metrics"] = {"score": result.score, "details": result.details}
            files[f"{name}.scores"] = result.segments
    for time in (datetime.now(UTC).strftime("%Y-%m-%dT%H-%M-%S"), LATEST):
        with workspace(place, place / time) as space:
            (built := space / time).mkdir()
            for name, content in files.items():
                write_json(built / f"{name}.json", content)
            shutil.rmtree(place / time, ignore_errors=True)
            put_in_place(built, place / time)
    rows: list[list[Cell]] = [
        [name, result.score, ""] if isinstance(result, Measured) else [name, None, result]
        for name, result in found.items()
    ]
    return Table(["metric", Column("score", format=".2f"), "not measured"], rows, title=" · ".join(named.values()))


def _by_sacrebleu(test: Evaluated, metric: Any) -> Measured:
    whole = metric.corpus_score(test.translations, [test.references])
    details = json.loads(whole.format(signature=metric.get_signature().format(), is_json=True))
    pairs = zip(test.translations, test.references, strict=True)
    return Measured(whole.score, details, [metric.sentence_score(text, [wanted]).score for text, wanted in pairs])


def _chrf(test: Evaluated, comet: Metric | None, order: int = 0) -> Measured:
    from sacrebleu.metrics.chrf import CHRF

    return _by_sacrebleu(test, CHRF(word_order=order))


def _bleu(test: Evaluated, comet: Metric | None) -> Measured | str:
    from sacrebleu.metrics.bleu import BLEU

    if unspaced := UNSPACED & set(map(base_language, test.pair.split("-"))):
        return f"not of words in {', '.join(sorted(unspaced))}"
    return _by_sacrebleu(test, BLEU(effective_order=True))


def _spbleu(test: Evaluated, comet: Metric | None) -> Measured | str:
    """BLEU of the pieces of a tokenizer that is not downloaded here."""
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.tokenizers.tokenizer_spm import SPM_MODELS
    from sacrebleu.utils import SACREBLEU_DIR

    file = Path(SACREBLEU_DIR, "models", Path(SPM_MODELS[TOKENIZER]["url"]).name)
    if not file.is_file():
        return f"{file} is missing; sacrebleu fetches it for its tokenizer {TOKENIZER}"
    return _by_sacrebleu(test, BLEU(effective_order=True, tokenize=TOKENIZER))


def _comet(test: Evaluated, comet: Metric | None) -> Measured | str:
    if comet is None:
        return "its model is not named: metric comet:model=hf:Unbabel/wmt22-comet-da"
    counted = comet.counted(test.translations, [test.references], test.sources)
    segments = [float(score) / 100 for score in comet.segment_scores(counted)]
    score = comet.scored(counted)
    return Measured(score.value / 100, {"signature": str(score.signature)}, segments)


METRICS: dict[str, Callable[[Evaluated, Metric | None], Measured | str]] = {
    "chrf": _chrf,
    "chrfpp": lambda test, comet: _chrf(test, comet, order=2),
    "bleu": _bleu,
    "spbleu": _spbleu,
    "comet22": _comet,
    "metricx24": lambda test, comet: ELSEWHERE,
    "metricx24-qe": lambda test, comet: ELSEWHERE,
}
