"""From raw lines (or recordings) to predictions, and from given targets to their scores, with a run's model.

Shapes: K heads, S positions of the memory, such as the source tokens with the end mark, T target tokens with theirs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel
from torch import Tensor

from headway.errors import UserError, memory_named, option
from headway.formats.lines import check_texts
from headway.models import Seq2Seq
from headway.predictors.backend import Backend, SearchRequest, TorchBackend
from headway.predictors.captured_attention import ALL, patterns_of
from headway.predictors.formatter import Formatter, TreeFormatter
from headway.predictors.input_account import TARGETS, accounted
from headway.predictors.predict_options import Capture, PredictOptions, SpeechOptions, TreeOptions, checked_options
from headway.predictors.prediction import Prediction, TextHypothesis
from headway.predictors.predictor import SMALLER_BATCHES, Predictor, batches
from headway.predictors.run import Run
from headway.predictors.unknown_words import UnknownWords, unknown_words
from headway.processing.audio.audio_files import Recording
from headway.processing.processor import NO_WORDS, Encoded
from headway.processing.text.text_processor import TextProcessor
from headway.search.beam import Ensemble
from headway.search.decoding_options import SearchOptions
from headway.search.limits import Hypothesis, Limits, check_scores, length_penalty
from headway.tensors.batch import UNKNOWN, Batch, collate


@dataclass(frozen=True)
class PredictionRequest:
    """Some inputs on their way through a predictor.

    Attributes:
        sources: the inputs, encoded; one that is skipped has no values.
        problems: by row, why an input is skipped.
        prefixes: the ids that each output begins with.
        search: the options of search, those of the recipe included.
        unknown: what replaces unknown words; None where they are kept.
    """

    raw: Sequence[Any]
    sources: Sequence[Encoded]
    problems: Mapping[int, str]
    prefixes: Sequence[Sequence[int]]
    options: PredictOptions
    search: SearchOptions
    formatter: Formatter
    first_line: int
    unknown: UnknownWords | None


class SequencePredictor(Predictor[Recording, Prediction]):
    """One model that writes token by token, or an ensemble, with the processors of its first run.

    Its inputs are lines of text or, where the model reads speech, recordings (see `audio_files.Recording`).

    Raises:
        UserError: runs with different vocabularies.
    """

    Options: ClassVar[type[PredictOptions]] = PredictOptions

    def __init__(self, runs: Sequence[Run], device: torch.device) -> None:
        super().__init__(runs, device)
        first, target = runs[0], runs[0].target
        if not isinstance(target, TextProcessor):
            raise TypeError("outputs are decoded by a TextProcessor")
        self.source, self.target = first.source, target
        for number, run in enumerate(runs[1:], start=2):
            if not (run.source.same(first.source) and run.target.same(first.target)):
                raise UserError("runs that are averaged prepare text alike, with one vocabulary", where=f"run {number}")
        self.models: list[Seq2Seq] = [run.model for run in runs if isinstance(run.model, Seq2Seq)]
        self.backend: Backend = TorchBackend(self.models[0] if len(runs) == 1 else Ensemble(self.models), device)

    def formatter(self, options: PredictOptions) -> Formatter:
        """The way from lines to the model's text and back; tasks whose lines are more than that have their own."""
        return Formatter()

    def predict(
        self,
        inputs: Recording | Sequence[Recording],
        options: BaseModel | None = None,
        *,
        first_line: int = 1,
        **keywords: Any,
    ) -> list[Prediction]:
        """Outputs for lines, in their order; an empty line gives an empty prediction.

        Args:
            inputs: raw text or, where the model reads speech, recordings; one text, or path, is one line.
            options: how to decode; `headway.predictors.predict_options.PredictOptions` lists all.
            first_line: the number of the first line, for messages and random streams.
            keywords: single options by name (`beam=1`, `capture="all"`).

        Raises:
            UserError: a line that is too long, or options that do not go together.
        """
        raw = _each(inputs)
        request = self._request(raw, checked_options(self.Options, options, keywords), first_line)
        results: list[Prediction | None] = [None] * len(raw)
        lengths = [len(source.values) for source in request.sources]
        for rows in batches(lengths, request.search.batch_tokens, end_marks=1):
            with memory_named(f"in decoding {len(rows)} inputs together", SMALLER_BATCHES):
                limits = self._limits(request, rows)
                lines, sources = [first_line + row for row in rows], [request.sources[row].values for row in rows]
                outputs = self.backend.hypotheses(
                    SearchRequest(sources, limits, lines, request.options, request.search)
                )
                best = [hypotheses[0] for hypotheses in outputs]
                captured = self._capture(sources, best, request.options.capture)
                replaced = self._replace_unknown(request, rows, outputs)
            for row, hypotheses, attention, end in zip(rows, replaced, captured, limits.ends(), strict=True):
                results[row] = self._prediction(
                    raw[row], request.sources[row], hypotheses, attention, request.formatter, end
                )
        with accounted() as account:
            account.read_inputs(self.runs[0], list(map(request.formatter.source, raw)), request.sources, first_line)
        for row in (row for row, result in enumerate(results) if result is None):  # blank, or skipped
            problem = request.problems.get(row)
            empty = TextHypothesis("", 0.0 if problem is None else -math.inf, [], [])
            name, count = self.source.name(raw[row]), request.options.nbest
            results[row] = Prediction(name, [], [empty] * count, problem=problem)
        return [result for result in results if result is not None]

    def check(self, inputs: Sequence[Recording], options: PredictOptions, *, first_line: int = 1) -> None:
        """Raise UserError where `predict` does for one of the inputs, without decoding any."""
        request = self._request(inputs, options, first_line)
        self._limits(request, [row for row, source in enumerate(request.sources) if len(source.values)])

    def check_texts(self, lines: Sequence[Any], *, first_line: int = 1) -> None:
        """Raise UserError where lines of text are to be read, and all are rows of a table or JSON objects."""
        if isinstance(self.source, TextProcessor):
            texts = [line for line in lines if isinstance(line, str)]
            check_texts(texts, self.source.characters, f"line {first_line}")

    def _request(self, raw: Sequence[Any], options: PredictOptions, first_line: int) -> PredictionRequest:
        search, formatter = options.search(self.recipe.decoding), self.formatter(options)
        self.backend.check(options, search)
        if options.capture and len(self.models) > 1:
            what = "attention is one model's: give one run"
            raise UserError(what, where=option("capture"), received=f"{len(self.models)} runs")
        self.check_texts(raw, first_line=first_line)
        sources, problems = list[Encoded](), dict[int, str]()
        for row, line in enumerate(raw):
            try:
                sources.append(self._encode(line, options, formatter, first_line + row))
            except UserError as error:
                if not (isinstance(options, SpeechOptions) and options.skip_broken):
                    raise
                sources.append(Encoded([]))
                problems[row] = str(error)
        prefixes = self._prefixes(options, len(raw), first_line)
        unknown = None
        if search.unknown_words == "copy":
            own = isinstance(self.backend, TorchBackend) and self.backend.model is self.models[0]
            if len(self.models) > 1 or not own:
                raise UserError(
                    "words are copied where the attention of the run's own model says so: give one run, and no engine",
                    where=option("unknown_words"), received="copy", allowed="keep",
                )  # fmt: skip
            unknown = unknown_words(self.attention_names(), self.source, self.target, options.dictionary)
        return PredictionRequest(raw, sources, problems, prefixes, options, search, formatter, first_line, unknown)

    def _replace_unknown(
        self, request: PredictionRequest, rows: Sequence[int], outputs: Sequence[Sequence[Hypothesis]]
    ) -> list[list[tuple[Hypothesis, Sequence[str]]]]:
        """The best outputs of each row, each with the words that replace its unknown ones."""
        best = [hypotheses[: request.options.nbest] for hypotheses in outputs]
        words: dict[tuple[int, int], list[str]] = {}
        places = [(row, rank) for row, some in enumerate(best) for rank, one in enumerate(some) if UNKNOWN in one.ids]
        if request.unknown is not None and places:
            sources = [request.sources[rows[row]].values for row, _ in places]
            hypotheses, layer = [best[row][rank] for row, rank in places], request.unknown.layer
            captured = self._capture(sources, hypotheses, (layer,))
            for place, source, hypothesis, attention in zip(places, sources, hypotheses, captured, strict=True):
                line = request.formatter.source(request.raw[rows[place[0]]])
                words[place] = request.unknown(line, source, hypothesis.ids, attention[layer])
        return [[(one, words.get((row, rank), ())) for rank, one in enumerate(some)] for row, some in enumerate(best)]

    def _encode(self, line: Any, options: PredictOptions, formatter: Formatter, number: int) -> Encoded:
        """A source, cut where that is asked for. Raises UserError where it is too long, or is to be text and is not."""
        named = isinstance(self.source, TextProcessor)
        if named and not isinstance(line, str):
            raise UserError("a line is a text", where=f"line {number}", received=type(line).__name__, allowed="str")
        formatter.check(line, f"line {number}")
        source = self.read(line, whole=options.max_source_length is not None, formatter=formatter)
        limit = min(model.longest_read(options.max_source_length) for model in self.models)
        if len(source.values) <= limit:
            return source
        if not options.truncate and self.recipe.data.truncate_source is None:
            readable = all(model.longest_read(len(source.values)) >= len(source.values) for model in self.models)
            moved = f", {option('max_source_length')} moves the limit" if readable else ""
            raise UserError(
                f"this {self.source.noun} is too long",
                where=f"line {number}" if named else self.source.name(line),
                received=f"{len(source.values)} {self.source.unit}",
                allowed=f"up to {limit}; {option('truncate')} cuts longer ones{moved}",
            )
        return Encoded(source.values[:limit], truncated=True)

    def read(self, line: Any, *, whole: bool = False, formatter: Formatter | None = None) -> Encoded:
        """As much of a source as the recipe reads, or all of it."""
        truncation = None if whole else self.recipe.data.truncation()
        return self.source.encode((formatter or self.formatter(self.Options())).source(line), truncation)

    def _prefixes(self, options: PredictOptions, count: int, first_line: int) -> list[list[int]]:
        """The beginnings of the outputs. Raises UserError where one has what no output can have."""
        if options.prefixes is None:
            return [[]] * count
        if len(options.prefixes) != count:
            received = f"{len(options.prefixes)} prefixes"
            raise UserError(
                "there must be one prefix a line", where=option("prefixes"), received=received, allowed=f"{count}"
            )
        prefixes = self.target.encode_lines(options.prefixes)
        for line, (text, ids) in enumerate(zip(options.prefixes, prefixes, strict=True), start=first_line):
            if UNKNOWN in ids:
                what = "this beginning of an output has tokens that are not in the vocabulary"
                raise UserError(what, where=f"line {line}", received=text)
        return prefixes

    def _limits(self, request: PredictionRequest, rows: Sequence[int]) -> Limits:
        """The limits of search; a longest length that the source gives makes room for the shortest and the prefix."""
        longest, search = [], request.search
        prefixes = [request.prefixes[row] for row in rows]
        for row, prefix in zip(rows, prefixes, strict=True):
            count = len(request.sources[row].values)
            needed, length = max(search.min_length, len(prefix)), search.max_length
            if length is None:
                length = max(search.longest(count), needed)
            room = self.longest_target(count)
            length = length if room is None else min(length, room)
            if needed > length:
                what = "this prefix" if len(prefix) == needed else "the shortest output"
                raise UserError(
                    f"{what} is longer than the longest output",
                    where=f"line {request.first_line + row}", received=f"{needed} tokens", allowed=f"up to {length}",
                )  # fmt: skip
            longest.append(length)
        return Limits(search.min_length, longest, prefixes if any(prefixes) else (), search.no_repeat_ngram)

    @torch.inference_mode()
    def _capture(
        self, sources: list[Any], hypotheses: list[Hypothesis], capture: Capture
    ) -> list[dict[str, NDArray[np.float32]]]:
        """The attention behind each hypothesis: a whole-target pass sees exactly what the steps of the search saw."""
        if not capture:
            return [{} for _ in hypotheses]
        batch = _pairs(sources, [hypothesis.ids for hypothesis in hypotheses]).to(self.device)
        return self._cut(self.models[0](batch, capture=patterns_of(capture)).attention, batch, capture)

    def _cut(
        self, attention: Mapping[str, Tensor], batch: Batch, capture: Capture
    ) -> list[dict[str, NDArray[np.float32]]]:
        """The attention of each row of a batch without its padding. Raises UserError where names match nothing."""
        if not attention and capture and capture != ALL:
            raise UserError(
                "no attention of this model has such a name",
                where=option("capture"),
                received=", ".join(patterns_of(capture)),
                allowed=self.attention_names() or "none; it has no attention",
            )
        whole = {name: weights.float().cpu().numpy() for name, weights in attention.items()}
        axes = {name: self.models[0].attention_axes(name) for name in whole}
        read, written = self.models[0].source_lengths(batch.source_mask.sum(1)), batch.target_mask.sum(1)
        lengths = zip(read.tolist(), written.tolist(), strict=True)
        sizes = [{"source": source, "target": target, "both": source + target} for source, target in lengths]
        return [
            {
                name: weights[row, :, : size[axes[name].queries], : size[axes[name].keys]]
                for name, weights in whole.items()
            }
            for row, size in enumerate(sizes)
        ]

    def longest_source(self) -> int:
        """The most tokens, or frames, that a source may have, its end mark not counted, for every model."""
        return min(model.longest_source() for model in self.models)

    def longest_target(self, source_length: int) -> int | None:
        """The most tokens that every model can write beside a source of so many, or None where there is no limit."""
        limits = [model.longest_target(source_length) for model in self.models]
        return min((limit for limit in limits if limit is not None), default=None)

    def can_read(self, source: Any, target: str) -> bool:
        """Whether the model has positions for this source and this target."""
        length, given = len(self.read(source).values), len(self.target.encode(target).values)
        room = self.longest_target(length)
        return length <= self.longest_source() and (room is None or given <= room)

    def attended(self, source: Any) -> list[str]:
        """The labels of the positions that are read of an encoded source, one for each position of a memory."""
        after = self.models[0].source_lengths(torch.arange(1, self.source.length(source) + 1))
        return self.source.labels(source, np.flatnonzero(np.diff(after.numpy(), prepend=0)).tolist())

    @torch.inference_mode()
    def attention_names(self, capture: Capture = ALL) -> list[str]:
        """The names of the attention that a model has and `capture` asks for, such as `decoder.1.cross`."""
        batch = collate([self.models[0].trial_source(1)], [np.array([UNKNOWN])]).to(self.device)
        return list(self.models[0](batch, capture=patterns_of(capture)).attention)

    def _prediction(
        self,
        raw: Any,
        source: Encoded,
        hypotheses: Sequence[tuple[Hypothesis, Sequence[str]]],
        attention: dict[str, NDArray[np.float32]],
        formatter: Formatter,
        end: int | None = None,
    ) -> Prediction:
        """One prediction; `end` is the most tokens that its outputs could have."""
        words = (NO_WORDS, NO_WORDS)
        if attention:
            line = formatter.source(raw)
            words = self.source.words(source.values, line), self.target.words(hypotheses[0][0].ids)
        axes = {name: self.models[0].attention_axes(name) for name in attention}
        outputs = []
        for hypothesis, unknown in hypotheses:
            ids, log_probabilities = hypothesis.ids, list(hypothesis.log_probabilities)
            written = self.target.decode_words(ids, unknown) if unknown else self.target.decode(ids)
            text, repairs = formatter.output(raw, written)
            tokens = self.target.tokens(ids)
            outputs.append(TextHypothesis(text, hypothesis.score, tokens, log_probabilities, written, repairs, ids))
        return Prediction(
            self.source.name(raw),
            self.source.tokens(source.values) if isinstance(self.source, TextProcessor) else [],
            outputs,
            attention,
            *words,
            axes,
            self.attended(source.values),
            source.truncated,
            at_limit=end is not None and len(hypotheses[0][0].ids) >= end,
        )

    def score(self, sources: Recording | Sequence[Recording], targets: str | Sequence[str]) -> list[TextHypothesis]:
        """Given targets with the log probability of each token and of the end mark, and their scores; as `force`."""
        return [prediction.hypotheses[0] for prediction in self.force(sources, targets)]

    @torch.inference_mode()
    def force(
        self, inputs: Recording | Sequence[Recording], targets: str | Sequence[str], *, capture: Capture = ()
    ) -> list[Prediction]:
        """Predictions whose one hypothesis is the given target, scored, with the attention that is asked for.

        One text, or path, is one line.

        Raises:
            UserError: different numbers of sources and targets, or more than one model.
        """
        raw, texts = _each(inputs), _each(targets)
        if len(raw) != len(texts):
            raise UserError("each source needs one target", received=f"{len(raw)} sources and {len(texts)} targets")
        if len(self.models) > 1:
            raise UserError("targets are scored with one model", received=f"{len(self.models)} runs")
        if not isinstance(self.backend, TorchBackend) or self.backend.model is not self.models[0]:
            raise UserError("targets are scored by the run's own model", where=option("engine"))
        self.check_texts(raw)
        check_texts(texts, self.target.characters, option("target"), column=2)
        formatter = self.formatter(self.Options())
        sources = [self.read(line, formatter=formatter) for line in raw]
        target_ids = self.target.encode_lines(texts)
        lengths = [max(len(source.values), len(ids)) + 1 for source, ids in zip(sources, target_ids, strict=True)]
        results: list[Prediction | None] = [None] * len(raw)
        for rows in batches(lengths, self.recipe.decoding.batch_tokens):
            with memory_named(f"in scoring {len(rows)} pairs together", SMALLER_BATCHES):
                batch = _pairs([sources[row].values for row in rows], [target_ids[row] for row in rows]).to(self.device)
                output = self.models[0](batch, capture=patterns_of(capture))
                scores = output.logits.float().log_softmax(-1)
                check_scores(scores.isnan().any(-1)[batch.target_mask])
                chosen = scores.gather(2, batch.target_output[:, :, None]).squeeze(2).tolist()
                captured = self._cut(output.attention, batch, capture)
            for row, values, weights in zip(rows, chosen, captured, strict=True):
                log_probabilities = tuple(values[: len(target_ids[row]) + 1])
                penalty = length_penalty(len(log_probabilities), self.recipe.decoding.length_penalty)
                forced = Hypothesis(tuple(target_ids[row]), log_probabilities, sum(log_probabilities) / penalty)
                results[row] = self._prediction(raw[row], sources[row], [(forced, ())], weights, formatter)
        with accounted() as account:
            account.read_inputs(self.runs[0], list(map(formatter.source, raw)), sources)
            account.read_texts(TARGETS, self.target, texts, target_ids)
        return [result for result in results if result is not None]


class SpeechPredictor(SequencePredictor):
    """A model that reads recordings; those that are broken can be skipped."""

    Options: ClassVar[type[PredictOptions]] = SpeechOptions


class TreePredictor(SequencePredictor):
    """A parser: sentences in, trees over exactly their words out."""

    Options: ClassVar[type[PredictOptions]] = TreeOptions

    def formatter(self, options: PredictOptions) -> Formatter:
        """Trees in the format that the options say, whose words have tags where they say so."""
        assert isinstance(options, TreeOptions)
        return TreeFormatter(options.format, tagged=options.tagged)


def _pairs(sources: Sequence[Any], targets: Sequence[Sequence[int]]) -> Batch:
    return collate([np.asarray(ids) for ids in sources], [np.asarray(ids, dtype=np.int64) for ids in targets])


def _each(lines: Any) -> Sequence[Any]:
    """Lines of any iterable; one text, or path, is one line. Raises UserError for what is neither."""
    if isinstance(lines, str | Path):
        return [lines]
    if isinstance(lines, bytes | Mapping) or not isinstance(lines, Iterable):
        raise UserError("predictors read a text, or several", received=lines)
    return lines if isinstance(lines, Sequence) else list(lines)
