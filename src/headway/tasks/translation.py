"""Translation, summarization, parsing, and other tasks that turn one line into another."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch

from headway.core.errors import UserError, option
from headway.core.languages import look_unspaced
from headway.core.log import counted, progress, say
from headway.core.storage import file_hashes, keep_folder
from headway.corpora.corpus import Corpus, build_corpus
from headway.corpora.data_checks import DataCheck, allowed_by, every_error, findings, kept_overlap, refusal, shared_by
from headway.corpora.documents import Windows, open_read
from headway.corpora.lead import LeadConfig, leads_of
from headway.corpora.plan import mixture_of
from headway.formats.corpus_config import AnyCorpus, parts
from headway.formats.corpus_format import PAIRS, TREES, check_product
from headway.formats.lines import read_lines
from headway.formats.pairs import Pair, PairSource, check_references, check_sides, open_source
from headway.formats.penn import parse_tree
from headway.losses import Objective
from headway.models import Model, ModelConfig, Seq2Seq, build_model
from headway.parses.links import link_labellers
from headway.parses.projection import head_labellers
from headway.predictors.output import Example, Output, TestSet, in_documents
from headway.predictors.predictor import Run
from headway.predictors.sequence_predictor import SequencePredictor, TreePredictor
from headway.processing.processor import Processors, Truncation
from headway.processing.text.extension import WHERE as EXTENSION
from headway.processing.text.extension import check_extensible, extended_processors, marked, tagged
from headway.processing.text.subword_sampling import KINDS as SAMPLED
from headway.processing.text.subword_sampling import PairSampler, SubwordSampler
from headway.processing.text.text_processor import (
    Labeller,
    TextProcessor,
    load_processors,
    save_processors,
    train_processors,
    trained_once,
    with_characters,
)
from headway.recipe import Recipe
from headway.tasks.checks import check_objective, check_predictions, meta_model, warn_of_cut_sources
from headway.tasks.marian import fill_from_marian, marian_processors
from headway.tasks.task import Corpora, DevSet, Task
from headway.tensors.batch import LINKS
from headway.trees.tree import draw

SIDES: tuple[Literal["source", "target"], ...] = ("source", "target")


class Translation(Task):
    """Pairs of lines, an encoder-decoder, and search.

    Attributes:
        product: the kind of examples that corpora contain.
    """

    name = "translation"
    metrics: ClassVar[tuple[dict[str, Any], ...]] = ({"name": "bleu"}, {"name": "chrf"})
    product: ClassVar[str] = PAIRS
    mixes_corpora = True

    def check(self, recipe: Recipe) -> None:
        for name, corpus in recipe.data.corpora().items():
            check_product(corpus, name, self.product)
        config = recipe.model_as(ModelConfig)
        if config.reads_frames():
            raise UserError(f"{self.name} has no recordings that this could read", where="model.front_end")
        tags, sampling = _tags(recipe), recipe.training.subword_sampling
        if recipe.training.from_ is None:
            _check_tags(recipe, tags)
        if sampling is not None:
            target = recipe.vocabulary.target or recipe.vocabulary
            kinds = {"source": recipe.vocabulary.kind, "target": target.kind}
            for side in SIDES if sampling.sides == "both" else (sampling.sides,):
                if kinds[side] not in SAMPLED:
                    what = f"the vocabulary of the {side} has no pieces to draw"
                    allowed = "bpe or unigram; or sides: of the other side"
                    raise UserError(what, where="training.subword_sampling", received=kinds[side], allowed=allowed)
        _check_context(recipe, self)
        model = meta_model(recipe)
        check_objective(recipe, model)
        check_predictions(recipe, model)
        if labels := Objective(recipe.objective).labels:
            for where, setting, what in (
                ("training.subword_sampling", sampling, "which are those of the pieces without sampling"),
                ("data.train", " ".join(tags) or None, "of sentences without tags"),
                ("data.truncate_source", recipe.data.truncate_source, "which are those of whole sentences"),
            ):
                if setting is not None:
                    what = f"the objective learns {', '.join(labels)}, {what}"
                    raise UserError(what, where=where, received=setting)

    def check_origin(self, recipe: Recipe) -> Seq2Seq | None:
        if recipe.model.from_ is None:
            return None
        return self.model(recipe, Processors(*marian_processors(recipe)))

    def check_extension(self, recipe: Recipe, processors: Processors) -> None:
        check_extensible(_both(processors))

    def extend(self, recipe: Recipe, older: Path, folder: Path) -> None:
        made_of = [*_made_of(recipe), recipe.training.extend_vocabulary, file_hashes(older)]
        newer = trained_once(made_of, partial(_extended, recipe, older), save_processors, load_processors)
        keep_folder(folder, partial(save_processors, newer))

    def check_data(self, recipe: Recipe) -> DataCheck:
        given = recipe.data.corpora()
        broken = {name: every_error(open_source(corpus, name, "skip")) for name, corpus in given.items()}
        # If nothing is left out, training reuses the cached results of this check.
        lenient = recipe.model_copy(update={"data": recipe.data.lenient()}) if any(broken.values()) else recipe
        sources = {
            name: open_read(corpus, name, lenient.data.broken, recipe.data.context) for name, corpus in given.items()
        }
        try:
            processors = _new_processors_once(lenient)
        except UserError as cause:  # too few examples are left because of unreadable rows
            if not broken["data.train"]:
                raise
            what = f"{counted(len(broken['data.train']), 'row')} cannot be read, the first: {broken['data.train'][0]}"
            raise UserError(what, where="data.train") from cause
        corpora = {
            name: _encode(source, lenient, processors, name, keep_all=name != "data.train")
            for name, source in sources.items()
        }
        shared = shared_by(sources["data.train"], sources.get("data.dev"))
        refused = refusal(partial(_check_corpora, lenient, corpora))
        held_out = (partial(check_references, source, name) for name, source in sources.items() if name != "data.train")
        refused = next((error for check in held_out if (error := refusal(check))), refused)
        refused = refused or refusal(partial(_labellers, recipe))
        reports = [corpus.report for corpus in corpora.values()]
        found = [
            finding
            for report, corpus in zip(reports, given.values(), strict=True)
            for finding in findings(
                report.name,
                open_source(corpus, report.name, "skip", tags=False),
                recipe.text.target,
                report.location_of,
                source=recipe.text.source,
            )
        ]
        return DataCheck(reports, broken, allowed_by(recipe.data.broken), *shared, found, refused)

    def corpora(self, recipe: Recipe, folder: Path) -> Corpora:
        broken, context = recipe.data.broken, recipe.data.context
        sources = {name: open_read(corpus, name, broken, context) for name, corpus in recipe.data.corpora().items()}
        train_source, dev_source = sources["data.train"], sources.get("data.dev")
        for name, source in sources.items():
            if name != "data.train":
                check_references(source, name)
        labellers = _labellers(recipe)
        both = _prepared_processors(recipe, folder)
        _check_tags(recipe, both[0].vocabulary.tags)
        _check_marks(recipe, both)
        say(f"vocabulary: {both[0].size} source and {both[1].size} target tokens")
        train = _encode(train_source, recipe, both, "data.train", keep_all=False, labellers=labellers)
        say(train.report.text())
        _check_train(recipe, train)
        for labeller in labellers:
            labeller.check(train.report.labels[labeller.name])
        train.mixture = mixture_of(recipe.data.train, train.lines, train.report)
        train.sampler = _sampler(recipe, both)
        if context.target:
            train.after_mark = both[1].after_mark
        held_out = {}
        for name, source in sources.items():
            if name != "data.train":
                encoded = _encode(source, recipe, both, name, keep_all=True)
                encoded.after_mark = train.after_mark
                say(encoded.report.text())
                _check_lengths(recipe, encoded, name)
                examples = list(_examples(source))
                held_out[name] = DevSet(encoded, examples, partial(_predictor, recipe, Processors(*both)))
        if dev_source is not None:
            kept_overlap(train_source, dev_source).tell()
        pairs = list(dev_source) if dev_source is not None else []
        shown, language = held_out.get("data.dev"), recipe.text.source.language
        texts = [example.source for example in shown.examples] if shown is not None else []
        beginnings = leads_of(texts, self.leads(recipe, pairs), language)
        return Corpora(Processors(*both), train, held_out.get("data.dev"), held_out.get("data.general"), beginnings)

    def leads(self, recipe: Recipe, dev: Sequence[Pair]) -> Sequence[LeadConfig]:
        """The leads of the dev sources that are scored as baselines; by default those of the recipe."""
        return recipe.data.lead if dev else ()

    def processors(self, folder: Path) -> Processors:
        return Processors(*load_processors(folder))

    def model(self, recipe: Recipe, processors: Processors, *, initial: bool = True) -> Seq2Seq:
        source, target = _both(processors)
        shared = source.vocabulary.shares_ids_with(target.vocabulary)
        model = build_model(recipe.model_as(ModelConfig), source.size, target.size, shared)
        if initial and recipe.model.from_ is not None:
            fill_from_marian(model, recipe.model.from_)
        return model

    def predictor(self, runs: Sequence[Run], device: torch.device) -> SequencePredictor:
        return SequencePredictor(runs, device)

    def test_set(self, recipe: Recipe, corpus: AnyCorpus, where: str) -> TestSet:
        return _test_set(open_read(corpus, where, recipe.data.broken, recipe.data.context))

    def test_set_of_files(self, recipe: Recipe, sources: Sequence[Path], reference: Path | None) -> TestSet:
        if reference is not None:
            corpus = {"source": sources[0], "target": reference}
            return _test_set(open_read(corpus, option("input"), "error", recipe.data.context))
        count, context = sum(1 for source in sources for _ in read_lines(source)), recipe.data.context.most
        documents = (in_documents(read_lines(source), context) for source in sources)
        return TestSet(count, chain.from_iterable(documents))


class Summarization(Translation):
    """Sources and summaries, an encoder-decoder and search, beside the beginning of the source (Lead)."""

    name = "summarization"
    metrics = ({"name": "rouge-1"}, {"name": "rouge-2"}, {"name": "rouge-l"})

    def leads(self, recipe: Recipe, dev: Sequence[Pair]) -> Sequence[LeadConfig]:
        """The recipe's leads or, if it has none, a lead as long as the average reference."""
        if recipe.data.lead or not dev:
            return super().leads(recipe, dev)
        return (as_long_as_references(dev),)


