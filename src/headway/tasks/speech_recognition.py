"""Speech recognition: recordings and transcripts, an encoder over frames, search."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch

from headway.core.errors import UserError, option
from headway.core.log import counted, progress, say, warn
from headway.core.storage import fingerprint, keep_folder
from headway.corpora.data_checks import DataCheck, allowed_by, every_error, findings, refusal, shared_by
from headway.corpora.speech_corpus import (
    FrameStore,
    SpeechCorpus,
    build_frames,
    build_speech,
    recording_problems,
    unusable_recordings,
)
from headway.formats.corpus_config import AnyCorpus, parts
from headway.formats.corpus_format import Pair, RowReport
from headway.formats.recordings import Utterance, open_recordings, read_utterances
from headway.losses import Objective
from headway.models import Model, ModelConfig, Seq2Seq, build_model
from headway.predictors.output import Example, Output, TestSet
from headway.predictors.predictor import Run
from headway.predictors.sequence_predictor import SequencePredictor
from headway.processing.audio.audio_processor import AudioProcessor
from headway.processing.audio.features import AudioConfig, check_bins
from headway.processing.processor import Processors
from headway.processing.text.text_processor import TextProcessor, train_target, trained_once
from headway.recipe import Recipe
from headway.tasks.checks import check_shortest_output, meta_model, warn_of_cut_sources
from headway.tasks.task import Corpora, DevSet, Task, outputs_of

FIELDS = ("audio", "text")  # of a JSON manifest, if the run was trained on another format
TARGET = "target"  # the folder of the transcripts' processor

Both = tuple[AudioProcessor, TextProcessor]


class Heard(NamedTuple):
    """A speech corpus: its utterances, their frames, and a report of unreadable rows."""

    utterances: list[Utterance]
    store: FrameStore
    rows: RowReport

    def pairs(self) -> list[Pair]:
        """The utterances as pairs of a recording's name and its transcript."""
        return [Pair(heard.line, str(heard.audio), heard.text) for heard in self.utterances]


