"""From raw lines (or recordings) to predictions, and from given targets to their scores, with a run's model.

Shapes: K heads, S positions of the memory, such as the source pieces with the end mark, T target pieces with theirs.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import ValidationError
from torch import Tensor

from headway.config import explain
from headway.corpora.data_config import source_truncation
from headway.device import pick_device
from headway.errors import UserError
from headway.models import Seq2Seq
from headway.predictors.captured_attention import ALL, END, Capture, patterns_of
from headway.predictors.formatter import Form
from headway.predictors.prediction import NO_WORDS, Candidate, Prediction
from headway.runs.run_folder import LoadedRun, load_run
from headway.search.beam import beam_search
from headway.search.decoding_config import DecodingConfig
from headway.search.ensemble import Ensemble
from headway.search.hypotheses import Hypothesis, length_penalty
from headway.search.limits import Limits
from headway.search.sampling import Sampling, sample
from headway.tensors.batch import UNKNOWN, Batch, collate


@dataclass(frozen=True)
class Options:
    """How to decode; what is None comes from the recipe's `decoding` section.

    `prefixes` gives each line's output its beginning, as text. `max_source_length` stands for the recipe's
    `data.truncate_source`. `truncate` cuts a line that has more pieces (or frames) than `max_source_length`, or than
    the model can read, instead of refusing it; so does a recipe that truncates sources. With `skip_broken`, a source
    that cannot be read gives an empty prediction, with its `problem`, instead of an error. `capture` says which
    attention of the best outputs comes with them: patterns of names, such as `decoder.*.cross`, or `all` for what there
    is.
    """

    beam: int | None = None
    nbest: int = 1
    length_penalty: float | None = None
    min_length: int | None = None
    max_length: int | None = None
    max_length_ratio: float | None = None
    max_length_offset: int | None = None
    no_repeat_ngram: int | None = None
    batch_tokens: int | None = None
    sampling: Sampling | None = None
    prefixes: Sequence[str] | None = None
    max_source_length: int | None = None
    truncate: bool = False
    skip_broken: bool = False
    capture: Capture = ()

    def resolved(self, config: DecodingConfig) -> DecodingConfig:
        """The recipe's decoding section with these options in it. Raises UserError for values that are not allowed."""
        names = [name for name in DecodingConfig.model_fields if getattr(self, name) is not None]
        given = {name: getattr(self, name) for name in names}
        try:
            merged = DecodingConfig.model_validate(config.model_dump() | given)
        except ValidationError as error:
            raise UserError(explain(error, DecodingConfig)) from error
        if self.nbest < 1:
            raise UserError("there must be an output", where="--nbest", received=self.nbest, allowed="1 or more")
        if self.sampling is None and self.nbest > merged.beam:
            raise UserError(
                "more outputs than the beam has", where="--nbest", received=self.nbest, allowed=f"up to {merged.beam}"
            )
        if merged.max_length is not None and merged.min_length > merged.max_length:
            raise UserError(
                "the shortest output is longer than the longest",
                where="--min-length",
                received=merged.min_length,
                allowed=f"up to {merged.max_length}",
            )
        return merged


