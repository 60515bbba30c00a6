"""Tasks that label words with a tagger: grammatical error detection, part-of-speech tagging."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from headway.console import say
from headway.corpora.word_corpus import TokenCorpus, TokenReport
from headway.errors import UserError
from headway.files import sha256, write_json
from headway.formats.corpus_config import CorpusConfig
from headway.formats.edits import CORRECT, INCORRECT, union
from headway.formats.labelled_words import ERROR_ORIGINS, TAG_ORIGINS, Labelled, open_labelled, read_columns
from headway.formats.lines import check_file, read_lines
from headway.losses import Objective
from headway.metrics.label_metrics import best_threshold
from headway.models import Model
from headway.models.tagger import LAYERS, Tagger, TaggerConfig, check_heads
from headway.predictors.label_predictor import Labelling, LoadedTagger, TokenPredictor, load_token_predictor
from headway.predictors.label_stream import mark, predict_labels
from headway.predictors.word_alignment import WordAlignment
from headway.processing.pretrained import WordPieces, encoder_place
from headway.recipe import Recipe
from headway.runs.run_folder import RunFolder
from headway.tasks.pretrained_encoder import build_tagger, encoder_config
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
)

THRESHOLD = "threshold.json"


@dataclass(frozen=True)
class PreparedTokens(Prepared):
    """The tokenizer and labels, the corpora in windows, and the dev sentences."""

    recipe: Recipe
    folder: RunFolder
    labelling: Labelling
    train: TokenCorpus
    dev: TokenCorpus | None
    dev_sentences: list[Labelled]

    def new_model(self, *, initial: bool) -> Tagger:
        config = self.recipe.model_as(TaggerConfig)
        return build_tagger(config, len(self.labelling.labels), self.folder.vocabulary, initial=initial)

    def dev_outputs(self, model: Model[Any], device: torch.device) -> DevOutputs:
        assert isinstance(model, Tagger)
        predictor = TokenPredictor([LoadedTagger(self.recipe, self.labelling, model)], device)
        said = predictor.predict([sentence.words for sentence in self.dev_sentences])
        return DevOutputs([" ".join(each.labels) for each in said], gold(self.dev_sentences))


@dataclass(frozen=True)
class TokenDataCheck:
    """The reports of train and, where there is one, dev."""

    reports: list[TokenReport]

    def to_json(self) -> dict[str, Any]:
        """The check as values that JSON can hold."""
        return {report.name.removeprefix("data."): report.to_json() for report in self.reports}

    def text(self) -> str:
        """The check in a few lines, to be read."""
        return "\n".join(report.text() for report in self.reports)


class TokenTask(Task):
    """Sentences of labelled words, and a tagger over a pretrained encoder.

    Attributes:
        labels: the labels there are; None where they are those of the training corpus.
        positive: the label that is sought, which a threshold and a mark are about; None where all are alike.
        origins: the kinds of corpus that can be read.
    """

    labels: tuple[str, ...] | None
    positive: str | None
    origins: tuple[str, ...]

    def check(self, recipe: Recipe) -> None:
        config = recipe.model_as(TaggerConfig)
        for key in ("drop_duplicates", "max_ratio"):
            if getattr(recipe.data, key):
                raise UserError(f"{self.name} has no pairs that this could filter", where=f"data.{key}")
        if Objective(recipe.objective).parts:
            raise UserError("a tagger learns from labels alone", where="objective", allowed="label_smoothing")
        encoder = encoder_config(encoder_place(config.encoder))
        check_heads(config, encoder.hidden_size)
        longest = getattr(encoder, "max_position_embeddings", recipe.data.max_length)
        if recipe.data.max_length > longest:
            raise UserError(
                "the encoder cannot read so many pieces",
                where="data.max_length", received=recipe.data.max_length, allowed=f"up to {longest}",
            )  # fmt: skip

    def check_data(self, recipe: Recipe) -> TokenDataCheck:
        pieces = WordPieces.load(encoder_place(recipe.model_as(TaggerConfig).encoder))
        train = self._open(recipe.data.train, "data.train")
        labels = self._labels_of(train)
        corpora = [self._corpus("data.train", train, pieces, labels, recipe)]
        if recipe.data.dev is not None:
            dev = self._open(recipe.data.dev, "data.dev")
            corpora.append(self._corpus("data.dev", dev, pieces, labels, recipe))
        return TokenDataCheck([corpus.report for corpus in corpora])

    def prepare(self, recipe: Recipe, folder: RunFolder) -> PreparedTokens:
        train = self._open(recipe.data.train, "data.train")
        dev = self._open(recipe.data.dev, "data.dev") if recipe.data.dev else None
        labelling = self._labelling(recipe, folder, train)
        corpora = [
            self._corpus(name, sentences, labelling.pieces, labelling.labels, recipe)
            for name, sentences in (("data.train", train), ("data.dev", dev))
            if sentences is not None
        ]
        for corpus in corpora:
            say(corpus.report.text())
        dev_corpus = corpora[1] if dev is not None else None
        return PreparedTokens(recipe, folder, labelling, corpora[0], dev_corpus, dev or [])

    def _open(self, config: CorpusConfig, where: str) -> list[Labelled]:
        sentences = open_labelled(config, where, self.origins, self.labels)
        if not sentences:
            raise UserError("there is no sentence here", where=where)
        return sentences

    def _labels_of(self, train: Sequence[Labelled]) -> tuple[str, ...]:
        if self.labels is not None:
            return self.labels
        return tuple(sorted({label for sentence in train for labels in sentence.labels for label in labels}))

    def _corpus(
        self, name: str, sentences: Sequence[Labelled], pieces: WordPieces, labels: Sequence[str], recipe: Recipe
    ) -> TokenCorpus:
        learned = [(sentence, self.learned(sentence)) for sentence in sentences]
        return TokenCorpus(name, learned, pieces, labels, recipe.data.max_length)

    def learned(self, sentence: Labelled) -> Sequence[str]:
        """The label a word to learn from, where annotators may differ."""
        return sentence.labels[0]

    def _labelling(self, recipe: Recipe, folder: RunFolder, train: Sequence[Labelled]) -> Labelling:
        """The run's tokenizer and labels: read from the run folder, or stored there with the encoder's config."""
        if folder.vocabulary.is_dir():
            return Labelling.load(folder.vocabulary)
        place = encoder_place(recipe.model_as(TaggerConfig).encoder)
        labelling = Labelling(WordPieces.load(place), self._labels_of(train))

        def save(unfinished: Path) -> None:
            encoder_config(place).save_pretrained(str(unfinished))
            labelling.save(unfinished)

        folder.keep_sides(save)
        return labelling

    def load(self, runs: Sequence[Path], device: str, average: int | None) -> TokenPredictor:
        return load_token_predictor(runs, device, average, self.positive)

    def predict(
        self, runs: Sequence[Path], device: str, average: int | None, options: Mapping[str, Any]
    ) -> list[WordAlignment]:
        check_options(options, ("format", "threshold", "raw", "batch_tokens"), self.name)
        predictor = self.load(runs, device, average)
        threshold = self.threshold(predictor, runs[0], options.get("threshold"))
        raw = options.get("raw", False)
        predict_labels(predictor, options.get("format"), threshold, options.get("batch_tokens"), raw)
        return []

    def threshold(self, predictor: TokenPredictor, run: Path, given: str | None) -> float | None:
        """A threshold as the command line says it: a probability, or `dev` for the best on the recipe's dev.

        The latter is found once and kept in the run folder.

        Raises:
            UserError: it is neither, or there is no dev.
        """
        if given is None:
            return None
        if given != "dev":
            try:
                return float(given)
            except ValueError:
                allowed = "a probability, or dev"
                raise UserError("this is no threshold", where="--threshold", received=given, allowed=allowed) from None
        if self.positive is None:
            raise UserError("this task seeks no label that a threshold could be about", where="--threshold")
        folder = RunFolder(run)
        key, kept = sha256(folder.weights), run / THRESHOLD
        if kept.is_file() and (known := json.loads(kept.read_text(encoding="utf-8")))["model_sha256"] == key:
            return float(known["threshold"])
        if predictor.recipe.data.dev is None:
            raise UserError("the run has no dev to choose it on", where="--threshold", received=given)
        threshold, score = self.choose_threshold(predictor, self._open(predictor.recipe.data.dev, "data.dev"))
        say(f"threshold {threshold:.4f}: F0.5 {score:.2f} on dev")
        write_json(kept, {"model_sha256": key, "threshold": threshold, "dev_f0.5": score})
        return threshold

    def choose_threshold(self, predictor: TokenPredictor, sentences: Sequence[Labelled]) -> tuple[float, float]:
        """The threshold with the best F0.5 on these sentences, and that F0.5."""
        assert self.positive is not None
        sought = predictor.labels.index(self.positive)
        said = predictor.predict([sentence.words for sentence in sentences])
        scores = np.concatenate([each.probabilities[:, sought] for each in said])
        wanted = [label == self.positive for sentence in sentences for label in self.learned(sentence)]
        return best_threshold(scores, np.array(wanted))

    def score(self, run: Path, device: str, options: Mapping[str, Any]) -> list[WordAlignment]:
        check_options(options, ("source", "json_output"), self.name)
        if "source" not in options:
            raise UserError("a run scores the labels of words", where="headway score RUN", allowed="--source FILE")
        check_file(options["source"], "--source")
        predictor = self.load([run], device, None)
        sentences = list(read_columns(options["source"], labels=predictor.labels))
        for sentence, said in zip(sentences, predictor.predict([each.words for each in sentences]), strict=True):
            places = [predictor.labels.index(label) for label in sentence.labels[0]]
            each = np.log(np.maximum(said.probabilities[np.arange(len(places)), places], 1e-45)).tolist()
            if options.get("json_output"):
                print(json.dumps({"log_probability": sum(each), "words": sentence.words, "log_probabilities": each},
                                 ensure_ascii=False))  # fmt: skip
            else:
                print(f"{sum(each):.4f}\t{sum(each) / len(each):.4f}\t{len(each)}")
        return []

    def examples(self, run: Path, recipe: Recipe, count: int) -> list[Example]:
        if recipe.data.dev is None:
            return []
        predictor = self.load([run], "auto", None)
        sentences = self._open(recipe.data.dev, "data.dev")[:count]
        said = predictor.predict([sentence.words for sentence in sentences])
        return [
            self._example(predictor, sentence, labels.labels) for sentence, labels in zip(sentences, said, strict=True)
        ]

    def pairs(self, recipe: Recipe, files: Sequence[Path]) -> list[tuple[str, str | None]]:
        for file in files:
            check_file(file, "--input")
        sentences = [sentence for file in files for sentence in read_columns(file)]
        if not files and recipe.data.dev is not None:
            sentences = self._open(recipe.data.dev, "data.dev")
        return [(" ".join(each.words), " ".join(self.learned(each))) for each in sentences]

    def _example(self, predictor: TokenPredictor, sentence: Labelled, labels: tuple[str, ...]) -> Example:
        """A sentence with the last layer's self-attention in its first window."""
        look = predictor.look(sentence.words)[0]
        return Example(
            source=" ".join(sentence.words),
            hypothesis=mark(sentence.words, labels, self.positive),
            reference=mark(sentence.words, tuple(self.learned(sentence)), self.positive),
            score=None,
            source_tokens=look.tokens,
            target_tokens=look.tokens,
            attention={f"encoder.{len(look.self_attention) - 1}.self": look.self_attention[-1]},
        )

    def readings(
        self, predictor: TokenPredictor, source: Path | None, reference: Path | None, *, hypotheses: bool = True
    ) -> Readings:
        dev = predictor.recipe.data.dev
        check_readings(predictor.recipe, source, reference)
        if source is not None:
            check_file(source, "--input")
            sentences = _given(source, reference)
            return Readings(sum(1 for _ in read_lines(source)), self._read(predictor, sentences, hypotheses))
        assert dev is not None
        labelled = self._open(dev, "data.dev")
        known = ((each.words, tuple(" ".join(labels) for labels in each.labels)) for each in labelled)
        return Readings(len(labelled), self._read(predictor, known, hypotheses))

    def _read(
        self, predictor: TokenPredictor, sentences: Iterable[tuple[Sequence[str], tuple[str, ...]]], hypotheses: bool
    ) -> Iterator[Chunk]:
        """Words and their labels, sentence by sentence, of which the encoder may need several windows: the first
        reading has what is said of the whole."""
        for words, references in sentences:
            readings = []
            for look in predictor.look(words):
                attention = {f"encoder.{layer}.self": each for layer, each in enumerate(look.self_attention)}
                if look.layer_weights is not None:
                    attention[LAYERS] = look.layer_weights.transpose(1, 0, 2)
                readings.append(Reading(" ".join(words), attention, words=tuple(look.window.first)))
            if readings and hypotheses:
                said = " ".join(predictor.predict([words])[0].labels)
                readings[0] = replace(readings[0], hypothesis=said, references=references)
            yield Chunk(1, readings)


