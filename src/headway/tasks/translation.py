"""Translation, and whatever else turns one line of text into another: sides, pairs, search."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from headway.console import progress, say, warn
from headway.corpora.corpus import Corpus, CorpusReport, build_corpus
from headway.corpora.data_checks import DataCheck, check
from headway.corpora.data_config import LeadConfig
from headway.corpora.lead import lead
from headway.corpora.overlap import overlap
from headway.errors import UserError, check_companions
from headway.formats.corpus_config import CorpusConfig
from headway.formats.lines import check_file, read_lines
from headway.formats.pairs import PAIR_ORIGINS, Pair, PairSource, check_origin, open_source
from headway.losses import Objective
from headway.models import Model, ModelConfig, Seq2Seq, build_model
from headway.parses.heads import HeadLabeller, head_labellers
from headway.predictors.captured_attention import END, patterns_of
from headway.predictors.formatter import Form
from headway.predictors.prediction import Prediction
from headway.predictors.prediction_stream import Outlet, force_score, predict_stream, read_standard_input
from headway.predictors.sequence_predictor import Options, Predictor, load
from headway.predictors.word_alignment import Aligner, WordAlignment
from headway.processing.labeller import Labeller
from headway.processing.text.text_processor import Side, load_sides, save_sides, train_sides
from headway.recipe import Recipe
from headway.runs.run_folder import LoadedRun, RunFolder
from headway.search.sampling import Sampling
from headway.tasks.aligners import choose_aligner
from headway.tasks.task import (
    Chunk,
    DevOutputs,
    Example,
    Prepared,
    Reading,
    Readings,
    Task,
    check_options,
    check_readings,
    given_pairs,
    numbers,
)
from headway.tensors.batch import collate

SEARCH = (
    "beam",
    "nbest",
    "length_penalty",
    "min_length",
    "max_length",
    "max_length_ratio",
    "max_length_offset",
    "no_repeat_ngram",
    "batch_tokens",
    "max_source_length",
    "truncate",
)
SAMPLING = ("temperature", "top_k", "top_p", "seed")
ALIGNMENT = ("alignments", "alignment_layer", "alignment_heads", "alignment_gold", "alignment_figure")
READ_TOGETHER = 64  # pairs whose attention is in memory at once
OUTPUT = ("scores", "prefix", "attention", "layers", "sample")
NEEDS = {
    **dict.fromkeys(SAMPLING, ("sample",)),
    **dict.fromkeys(("alignment_layer", "alignment_heads", "alignment_gold"), ("alignments", "alignment_figure")),
    "layers": ("attention",),
}


@dataclass(frozen=True)
class PreparedPairs(Prepared):
    """Both sides' text preparation, the encoded corpora, the raw dev pairs, and the leads to score beside the model."""

    recipe: Recipe
    source: Side
    target: Side
    train: Corpus
    dev: Corpus | None
    dev_pairs: list[Pair]
    lead: tuple[LeadConfig, ...]

    def new_model(self, *, initial: bool) -> Seq2Seq:
        shared = self.source.vocabulary is self.target.vocabulary
        config = self.recipe.model_as(ModelConfig)
        return build_model(config, len(self.source.vocabulary), len(self.target.vocabulary), shared)

    def dev_outputs(self, model: Model[Any], device: torch.device) -> DevOutputs:
        assert isinstance(model, Seq2Seq)
        predictor = Predictor([LoadedRun(self.recipe, self.source, self.target, model)], device)
        predictions = predictor.predict([pair.source for pair in self.dev_pairs], Options(truncate=True))
        return DevOutputs([prediction.text for prediction in predictions], self._references())

    def dev_baselines(self) -> dict[str, DevOutputs]:
        return {
            each.name: DevOutputs([lead(pair.source, each) for pair in self.dev_pairs], self._references())
            for each in self.lead
        }

    def _references(self) -> list[list[str]]:
        return [list(texts) for texts in zip(*(pair.references for pair in self.dev_pairs), strict=True)]