class Parsing(Translation):
    """Sentences are translated into linear forms of trees, which are repaired to trees over exactly their words."""

    name = "parsing"
    metrics = ({"name": "bracket-f1"}, {"name": "tagging-accuracy"}, {"name": "well-formed"})
    writes = "trees"
    product = TREES

    def predictor(self, runs: Sequence[Run], device: torch.device) -> TreePredictor:
        return TreePredictor(runs, device)

    def check(self, recipe: Recipe) -> None:
        super().check(recipe)
        (_, first), *others = parts(recipe.data.train, "data.train")
        for where, other in [*others, *(parts(recipe.data.dev, "data.dev") if recipe.data.dev else ())]:
            for key in ("leaves", "functions"):
                received, allowed = getattr(other, key, None), getattr(first, key, None)
                if received != allowed:
                    raise UserError(
                        "the trees of dev are read as those of train", where=f"{where}.{key}", received=received,
                        allowed=str(allowed),
                    )  # fmt: skip

    def test_set_of_files(self, recipe: Recipe, sources: Sequence[Path], reference: Path | None) -> TestSet:
        if reference is not None:
            allowed = f"{option('input')} FILE of sentences alone, or neither for the trees of dev"
            what = "a parser is read with its own outputs or with trees"
            raise UserError(what, where=option("reference"), allowed=allowed)
        return super().test_set_of_files(recipe, sources, reference)

    def drawings(self, output: Output) -> dict[str, str]:
        texts = {"the model's tree": output.text, "the reference": next(iter(output.example.references), "")}
        return {name: draw(parse_tree(text)) for name, text in texts.items() if text}


