"""Predict outputs token by token from lines or recordings, and score targets, with a run's model.

Shapes: K heads; S positions of the memory (source tokens) and T target tokens, with the end-of-sentence token.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headway.core.errors import UserError, memory_named, option
from headway.core.forks import Work
from headway.core.registry import is_foreign
from headway.formats.corpus_config import parts
from headway.formats.lines import check_texts, line_place
from headway.formats.terms import Glossary
from headway.metrics import METRICS, WITH_OPTIONS
from headway.models import Seq2Seq
from headway.models.model import Axes
from headway.predictors.attribution import ATTRIBUTIONS, Attribution, Question, foils, merged
from headway.predictors.backend import Backend, SearchRequest, TorchBackend
from headway.predictors.captured_attention import ALL, END, AttentionWeights, column_tokens, patterns_of, row_tokens
from headway.predictors.formatter import Formatter, TreeFormatter
from headway.predictors.input_account import TARGETS, accounted
from headway.predictors.minimum_risk import MinimumRiskBackend, utility_of
from headway.predictors.output import Example, Output, TextHypothesis, earlier_inputs, in_documents
from headway.predictors.predict_options import Capture, PredictOptions, TreeOptions
from headway.predictors.predictor import SMALLER_BATCHES, Predictor, Request, Row, Run, batches, each
from headway.predictors.terms import TermBackend, TermFormatter
from headway.predictors.unknown_words import UnknownWords, unknown_words
from headway.processing.audio.audio_files import Recording
from headway.processing.processor import NO_WORDS, Encoded
from headway.processing.text.document_vocabulary import JOINT, joined
from headway.processing.text.framed_vocabulary import code_of
from headway.processing.text.text_processor import TextProcessor
from headway.search.beam import Ensemble
from headway.search.decoding_options import SearchOptions
from headway.search.limits import Hypothesis, check_scores
from headway.search.recorded_model import few
from headway.tensors.batch import EOS, UNKNOWN, Batch, collate

# In memory at once:
RECORDINGS = 128  # the frames of each take about 0.5 MB
ATTENTION = 256  # layers of captured attention
PARTS, LEAST_PART = 16, 1024  # batches of a window, and source positions of a batch, at least, for several workers


@dataclass(frozen=True)
class PredictionRequest(Request):
    """Encoded inputs, and the search and the formatter of their outputs.

    Attributes:
        search: the search options of the request and the recipe.
        backend: the backend, wrapped as the options require.
        unknown: replaces unknown words; None to keep them.
    """

    options: PredictOptions
    search: SearchOptions
    formatter: Formatter
    backend: Backend
    unknown: UnknownWords | None = None

    @property
    def width(self) -> int:
        return self.backend.width(self.options, self.search)


class SequencePredictor(Predictor[Recording, Output]):
    """An autoregressive model, or an ensemble, with the processors of the first run.

    The inputs are lines of text or, if the model reads speech, recordings (see `audio_files.Recording`).

    Raises:
        UserError: the runs have different vocabularies.
    """

    Options: ClassVar[type[PredictOptions]] = PredictOptions
    together = 2000

    def __init__(self, runs: Sequence[Run], device: torch.device) -> None:
        super().__init__(runs, device)
        self.source, target = runs[0].source, runs[0].target
        spelled = WITH_OPTIONS.fullmatch(self.recipe.decoding.utility)
        if spelled is not None and is_foreign(spelled["name"]):  # while the permission to import code is known
            METRICS.get(spelled["name"], "decoding.utility")
        assert isinstance(target, TextProcessor)
        self.target = target
        for number, run in enumerate(runs[1:], start=2):
            alike = run.recipe.data.context == self.recipe.data.context
            if not (alike and run.source.same(self.source) and run.target.same(target)):
                raise UserError("runs that are averaged prepare text alike, with one vocabulary", where=f"run {number}")
        self.models: list[Seq2Seq] = [run.model for run in runs if isinstance(run.model, Seq2Seq)]
        self.backend: Backend = TorchBackend(self.models[0] if len(runs) == 1 else Ensemble(self.models), device)
        if not isinstance(self.source, TextProcessor):
            self.together = RECORDINGS

    def formatter(self, options: PredictOptions) -> Formatter:
        """The formatter between lines and the model's text. Tasks with other formats override this."""
        return Formatter()

    def window(self, capture: Capture) -> int:
        if not capture:
            return self.together
        self._own_model(option("capture"))
        return max(1, min(self.together, ATTENTION // max(1, len(self.attention_names(capture)))))

    def check_texts(self, lines: Sequence[Any], *, first_line: int = 1) -> None:
        """Raise UserError if the model reads text, and all lines look like rows of a table or JSON objects."""
        if isinstance(self.source, TextProcessor):
            texts = [line for line in lines if isinstance(line, str)]
            check_texts(texts, self.source.characters, line_place(first_line))

    def _own_model(self, where: str | None = None) -> Seq2Seq:
        """The single PyTorch model of the run. Raises UserError for an ensemble or another engine."""
        own = isinstance(self.backend, TorchBackend) and self.backend.model is self.models[0]
        if not own or len(self.models) > 1:
            what, received = (
                "attention and scores are one model's: give one run, and no engine",
                f"{len(self.models)} runs",
            )
            raise UserError(what, where=where, received=received)
        return self.models[0]

    def request(self, inputs: Sequence[Any], options: PredictOptions, first_line: int) -> PredictionRequest:
        search, formatter = options.search(self.recipe.decoding), self.formatter(options)
        self.backend.check(options, search)
        context = self.recipe.data.context
        if options.capture:
            self._own_model(option("capture"))
        unknown = None
        if search.unknown_words == "copy" and context.most:
            what = "the unknown words of sentences with context are kept"
            raise UserError(what, where=option("unknown_words"), received="copy", allowed="keep")
        if search.unknown_words == "copy":
            self._own_model(option("unknown_words"))
            unknown = unknown_words(self.attention_names(), self.source, self.target, options.dictionary)
        if context.most:
            inputs = list(in_documents(inputs, context.most, options.before))
        raw = [line.source if isinstance(line, Example) else line for line in inputs]
        self.check_texts(raw, first_line=first_line)
        count = len(raw) if options.prefixes is None else len(options.prefixes)
        if count != len(raw):
            what, received = "there must be one prefix a line", f"{count} prefixes"
            raise UserError(what, where=option("prefixes"), received=received, allowed=f"{len(raw)}")
        beginning = self._beginning(options.target_language)
        given = [[]] * count if options.prefixes is None else self.target.encode_lines(options.prefixes)
        prefixes = [ids if ids else beginning for ids in given]
        backend = self.backend
        if search.kind == "mbr" and not options.sample:
            language, of_texts = self.recipe.text.target.language, isinstance(self.source, TextProcessor)
            utility = utility_of(search.utility, language, of_texts=of_texts)
            backend = MinimumRiskBackend(backend, utility, self.target.decode)
        if options.terms:
            glossary = Glossary(options.terms)
            backend = TermBackend(backend, glossary, self.target.decode, self._example)
            if any(part.terms for _, part in parts(self.recipe.data.train, "data.train")):
                formatter = TermFormatter(formatter, glossary)
        rows = [
            Row(first_line + place, line, prefix=prefix)
            for place, (line, prefix) in enumerate(zip(inputs, prefixes, strict=True))
        ]
        request = PredictionRequest(rows, options, search, formatter, backend, unknown)
        for row in rows:
            try:
                row.text, row.encoded, row.longest = self._read_one(row, request)
            except UserError as error:
                row.problem = error
        return request

    def _beginning(self, language: str | None) -> list[int]:
        """The ids that every output begins with, such as a language code. Raises UserError for an unknown language."""
        vocabulary = self.target.vocabulary
        if language is None:
            return list(vocabulary.beginning)
        codes = vocabulary.tags if vocabulary.beginning else ()
        return vocabulary.encode(code_of(language, codes, option("target_language")))

    def _read_one(self, row: Row, request: PredictionRequest) -> tuple[Any, Encoded, int]:
        """The text of a row, its encoding, and the maximum length of its output. Raises UserError for invalid rows."""
        line, options, search, prefix = self._window(row.raw), request.options, request.search, row.prefix
        where, named = line_place(row.number), isinstance(self.source, TextProcessor)
        if named and not isinstance(line, str):
            raise UserError("a line is a text", where=where, received=type(line).__name__, allowed="str")
        request.formatter.check(line, where)
        text = request.formatter.source(line)
        source = self.source.encode(text, None if options.max_source_length else self.recipe.data.truncation())
        limit = min(model.longest_read(options.max_source_length) for model in self.models)
        while self.recipe.data.context.source and JOINT in text and len(source.values) > limit:
            text = text.partition(JOINT)[2]
            source = self.source.encode(text)
        if len(source.values) > limit:
            if not options.truncate and self.recipe.data.truncate_source is None:
                readable = all(model.longest_read(len(source.values)) >= len(source.values) for model in self.models)
                moved = f", {option('max_source_length')} moves the limit" if readable else ""
                raise UserError(
                    f"this {self.source.noun} is too long",
                    where=where if named else self.source.name(line),
                    received=f"{len(source.values)} {self.source.unit}",
                    allowed=f"up to {limit}; {option('truncate')} cuts longer ones{moved}",
                )
            source = Encoded(source.values[:limit], truncated=True)
        if UNKNOWN in prefix:
            assert options.prefixes is not None
            what = "this beginning of an output has tokens that are not in the vocabulary"
            raise UserError(
                what, where=f"line {row.number}", received=options.prefixes[row.number - request.rows[0].number]
            )
        # A maximum length derived from the source is raised to the minimum length and the prefix.
        needed, length = max(search.min_length, len(prefix)), search.max_length
        if length is None:
            length = max(search.longest(len(self._alone(source.values))), needed)
        room = self.longest_target(len(source.values))
        length = length if room is None else min(length, room)
        length = self.backend.longest(len(source.values)) or length
        if len(source.values) and needed > length:
            what = "this prefix" if len(prefix) == needed else "the shortest output"
            what = f"{what} is longer than the longest output"
            raise UserError(what, where=where, received=f"{needed} tokens", allowed=f"up to {length}")
        return text, source, length

    def divisible(self) -> bool:
        return super().divisible() and self.backend.divisible()

    def jobs(self, request: PredictionRequest) -> list[Work]:
        search = request.search
        size = few if search.cuda_graphs else int  # batches of a graph have the same number of rows
        lengths = [size(len(row.encoded.values) + 1) - 1 for row in request.rows]
        # Sampling uses no more rows than a beam search.
        samples = search.samples if search.kind == "mbr" and not request.options.sample else search.beam
        budget = int(search.batch_tokens * min(1, search.beam / samples))
        if self.recipe.data.context.target:
            return [partial(self._decode_in_rounds, request, lengths, budget)]
        part = max(LEAST_PART, sum(lengths) // PARTS)
        fixed = "batch_tokens" in request.options.model_fields_set
        if part < min(budget, sum(lengths)) and not fixed and self.divisible():
            budget = part  # whatever the number of workers, so that outputs do not depend on it
        return [partial(self._decode, request, places) for places in batches(lengths, budget, end_marks=1)]

    def joined(self, request: PredictionRequest, results: Iterable[dict[int, Output]]) -> list[Output]:
        rows, outputs = request.rows, dict[int, Output]()
        for part in results:
            outputs |= part
            self.answered(len(part))
        with accounted() as account:
            first_line = rows[0].number if rows else 1
            account.read_inputs(self.runs[0], [row.text for row in rows], [row.encoded for row in rows], first_line)
        return [outputs.get(place) or self._empty(row, request) for place, row in enumerate(rows)]

    def _decode(
        self, request: PredictionRequest, places: Sequence[int], contexts: Sequence[list[int]] = ()
    ) -> dict[int, Output]:
        """The outputs of the rows at `places`, by place. The decoder reads the ids in `contexts` first."""
        rows, vocabulary = [request.rows[place] for place in places], self.target.vocabulary
        with memory_named(f"in decoding {len(rows)} inputs together", SMALLER_BATCHES):
            begun = len(vocabulary.beginning)
            asked = SearchRequest(rows, request.options, request.search, contexts, vocabulary.mark, begun)
            outputs = request.backend.hypotheses(asked)
            best = [hypotheses[0] for hypotheses in outputs]
            captured = self._capture(asked.sources, best, request.options.capture, contexts)
            replaced = self._replace_unknown(request, rows, outputs)
        written, ends = {}, asked.limits.ends()
        for place, row, some, attention, end in zip(places, rows, replaced, captured, ends, strict=True):
            output = self._output(row, request.formatter, some, attention, end)
            written[place] = request.backend.annotated(row, output)
        return written

    def _empty(self, row: Row, request: PredictionRequest) -> Output:
        """The output of a row that is blank or has a problem."""
        empty = TextHypothesis("", 0.0 if row.problem is None else -math.inf, [], [])
        return Output(self._example(row.raw), [empty] * request.options.nbest, problem=row.problem)

    def following(self, options: PredictOptions, outputs: Sequence[Output]) -> PredictOptions:
        """The options with the last sentences of the document and their outputs as context."""
        if not (most := self.recipe.data.context.most):
            return options
        before = list(options.before)
        for output in outputs:
            before = [*before, (output.source, output.text)][-most:] if output.source.strip() else []
        return options.model_copy(update={"before": tuple(before)})

    def _window(self, line: Any) -> Any:
        """The input, with the earlier sources of its context if the model reads them."""
        if not isinstance(line, Example):
            return line
        sources = [source for source, _ in line.context]
        return joined(sources, line.source, self.recipe.data.context.source) if sources else line.source

    def _alone(self, source: Any) -> Any:
        """An encoded source without its context."""
        return source[self.source.after_mark(source) :] if isinstance(self.source, TextProcessor) else source

    def _decode_in_rounds(self, request: PredictionRequest, lengths: Sequence[int], budget: int) -> dict[int, Output]:
        """The outputs of all rows, by place, if the decoder reads the outputs of earlier rows.

        A sentence is decoded after the sentences of its context, together with others whose context has this length.
        """
        results: dict[int, Output] = {}
        before, count = request.options.before, self.recipe.data.context.target
        links = list(earlier_inputs([row.raw for row in request.rows], before, count))
        plain = {"capture": (), "nbest": 1, "prefixes": None, "before": (), "skip_broken": True, "truncate": True}
        lines = [line for _, others in links if others for line in (*others, "")]
        made = iter(self.predict(lines, request.options.model_copy(update=plain)) if lines else ())
        texts = [[next(made).text for _ in (*others, "")][:-1] if others else [] for _, others in links]
        rounds, depths = dict[int, list[int]](), list[int]()
        for row, (own, _) in enumerate(links):
            depths.append(depths[-1] + 1 if row and own else 0)
            rounds.setdefault(depths[-1], []).append(row)
        for rows in rounds.values():
            contexts = dict[int, list[int]]()
            for row in rows:
                for place in range(row - links[row][0], row):  # a negative place is in `before`
                    output = results.get(place)
                    texts[row].append(before[place][1] if place < 0 else output.text if output else "")
                contexts[row] = self._context(request.rows[row], texts[row])
            for read in sorted({len(ids) for ids in contexts.values()}):
                alike = {row for row, ids in contexts.items() if len(ids) == read}
                some = [length if row in alike else 0 for row, length in enumerate(lengths)]
                for chosen in batches(some, budget, end_marks=1):
                    results |= self._decode(request, chosen, [contexts[row] for row in chosen] if read else [])
        return results

    def _context(self, row: Row, texts: Sequence[str]) -> list[int]:
        """The ids of earlier outputs that the decoder reads first: as many of the latest as leave room for this output.

        If `data.max_length` limits them, the output is assumed to be as long as its source.
        """
        data, source, mark = self.recipe.data, row.encoded.values, self.target.vocabulary.mark
        by_words, room = data.count == "words", self.longest_target(len(source))
        left = data.max_length - len(row.raw.source.split() if by_words else self._alone(source))
        context = list[int]()
        for text in filter(str.strip, reversed(texts)):
            ids = self.target.encode(text).values
            left -= (len(self.target.prepare(text).split()) if by_words else len(ids)) + 1
            total = len(ids) + 1 + len(context) + row.longest
            if left < 0 or (room is not None and total > room):
                break
            if ids and mark is not None:
                context = [*ids, mark, *context]
        return context

    def _example(self, raw: Any) -> Example:
        """The input as an Example. A recording is represented by its name."""
        return raw if isinstance(raw, Example) else Example(self.source.name(raw))

    def _replace_unknown(
        self, request: PredictionRequest, rows: Sequence[Row], outputs: Sequence[Sequence[Hypothesis]]
    ) -> list[list[tuple[Hypothesis, Sequence[str]]]]:
        """The best hypotheses of each row, each with the words that replace its unknown tokens."""
        best = [hypotheses[: request.options.nbest] for hypotheses in outputs]
        words: dict[tuple[int, int], list[str]] = {}
        places = [(row, rank) for row, some in enumerate(best) for rank, one in enumerate(some) if UNKNOWN in one.ids]
        if request.unknown is not None and places:
            sources = [rows[row].encoded.values for row, _ in places]
            hypotheses, layer = [best[row][rank] for row, rank in places], request.unknown.layer
            captured = self._capture(sources, hypotheses, (layer,))
            for place, source, hypothesis, attention in zip(places, sources, hypotheses, captured, strict=True):
                line = rows[place[0]].text
                words[place] = request.unknown(line, source, hypothesis.ids, attention[layer])
        return [[(one, words.get((row, rank), ())) for rank, one in enumerate(some)] for row, some in enumerate(best)]

    @torch.inference_mode()
    def _capture(
        self, sources: list[Any], hypotheses: list[Hypothesis], capture: Capture, contexts: Sequence[list[int]] = ()
    ) -> list[dict[str, NDArray[np.float32]]]:
        """The attention of each hypothesis, in one pass over the target; it equals the attention during the search."""
        if not capture:
            return [{} for _ in hypotheses]
        read = contexts or [[] for _ in hypotheses]
        whole = [[*ids, *hypothesis.ids] for ids, hypothesis in zip(read, hypotheses, strict=True)]
        batch = _pairs(sources, whole).to(self.device)
        attention = self.models[0](batch, capture=patterns_of(capture)).attention
        return self._cut(attention, batch, capture, list(map(len, read)))

    def _cut(
        self, attention: Mapping[str, Tensor], batch: Batch, capture: Capture, before: Sequence[int]
    ) -> list[dict[str, NDArray[np.float32]]]:
        """The attention of each row of a batch, without padding and without the first `before` target tokens.

        Raises UserError if no attention matches `capture`.
        """
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
        parts: list[dict[str, NDArray[np.int64] | slice]] = [  # outputs have no padding
            {
                "source": np.arange(source),
                "target": np.arange(first, target),
                "both": np.r_[:source, source + first : source + target],
                "outputs": slice(None),
            }
            for (source, target), first in zip(lengths, before, strict=True)
        ]
        return [
            {
                name: weights[row][:, part[axes[name].queries]][:, :, part[axes[name].keys]]
                for name, weights in whole.items()
            }
            for row, part in enumerate(parts)
        ]

    def longest_source(self) -> int:
        """The maximum length of a source for all models, in tokens or frames, without the end-of-sentence token."""
        return min(model.longest_source() for model in self.models)

    def longest_target(self, source_length: int) -> int | None:
        """The maximum length in tokens of an output, for all models. None if there is no limit."""
        limits = [model.longest_target(source_length) for model in self.models]
        return min((limit for limit in limits if limit is not None), default=None)

    def read(self, line: Any, formatter: Formatter | None = None) -> Encoded:
        """Encode an input with its context, truncated as the recipe says."""
        text = (formatter or self.formatter(self.Options())).source(self._window(line))
        return self.source.encode(text, self.recipe.data.truncation())

    def can_read(self, source: Any, target: str) -> bool:
        """Whether the models have enough positions for this source and this target."""
        length, given = len(self.read(source).values), len(self.target.encode(target).values)
        room = self.longest_target(length)
        return length <= self.longest_source() and (room is None or given <= room)

    def attended(self, source: Any) -> list[str]:
        """The labels of the positions of the encoder memory, for an encoded source."""
        after = self.models[0].source_lengths(torch.arange(1, self.source.length(source) + 1))
        return self.source.labels(source, np.flatnonzero(np.diff(after.numpy(), prepend=0)).tolist())

    def attention_names(self, capture: Capture = ALL) -> list[str]:
        """The names of the attention that match `capture`, such as `decoder.1.cross`."""
        return list(self.attention_shapes(capture))

    @torch.inference_mode()
    def attention_shapes(self, capture: Capture = ALL) -> dict[str, tuple[int, ...]]:
        """The shapes (heads, rows, columns) of the attention for a source of one token, by name."""
        batch = collate([self.models[0].trial_source(1)], [np.array([UNKNOWN])]).to(self.device)
        attention = self.models[0](batch, capture=patterns_of(capture)).attention
        return {name: tuple(weights.shape[1:]) for name, weights in attention.items()}

    def _output(
        self,
        row: Row,
        formatter: Formatter,
        hypotheses: Sequence[tuple[Hypothesis, Sequence[str]]],
        weights: dict[str, NDArray[np.float32]],
        end: int | None = None,
    ) -> Output:
        """The output for an input. `end` is the maximum length of its hypotheses."""
        example, source = self._example(row.raw), row.encoded
        outputs = []
        for hypothesis, unknown in hypotheses:
            ids, log_probabilities = hypothesis.ids, list(hypothesis.log_probabilities)
            written = self.target.decode_words(ids, unknown) if unknown else self.target.decode(ids)
            written = written if hypothesis.text is None else hypothesis.text
            text, repairs = formatter.output(example.source, written)
            tokens = self.target.tokens(ids)
            outputs.append(TextHypothesis(text, hypothesis.score, tokens, log_probabilities, written, repairs, ids))
        attended, words, attention = self.attended(source.values), (NO_WORDS, NO_WORDS), AttentionWeights()
        if weights:
            words = self.source.words(source.values, row.text), self.target.words(hypotheses[0][0].ids)
            axes = {name: self.models[0].attention_axes(name) for name in weights}
            rows = {name: row_tokens(each, attended, outputs[0].tokens) for name, each in axes.items()}
            columns = {
                name: column_tokens(each, attended, outputs[0].tokens, weights[name].shape[-1])
                for name, each in axes.items()
            }
            attention = AttentionWeights(weights, rows, columns)
        return Output(
            example,
            outputs,
            attention,
            None,
            self.source.tokens(source.values) if isinstance(self.source, TextProcessor) else [],
            *words,
            attended,
            source.truncated,
            at_limit=end is not None and len(hypotheses[0][0].ids) >= end,
        )

    def score(self, sources: Recording | Sequence[Recording], targets: str | Sequence[str]) -> list[TextHypothesis]:
        """Score targets: the log probabilities of their tokens and end-of-sentence token. Raises as `force` does."""
        return [prediction.hypotheses[0] for prediction in self.force(sources, targets)]

    @torch.inference_mode()
    def force(
        self, inputs: Recording | Sequence[Recording | Example], targets: str | Sequence[str], *, capture: Capture = ()
    ) -> list[Output]:
        """Outputs whose only hypothesis is the target, with its score and the attention that `capture` names.

        A single text or path is one line.

        Raises:
            UserError: the predictor has several models, or another engine.
            ValueError: the numbers of sources and targets differ.
        """
        raw, texts, context = each(inputs), each(targets), self.recipe.data.context
        model = self._own_model()
        if context.most and len(raw) == len(texts):
            raw = list(in_documents(raw, context.most, targets=texts))
        self.check_texts(raw)
        check_texts(texts, self.target.characters, option("target"), column=2)
        options = self.Options()
        formatter, search = self.formatter(options), self.recipe.decoding
        penalty, begun = search.ranking.penalty, len(self.target.vocabulary.beginning)
        rows = [
            Row(number, line, formatter.source(self._window(line)), self.read(line, formatter))
            for number, line in enumerate(raw, start=1)
        ]
        windows = [
            joined([target for _, target in line.context], text, context.target) if isinstance(line, Example) else text
            for line, text in zip(raw, texts, strict=True)
        ]
        target_ids = self.target.encode_lines(windows)
        before = list(map(self.target.after_mark, target_ids))
        lengths = [max(len(row.encoded.values), len(ids)) + 1 for row, ids in zip(rows, target_ids, strict=True)]
        results: dict[int, Output] = {}
        for places in batches(lengths, search.batch_tokens):
            with memory_named(f"in scoring {len(places)} pairs together", SMALLER_BATCHES):
                sources = [rows[place].encoded.values for place in places]
                batch = _pairs(sources, [target_ids[place] for place in places]).to(self.device)
                output = model(batch, capture=patterns_of(capture))
                scores = output.logits.float().log_softmax(-1)
                check_scores(scores.isnan().any(-1)[batch.target_mask])
                chosen = scores.gather(2, batch.target_output[:, :, None]).squeeze(2).tolist()
                captured = self._cut(output.attention, batch, capture, [before[place] for place in places])
            for place, values, weights in zip(places, chosen, captured, strict=True):
                log_probabilities = tuple(values[before[place] : len(target_ids[place]) + 1])
                ids = tuple(target_ids[place][before[place] :])
                forced = Hypothesis(
                    ids, log_probabilities, sum(log_probabilities[begun:]) / penalty(len(log_probabilities))
                )
                results[place] = self._output(rows[place], formatter, [(forced, ())], weights)
        with accounted() as account:
            account.read_inputs(self.runs[0], [row.text for row in rows], [row.encoded for row in rows])
            account.read_texts(TARGETS, self.target, texts, target_ids)
        return [results[place] for place in range(len(raw))]

    def attribute(
        self,
        outputs: Output | Sequence[Output],
        method: Attribution | Mapping[str, Any] | str = "gradient_input",
        *,
        against: str | None = None,
        words: bool = False,
    ) -> list[AttentionWeights]:
        """The contributions of the source tokens and of earlier output tokens to each token of the best hypotheses.

        The values have the shape (1, T, S + T) and the name of the method. An empty output has no values.

        Args:
            outputs: outputs of `predict` or `force`.
            method: gradient_input, integrated_gradients, occlusion or value_zeroing, or a dict with its options.
            against: a word: explain the log-probability difference to the token that would continue this word.
            words: return rows and columns of words instead of tokens.

        Raises:
            UserError: there are several models, the method is unknown or does not support the model, or the vocabulary
                lacks the word `against`.
        """
        model = self._own_model(option("attribution"))
        how = method if isinstance(method, Attribution) else ATTRIBUTIONS.build(method, where=option("attribution"))
        word = None if against is None else self.target.encode(against).values
        if word is not None and (not len(word) or UNKNOWN in word):
            what = "the vocabulary of the outputs does not have this word"
            raise UserError(what, where=option("against"), received=against)
        if word is not None and len(word) > 1 and not self.target.decode(word[:1]):
            word = word[1:]  # a token that only marks the beginning of a word
        found = []
        for output in [outputs] if isinstance(outputs, Output) else outputs:
            if output.is_empty:
                found.append(AttentionWeights())
                continue
            source = self.read(output.example.source).values
            if isinstance(self.source, TextProcessor):  # search may have cut it
                source = source[: len(output.source_tokens)]
            ids = output.hypotheses[0].ids
            batch = _pairs([source], [ids]).to(self.device)
            other = None if word is None else torch.tensor([foils([*ids, EOS], word)], device=self.device)
            values = how(Question.of(model, batch, other, UNKNOWN)).float().cpu().numpy()
            axes = Axes("target", "both")
            rows = row_tokens(axes, output.attended, output.tokens)
            columns = column_tokens(axes, output.attended, output.tokens)
            if words:
                text = self.formatter(self.Options()).source(output.example.source)
                sides = self.source.words(source, text), self.target.words(ids)
                values = merged(values, *sides, additive=how.additive)
                rows = row_tokens(axes, [*sides[0].texts, END], sides[1].texts)
                columns = column_tokens(axes, [*sides[0].texts, END], sides[1].texts)
            found.append(AttentionWeights({how.name: values[None]}, {how.name: rows}, {how.name: columns}))
        return found


class TreePredictor(SequencePredictor):
    """A parser: its inputs are sentences, and its outputs are trees over exactly their words."""

    Options: ClassVar[type[PredictOptions]] = TreeOptions

    def formatter(self, options: PredictOptions) -> Formatter:
        assert isinstance(options, TreeOptions)
        return TreeFormatter(options.format, tagged=options.tagged)


def _pairs(sources: Sequence[Any], targets: Sequence[Sequence[int]]) -> Batch:
    return collate([np.asarray(ids) for ids in sources], [np.asarray(ids, dtype=np.int64) for ids in targets])
