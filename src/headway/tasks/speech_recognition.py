"""Speech recognition: recordings and transcripts, an encoder over frames, search."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from headway.console import progress, say
from headway.corpora.frames import FrameStore, build_frames
from headway.corpora.speech_corpus import SpeechCorpus, SpeechReport, build_speech
from headway.errors import UserError
from headway.formats.corpus_config import CorpusConfig
from headway.formats.recordings import Utterance, open_recordings, read_utterances
from headway.losses import Objective
from headway.models import Model, ModelConfig, Seq2Seq, build_model
from headway.predictors.prediction_stream import Outlet, force_score, predict_stream, read_standard_input
from headway.predictors.sequence_predictor import Predictor, load
from headway.predictors.word_alignment import WordAlignment
from headway.processing.audio.audio_processor import AudioSide
from headway.processing.text.text_config import SideConfig
from headway.processing.text.text_processor import Side, save_side, train_target
from headway.recipe import Recipe, parse_corpus
from headway.runs.run_folder import LoadedRun, RunFolder
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
)
from headway.tasks.translation import OUTPUT, SAMPLING, SEARCH, check_search_options, example_of, search_options

WINDOW = 128  # recordings decoded together: their frames take about 0.5 MB each
READ_TOGETHER = 16  # recordings whose attention is in memory at once
AUDIO_FIELD = "audio"  # of a JSON line on standard input


@dataclass(frozen=True)
class PreparedSpeech(Prepared):
    """Both sides, and the corpora of frames and transcripts."""

    recipe: Recipe
    source: AudioSide
    target: Side
    train: SpeechCorpus
    dev: SpeechCorpus | None

    def new_model(self, *, initial: bool) -> Seq2Seq:
        return build_model(self.recipe.model_as(ModelConfig), self.source.size, self.target.size, False)

    def dev_outputs(self, model: Model[Any], device: torch.device) -> DevOutputs:
        assert isinstance(model, Seq2Seq)
        assert self.dev is not None
        predictor = Predictor([LoadedRun(self.recipe, self.source, self.target, model)], device)
        said = list(transcribe(predictor, self.dev.utterances))
        return DevOutputs(said, [[each.text for each in self.dev.utterances]])


@dataclass(frozen=True)
class SpeechDataCheck:
    """The reports of train and, where there is one, dev."""

    reports: list[SpeechReport]

    def to_json(self) -> dict[str, Any]:
        """The check as values that JSON can hold."""
        return {report.name.removeprefix("data."): report.to_json() for report in self.reports}

    def text(self) -> str:
        """The check in a few lines, to be read."""
        return "\n".join(report.text() for report in self.reports)


class SpeechRecognition(Task):
    """Recordings and transcripts, an encoder-decoder that reads frames, and search."""

    name = "speech_recognition"
    metrics = ({"name": "wer"}, {"name": "cer"})

    def check(self, recipe: Recipe) -> None:
        config, audio = recipe.model_as(ModelConfig), recipe.data.audio
        if not config.reads_frames():
            raise UserError(
                "a model of speech needs what reads frames", where="model.front_end", allowed="{}, or its options"
            )
        for key in ("drop_duplicates", "max_ratio", "truncate_source", "lead"):
            if getattr(recipe.data, key):
                raise UserError(f"{self.name} has no pairs of texts that this could be about", where=f"data.{key}")
        if recipe.vocabulary.shared:
            raise UserError("only transcripts have a vocabulary", where="vocabulary.shared", received=True)
        if recipe.text.source != SideConfig():
            raise UserError("a recording has no text to prepare", where="text.source", allowed="text.target")
        if recipe.data.count != "pieces":
            raise UserError("transcripts are counted in pieces", where="data.count", received=recipe.data.count)
        if Objective(recipe.objective).parts:
            raise UserError("speech is learned from transcripts alone", where="objective", allowed="label_smoothing")
        with torch.device("meta"):
            model = build_model(config.model_copy(update={"match_parameters": None}), audio.bins, 8, False)
        if audio.max_frames > model.longest_source():
            raise UserError(
                "recordings may be longer than the model's positions", where="data.audio.max_frames",
                received=audio.max_frames, allowed=f"up to {model.longest_source()}, or a higher model.max_position",
            )  # fmt: skip
        longest = model.longest_target(0)
        if longest is not None and recipe.data.max_length > longest:
            raise UserError(
                "transcripts may be longer than there are learned positions", where="data.max_length",
                received=recipe.data.max_length, allowed=f"up to {longest}, or a higher model.max_position",
            )  # fmt: skip

    def check_data(self, recipe: Recipe) -> SpeechDataCheck:
        heard = _hear(recipe)
        sides = AudioSide(recipe.data.audio), _train_target(recipe, heard["data.train"][0])
        return SpeechDataCheck([_corpus(name, recipe, *each, sides).report for name, each in heard.items()])

    def prepare(self, recipe: Recipe, folder: RunFolder) -> PreparedSpeech:
        heard = _hear(recipe)
        source, target = sides = _sides(recipe, folder, *heard["data.train"])
        say(f"vocabulary: {target.size} pieces of transcripts; {source.size} bins a frame")
        corpora = {name: _corpus(name, recipe, *each, sides) for name, each in heard.items()}
        for corpus in corpora.values():
            say(corpus.report.text())
        train = corpora["data.train"]
        if not len(train):
            raise UserError("no recording is left to train on", where="data.train", received=train.report.dropped)
        return PreparedSpeech(recipe, source, target, train, corpora.get("data.dev"))

    def load(self, runs: Sequence[Path], device: str, average: int | None) -> Predictor:
        return load(*runs, device=device, average=average)

    def predict(
        self, runs: Sequence[Path], device: str, average: int | None, options: Mapping[str, Any]
    ) -> list[WordAlignment]:
        check_options(options, (*SEARCH, *SAMPLING, *OUTPUT, "skip_broken", "files"), self.name)
        check_search_options(options)
        predictor = self.load(runs, device, average)
        chosen, outlet = search_options(options)
        chosen = replace(chosen, skip_broken=options.get("skip_broken", False))
        recordings = options.get("files") or _paths(read_standard_input(), predictor.recipe.data.train)
        predict_stream(predictor, chosen, outlet, options.get("prefix"), recordings, WINDOW)
        return []

    def score(self, run: Path, device: str, options: Mapping[str, Any]) -> list[WordAlignment]:
        check_options(options, ("source", "json_output"), self.name)
        if "source" not in options:
            raise UserError(
                "a run scores the transcripts of a manifest", where="headway score RUN", allowed="--source MANIFEST"
            )
        predictor = self.load([run], device, None)
        utterances = _manifest(options["source"], predictor.recipe, "--source")
        audio, texts = [each.audio for each in utterances], [each.text for each in utterances]
        force_score(predictor, audio, texts, Outlet(), as_json=options.get("json_output", False))
        return []

    def examples(self, run: Path, recipe: Recipe, count: int) -> list[Example]:
        if recipe.data.dev is None:
            return []
        utterances = read_utterances(open_recordings(recipe.data.dev, "data.dev"))[:count]
        predictor = load(run)
        capture = tuple(name for name in predictor.attention_names() if name.endswith(".cross"))
        said = predictor.predict([each.audio for each in utterances], truncate=True, skip_broken=True, capture=capture)
        pairs = zip(said, utterances, strict=True)
        return [example_of(prediction, each.text) for prediction, each in pairs if prediction.problem is None]

    def pairs(self, recipe: Recipe, files: Sequence[Path]) -> list[tuple[str, str | None]]:
        found = [each for file in files for each in _manifest(file, recipe, "--input")]
        if not files and recipe.data.dev is not None:
            found = read_utterances(open_recordings(recipe.data.dev, "data.dev"))
        return [(str(each.audio), each.text) for each in found]

    def readings(
        self, predictor: Predictor, source: Path | None, reference: Path | None, *, hypotheses: bool = True
    ) -> Readings:
        if reference is not None:
            raise UserError("a manifest has its own transcripts", where="--reference", allowed="--input MANIFEST")
        check_readings(predictor.recipe, source, None)
        files = [] if source is None else [source]
        pairs = [(audio, text or "") for audio, text in self.pairs(predictor.recipe, files)]
        return Readings(len(pairs), _read(predictor, pairs, hypotheses))


def _read(predictor: Predictor, pairs: Sequence[tuple[str, str]], hypotheses: bool) -> Iterator[Chunk]:
    """Recordings with their transcripts, a few at a time; what is longer than the model's positions is left out."""
    for start in range(0, len(pairs), READ_TOGETHER):
        chunk = pairs[start : start + READ_TOGETHER]
        shown = [pair for pair in chunk if predictor.can_read(*pair)]
        audio, texts = [audio for audio, _ in shown], [text for _, text in shown]
        said: list[str | None] = [None] * len(shown)
        if hypotheses:
            said = [each.text for each in predictor.predict(audio)]
        forced = predictor.force(audio, texts, capture="all")
        readings = [
            Reading(each.source, each.attention, text, own, (text,))
            for each, text, own in zip(forced, texts, said, strict=True)
        ]
        yield Chunk(len(chunk), readings)