def as_long_as_references(pairs: Sequence[Pair]) -> LeadConfig:
    """A lead with as many words (or characters, in languages without spaces) as the average reference."""
    texts = [text.strip() for pair in pairs for text in pair.references if text.strip()]
    unspaced = look_unspaced(texts)
    count = sum(len(text if unspaced else text.split()) for text in texts) / max(1, len(texts))
    return LeadConfig(count=max(1, round(count)), unit="characters" if unspaced else "words")


def _examples(pairs: PairSource) -> Iterator[Example]:
    """The pairs as examples, with the earlier sentences of the document if the recipe has a context."""
    for pair, before in pairs.with_earlier() if isinstance(pairs, Windows) else ((pair, ()) for pair in pairs):
        context = tuple((each.source, each.target) for each in before)
        yield Example(pair.source, pair.target, pair.references, context=context)


def _test_set(pairs: PairSource) -> TestSet:
    return TestSet(sum(1 for _ in pairs), _examples(pairs))


def _both(processors: Processors) -> tuple[TextProcessor, TextProcessor]:
    source, target = processors
    assert isinstance(source, TextProcessor)
    assert isinstance(target, TextProcessor)
    return source, target


def _check_lengths(recipe: Recipe, corpus: Corpus, where: str) -> None:
    """Raise UserError if the model cannot read a pair of the corpus; counts in words allow too many tokens.

    Examples that are only evaluated may exceed `max_position`, unless the model's positions are learned.
    """
    model = meta_model(recipe)
    learned_from = where == "data.train"
    if not learned_from:
        warn_of_cut_sources(where, corpus.source_lengths, model, TextProcessor.unit)
    for source in np.unique(corpus.source_lengths).tolist():
        target = int(corpus.target_lengths[corpus.source_lengths == source].max())
        longest = model.longest_target(source)
        if longest is None and not (learned_from or model.learned_sources()):
            continue
        if source > model.longest_source() or (longest is not None and target > longest):
            most = model.longest_source() if longest is None else min(model.longest_source(), longest)
            raise UserError(
                f"a pair of {source} and {target} tokens is longer than what the model reads",
                where="data.max_length" if learned_from else where,
                received=recipe.data.max_length if learned_from else None,
                allowed=f"up to {most} tokens, or a higher model.max_position",
            )