class Predictor:
    """One model, or an ensemble, with the text preparation of its first run.

    Args:
        runs: the loaded runs; more than one decode together.
        device: where the models are.
        form: how lines stand to the text of the models.

    Raises:
        UserError: runs with different vocabularies.
    """

    def __init__(self, runs: Sequence[LoadedRun], device: torch.device, form: Form | None = None) -> None:
        first, self.form = runs[0], form or Form()
        self.recipe, self.source, self.target = first.recipe, first.source, first.target
        self.models, self.device = [run.model for run in runs], device
        self._reads = self.models[0]
        for number, run in enumerate(runs[1:], start=2):
            if not (run.source.same(first.source) and run.target.same(first.target)):
                raise UserError("the runs of an ensemble need the same vocabularies", where=f"run {number}")
        self.model: Seq2Seq | Ensemble = self.models[0] if len(runs) == 1 else Ensemble(self.models)

    def predict(
        self, lines: Any, options: Options = Options(), *, first_line: int = 1, **changes: Any
    ) -> list[Prediction]:
        """Decode lines, in any number; predictions come in their order, and an empty line gives an empty prediction.

        Args:
            lines: raw text or, where the model reads speech, recordings (see `audio_files.Recording`); one
                text, or path, is one line.
            options: how to decode; single options can be given by name instead (`beam=1`, `capture="all"`).
            first_line: the number of the first line, for messages and random streams.
            changes: fields of `Options`.

        Raises:
            UserError: a line that is too long, or options that do not go together.
        """
        lines = [lines] if isinstance(lines, str | Path) else lines
        if changes:
            options = _changed(options, changes)
        config = options.resolved(self.recipe.decoding)
        if options.capture and len(self.models) > 1:
            raise UserError(
                "attention is one model's: give one run", where="--attention", received=f"{len(self.models)} runs"
            )
        sources, truncated, problems = self._encode(lines, options, first_line)
        prefixes = self._prefixes(options, len(lines))
        results: list[Prediction | None] = [None] * len(lines)
        for rows in _batches([len(ids) for ids in sources], config.batch_tokens):
            hypotheses = self._search([sources[row] for row in rows], [prefixes[row] for row in rows], config, options,
                                      [first_line + row for row in rows])  # fmt: skip
            captured = self._capture([sources[row] for row in rows], [each[0] for each in hypotheses], options.capture)
            for row, candidates, attention in zip(rows, hypotheses, captured, strict=True):
                results[row] = self._prediction(
                    lines[row], sources[row], candidates[: options.nbest], attention, truncated[row]
                )
        empty = [Candidate("", 0.0, [], [])] * options.nbest
        return [
            result or Prediction(self.source.name(lines[row]), [], empty, problem=problems.get(row))
            for row, result in enumerate(results)
        ]

    def _encode(
        self, lines: Sequence[Any], options: Options, first_line: int
    ) -> tuple[list[Any], list[bool], dict[int, str]]:
        """Sources as batches hold them, which are cut, and by row what is wrong with those to be skipped.

        The last have no length.
        """
        sources, truncated, problems = list[Any](), [False] * len(lines), dict[int, str]()
        for row, line in enumerate(lines):
            try:
                source, truncated[row] = self._encode_one(line, options, first_line + row)
                sources.append(source)
            except UserError as error:
                if not options.skip_broken:
                    raise
                sources.append([])
                problems[row] = str(error)
        return sources, truncated, problems

    def _encode_one(self, line: Any, options: Options, number: int) -> tuple[Any, bool]:
        source, truncated = self.read(line, whole=options.max_source_length is not None)
        limit = options.max_source_length or self._reads.longest_source()
        if len(source) > limit:
            if not options.truncate and self.recipe.data.truncate_source is None:
                text = self.source.vocabulary is not None
                unit = "pieces" if text else "frames"
                raise UserError(
                    f"this {'line' if text else 'recording'} is too long",
                    where=f"line {number}" if text else self.source.name(line),
                    received=f"{len(source)} {unit}",
                    allowed=f"up to {limit}; --truncate cuts longer ones, --max-source-length moves the limit",
                )
            return source[:limit], True
        return source, truncated

    def read(self, line: Any, *, whole: bool = False) -> tuple[Any, bool]:
        """As much of a source as the recipe reads, or all of it, as batches hold it; and whether it has more."""
        truncation = None if whole else source_truncation(self.recipe.data)
        return self.source.read(self.form.source(line), truncation)

    def _prefixes(self, options: Options, count: int) -> list[list[int]]:
        if options.prefixes is None:
            return [[]] * count
        if len(options.prefixes) != count:
            raise UserError(
                "there must be one prefix a line",
                where="--prefix",
                received=f"{len(options.prefixes)} prefixes",
                allowed=f"{count}",
            )
        return [self.target.encode(prefix) for prefix in options.prefixes]

    def _search(
        self,
        sources: list[Any],
        prefixes: list[list[int]],
        config: DecodingConfig,
        options: Options,
        lines: list[int],
    ) -> list[list[Hypothesis]]:
        batch = collate([np.asarray(ids) for ids in sources], None).to(self.device)
        limits = _limits(sources, prefixes, config, lines, self._reads)
        with torch.inference_mode():
            memory = self.model.encode(batch.source, batch.source_mask)
        alpha = config.length_penalty
        if options.sampling is None:
            return beam_search(self.model, memory, limits, beam=config.beam, alpha=alpha)
        return sample(
            self.model, memory, limits, sampling=options.sampling, lines=lines, count=options.nbest, alpha=alpha
        )

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
                where="--layers",
                received=", ".join(patterns_of(capture)),
                allowed=self.attention_names() or "none; it has no attention",
            )
        whole = {name: weights.float().cpu().numpy() for name, weights in attention.items()}
        axes = {name: self.models[0].attention_axes(name) for name in whole}
        read, written = self.models[0].source_lengths(batch.source_mask.sum(1)), batch.target_mask.sum(1)
        lengths = zip(read.tolist(), written.tolist(), strict=True)
        sizes = [{"source": source, "target": target, "both": source + target} for source, target in lengths]
        return [
            {name: each[row, :, : size[axes[name].queries], : size[axes[name].keys]] for name, each in whole.items()}
            for row, size in enumerate(sizes)
        ]

    def can_read(self, source: Any, target: str) -> bool:
        """Whether the model has positions for this source and this target."""
        (read, _), given = self.read(source), len(self.target.encode(target))
        length = len(read)
        room = self._reads.longest_target(length)
        return length <= self._reads.longest_source() and (room is None or given <= room)

    def attended(self, source: Any) -> list[str]:
        """What is read of an encoded source: its tokens and the end mark or, of speech, seconds."""
        return self._seconds(source) or [*self.source.tokens(source), END]

    def _seconds(self, source: Any) -> list[str]:
        after = self.models[0].source_lengths(torch.arange(1, len(source) + 1))
        return self.source.seconds(np.flatnonzero(np.diff(after.numpy(), prepend=0)))

    @torch.inference_mode()
    def attention_names(self) -> list[str]:
        """The names of all the attention that the model has, such as `decoder.0.cross`; none where it has no such."""
        batch = collate([self.models[0].trial_source(1)], [np.array([UNKNOWN])]).to(self.device)
        return list(self.models[0](batch, capture=("*",)).attention)

    def _prediction(
        self,
        line: Any,
        source: Any,
        hypotheses: list[Hypothesis],
        attention: dict[str, NDArray[np.float32]],
        truncated: bool,
    ) -> Prediction:
        words = (self.source.words(source), self.target.words(hypotheses[0].ids)) if attention else (NO_WORDS, NO_WORDS)
        candidates = [self._candidate(line, each) for each in hypotheses]
        axes = {name: self.models[0].attention_axes(name) for name in attention}
        return Prediction(
            self.source.name(line), self.source.tokens(source), candidates, attention, *words, axes,
            self._seconds(source), truncated,
        )  # fmt: skip

    def _candidate(self, line: str, hypothesis: Hypothesis) -> Candidate:
        ids = hypothesis.ids
        written = self.target.decode(ids)
        text, tokens = self.form.output(line, written), self.target.tokens(ids)
        return Candidate(text, hypothesis.score, tokens, list(hypothesis.log_probabilities), written)

    def score(self, sources: Sequence[Any], targets: Sequence[str]) -> list[Candidate]:
        """Force-score given targets: the log probability of each token and of the end mark, and the score of the whole.

        Raises:
            UserError: as `force`.
        """
        return [prediction.candidates[0] for prediction in self.force(sources, targets)]

    @torch.inference_mode()
    def force(self, sources: Sequence[Any], targets: Sequence[str], *, capture: Capture = ()) -> list[Prediction]:
        """Predictions whose one candidate is the given target, scored, with the attention that is asked for.

        Raises:
            UserError: different numbers of sources and targets, or more than one model.
        """
        if len(sources) != len(targets):
            raise UserError(
                "each source needs one target", received=f"{len(sources)} sources and {len(targets)} targets"
            )
        if len(self.models) > 1:
            raise UserError("targets are scored with one model", received=f"{len(self.models)} runs")
        read = [self.read(line) for line in sources]
        source_ids, truncated = [source for source, _ in read], [cut for _, cut in read]
        target_ids = self.target.encode_lines(targets)
        lengths = [max(len(source), len(target)) for source, target in zip(source_ids, target_ids, strict=True)]
        results: list[Prediction | None] = [None] * len(sources)
        for rows in _batches([length + 1 for length in lengths], self.recipe.decoding.batch_tokens):
            batch = _pairs([source_ids[row] for row in rows], [target_ids[row] for row in rows]).to(self.device)
            output = self.models[0](batch, capture=patterns_of(capture))
            scores = output.logits.float().log_softmax(-1)
            each = scores.gather(2, batch.target_output[:, :, None]).squeeze(2).cpu()
            forced = []
            for place, row in enumerate(rows):
                ids = tuple(target_ids[row])
                log_probabilities = tuple(each[place, : len(ids) + 1].tolist())
                penalty = length_penalty(len(log_probabilities), self.recipe.decoding.length_penalty)
                forced.append(Hypothesis(ids, log_probabilities, sum(log_probabilities) / penalty))
            captured = self._cut(output.attention, batch, capture)
            for row, hypothesis, weights in zip(rows, forced, captured, strict=True):
                results[row] = self._prediction(sources[row], source_ids[row], [hypothesis], weights, truncated[row])
        return [result for result in results if result is not None]