def _manifest(path: Path, recipe: Recipe, where: str) -> list[Utterance]:
    """The utterances of a manifest with the columns of the run's own, where these are of the same kind."""
    kind = "jsonl" if path.suffix == ".jsonl" else "tsv"
    columns = recipe.data.train.columns if kind == recipe.data.train.origin() else None
    return read_utterances(open_recordings(parse_corpus({kind: path, "columns": columns}, where), where))


def transcribe(predictor: Predictor, utterances: Sequence[Utterance]) -> Iterator[str]:
    """What a model hears, a window of recordings at a time; what is too long for it is cut."""
    for start in range(0, len(utterances), WINDOW):
        window = [each.audio for each in utterances[start : start + WINDOW]]
        yield from (prediction.text for prediction in predictor.predict(window, truncate=True))


def _hear(recipe: Recipe) -> dict[str, tuple[list[Utterance], FrameStore]]:
    """The utterances of train and dev, by recipe key, with their frames."""
    heard = {}
    for name, corpus in (("data.train", recipe.data.train), ("data.dev", recipe.data.dev)):
        if corpus is not None:
            utterances = read_utterances(open_recordings(corpus, name))
            with progress(f"{name}: reading", len(utterances), "recordings") as line:
                paths = [each.audio for each in utterances]
                heard[name] = utterances, build_frames(paths, recipe.data.audio, progress=line.update)
    return heard