def _predictor(recipe: Recipe, processors: Processors, model: Model[Any], device: torch.device) -> SequencePredictor:
    return SequencePredictor([Run(recipe, *processors, model)], device)


def _prepared_processors(recipe: Recipe, folder: Path) -> tuple[TextProcessor, TextProcessor]:
    """The run's processors: read from `folder`, or trained on the training corpus and stored in `folder`."""
    if folder.is_dir():
        return load_processors(folder)
    processors = _new_processors_once(recipe) if recipe.model.from_ is None else marian_processors(recipe)
    keep_folder(folder, partial(save_processors, processors))
    return processors


def _new_processors_once(recipe: Recipe) -> tuple[TextProcessor, TextProcessor]:
    return trained_once(_made_of(recipe), partial(new_processors, recipe), save_processors, load_processors)


def _made_of(recipe: Recipe) -> list[Any]:
    """Everything in a recipe that determines its vocabularies, as the key of the cache."""
    corpus = open_source(recipe.data.train, "data.train", recipe.data.broken, tags=False)
    sections = [section.model_dump(mode="json") for section in (recipe.text, recipe.vocabulary)]
    kinds = [part.kind for _, part in parts(recipe.data.train, "data.train")]
    context = [recipe.data.context.model_dump(), recipe.data.max_length, recipe.data.count]
    marks = context if recipe.data.context.most else []
    return [corpus.fingerprint(), recipe.data.broken, kinds, _tags(recipe), *sections, *marks]


def new_processors(recipe: Recipe) -> tuple[TextProcessor, TextProcessor]:
    """Train the vocabularies of both processors on the training corpus."""
    corpus = open_source(recipe.data.train, "data.train", recipe.data.broken, tags=False)
    check_sides(corpus)
    characters: tuple[set[str], set[str]] = set(), set()

    def pairs() -> Iterator[tuple[str, str]]:
        with progress("training the vocabulary: reading", unit="pairs") as line:
            for index, pair in enumerate(corpus):
                if index % 10_000 == 0:
                    line.update(index)
                characters[0].update(pair.source)
                characters[1].update(pair.target)
                yield pair.source, pair.target

    kinds = dict.fromkeys(config.kind for config in (recipe.vocabulary, recipe.vocabulary.target) if config)
    say(f"vocabulary: training ({', '.join(kinds)})")
    both = _marked(recipe, train_processors(recipe.text, recipe.vocabulary, pairs))
    source, target = tagged(both, _tags(recipe))
    return with_characters(source, characters[0]), with_characters(target, characters[1])


def _extended(recipe: Recipe, older: Path) -> tuple[TextProcessor, TextProcessor]:
    """The processors of an older run with new tokens from the training corpus."""
    count, before = recipe.training.extend_vocabulary, load_processors(older)
    corpus = open_source(recipe.data.train, "data.train", recipe.data.broken, tags=False)
    assert count is not None
    longer = extended_processors(before, count, lambda: ((pair.source, pair.target) for pair in corpus))
    source, target = tagged(_marked(recipe, longer), _tags(recipe))
    sizes = f"{source.size - before[0].size} source and {target.size - before[1].size} target tokens"
    say(f"vocabulary: {sizes} are new")
    characters = set(source.characters), set(target.characters)
    for pair in corpus:
        characters[0].update(pair.source)
        characters[1].update(pair.target)
    return with_characters(source, characters[0]), with_characters(target, characters[1])


def _labellers(recipe: Recipe) -> list[Labeller]:
    """The labellers for the objective. Raises UserError if labels are missing."""
    train, data, names = recipe.data.train, recipe.data, Objective(recipe.objective).labels
    heads = head_labellers(train, data.parses, [name for name in names if name != LINKS])
    return [*heads, *(link_labellers(train, data.links, recipe.text) if LINKS in names else ())]


