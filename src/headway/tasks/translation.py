"""Translation, and whatever else turns one line of text into another: two processors of text, pairs, search."""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from headway.corpora.corpus import Corpus, CorpusReport, build_corpus
from headway.corpora.data_checks import DataCheck, allowed_by, every_error, shared_by
from headway.corpora.lead import LeadConfig, lead
from headway.corpora.overlap import overlap
from headway.errors import UserError
from headway.formats.corpus_format import PAIRS, check_product
from headway.formats.lines import read_lines
from headway.formats.pairs import Pair, PairSource, open_source
from headway.log import progress, say, warn
from headway.losses import Objective
from headway.models import Model, ModelConfig, Seq2Seq, build_model
from headway.parses.heads import HeadLabeller, head_labellers
from headway.predictors.captured_attention import END
from headway.predictors.prediction import Prediction
from headway.predictors.run import Run
from headway.predictors.sequence_predictor import SequencePredictor
from headway.processing.labeller import Labeller
from headway.processing.processor import Processors
from headway.processing.text.text_processor import (
    TextProcessor,
    load_processors,
    save_processors,
    train_processors,
)
from headway.recipe import Recipe
from headway.storage import keep_folder
from headway.tasks.marian_import import fill_from_marian, marian_processors
from headway.tasks.task import Corpora, Example, RawCorpus, RawExample, Task, check_raw_corpus, given_pairs
from headway.tensors.batch import collate


class Translation(Task):
    """Pairs of lines, an encoder-decoder, and search.

    Attributes:
        product: what corpora are read as.
    """

    name = "translation"
    metrics: ClassVar[tuple[dict[str, Any], ...]] = ({"name": "bleu"}, {"name": "chrf"})
    product: ClassVar[str] = PAIRS

    def check(self, recipe: Recipe) -> None:
        for name, corpus in (("train", recipe.data.train), ("dev", recipe.data.dev)):
            if corpus is not None:
                check_product(corpus, f"data.{name}", self.product)
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

    def check_origin(self, recipe: Recipe) -> None:
        if recipe.model.from_ is not None:
            self.model(recipe, Processors(*marian_processors(recipe)))

    def check_data(self, recipe: Recipe) -> DataCheck:
        lenient = recipe.model_copy(update={"data": recipe.data.lenient()})
        given = recipe.data.corpora()
        broken = {name: every_error(open_source(corpus, name, "skip")) for name, corpus in given.items()}
        sources = {name: open_source(corpus, name, "skip") for name, corpus in given.items()}
        processors = new_processors(lenient)
        corpora = [
            _encode(source, lenient, processors, name, keep_all=name == "data.dev") for name, source in sources.items()
        ]
        shared = shared_by(sources["data.train"], sources.get("data.dev"))
        return DataCheck([corpus.report for corpus in corpora], broken, allowed_by(recipe.data.broken), *shared)

    def corpora(self, recipe: Recipe, folder: Path) -> Corpora:
        train_source = open_source(recipe.data.train, "data.train", recipe.data.broken)
        dev_source = open_source(recipe.data.dev, "data.dev", recipe.data.broken) if recipe.data.dev else None
        labellers = head_labellers(recipe.data.train, recipe.data.parses, Objective(recipe.objective).labels)
        both = _prepared_processors(recipe, folder)
        say(f"vocabulary: {both[0].size} source and {both[1].size} target tokens")
        train = _encode(train_source, recipe, both, "data.train", keep_all=False, labellers=labellers)
        say(train.report.text())
        if not len(train):
            raise UserError("no pair is left to train on", where="data.train", received=train.report.dropped)
        for labeller in labellers:
            _check_heads(labeller, train.report)
        dev = _encode(dev_source, recipe, both, "data.dev", keep_all=True) if dev_source is not None else None
        if dev_source is not None and dev is not None:
            say(dev.report.text())
            overlap(train_source, dev_source).tell()
        pairs = list(dev_source) if dev_source is not None else []
        processors = Processors(*both)
        decode = partial(_decode, recipe, processors, [pair.source for pair in pairs])
        references = [list(texts) for texts in zip(*(pair.references for pair in pairs), strict=True)]
        language = recipe.text.source.language
        beginnings = {
            config.name: [lead(pair.source, config, language) for pair in pairs] for config in self.leads(recipe, pairs)
        }
        return Corpora(processors, train, decode, dev, references, beginnings)

    def leads(self, recipe: Recipe, dev: Sequence[Pair]) -> Sequence[LeadConfig]:
        """The beginnings of dev sources that are scored beside the model; by default those of the recipe."""
        return recipe.data.lead if dev else ()

    def processors(self, folder: Path) -> Processors:
        return Processors(*load_processors(folder))

    def model(self, recipe: Recipe, processors: Processors, *, initial: bool = True) -> Seq2Seq:
        source, target = processors
        assert isinstance(source, TextProcessor)
        assert isinstance(target, TextProcessor)
        shared = source.vocabulary.shares_ids_with(target.vocabulary)
        model = build_model(recipe.model_as(ModelConfig), source.size, target.size, shared)
        if initial and recipe.model.from_ is not None:
            fill_from_marian(model, recipe.model.from_)
        return model

    def predictor(self, runs: Sequence[Run], device: torch.device) -> SequencePredictor:
        return SequencePredictor(runs, device)

    def examples(self, predictor: SequencePredictor, count: int) -> list[Example]:
        if predictor.recipe.data.dev is None:
            return []
        dev = open_source(predictor.recipe.data.dev, "data.dev", predictor.recipe.data.broken)
        return examples_of(predictor, list(islice(dev, count)))

    def raw_corpus(self, recipe: Recipe, sources: Sequence[Path] = (), reference: Path | None = None) -> RawCorpus:
        check_raw_corpus(recipe, sources, reference)
        if sources and reference is None:
            lines = (RawExample(line) for line in chain.from_iterable(map(read_lines, sources)))
            return RawCorpus(sum(1 for source in sources for _ in read_lines(source)), lines)
        if reference is not None:
            pairs = given_pairs(sources[0], reference)
        else:
            assert recipe.data.dev is not None
            pairs = open_source(recipe.data.dev, "data.dev", recipe.data.broken)
        examples = (RawExample(pair.source, pair.target, pair.references) for pair in pairs)
        return RawCorpus(sum(1 for _ in pairs), examples)


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