class Translation(Task):
    """Pairs of lines, an encoder-decoder, and search.

    Attributes:
        origins: the kinds of corpus that can be read.
        forms: the options of `predict` that decide the form of lines.
    """

    name = "translation"
    metrics: tuple[dict[str, Any], ...] = ({"name": "bleu"}, {"name": "chrf"})
    origins: tuple[str, ...] = PAIR_ORIGINS
    forms: tuple[str, ...] = ()

    def form(self, options: Mapping[str, Any]) -> Form:
        """How lines stand to the text of the model. Raises UserError for options that are not allowed."""
        return Form()

    def check(self, recipe: Recipe) -> None:
        for name, corpus in (("train", recipe.data.train), ("dev", recipe.data.dev)):
            if corpus is not None:
                check_origin(corpus, f"data.{name}", self.origins)
        config = recipe.model_as(ModelConfig)
        if config.reads_frames():
            raise UserError(f"{self.name} has no recordings that this could read", where="model.front_end")
        with torch.device("meta"):  # the vocabularies are not known yet, so that nothing can be matched
            model = build_model(config.model_copy(update={"match_parameters": None}), 8, 8, recipe.vocabulary.shared)
        check_objective(recipe, model)
        _check_positions(recipe, model)
        if recipe.data.truncate_source is not None and (labels := Objective(recipe.objective).labels):
            what = f"the objective learns {', '.join(labels)}, which are those of whole sentences"
            raise UserError(what, where="data.truncate_source", received=recipe.data.truncate_source)

    def check_data(self, recipe: Recipe) -> DataCheck:
        return check(recipe.data, new_sides(recipe))

    def prepare(self, recipe: Recipe, folder: RunFolder) -> PreparedPairs:
        return prepare_pairs(recipe, folder)

    def load(self, runs: Sequence[Path], device: str, average: int | None) -> Predictor:
        return load(*runs, device=device, average=average, form=self.form({}))

    def predict(
        self, runs: Sequence[Path], device: str, average: int | None, options: Mapping[str, Any]
    ) -> list[WordAlignment]:
        check_options(options, (*SEARCH, *SAMPLING, *OUTPUT, *ALIGNMENT, *self.forms), self.name)
        check_search_options(options)
        predictor = load(*runs, device=device, average=average, form=self.form(options))
        aligner = _aligner(predictor, options)
        chosen, outlet = search_options(options, aligner)
        predict_stream(predictor, chosen, outlet, options.get("prefix"), read_standard_input())
        for note in predictor.form.notes():
            say(note)
        return outlet.shown

    def score(self, run: Path, device: str, options: Mapping[str, Any]) -> list[WordAlignment]:
        check_options(options, ("source", "target", "json_output", *ALIGNMENT), self.name)
        check_companions(options, NEEDS)
        if "source" not in options or "target" not in options:
            raise UserError(
                "a run scores targets, given their sources",
                where="headway score RUN",
                allowed="--source FILE --target FILE",
            )
        predictor = self.load([run], device, None)
        aligner = _aligner(predictor, options)
        outlet = Outlet(alignments=options.get("alignments"), aligner=aligner)
        as_json = options.get("json_output", False)
        sources, targets = (list(read_lines(options[name])) for name in ("source", "target"))
        if len(sources) != len(targets):
            raise UserError(
                "both files need the same number of lines",
                where=f"{options['source']}, {options['target']}",
                received=f"{len(sources)} and {len(targets)} lines",
            )
        force_score(predictor, sources, targets, outlet, as_json=as_json)
        return outlet.shown

    def examples(self, run: Path, recipe: Recipe, count: int) -> list[Example]:
        if recipe.data.dev is None:
            return []
        pairs = list(islice(open_source(recipe.data.dev, "data.dev"), count))
        return examples_of(self.load([run], "auto", None), pairs)

    def pairs(self, recipe: Recipe, files: Sequence[Path]) -> list[tuple[str, str | None]]:
        if files:
            for file in files:
                check_file(file, "--input")
            return [(line, None) for line in chain.from_iterable(map(read_lines, files))]
        if recipe.data.dev is None:
            return []
        return [(pair.source, pair.target) for pair in open_source(recipe.data.dev, "data.dev")]

    def readings(
        self, predictor: Predictor, source: Path | None, reference: Path | None, *, hypotheses: bool = True
    ) -> Readings:
        if source is not None and reference is None:
            check_file(source, "--input")
            return Readings(sum(1 for _ in read_lines(source)), _read_freely(predictor, read_lines(source)))
        pairs = _pairs_of(predictor.recipe, source, reference)
        return Readings(sum(1 for _ in pairs), _read_forced(predictor, pairs, hypotheses))


