"""A model learns to write down tones, by the command line, and hears them in files of every kind."""

import gzip
import json
import os
import random
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
import yaml

import headway
from headway.core.errors import UserError
from headway.formats.corpus_config import parse_corpus
from headway.predictors.sequence_predictor import SequencePredictor
from headway.processing.audio.audio_processor import AudioProcessor
from headway.recipe import load_recipe, parse_recipe
from headway.runs.run_folder import RunFolder
from headway.tasks.speech_recognition import SpeechRecognition
from headway.training.start import check_recipe
from tests.processing.audio.tones import RATE, WORDS, say, write, write_corpus
from tests.shared_runs import shared_run
from tests.training.kills import assert_same, attempts

RECIPE = {
    "task": "speech_recognition",
    "data": {
        "train": {"tsv": "train.tsv"}, "dev": {"tsv": "dev.tsv"},
        "audio": {"sample_rate": RATE, "bins": 16, "max_frames": 200},
    },
    "vocabulary": {"kind": "whitespace"},
    "model": {
        "dim": 32, "feed_forward": 64, "heads": 2, "dropout": 0.05, "norm": "pre", "front_end": {"channels": 32},
        "encoder": {"layers": 1, "mixer": {"kind": "ngram", "n": 3}}, "decoder": {"layers": 1},
    },
    "objective": {"label_smoothing": 0.0},
    "optimizer": {"learning_rate": 4e-3, "schedule": "linear", "warmup": 20},
    "training": {
        "updates": 300, "batch_tokens": 1000, "checkpoint_every": 100, "evaluate_every": 300, "precision": "float32",
    },
    "decoding": {"beam": 2, "max_length": 6},
}  # fmt: skip
SENTENCES = 800
TESTS = ["low high", "mid", "high high low", "low"]


@dataclass(frozen=True)
class Heard:
    """A run that has learned tones, its recipe, recordings that it has not heard, and what it makes of them."""

    folder: Path
    run: Path
    recipe: Path
    recordings: list[Path]
    texts: list[str]


def write_recipe(folder: Path, count: int = 200, **changes) -> Path:
    draw = random.Random(1)
    sentences = [" ".join(draw.choices(list(WORDS), k=draw.randint(1, 3))) for _ in range(count + 10)]
    write_corpus(folder, sentences[:count])
    write_corpus(folder, sentences[count:], "dev", first_seed=count + 1000)
    path = folder / "tones.yaml"
    path.write_text(yaml.safe_dump(RECIPE | changes), encoding="utf-8")
    return path


def write_heard(folder: Path) -> Path:
    for number, text in enumerate(TESTS):
        write(folder / "test" / f"{number}.wav", say(text, 5000 + number))
    return write_recipe(folder, SENTENCES)  # so many that tones are learned, not recordings


@pytest.fixture(scope="module")
def heard(pytestconfig) -> Heard:
    folder = shared_run(pytestconfig.cache.mkdir("runs"), "tones", write_heard)
    recordings = [folder / "test" / f"{number}.wav" for number in range(len(TESTS))]
    texts = [said.text for said in headway.load(folder / "run", device="cpu").predict(recordings)]
    return Heard(folder, folder / "run", folder / "tones.yaml", recordings, texts)


def test_it_learns(heard):
    lines = [json.loads(line) for line in (heard.run / "metrics.jsonl").read_text().splitlines()]
    # The last bits of a machine's arithmetic decide on a word or two.
    assert [line["dev"]["wer"] for line in lines if "dev" in line][-1] < 30
    assert sum(text == said for text, said in zip(heard.texts, TESTS, strict=True)) >= len(TESTS) - 1
    assert set(lines[-1]["dev"]) == {"wer", "cer"}
    manifest = json.loads((heard.run / "manifest.json").read_text())
    assert set(manifest["data"]) == {"train", "dev"}