def examples_of(predictor: SequencePredictor, pairs: Sequence[Pair]) -> list[Example]:
    """Decode `pairs` with their cross-attention, where the model has it; pairs without a source are left out."""
    shown = [pair for pair in pairs if pair.source.strip()]
    attention = tuple(name for name in predictor.attention_names() if name.endswith(".cross"))
    predictions = predictor.predict([pair.source for pair in shown], capture=attention, truncate=True)
    return [example_of(prediction, pair.references[0]) for prediction, pair in zip(predictions, shown, strict=True)]


def _check_positions(recipe: Recipe, model: Seq2Seq) -> None:
    def fit(length: int) -> bool:
        """Whether the model can read a source and a target of `length` tokens."""
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


def _decode(
    recipe: Recipe, processors: Processors, sources: Sequence[str], model: Model[Any], device: torch.device
) -> list[str]:
    """The text that a model writes for each source, before a task makes anything else of it."""
    predictor = SequencePredictor([Run(recipe, *processors, model)], device)
    return [prediction.text for prediction in predictor.predict(sources, truncate=True)]


def _prepared_processors(recipe: Recipe, folder: Path) -> tuple[TextProcessor, TextProcessor]:
    """The run's processors: read from `folder`, or trained on the training corpus and stored there."""
    if folder.is_dir():
        return load_processors(folder)
    processors = new_processors(recipe) if recipe.model.from_ is None else marian_processors(recipe)
    keep_folder(folder, partial(save_processors, processors))
    return processors


def new_processors(recipe: Recipe) -> tuple[TextProcessor, TextProcessor]:
    """Processors with vocabularies trained on the training corpus."""
    corpus = open_source(recipe.data.train, "data.train", recipe.data.broken)
    for side in ("source", "target"):
        if not any(getattr(pair, side).strip() for pair in corpus):
            raise UserError(f"no pair has any text as its {side}", where=corpus.name)

    def pairs() -> Iterator[tuple[str, str]]:
        with progress("training the vocabulary: reading", unit="pairs") as line:
            for index, pair in enumerate(corpus):
                if index % 10_000 == 0:
                    line.update(index)
                yield pair.source, pair.target

    kinds = dict.fromkeys(config.kind for config in (recipe.vocabulary, recipe.vocabulary.target) if config)
    say(f"vocabulary: training ({', '.join(kinds)})")
    return train_processors(recipe.text, recipe.vocabulary, pairs)


def _check_heads(labeller: HeadLabeller, report: CorpusReport) -> None:
    """Say how much of the corpus is not parsed. Raises UserError where nothing is."""
    counts = report.labels[labeller.name]
    if not counts["edges"]:
        raise UserError("none of the sentences has a parse here", where=str(labeller.path), received=counts)
    if missing := counts["lines without a parse"]:
        warn(f"{labeller.name}: {missing:,} of {counts['lines']:,} lines have no parse in {labeller.path}")


def _encode(
    source: PairSource,
    recipe: Recipe,
    processors: tuple[TextProcessor, TextProcessor],
    name: str,
    keep_all: bool,
    labellers: Sequence[Labeller] = (),
) -> Corpus:
    """The encoded corpus."""
    with progress(f"encoding {name}", unit="pairs") as line:
        return build_corpus(
            source, processors, recipe.data, name=name, filter=not keep_all,
            progress=lambda done: line.update(done), labellers=labellers,
        )  # fmt: skip