class SpeechRecognition(Task):
    """Recordings and transcripts, an encoder-decoder that reads frames, and search."""

    name = "speech_recognition"
    metrics = ({"name": "wer"}, {"name": "cer"})
    reads_text = False

    def check(self, recipe: Recipe) -> None:
        config, audio = recipe.model_as(ModelConfig), recipe.data.audio
        if not config.reads_frames():
            what = "a model of speech needs what reads frames"
            raise UserError(what, where="model.front_end", allowed="{}, or its options")
        check_bins(audio)
        unprepared = recipe.text.source.model_copy(update={"normalise": (), "segment": "none"})
        about, copied = f"{self.name} has no pairs of texts that this could be about", recipe.decoding.unknown_words
        for where, refused, what in (
            ("data.drop_duplicates", recipe.data.drop_duplicates, about),
            ("data.max_ratio", recipe.data.max_ratio, about),
            ("data.truncate_source", recipe.data.truncate_source, about),
            ("data.lead", recipe.data.lead, about),
            ("vocabulary.shared", recipe.vocabulary.shared, "only transcripts have a vocabulary"),
            ("text.source", recipe.text.source != unprepared, "a recording has no text to prepare"),
            ("data.count", recipe.data.count != "pieces", "transcripts are counted in tokens"),
            ("objective", Objective(recipe.objective).parts, "speech is learned from transcripts alone"),
            ("decoding.unknown_words", copied == "copy", "a recording has no words that could be copied"),
        ):
            if refused:
                raise UserError(what, where=where)
        model = meta_model(recipe, audio.bins)
        most, longest = model.longest_source(), model.longest_target(0)
        for where, received, allowed, what in (
            ("data.audio.max_frames", audio.max_frames, most, "recordings may be longer than the model's positions"),
            ("data.max_length", recipe.data.max_length, longest, "transcripts may be longer than learned positions"),
        ):
            if allowed is not None and received > allowed:
                allowed_text = f"up to {allowed}, or a higher model.max_position"
                raise UserError(what, where=where, received=received, allowed=allowed_text)
        check_shortest_output(recipe, longest)

    def check_data(self, recipe: Recipe) -> DataCheck:
        lenient, data = recipe.model_copy(update={"data": recipe.data.lenient()}), recipe.data
        heard = _hear(lenient)
        both = AudioProcessor(lenient.data.audio), _train_target(lenient, heard["data.train"].utterances)
        corpora = {name: _corpus(name, lenient, corpus, both) for name, corpus in heard.items()}
        refused = refusal(partial(_check_train, corpora["data.train"]))
        reports = [corpus.report for corpus in corpora.values()]
        rows = {name: every_error(open_recordings(corpus, name, "skip")) for name, corpus in data.corpora().items()}
        unusable = {
            name: unusable_recordings(corpus.utterances, corpus.store, data.audio) for name, corpus in heard.items()
        }
        broken = {name: [*rows[name], *unusable[name]] for name in heard}
        keys = (("data.broken", data.broken, rows), ("data.audio.broken", data.audio.broken, unusable))
        allowed = [allowed_by(setting, key) for key, setting, errors in keys if any(errors.values())]
        dev = heard["data.dev"].pairs() if "data.dev" in heard else None
        shared = shared_by(heard["data.train"].pairs(), dev, source_is_text=False)
        found = [
            finding
            for name, corpus in heard.items()
            for finding in findings(name, corpus.pairs(), recipe.text.target, str, source=None)
        ]
        return DataCheck(reports, broken, "; ".join(filter(None, allowed)) or None, *shared, found, refused)

    def corpora(self, recipe: Recipe, folder: Path) -> Corpora:
        heard = _hear(recipe)
        both = _prepared_processors(recipe, folder, heard["data.train"])
        processors = Processors(*both)
        say(f"vocabulary: {both[1].size} tokens of transcripts; {both[0].size} bins a frame")
        corpora = {name: _corpus(name, recipe, corpus, both) for name, corpus in heard.items()}
        for corpus in corpora.values():
            say(corpus.report.text())
        train, dev = corpora["data.train"], corpora.get("data.dev")
        _check_train(train)
        if dev is None:
            return Corpora(processors, train)

        def predictor(model: Model[Any], device: torch.device) -> SequencePredictor:
            return SequencePredictor([Run(recipe, *processors, model)], device)

        return Corpora(processors, train, DevSet(dev, _examples(dev.utterances), predictor))

    def processors(self, folder: Path) -> Processors:
        return Processors(AudioProcessor.load(folder), TextProcessor.load(folder / TARGET))

    def model(self, recipe: Recipe, processors: Processors, *, initial: bool = True) -> Seq2Seq:
        return build_model(recipe.model_as(ModelConfig), processors.source.size, processors.target.size, False)

    def predictor(self, runs: Sequence[Run], device: torch.device) -> SequencePredictor:
        return SequencePredictor(runs, device)

    def examples(self, predictor: SequencePredictor, count: int) -> list[Output]:
        if predictor.recipe.data.dev is None:
            return []
        dev = open_recordings(predictor.recipe.data.dev, "data.dev", predictor.recipe.data.broken)
        return outputs_of(predictor, _examples(read_utterances(dev)[:count]))

    def test_set(self, recipe: Recipe, corpus: AnyCorpus, where: str) -> TestSet:
        utterances = read_utterances(open_recordings(corpus, where, recipe.data.broken))
        if recipe.data.audio.broken == "skip":
            problems = recording_problems(_frames(where, utterances, recipe.data.audio), recipe.data.audio)
            if left_out := len(utterances) - problems.count(None):
                warn(f"{where}: {counted(left_out, 'recording')} left out, as data.audio.broken says")
            utterances = [heard for heard, problem in zip(utterances, problems, strict=True) if problem is None]
        return TestSet(len(utterances), _examples(utterances))

    def test_set_of_files(self, recipe: Recipe, sources: Sequence[Path], reference: Path | None) -> TestSet:
        if reference is not None:
            allowed = f"{option('input')} MANIFEST"
            raise UserError("a manifest has its own transcripts", where=option("reference"), allowed=allowed)
        heard = [utterance for source in sources for utterance in read_manifest(source, recipe, option("input"))]
        return TestSet(len(heard), _examples(heard))