def test_a_corpus_is_read_as_the_recipe_says_of_broken_recordings(heard, tmp_path, caplog):
    (tmp_path / "broken.wav").write_bytes(b"no sound")
    (tmp_path / "dev.tsv").write_text(f"{heard.recordings[0]}\tlow\nbroken.wav\tmid\n{heard.recordings[1]}\thigh\n")
    corpus = parse_corpus({"tsv": tmp_path / "dev.tsv"}, "test.dev")
    for broken, texts in (("error", ["low", "mid", "high"]), ("skip", ["low", "high"])):
        recipe = load_recipe(heard.recipe, [f"data.audio.broken={broken}"])
        read = SpeechRecognition().test_set(recipe, corpus, "test.dev")
        assert [example.target for example in read.examples] == texts
        assert read.size == len(texts)
    assert "test.dev: 1 recording left out, as data.audio.broken says" in caplog.text


def test_files_are_transcribed_in_their_order(heard, run_headway):
    ended = run_headway("predict", heard.run, *heard.recordings)
    assert (ended.code, ended.out.splitlines()) == (0, heard.texts)
    backwards = run_headway("predict", heard.run, *reversed(heard.recordings), "--batch-tokens", "60")
    assert backwards.out.splitlines() == heard.texts[::-1]


def test_other_files_sound_the_same(heard, run_headway, tmp_path):
    paths = []
    for number, (text, kind) in enumerate(zip(TESTS, ("flac", "stereo", "44100 Hz", "24 bits"), strict=True)):
        samples, path = say(text, 5000 + number), tmp_path / f"{number}.{'flac' if kind == 'flac' else 'wav'}"
        if kind == "44100 Hz":
            soundfile.write(path, say(text, 5000 + number, 44100), 44100)
        elif kind == "stereo":
            soundfile.write(path, np.stack([samples, 0.5 * samples], 1), RATE)
        else:
            soundfile.write(path, samples, RATE, subtype="PCM_24" if kind == "24 bits" else "PCM_16")
        paths.append(path)
    assert run_headway("predict", heard.run, *paths).out.splitlines() == heard.texts


def test_silence_is_told_however_it_comes(heard, run_headway, tmp_path, caplog):
    silence = write(tmp_path / "silence.wav", np.zeros(RATE, dtype=np.float32))
    manifest = tmp_path / "all.tsv"
    manifest.write_text(f"{heard.recordings[0]}\tlow\nsilence.wav\tmid\n", encoding="utf-8")
    told = "inputs have no sound: all their samples are alike"
    for arguments, given in (((heard.recordings[0], silence), ""), (("--input", manifest), ""), ((), f"{silence}\n")):
        ended = run_headway("predict", heard.run, *arguments, stdin=given)
        count = 2 if arguments else 1
        assert f"1 of {count} {told} ({silence})" in ended.err
    assert f"1 of 2 {told}" in run_headway("score", heard.run, "--source", manifest).err
    assert told not in run_headway("predict", heard.run, heard.recordings[0]).err
    caplog.clear()
    predictor = headway.load(heard.run, device="cpu")
    predictor.predict([np.zeros(RATE, dtype=np.int16), (np.full((2 * RATE, 2), 0.25), RATE)])
    assert f"2 of 2 {told} (samples ({RATE},), samples ({2 * RATE}, 2))" in caplog.text


def test_standard_input_names_recordings(heard, run_headway):
    plain = "".join(f"{path}\n" for path in heard.recordings)
    table = "".join(f"{path}\t{text}\n" for path, text in zip(heard.recordings, TESTS, strict=True))
    records = "".join(json.dumps({"audio": str(path), "text": "?"}) + "\n" for path in heard.recordings)
    for given in (plain, table, records):
        assert run_headway("predict", heard.run, stdin=given).out.splitlines() == heard.texts
    ended = run_headway("predict", heard.run, stdin='{"file": "a.wav"}\n')
    assert (ended.code, "standard input:1: there is no text in a field audio" in ended.err) == (2, True)


