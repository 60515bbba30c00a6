"""Tasks that label words with a tagger: grammatical error detection, part-of-speech tagging."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar

import torch

from headway.core.errors import UserError
from headway.core.log import say
from headway.core.storage import keep_folder
from headway.corpora.data_checks import DataCheck, allowed_by, shared_by
from headway.corpora.word_corpus import TokenCorpus
from headway.formats.conllu import is_conllu, label_column, read_labelled
from headway.formats.corpus_config import AnyCorpus
from headway.formats.corpus_format import ERRORS, TAGS, Labelled, Pair, RowErrors, RowReport
from headway.formats.labelled_words import CORRECT, INCORRECT, open_labelled, union
from headway.formats.lines import read_lines
from headway.losses import Objective
from headway.models import Model, TaggerConfig
from headway.models.tagger import LAYERS, Tagger, check_heads
from headway.predictors.label_predictor import LabelPredictor, mark
from headway.predictors.output import Example, Output, TestSet, TextHypothesis
from headway.predictors.predictor import Run
from headway.processing.pretrained import LabelProcessor, WordProcessor
from headway.processing.processor import Processors
from headway.recipe import Recipe
from headway.tasks.encoder_sources import encoder_source
from headway.tasks.task import Corpora, DevSet, Task, given_pairs


class TokenTask(Task):
    """The base class of tasks that label words, with a tagger over an encoder.

    Attributes:
        labels: the possible labels; None to use the labels of the training corpus.
        positive: the label to detect, for thresholds and highlighting; None if all labels are equally important.
        product: the kind of examples that corpora contain.
    """

    labels: ClassVar[tuple[str, ...] | None]
    positive: ClassVar[str | None]
    product: ClassVar[str]
    writes = "labels"

    def check(self, recipe: Recipe) -> None:
        config = recipe.model_as(TaggerConfig)
        for where, setting, what in (
            ("data.drop_duplicates", recipe.data.drop_duplicates, f"{self.name} has no pairs that this could filter"),
            ("data.max_ratio", recipe.data.max_ratio, f"{self.name} has no pairs that this could filter"),
            ("data.truncate_source", recipe.data.truncate_source, f"{self.name} reads whole sentences"),
            ("data.lead", recipe.data.lead, f"{self.name} reads whole sentences"),
            ("text.source.normalise", recipe.text.source.normalise, "labelled words are read as they are"),
            ("text.target.normalise", recipe.text.target.normalise, "labelled words are read as they are"),
            ("objective", Objective(recipe.objective).parts, "a tagger learns from labels alone"),
        ):
            if setting:
                raise UserError(what, where=where)
        if config.cache_bytes and not config.freeze:
            what = "the layers of an encoder that learns cannot be cached"
            raise UserError(what, where="model.cache_bytes", received=config.cache_bytes, allowed="0, or freeze: true")
        encoder = encoder_source(config)
        check_heads(config, encoder.hidden_size())
        longest = encoder.longest()
        if longest is not None and recipe.data.max_length > longest:
            raise UserError(
                "the encoder cannot read so many tokens",
                where="data.max_length", received=recipe.data.max_length, allowed=f"up to {longest}",
            )  # fmt: skip

    def check_data(self, recipe: Recipe) -> DataCheck:
        errors = {name: RowErrors("skip", shown=None) for name in recipe.data.corpora()}
        opened = {name: self._open(corpus, name, errors[name]) for name, corpus in recipe.data.corpora().items()}
        words = encoder_source(recipe.model_as(TaggerConfig)).words(each.words for each in opened["data.train"])
        labels = self._labels_of(opened["data.train"])
        reports = [
            self._corpus(name, sentences, words, labels, recipe, RowReport(errors[name].count)).report
            for name, sentences in opened.items()
        ]
        pairs = {
            name: [Pair(sentence.line, " ".join(sentence.words), " ".join(self.learned(sentence))) for sentence in part]
            for name, part in opened.items()
        }
        broken = {name: part.all() for name, part in errors.items()}
        shared = shared_by(pairs["data.train"], pairs.get("data.dev"))
        return DataCheck(reports, broken, allowed_by(recipe.data.broken), *shared)

    def corpora(self, recipe: Recipe, folder: Path) -> Corpora:
        errors = {name: RowErrors(recipe.data.broken) for name in recipe.data.corpora()}
        opened = {name: self._open(corpus, name, errors[name]) for name, corpus in recipe.data.corpora().items()}
        dev = opened.get("data.dev")
        if not folder.is_dir():
            encoder, train = encoder_source(recipe.model_as(TaggerConfig)), opened["data.train"]
            tokenizer, names = encoder.words(each.words for each in train), LabelProcessor(self._labels_of(train))

            def save(unfinished: Path) -> None:
                encoder.save(unfinished)
                tokenizer.save(unfinished)
                names.save(unfinished)

            keep_folder(folder, save)
        words, labels = WordProcessor.load(folder), LabelProcessor.load(folder)
        corpora = [
            self._corpus(name, sentences, words, labels.names, recipe, errors[name].report())
            for name, sentences in opened.items()
        ]
        for corpus in corpora:
            say(corpus.report.text())
        processors = Processors(words, labels)
        if dev is None:
            return Corpora(processors, corpora[0])

        def predictor(model: Model[Any], device: torch.device) -> LabelPredictor:
            return LabelPredictor([Run(recipe, *processors, model)], device)

        return Corpora(processors, corpora[0], DevSet(corpora[1], list(map(self._example, dev)), predictor))

    def _open(self, corpus: AnyCorpus, where: str, errors: RowErrors) -> list[Labelled]:
        sentences = open_labelled(corpus, where, self.product, self.labels, errors)
        if not sentences:
            at_fault = errors.all()
            raise UserError("there is no sentence here", where=where, received=at_fault[0] if at_fault else None)
        return sentences

    def _labels_of(self, train: Sequence[Labelled]) -> tuple[str, ...]:
        if self.labels is not None:
            return self.labels
        return tuple(sorted({label for sentence in train for labels in sentence.labels for label in labels}))

    def _corpus(
        self,
        name: str,
        sentences: Sequence[Labelled],
        words: WordProcessor,
        labels: Sequence[str],
        recipe: Recipe,
        rows: RowReport,
    ) -> TokenCorpus:
        learned = [(sentence, self.learned(sentence)) for sentence in sentences]
        corpus = TokenCorpus(name, learned, words, labels, recipe.data.max_length, rows)
        if corpus.report.unknown_labels == corpus.report.words:
            what, received = "no word here has a label that data.train has", learned[0][1][0]
            raise UserError(what, where=name, received=received, allowed=", ".join(labels))
        return corpus

    def learned(self, sentence: Labelled) -> Sequence[str]:
        """The label of each word to train on, if annotators disagree."""
        return sentence.labels[0]

    def processors(self, folder: Path) -> Processors:
        return Processors(WordProcessor.load(folder), LabelProcessor.load(folder))

    def model(self, recipe: Recipe, processors: Processors, *, initial: bool = True) -> Tagger:
        words, labels = processors
        assert isinstance(words, WordProcessor)
        return encoder_source(recipe.model_as(TaggerConfig)).tagger(labels.size, words, initial=initial)

    def predictor(self, runs: Sequence[Run], device: torch.device) -> LabelPredictor:
        def dev_sentences() -> list[tuple[Sequence[str], Sequence[str]]]:
            return [(sentence.words, self.learned(sentence)) for sentence in self._dev(runs[0].recipe)]

        return LabelPredictor(runs, device, self.positive, dev_sentences)

    def _dev(self, recipe: Recipe) -> list[Labelled]:
        """The sentences of dev, without unreadable ones if the recipe skips them."""
        assert recipe.data.dev is not None
        return self._open(recipe.data.dev, "data.dev", RowErrors(recipe.data.broken))

    def examples(self, predictor: LabelPredictor, count: int) -> list[Output]:
        if predictor.recipe.data.dev is None:
            return []
        return [self._shown(predictor, sentence) for sentence in self._dev(predictor.recipe)[:count]]

    def _shown(self, predictor: LabelPredictor, sentence: Labelled) -> Output:
        """The output of a sentence for reports, with the last layer's self-attention in the first window."""
        (labelled,) = predictor.predict([sentence.words], capture="all")
        reference = mark(sentence.words, tuple(self.learned(sentence)), self.positive)
        shown = TextHypothesis(mark(sentence.words, labelled.labels, self.positive), math.nan, [], [])
        read, example = labelled.attention, Example(" ".join(sentence.words), references=(reference,))
        last = [name for name in read if name != LAYERS][-1:]
        return Output(example, [shown], replace(read, weights={name: read[name] for name in last}))

    def test_set(self, recipe: Recipe, corpus: AnyCorpus, where: str) -> TestSet:
        sentences = self._open(corpus, where, RowErrors(recipe.data.broken))
        return TestSet(len(sentences), map(self._example, sentences))

    def test_set_of_files(self, recipe: Recipe, sources: Sequence[Path], reference: Path | None) -> TestSet:
        """See `Task.test_set_of_files`. CoNLL-U files, and files with a tab in the first line, have a word with its
        labels on each line; other files have a sentence on each line.
        """
        columns = any(is_conllu(source) or "\t" in next(read_lines(source), "") for source in sources)
        if reference is not None or not columns:
            lines = chain.from_iterable(_given(source, reference) for source in sources)
            return TestSet(sum(1 for source in sources for _ in read_lines(source)), lines)
        column = label_column(recipe.data.train)
        sentences = [sentence for source in sources for sentence in read_labelled(source, column)]
        return TestSet(len(sentences), map(self._example, sentences))

    def _example(self, sentence: Labelled) -> Example:
        references = tuple(map(" ".join, sentence.labels))
        return Example(" ".join(sentence.words), " ".join(self.learned(sentence)), references, tuple(sentence.words))


def _given(source: Path, reference: Path | None) -> Iterator[Example]:
    """Yield lines of words with their labels, if any. Raises UserError if a line has another number of labels."""
    if reference is None:
        yield from map(Example, read_lines(source))
        return
    for pair in given_pairs(source, reference):
        words, labels = pair.source.split(), pair.target.split()
        if len(words) != len(labels):
            where, received = f"{reference}:{pair.line}", f"{len(labels)} labels for {len(words)} words"
            raise UserError("each word needs one label", where=where, received=received)
        yield Example(pair.source, pair.target, (" ".join(labels),), tuple(words))


class ErrorDetection(TokenTask):
    """Grammatical errors: words are `i` for incorrect or `c` for correct."""

    name = "error_detection"
    metrics = ({"name": "f0.5"}, {"name": "precision"}, {"name": "recall"})
    labels = (CORRECT, INCORRECT)
    positive = INCORRECT
    product = ERRORS

    def learned(self, sentence: Labelled) -> Sequence[str]:
        return union(sentence.labels)


class Tagging(TokenTask):
    """A label for each word, such as its part of speech, from the labels of the training corpus."""

    name = "tagging"
    metrics = ({"name": "accuracy"},)
    labels = None
    positive = None
    product = TAGS