def _pairs_of(recipe: Recipe, source: Path | None, reference: Path | None) -> PairSource:
    """The pairs of two files, or of the recipe's dev. Raises UserError."""
    check_readings(recipe, source, reference)
    if source is not None and reference is not None:
        return given_pairs(source, reference)
    assert recipe.data.dev is not None
    return open_source(recipe.data.dev, "data.dev")


def _read_freely(predictor: Predictor, lines: Iterator[str]) -> Iterator[Chunk]:
    """Lines with the model's own outputs."""
    while chunk := list(islice(lines, READ_TOGETHER)):
        shown = [line for line in chunk if line.strip()]
        said = predictor.predict(shown, Options(truncate=True, capture="all"))
        yield Chunk(len(chunk), [Reading(each.source, each.attention, each.written, each.text) for each in said])


def _read_forced(predictor: Predictor, pairs: Iterable[Pair], hypotheses: bool) -> Iterator[Chunk]:
    """Pairs as they are given; those that are longer than the model's positions are left out."""
    rest = iter(pairs)
    while chunk := list(islice(rest, READ_TOGETHER)):
        shown = [pair for pair in chunk if pair.source.strip() and predictor.can_read(pair.source, pair.target)]
        sources, targets = [pair.source for pair in shown], [pair.target for pair in shown]
        forced = predictor.force(sources, targets, capture="all")
        said: list[str | None] = [None] * len(shown)
        if hypotheses:
            said = [each.text for each in predictor.predict(sources, Options(truncate=True))]
        yield Chunk(
            len(chunk),
            [
                Reading(each.source, each.attention, pair.target, text, pair.references)
                for each, pair, text in zip(forced, shown, said, strict=True)
            ],
        )


def check_search_options(options: Mapping[str, Any]) -> None:
    """Raise UserError for options of `headway predict` that would do nothing beside the others, or for want of them."""
    check_companions(options, NEEDS)
    if options.get("sample") and "beam" in options:
        raise UserError("outputs are drawn or searched for, not both", where="--beam", allowed="without --sample")


def search_options(options: Mapping[str, Any], aligner: Aligner | None = None) -> tuple[Options, Outlet]:
    """What the options of `headway predict` say of search, and of where its predictions go."""
    search = {name: options[name] for name in SEARCH if name in options}
    sampling = {name: options[name] for name in SAMPLING if name in options}
    patterns = patterns_of(options.get("layers", "*.cross")) if options.get("attention") else ()
    chosen = Options(
        **search,
        sampling=Sampling(**sampling) if options.get("sample") else None,
        capture=patterns + ((aligner.layer,) if aligner else ()),
    )
    with_scores = options.get("scores", False) or chosen.nbest > 1
    return chosen, Outlet(with_scores, options.get("attention"), patterns, options.get("alignments"), aligner)


def _aligner(predictor: Predictor, options: Mapping[str, Any]) -> Aligner | None:
    """What makes alignments, if any file of them is asked for. Raises UserError."""
    if not (options.get("alignments") or options.get("alignment_figure")):
        return None
    heads = numbers(options.get("alignment_heads"), "--alignment-heads")
    return choose_aligner(predictor, options.get("alignment_layer"), heads, options.get("alignment_gold"))


def example_of(prediction: Prediction, reference: str | None) -> Example:
    """A prediction as reports show it."""
    return Example(
        source=prediction.source,
        hypothesis=prediction.text,
        reference=reference,
        score=prediction.score,
        source_tokens=prediction.attended,
        target_tokens=[*prediction.tokens, END],
        attention=prediction.attention,
    )


def examples_of(predictor: Predictor, pairs: Sequence[Pair]) -> list[Example]:
    """Decode `pairs` with their cross-attention, where the model has it; pairs without a source are left out."""
    shown = [pair for pair in pairs if pair.source.strip()]
    attention = tuple(name for name in predictor.attention_names() if name.endswith(".cross"))
    options = Options(capture=attention, truncate=True)
    predictions = predictor.predict([pair.source for pair in shown], options)
    return [example_of(each, pair.references[0]) for each, pair in zip(predictions, shown, strict=True)]


