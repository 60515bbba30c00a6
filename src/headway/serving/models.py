"""The served runs: each with its name, its queues, and the options that a request may set."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Le
from pydantic import Field, create_model

from headway.core.config import Section
from headway.core.errors import UserError, option
from headway.core.languages import UNDETERMINED, is_language
from headway.markup.documents import is_short
from headway.predictors.captured_attention import ALL, AttentionWeights, patterns_of
from headway.predictors.label_predictor import LabelPredictor
from headway.predictors.output import LabelledWords, Output
from headway.predictors.predict_options import CaptureOptions, checked_options
from headway.predictors.predictor import Predictor, Request
from headway.predictors.sentence_translator import fits, usual_aligner
from headway.predictors.sequence_predictor import SequencePredictor
from headway.predictors.word_alignment import Aligner
from headway.processing.audio.audio_processor import AudioProcessor
from headway.serving.batching import MOST_TOKENS, Batcher, Job
from headway.serving.guard import aside
from headway.serving.options import ServeOptions

# Dictionaries are files of the server, and metrics may be files or code. Batch sizes and the treatment of broken
# inputs are decided by the server.
NOT_SERVED = ("dictionary", "utility", "batch_tokens", "skip_broken")
BOUNDS = dict.fromkeys(("min_length", "max_length", "max_length_offset", "no_repeat_ngram"), MOST_TOKENS)
QUICK = 2**12  # cost limit of the queue for quick requests, which do not wait for others
HEADS = 16 * 26  # the number of heads over all layers assumed for a tagger


class TooLargeError(UserError):
    """An error for requests that exceed a limit."""


def check_limit(name: str, what: str, received: int, most: int) -> None:
    """Raise TooLargeError if `received` exceeds the limit `most` called `name`."""
    if received > most:
        what = f"this request exceeds the limit of {what}"
        raise TooLargeError(what, where=name, received=received, allowed=f"up to {most}")


class PredictBody(Section):
    """A request for the outputs of one model; what else stands in it are options of prediction."""

    model: str = Field(description="The name of the model.")
    inputs: str | tuple[str, ...] = Field(description="A text, or several.")
    alignment: bool = Field(
        default=False, description="Say how much each word of an output looked at each that was read."
    )
    api_key: str = Field(default="", description="The API key; a header `Authorization: Bearer KEY` is as good.")


def predict_body(name: str, kind: type[CaptureOptions], limits: ServeOptions) -> type[PredictBody]:
    """The request model of a served run: all options of its predictor that cannot reach files, with limits."""
    bounds = {**BOUNDS, **dict.fromkeys(("beam", "nbest", "samples"), limits.beam), "max_length_ratio": 10}
    declared: dict[str, Any] = {"model": (str, Field(description="The model.", json_schema_extra={"enum": [name]}))}
    for key, given in kind.model_fields.items():
        if key not in NOT_SERVED:
            kept: Any = float | None if key == "threshold" else given.annotation | None  # type: ignore[operator]
            marks = [*given.metadata, *([Le(bounds[key])] if key in bounds else [])]
            extra = given.json_schema_extra if isinstance(given.json_schema_extra, Mapping) else {}
            usual = extra.get("default_text") or given.default
            told = f"{given.description} Default: {usual}." if usual not in (None, (), "") else given.description
            declared[key] = (Annotated[(kept, *marks)] if marks else kept, Field(default=None, description=told))
    return create_model(f"Predict {name}", __base__=PredictBody, **declared)


class ServedModel:
    """A served run.

    Args:
        name: its name in requests.
        predictor: the loaded run.
        direction: the languages of a translation; None for other tasks.
        limits: the limits of a request.
    """

    def __init__(
        self, name: str, predictor: Predictor[Any, Any], direction: tuple[str, str] | None, limits: ServeOptions
    ) -> None:
        self.name, self.predictor, self.direction = name, predictor, direction
        self.task = predictor.recipe.task
        self.body = predict_body(name, predictor.Options, limits)
        self.limits = limits
        self.batchers = [Batcher(predictor, predictor.recipe.decoding.batch_tokens) for _ in range(2)]
        self.aligner: Aligner | None = None
        self.fits: Callable[[str], bool] = is_short
        self.greedy = False  # an engine without n-best lists
        if isinstance(predictor, SequencePredictor):
            self.aligner, self.fits = usual_aligner(predictor), partial(fits, predictor)
            try:
                predictor.request([], predictor.Options(beam=2, nbest=2), 1)
            except UserError:
                self.greedy = True

    def options(self, body: PredictBody) -> CaptureOptions:
        """The options of a request. Raises UserError if they conflict."""
        given = {name: getattr(body, name) for name in body.model_fields_set - PredictBody.model_fields.keys()}
        options = checked_options(self.predictor.Options, None, {k: v for k, v in given.items() if v is not None})
        if not body.alignment:
            return options
        if self.aligner is None:
            raise UserError("this model has no attention to the source", where="alignment", received=True)
        if options.capture == ALL:
            return options
        return options.model_copy(update={"capture": (*patterns_of(options.capture), self.aligner.layer)})

    async def outputs(self, inputs: Sequence[str], options: CaptureOptions, most: int | None = None) -> list[Output]:
        """The outputs for inputs, with at most `most` attention weights. Raises UserError, TooLargeError."""
        jobs = await aside(inputs, lambda: self._jobs(inputs, options, most or self.limits.weights))
        futures = [asyncio.wrap_future(job.outputs) for job in jobs]
        self.batchers[sum(job.cost for job in jobs) > QUICK].submit(jobs)
        try:
            return [output for some in await asyncio.gather(*futures) for output in some]
        finally:
            for each in futures:
                each.cancel()

    def _jobs(self, inputs: Sequence[str], options: CaptureOptions, most_weights: int) -> list[Job]:
        jobs = self.batchers[0].encoded(inputs, options)
        check_limit("work", "inputs x hypotheses x longest output", sum(job.work for job in jobs), self.limits.work)
        if options.capture:
            weights = sum(self._weights(job.request) for job in jobs)
            check_limit("weights", "attention weights, which grow with max_length", weights, most_weights)
        return jobs

    def _weights(self, request: Request) -> int:
        """The largest number of attention weights that the answer to a request may have."""
        if not isinstance(self.predictor, SequencePredictor):
            return sum(len(row.encoded.values) ** 2 for row in request.rows) * HEADS
        shapes, total = self.predictor.attention_shapes(request.options.capture), 0
        for row in request.rows:
            lengths = {"source": len(row.encoded.values) + 1, "target": row.longest + 1}
            lengths["both"] = sum(lengths.values())
            for name, (heads, _, columns) in shapes.items():
                axes = self.predictor.models[0].attention_axes(name)
                total += heads * lengths[axes.queries] * lengths.get(axes.keys, columns)
        return total

    def answer(self, output: Output, body: PredictBody) -> dict[str, Any]:
        """An output as a JSON object."""
        hypotheses = [
            {
                "text": each.text, "score": each.score, "tokens": each.tokens,
                "log_probabilities": each.log_probabilities,
            }
            for each in output.hypotheses
        ]  # fmt: skip
        answer: dict[str, Any] = {"text": output.text, "hypotheses": hypotheses}
        answer |= {"source_tokens": output.source_tokens, "truncated": output.truncated, "at_limit": output.at_limit}
        if isinstance(output, LabelledWords):
            columns = zip(output.names, output.probabilities.T.astype(float).round(6).tolist(), strict=True)
            answer |= {"words": output.words, "labels": output.labels, "probabilities": dict(columns)}
            answer["attention"] = [attention_values(window) for window in output.windows]
        elif getattr(body, "capture", None):
            answer["attention"] = attention_values(output.attention)
        if body.alignment and self.aligner is not None:
            record = self.aligner(output).record(0)
            answer["alignment"] = {key: record[key] for key in ("source_words", "target_words", "weights")}
        return answer


def attention_values(attention: AttentionWeights) -> dict[str, Any]:
    """Attention as a JSON object: by name its rows, columns, and weights by head, row and column."""
    return {
        name: {
            "rows": attention.rows[name], "columns": attention.columns[name],
            "weights": weights.astype(float).round(6).tolist(),
        }
        for name, weights in attention.items()
    }  # fmt: skip


def named_runs(words: Sequence[str]) -> list[tuple[str | None, Path]]:
    """The names (None by default) and paths of runs in the form `NAME=RUN` or `RUN`."""
    pairs = [(None, word) if Path(word).exists() or "=" not in word else word.split("=", 1) for word in words]
    return [(name, Path(run)) for name, run in pairs]


def direction_of(name: str) -> tuple[str, str] | None:
    """The two languages of a name such as `en-de` or `en-pt-BR`; None if the name has no such form."""
    parts = name.split("-")
    cuts = [("-".join(parts[:cut]), "-".join(parts[cut:])) for cut in range(1, len(parts))]
    return next((pair for pair in cuts if all(map(is_language, pair))), None)


def served_model(name: str | None, path: Path, predictor: Predictor[Any, Any], limits: ServeOptions) -> ServedModel:
    """Prepare a run for serving. Raises UserError if it reads speech, or translates between unknown languages."""
    recipe, direction = predictor.recipe, None
    if isinstance(predictor.runs[0].source, AudioProcessor):
        raise UserError("a server reads text, and this run speech", where=str(path), received=recipe.task)
    if not isinstance(predictor, SequencePredictor | LabelPredictor):
        raise UserError("the predictor of this task is not served", where=str(path), received=recipe.task)
    if recipe.task == "translation":
        sides = recipe.text.source.language, recipe.text.target.language
        direction = direction_of(name or "") or sides
        if direction[0] == direction[1] or UNDETERMINED in direction:
            what = "the recipe of this run does not say from which language it translates into which"
            if name:
                wrong = [part for part in name.split("-") if not is_language(part)]
                what += f", and {wrong[0]!r} of this name is no language" if wrong else ", and neither does this name"
            raise UserError(
                what,
                where=str(path),
                received=name or f"{sides[0]} and {sides[1]}",
                allowed=f"en-de={path}, or text.source.language and text.target.language in its recipe",
            )
    name = name or ("-".join(direction) if direction else path.resolve().name)
    return ServedModel(name, predictor, direction, limits)


def check_names(models: Sequence[ServedModel]) -> None:
    """Raise UserError if two models have the same name."""
    names = [model.name for model in models]
    if twice := [name for name in names if names.count(name) > 1]:
        raise UserError("two runs have this name", where="RUN", received=twice[0], allowed=f"{option('name')}=RUN")