def _limits(
    sources: list[Any],
    prefixes: list[list[int]],
    config: DecodingConfig,
    lines: list[int],
    model: Seq2Seq,
) -> Limits:
    """What the search keeps to; a longest length that the source gives makes room for the shortest and the prefix."""
    longest = []
    for ids, prefix, line in zip(sources, prefixes, lines, strict=True):
        needed, length = max(config.min_length, len(prefix)), config.max_length
        if length is None:
            length = max(int(config.max_length_ratio * len(ids)) + config.max_length_offset, needed)
        room = model.longest_target(len(ids))
        length = length if room is None else min(length, room)
        if needed > length:
            what = "this prefix" if len(prefix) == needed else "the shortest output"
            raise UserError(
                f"{what} is longer than the longest output",
                where=f"line {line}",
                received=f"{needed} pieces",
                allowed=f"up to {length}",
            )
        longest.append(length)
    return Limits(config.min_length, longest, prefixes if any(prefixes) else (), config.no_repeat_ngram)


def _pairs(sources: Sequence[Any], targets: Sequence[Sequence[int]]) -> Batch:
    return collate([np.asarray(ids) for ids in sources], [np.asarray(ids, dtype=np.int64) for ids in targets])


def _changed(options: Options, changes: dict[str, Any]) -> Options:
    known = Options.__dataclass_fields__
    for name in changes:
        if name not in known:
            raise UserError("unknown option of predict", where=name, allowed=list(known))
    return Options(**({name: getattr(options, name) for name in known} | changes))


def _batches(lengths: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Rows of like length, longest first, with at most `budget` padded pieces together; empty lines are left out."""
    rows = sorted((row for row, length in enumerate(lengths) if length), key=lambda row: -lengths[row])
    batch: list[int] = []
    for row in rows:
        if batch and (len(batch) + 1) * (lengths[batch[0]] + 1) > budget:
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch


def load(
    run: str | Path,
    *more_runs: str | Path,
    device: str = "auto",
    average: int | None = None,
    form: Form | None = None,
) -> Predictor:
    """Load a run, or several as an ensemble, for prediction.

    Args:
        run: the run folder.
        more_runs: further runs with the same vocabularies; the mean of all probabilities is decoded.
        device: `auto`, `cpu`, `cuda`, ...
        average: use the mean of each run's last so many checkpoints.
        form: how lines stand to the text of the models.

    Raises:
        UserError: a folder that holds no finished model.
    """
    where = pick_device(device)
    return Predictor([load_run(Path(path), where, average) for path in (run, *more_runs)], where, form)