def test_paths_are_relative_to_the_file_that_names_them(heard, run_headway, monkeypatch):
    monkeypatch.chdir(heard.folder.parent)
    manifest, folder = heard.folder / "given.tsv", heard.recordings[0].parent
    names = [os.path.relpath(path, heard.folder) for path in heard.recordings]
    manifest.write_text("".join(f"{name} \ttext\n" for name in names[:2]) + "\n" + f"{names[2]}\ttext\n")
    expected = [*heard.texts[:2], "", heard.texts[2]]
    assert run_headway("predict", heard.run, "--input", manifest).out.splitlines() == expected
    monkeypatch.chdir(folder)
    named = "".join(f"{path.name}\n" for path in heard.recordings)
    assert run_headway("predict", heard.run, stdin=named).out.splitlines() == heard.texts


def test_broken_recordings_are_named_or_skipped(heard, run_headway, tmp_path):
    broken, short = tmp_path / "broken.flac", write(tmp_path / "short.wav", say("low")[:100])
    broken.write_bytes(b"no sound")
    given = [heard.recordings[0], broken, heard.recordings[1], short]
    ended = run_headway("predict", heard.run, *given)
    assert (ended.code, ended.out) == (2, ""), "headers are read before anything is decoded"
    assert f"{broken}: this recording cannot be read" in ended.err
    ended = run_headway("predict", heard.run, given[0], short)
    assert (ended.code, ended.out, f"{short}: this recording is too short" in ended.err) == (2, "", True)
    ended = run_headway("predict", heard.run, *given, "--skip-broken")
    assert (ended.code, ended.out.splitlines()) == (0, [heard.texts[0], "", heard.texts[1], ""])
    assert "broken.flac" in ended.err
    scored = run_headway("predict", heard.run, *given, "--skip-broken", "--scores").out.splitlines()
    assert [scored[row] for row in (1, 3)] == ["-inf\t", "-inf\t"], "what was not read is not certain"
    assert "short.wav: this recording is too short" in ended.err
    assert "2 of 4 were skipped" in ended.err
    ended = run_headway("predict", heard.run, given[0], "--max-source-length", "9")
    assert (ended.code, f"{given[0]}: this recording is too long; received" in ended.err) == (2, True)
    assert run_headway("predict", heard.run, given[0], "--max-source-length", "9", "--truncate").code == 0
    ended = run_headway("predict", heard.run, tmp_path / "missing.wav")
    assert (ended.code, "missing.wav: there is no such recording" in ended.err) == (2, True)


def test_from_python(heard):
    predictor = headway.load(heard.run, device="cpu")
    samples = [say(text, 5000 + number) for number, text in enumerate(TESTS)]
    given = [heard.recordings[0], samples[1], (say(TESTS[2], 5002, 16000), 16000), str(heard.recordings[3])]
    said = predictor.predict(given, capture=("*.cross",))
    assert [each.text for each in said] == heard.texts
    assert said[0].source == str(heard.recordings[0])
    for each in said:
        weights = each.attention["decoder.1.cross"]
        assert weights.shape == (2, len(each.tokens) + 1, len(each.attended))
        np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-5)
        assert each.attended == [f"{0.04 * number:.2f}" for number in range(len(each.attended))]
        assert each.attention.columns["decoder.1.cross"] == each.attended
        assert each.attention.rows["decoder.1.cross"] == [*each.tokens, "</s>"]
    assert len(said[2].attended) > len(said[1].attended) > 2
    (skipped,) = predictor.predict([samples[0][:50]], skip_broken=True)
    assert (skipped.text, "too short" in str(skipped.problem)) == ("", True)
    forced = predictor.score(samples[:1], [TESTS[0]])
    assert forced[0].score == pytest.approx(predictor.predict(samples[:1])[0].score, abs=1e-4)


def test_two_runs_hear_together(heard, run_headway):
    ended = run_headway("predict", heard.run, heard.run, *heard.recordings)
    assert ended.out.splitlines() == heard.texts