def _check_positions(recipe: Recipe, model: Seq2Seq) -> None:

    def fit(length: int) -> bool:
        """Whether the model can read a source and a target of `length` pieces."""
        longest = model.longest_target(length)
        return longest is None or length <= longest

    length = recipe.data.max_length
    if not fit(length):
        most = next(shorter for shorter in range(length, -1, -1) if fit(shorter) or not shorter)
        raise UserError(
            "sentences may be longer than there are learned positions",
            where="data.max_length",
            received=length,
            allowed=f"up to {most}, or a higher model.max_position",
        )


def check_objective(recipe: Recipe, model: Seq2Seq) -> None:
    """Find out, on a sentence of one piece, whether the model has the attention that the objective reads."""
    objective = Objective(recipe.objective)
    if objective.capture:
        sentence = collate([model.trial_source(1)], [np.array([4])]).to("meta")
        objective.check(model(sentence, capture=("*", *objective.capture)).attention)


def prepare_sides(recipe: Recipe, folder: RunFolder) -> tuple[Side, Side]:
    """The run's text preparation: read from the run folder, or trained on the training corpus and stored there."""
    if folder.vocabulary.is_dir():
        return load_sides(folder.vocabulary)
    sides = new_sides(recipe)
    folder.keep_sides(lambda unfinished: save_sides(sides, unfinished))
    return sides


def new_sides(recipe: Recipe) -> tuple[Side, Side]:
    """Text preparation with vocabularies trained on the training corpus."""
    corpus = open_source(recipe.data.train, "data.train")

    def pairs() -> Iterator[tuple[str, str]]:
        with progress("training the vocabulary: reading", unit="pairs") as task:
            for number, pair in enumerate(corpus):
                if number % 10_000 == 0:
                    task.update(number)
                yield pair.source, pair.target

    kinds = dict.fromkeys(each.kind for each in (recipe.vocabulary, recipe.vocabulary.target) if each)
    say(f"vocabulary: training ({', '.join(kinds)})")
    return train_sides(recipe.text, recipe.vocabulary, pairs)


def prepare_pairs(recipe: Recipe, folder: RunFolder) -> "PreparedPairs":
    """All that training needs, saying what was read and what was dropped.

    Raises:
        UserError: files that are missing, empty, not UTF-8 or not line by line parallel; nothing left to train on.
    """
    open_source(recipe.data.train, "data.train")
    dev_source = open_source(recipe.data.dev, "data.dev") if recipe.data.dev else None
    labellers = head_labellers(recipe.data.train, recipe.data.parses, Objective(recipe.objective).labels)
    source, target = sides = prepare_sides(recipe, folder)
    say(f"vocabulary: {len(source.vocabulary)} source and {len(target.vocabulary)} target pieces")
    train = _encode(recipe.data.train, recipe, sides, "data.train", keep_all=False, labellers=labellers)
    if not len(train):
        raise UserError("no pair is left to train on", where="data.train", received=train.report.dropped)
    for each in labellers:
        _check_heads(each, train.report)
    dev = _encode(recipe.data.dev, recipe, sides, "data.dev", keep_all=True) if recipe.data.dev else None
    if dev_source is not None:
        say(str(overlap(open_source(recipe.data.train, "data.train"), dev_source)))
    dev_pairs = list(dev_source) if dev_source is not None else []
    return PreparedPairs(recipe, source, target, train, dev, dev_pairs, recipe.data.lead)


def _check_heads(labeller: HeadLabeller, report: CorpusReport) -> None:
    """Say how much of the corpus is not parsed. Raises UserError where nothing is."""
    counts = report.labels[labeller.name]
    if not counts["edges"]:
        raise UserError("none of the sentences has a parse here", where=str(labeller.path), received=counts)
    if missing := counts["lines without a parse"]:
        warn(f"{labeller.name}: {missing:,} of {counts['lines']:,} lines have no parse in {labeller.path}")


def _encode(
    config: CorpusConfig,
    recipe: Recipe,
    sides: tuple[Side, Side],
    where: str,
    keep_all: bool,
    labellers: Sequence[Labeller] = (),
) -> Corpus:
    with progress(f"encoding {where}", unit="pairs") as task:
        corpus = build_corpus(
            config, recipe.data, sides, where=where, filter=not keep_all,
            progress=lambda done: task.update(done), labellers=labellers,
        )  # fmt: skip
    say(corpus.report.text())
    return corpus