def _corpus(
    name: str, recipe: Recipe, utterances: list[Utterance], store: FrameStore, sides: tuple[AudioSide, Side]
) -> SpeechCorpus:
    max_length = recipe.data.max_length if name == "data.train" else None
    return build_speech(name, utterances, store, sides, max_length=max_length)


def _sides(recipe: Recipe, folder: RunFolder, utterances: list[Utterance], store: FrameStore) -> tuple[AudioSide, Side]:
    """The run's settings of both sides: read from the run folder, or made from the training corpus and stored there."""
    if folder.vocabulary.is_dir():
        source, target = folder.read_sides()
        assert isinstance(source, AudioSide)
        return source, target
    sides = AudioSide(recipe.data.audio), _train_target(recipe, utterances)
    if recipe.data.audio.normalise == "global":
        train = _corpus("data.train", recipe, utterances, store, sides)
        sides = replace(sides[0], statistics=train.statistics()), sides[1]

    def save(unfinished: Path) -> None:
        sides[0].save(unfinished)
        save_side(sides[1], unfinished / "target")

    folder.keep_sides(save)
    return sides


def _train_target(recipe: Recipe, utterances: Sequence[Utterance]) -> Side:
    say(f"vocabulary: training ({recipe.vocabulary.kind})")
    lines = (each.text for each in utterances)
    return train_target(recipe.text.target, recipe.vocabulary, lines, "text of transcripts")


def _paths(lines: Iterator[str], corpus: CorpusConfig) -> Iterator[str]:
    """The recordings that standard input names: paths, rows of a TSV manifest or JSON lines, as the run was trained on.

    Raises:
        UserError: a line without a path.
    """
    name, place = (corpus.columns or (1,))[0], 0
    field = name if isinstance(name, str) else AUDIO_FIELD
    for number, line in enumerate(lines, start=1):
        cells = line.split("\t")
        if number == 1 and isinstance(name, str) and name in cells:
            place = cells.index(name)
            continue
        try:
            path = json.loads(line)[field] if line.startswith("{") else cells[place]
        except (ValueError, KeyError, IndexError, TypeError) as error:
            where = f"standard input:{number}"
            raise UserError(f"this line names no recording ({error!r})", where=where, received=line) from error
        yield str(path)