def test_attention_and_scores_can_be_had(heard, run_headway, tmp_path):
    ended = run_headway(
        "predict", heard.run, *heard.recordings, "--scores", "--attention", tmp_path / "attention.jsonl"
    )
    assert [line.split("\t")[1] for line in ended.out.splitlines()] == heard.texts
    records = [json.loads(line) for line in (tmp_path / "attention.jsonl").read_text().splitlines()]
    weights = np.array(records[0]["attention"]["decoder.1.cross"])
    assert weights.shape[1:] == (len(records[0]["target_tokens"]), len(records[0]["source_tokens"]))
    manifest = heard.folder / "dev.tsv"
    ended = run_headway("score", heard.run, "--source", manifest)
    assert len(ended.out.splitlines()) == 10
    assert all(float(line.split("\t")[1]) > -1 for line in ended.out.splitlines())
    rows = [line.split("\t") for line in manifest.read_text(encoding="utf-8").splitlines()]
    objects = [json.dumps({"audio": str(heard.folder / audio), "text": text}) for audio, text in rows]
    (tmp_path / "dev.jsonl").write_text("\n".join(objects) + "\n", encoding="utf-8")
    assert run_headway("score", heard.run, "--source", tmp_path / "dev.jsonl").out == ended.out
    (tmp_path / "dev.jsonl.gz").write_bytes(gzip.compress((tmp_path / "dev.jsonl").read_bytes()))
    assert run_headway("score", heard.run, "--source", tmp_path / "dev.jsonl.gz").out == ended.out


def test_a_look_inside(heard, run_headway, tmp_path):
    ended = run_headway("inspect", heard.run, "--output", tmp_path / "page.html", "--sentences", "3")
    assert (ended.code, "3 sentences" in ended.out) == (0, True)


@pytest.mark.slow
def test_figures(heard, run_headway, tmp_path):
    ended = run_headway(
        "inspect", "figures", heard.run, "--output", tmp_path / "figures", "--input", heard.folder / "dev.tsv"
    )
    assert ended.code == 0, ended.err
    assert list((tmp_path / "figures").iterdir())


def test_options_of_text_are_refused(heard, run_headway, reversal):
    ended = run_headway("predict", heard.run, *heard.recordings, "--alignments", "a.txt")
    assert (ended.code, "speech_recognition has no such option" in ended.err) == (2, True)
    ended = run_headway("predict", reversal.run, heard.recordings[0])
    assert (ended.code, "this is no run, and translation reads lines; allowed:" in ended.err) == (2, True)


def test_the_data_can_be_checked_first(heard, run_headway):
    ended = run_headway("data", "check", heard.recipe, "data.audio.bins=500")
    assert (ended.code, "error: data.audio.bins: " in ended.err) == (2, True)
    ended = run_headway("data", "check", heard.recipe)
    assert f"data.train: {SENTENCES} recordings, {SENTENCES} kept" in ended.out
    content = json.loads(run_headway("data", "check", heard.recipe, "--json").out)
    assert content["dev"]["sample_rates"] == {str(RATE): 10}
    assert "16 bins a frame" in run_headway("inspect", "tables", "parameters", heard.run).out
    assert "16 bins a frame" in run_headway("inspect", "tables", "parameters", heard.recipe).out


def test_a_batch_hears_what_each_recording_says_alone(heard):
    predictor = headway.load(heard.run, device="cpu")
    assert isinstance(predictor, SequencePredictor)
    together, apart = (predictor.predict(heard.recordings, beam=3, batch_tokens=size) for size in (100_000, 1))
    for one, other in zip(together, apart, strict=True):
        assert one.text == other.text
        assert one.score == pytest.approx(other.score, abs=1e-4)