def _given(source: Path, reference: Path | None) -> Iterator[tuple[Sequence[str], tuple[str, ...]]]:
    """Lines of words with those of their labels, where there are any. Raises UserError where these do not match."""
    if reference is None:
        yield from ((line.split(), ()) for line in read_lines(source))
        return
    for pair in given_pairs(source, reference):
        words, labels = pair.source.split(), pair.target.split()
        if len(words) != len(labels):
            where, received = f"{reference}:{pair.line}", f"{len(labels)} labels for {len(words)} words"
            raise UserError("each word needs one label", where=where, received=received)
        yield words, (" ".join(labels),)


class ErrorDetection(TokenTask):
    """Which words of a sentence are wrong: `i` for incorrect, `c` for correct."""

    name = "error_detection"
    metrics = ({"name": "f0.5"}, {"name": "precision"}, {"name": "recall"})
    labels = (CORRECT, INCORRECT)
    positive = INCORRECT
    origins = ERROR_ORIGINS

    def learned(self, sentence: Labelled) -> Sequence[str]:
        return union(sentence.labels)


class Tagging(TokenTask):
    """A label a word out of those of the training corpus, such as its part of speech."""

    name = "tagging"
    metrics = ({"name": "accuracy"},)
    labels = None
    positive = None
    origins = TAG_ORIGINS


def gold(sentences: Sequence[Labelled]) -> list[list[str]]:
    """The labels of sentences as metrics read them: a list for each annotator."""
    return [[" ".join(labels) for labels in each] for each in zip(*(s.labels for s in sentences), strict=True)]