def _tags(recipe: Recipe) -> list[str]:
    """The distinct tags of the training corpora, in order."""
    tags = (part.tag.split() for _, part in parts(recipe.data.train, "data.train") if part.tag)
    return list(dict.fromkeys(chain.from_iterable(tags)))


def _check_tags(recipe: Recipe, known: Sequence[str]) -> None:
    """Raise UserError if a corpus has a tag that is not in `known`."""
    for name, corpus in recipe.data.corpora().items():
        for key, part in parts(corpus, name):
            if new := [tag for tag in (part.tag or "").split() if tag not in known]:
                allowed = f"{', '.join(known) or 'no tags'}; with training.from, {EXTENSION} adds tags"
                raise UserError("training knows no such tag", where=f"{key}.tag", received=new[0], allowed=allowed)


def _check_context(recipe: Recipe, task: Translation) -> None:
    """Raise UserError if other settings of the recipe exclude its context."""
    context, data, labels = recipe.data.context, recipe.data, Objective(recipe.objective).labels
    if not context.most:
        return
    for received, where, what in (
        (task.product != PAIRS and task.product, "task", "only sentences that are translated have earlier ones"),
        (data.truncate_source, "data.truncate_source", "sentences with earlier ones are read whole"),
        (recipe.training.subword_sampling, "training.subword_sampling", "joined sentences keep their pieces"),
        (recipe.model.from_, "model.from", "a model of others has no mark between sentences"),
        (", ".join(labels), "objective", "the objective learns labels of sentences alone"),
        (
            context.source != context.target and data.max_ratio,
            "data.max_ratio",
            "sides of unlike context have no ratio",
        ),
        (
            recipe.decoding.unknown_words != "keep",
            "decoding.unknown_words",
            "unknown words of joined sentences are kept",
        ),
    ):
        if received:
            raise UserError(what, where=where, received=received, allowed="data.context=0 beside it")


def _marked(recipe: Recipe, both: tuple[TextProcessor, TextProcessor]) -> tuple[TextProcessor, TextProcessor]:
    context, limit = recipe.data.context, Truncation(recipe.data.max_length, recipe.data.count)
    missing = [processor.vocabulary.mark is None for processor in both]
    return marked(both, (context.source > 0 and missing[0], context.target > 0 and missing[1]), limit)


def _check_marks(recipe: Recipe, both: tuple[TextProcessor, TextProcessor]) -> None:
    """Raise UserError if a vocabulary lacks the mark between sentences that context requires."""
    for side, processor in zip(SIDES, both, strict=True):
        if getattr(recipe.data.context, side) and processor.vocabulary.mark is None:
            what, allowed = f"the vocabulary of the {side} has no mark between sentences", f"{EXTENSION} adds it"
            raise UserError(what, where="data.context", received=getattr(recipe.data.context, side), allowed=allowed)


def _sampler(recipe: Recipe, both: tuple[TextProcessor, TextProcessor]) -> PairSampler | None:
    config = recipe.training.subword_sampling
    if config is None:
        return None
    try:
        source, target = (
            SubwordSampler(processor.vocabulary, config.alpha) if config.sides in ("both", side) else None
            for processor, side in zip(both, SIDES, strict=True)
        )
    except ValueError as error:
        raise UserError(str(error), where="training.subword_sampling") from error
    longest = recipe.data.max_length
    if recipe.data.count == "words":  # sampling does not change the number of words
        longest = meta_model(recipe).longest_pair(recipe.model_as(ModelConfig).max_position)
    return PairSampler((source, target), recipe.training.seed, longest)


def _check_train(recipe: Recipe, train: Corpus) -> None:
    if not len(train):
        raise UserError("no pair is left to train on", where="data.train", received=train.report.dropped)
    _check_lengths(recipe, train, "data.train")
    mixture_of(recipe.data.train, train.lines, train.report)


def _check_corpora(recipe: Recipe, corpora: Mapping[str, Corpus]) -> None:
    """Raise UserError as `_check_train` does, or if another corpus has pairs that the model cannot read."""
    _check_train(recipe, corpora["data.train"])
    for name, corpus in corpora.items():
        _check_lengths(recipe, corpus, name)


def _encode(
    source: PairSource,
    recipe: Recipe,
    processors: tuple[TextProcessor, TextProcessor],
    name: str,
    keep_all: bool,
    labellers: Sequence[Labeller] = (),
) -> Corpus:
    with progress(f"encoding {name}", unit="pairs") as line:
        return build_corpus(
            source, processors, recipe.data, name=name, filter=not keep_all,
            progress=lambda done: line.update(done), labellers=labellers,
        )  # fmt: skip