def test_kills_change_nothing(tmp_path, run_headway, monkeypatch):
    """With masks of SpecAugment and statistics of the corpus, both of which an update depends on."""
    torch.set_num_threads(1)
    audio = RECIPE["data"]["audio"] | {
        "normalise": "global",
        "spec_augment": {"frequency_masks": 1, "frequency_width": 4, "time_masks": 1, "time_width": 6},
    }
    training = {
        "updates": 12,
        "batch_tokens": 400,
        "checkpoint_every": 3,
        "evaluate_every": 6,
        "precision": "float32",
        "dev_metrics": [],
        "log_every": 2,
    }
    recipe = write_recipe(
        tmp_path, data=RECIPE["data"] | {"audio": audio}, training=training,
        model=RECIPE["model"] | {"dropout": 0.2},
    )  # fmt: skip
    monkeypatch.setenv("HEADWAY_CACHE", str(tmp_path / "other"))
    assert run_headway("train", recipe, "--output", tmp_path / "alone").code == 0
    assert attempts(recipe, tmp_path / "killed", kills=4, what="files") >= 2
    assert_same(tmp_path / "alone", tmp_path / "killed")
    source = AudioProcessor.load(RunFolder(tmp_path / "killed").vocabulary)
    assert source.statistics.mean.shape == (16,)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": {"front_end": None}}, "model.front_end: a model of speech needs what reads frames"),
        ({"vocabulary": {"kind": "char", "shared": True}}, "vocabulary.shared: only transcripts"),
        ({"text": {"source": {"segment": "whitespace"}}}, "text.source: a recording has no text"),
        ({"data": RECIPE["data"] | {"count": "words"}}, "data.count: transcripts are counted in tokens"),
        ({"data": RECIPE["data"] | {"max_ratio": 2.0}}, "data.max_ratio: speech_recognition has no pairs"),
        ({"data": RECIPE["data"] | {"truncate_source": 9}}, "data.truncate_source: speech_recognition has no pairs"),
        ({"data": RECIPE["data"] | {"lead": [8]}}, "data.lead: speech_recognition has no pairs"),
        ({"data": RECIPE["data"] | {"audio": {"max_frames": 5000}}}, "data.audio.max_frames: recordings may be longer"),
        ({"objective": {"dependency": {}}}, "objective: speech is learned from transcripts alone"),
        ({"model": {"kind": "recurrent"}}, "model.front_end: a model of speech needs"),
        ({"model": {"position": "learned", "front_end": {}, "max_position": 60}}, "data.max_length: transcripts"),
        ({"decoding": {"unknown_words": "copy"}}, "decoding.unknown_words: a recording has no words"),
        (
            {
                "data": RECIPE["data"] | {"max_length": 50}, "decoding": {"min_length": 60},
                "model": {"position": "learned", "front_end": {}, "max_position": 60},
            },
            "decoding.min_length: the shortest output is longer",
        ),
        ({"task": "translation"}, "model.front_end: translation has no recordings"),
    ],
)  # fmt: skip
def test_mistakes_are_found_before_any_work(changes, message):
    with pytest.raises(UserError) as error:
        check_recipe(parse_recipe(RECIPE | changes))
    assert message in str(error.value)


def test_recordings_of_dev_that_decoding_cuts_are_told(tmp_path, caplog):
    audio = RECIPE["data"]["audio"] | {"max_frames": 20}
    recipe = load_recipe(write_recipe(tmp_path, data=RECIPE["data"] | {"audio": audio}))
    for room in (9, 2048):
        caplog.clear()
        given = recipe.model_copy(update={"model": recipe.model.model_copy(update={"max_position": room})})
        dev = SpeechRecognition().corpora(given, tmp_path / f"vocabulary-{room}").dev
        longer = int((dev.corpus.frames > 36).sum())
        told = f"data.dev: {longer} of 10 sources are longer than the model reads; decoding reads their first 36 frames"
        assert longer > 0
        assert (told in caplog.text) == (room == 9)


def test_changed_audio_is_noticed_on_resumption(tmp_path, run_headway):
    recipe = write_recipe(tmp_path, training={"updates": 2, "batch_tokens": 400, "checkpoint_every": 2})
    assert run_headway("train", recipe, "--output", tmp_path / "run").code == 0
    write(tmp_path / "train" / "3.wav", say("low low"))
    ended = run_headway("train", recipe, "training.updates=3", "--output", tmp_path / "run", "--resume")
    assert (ended.code, "the data has changed since this run began" in ended.err) == (2, True)