def _examples(utterances: Sequence[Utterance]) -> list[Example]:
    texts = [(str(heard.audio), heard.text or "") for heard in utterances]
    return [Example(audio, text, (text,)) for audio, text in texts]


def read_manifest(path: Path, recipe: Recipe, where: str) -> list[Utterance]:
    """The utterances of a manifest. Columns are named as in the run's own manifest if both have the same format."""
    kind = "jsonl" if ".jsonl" in path.suffixes else "tsv"
    _, train = parts(recipe.data.train, "data.train")[0]
    columns = getattr(train, "columns", None) if kind == train.kind else FIELDS if kind == "jsonl" else None
    return read_utterances(open_recordings({kind: path, "columns": columns}, where))


def _hear(recipe: Recipe) -> dict[str, Heard]:
    """The utterances of train and dev, by recipe key, with their frames."""
    heard = {}
    for name, corpus in recipe.data.corpora().items():
        source = open_recordings(corpus, name, recipe.data.broken)
        utterances = read_utterances(source)
        heard[name] = Heard(utterances, _frames(name, utterances, recipe.data.audio), source.row_errors.report())
    return heard


def _frames(name: str, utterances: Sequence[Utterance], config: AudioConfig) -> FrameStore:
    with progress(f"{name}: reading", len(utterances), "recordings") as line:
        return build_frames([utterance.audio for utterance in utterances], config, progress=line.update)


def _check_train(train: SpeechCorpus) -> None:
    """Raise UserError if the corpus is empty."""
    if not len(train):
        raise UserError(
            "no recording is left to train on",
            where="data.train",
            received=", ".join(f"{count:,} {reason}" for reason, count in train.report.dropped.items()),
        )


def _corpus(name: str, recipe: Recipe, heard: Heard, processors: Both) -> SpeechCorpus:
    learned_from = name == "data.train"
    max_length = recipe.data.max_length if learned_from else None
    corpus = build_speech(name, heard.utterances, heard.store, processors, max_length=max_length, rows=heard.rows)
    if not learned_from:
        warn_of_cut_sources(name, corpus.frames, meta_model(recipe, recipe.data.audio.bins), AudioProcessor.unit)
    return corpus


def _prepared_processors(recipe: Recipe, folder: Path, heard: Heard) -> Both:
    """The run's processors: read from `folder`, or trained on the training corpus and stored in `folder`."""
    if folder.is_dir():
        return AudioProcessor.load(folder), TextProcessor.load(folder / TARGET)
    texts = fingerprint([utterance.text for utterance in heard.utterances])
    made_of = [texts, *(section.model_dump(mode="json") for section in (recipe.text.target, recipe.vocabulary))]
    learn, audio = partial(_train_target, recipe, heard.utterances), AudioProcessor(recipe.data.audio)
    text = trained_once(made_of, learn, TextProcessor.save, TextProcessor.load)
    if recipe.data.audio.normalise == "global":
        train = _corpus("data.train", recipe, heard, (audio, text))
        audio = replace(audio, statistics=train.statistics())

    def save(unfinished: Path) -> None:
        audio.save(unfinished)
        text.save(unfinished / TARGET)

    keep_folder(folder, save)
    return audio, text


def _train_target(recipe: Recipe, utterances: Sequence[Utterance]) -> TextProcessor:
    say(f"vocabulary: training ({recipe.vocabulary.kind})")
    if not any(utterance.text.strip() for utterance in utterances):
        raise UserError("no recording has a transcript", where="data.train")
    lines = (utterance.text for utterance in utterances)
    return train_target(recipe.text.target, recipe.vocabulary, lines, "text of transcripts")
