"""Utterances in batches by frames; what is left out is named and counted, and order is kept."""

import os
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

from headway.core.errors import UserError
from headway.corpora.speech_corpus import build_frames, build_speech
from headway.formats.recordings import open_recordings, read_utterances
from headway.processing.audio.audio_processor import AudioProcessor
from headway.processing.audio.features import AudioConfig, Statistics
from headway.processing.text.text_processor import PreparationConfig, train_processor
from headway.processing.text.vocabulary import VocabularyConfig
from tests.processing.audio.tones import say, tone, write_corpus

SENTENCES = ["low", "high mid", "mid low low", "high", "low mid high low", "mid mid"]
SIDE = train_processor(PreparationConfig(), VocabularyConfig(kind="whitespace"), SENTENCES, "transcripts")


def corpus(folder, max_length=10, statistics=None, **settings):
    manifest = folder / "train.tsv"
    if not manifest.exists():
        write_corpus(folder, SENTENCES)
    config = AudioConfig(sample_rate=8000, bins=9, **settings)
    utterances = read_utterances(open_recordings({"tsv": manifest}, "data.train"))
    store = build_frames([utterance.audio for utterance in utterances], config, cache=folder / "cache")
    return build_speech(
        "data.train", utterances, store, (AudioProcessor(config, statistics), SIDE), max_length=max_length
    )


def test_batches_hold_frames_and_transcripts(tmp_path):
    built = corpus(tmp_path)
    batch = built.collate(np.array([3, 1]))
    side = AudioProcessor(AudioConfig(sample_rate=8000, bins=9))
    for row, number in enumerate((3, 1)):
        frames = side.encode(tmp_path / "train" / f"{number}.wav").values
        length = int(batch.source_mask[row].sum())
        np.testing.assert_array_equal(batch.source[row, :length], frames)
        ids = SIDE.encode(SENTENCES[number]).values
        assert batch.target_output[row, : len(ids) + 1].tolist() == [*ids, 2]
    assert batch.indices.tolist() == [3, 1]
    assert batch.counts == {"target_tokens": 5}
    assert built.lines.tolist() == [1, 2, 3, 4, 5, 6]


def test_every_utterance_is_in_one_batch_of_so_many_frames(tmp_path):
    built = corpus(tmp_path)
    plan = built.plan(1, 0, batch_tokens=120)
    assert sorted(np.concatenate(plan).tolist()) == list(range(6))
    widths = [built.collate(indices).source.shape[:2] for indices in plan]
    assert len(plan) > 1
    assert all(rows * frames <= 120 or rows == 1 for rows, frames in widths)
    again = built.plan(1, 0, batch_tokens=120)
    assert [batch.tolist() for batch in plan] == [batch.tolist() for batch in again]


def test_training_hides_and_dev_does_not(tmp_path):
    policy = {"frequency_masks": 1, "frequency_width": 5, "time_masks": 2, "time_width": 9}
    train, plain = corpus(tmp_path, spec_augment=policy), corpus(tmp_path)
    dev = corpus(tmp_path, spec_augment=policy, max_length=None)
    every = np.arange(6)
    torch.manual_seed(1)
    first = train.collate(every).source
    torch.manual_seed(1)
    assert torch.equal(train.collate(every).source, first)
    assert not torch.equal(train.collate(every).source, first)
    assert torch.equal(dev.collate(every).source, plain.collate(every).source)
    state = torch.get_rng_state()
    dev.collate(every)
    assert torch.equal(torch.get_rng_state(), state)


def spoil(folder):
    write_corpus(folder, SENTENCES)
    (folder / "train" / "1.wav").write_bytes(b"RIFF")
    soundfile.write(folder / "train" / "2.wav", tone(400, 0.03), 8000)
    (folder / "train" / "4.wav").unlink()


def test_recordings_at_fault_are_named(tmp_path):
    spoil(tmp_path)
    with pytest.raises(UserError, match=r"data\.train: 3 of 6 recordings cannot be used: .*1\.wav \(this recording "
                       r"cannot be read .*2\.wav \(under audio\.min_frames\).*4\.wav \(there is no such"):  # fmt: skip
        corpus(tmp_path)


def test_or_left_out_and_counted(tmp_path):
    spoil(tmp_path)
    built = corpus(tmp_path, broken="skip")
    assert [utterance.text for utterance in built.utterances] == ["low", "high", "mid mid"]
    assert built.lines.tolist() == [1, 4, 6]
    assert built.report.dropped == {"unreadable": 2, "under audio.min_frames": 1}
    text = built.report.text()
    assert "6 recordings, 3 kept" in text
    assert "dropped 2: unreadable" in text
    assert "1.wav" in text
    assert "sample rates 8000 Hz: 3; channels 1: 3" in text


def test_what_is_too_long_is_dropped_from_training_alone(tmp_path):
    manifest = write_corpus(tmp_path, [*SENTENCES, "mid low"])
    manifest.write_text(manifest.read_text().replace("6.wav\tmid low", "6.wav\t "))
    longest = len(AudioProcessor(AudioConfig(sample_rate=8000, bins=9)).encode(say(SENTENCES[4], 4)).values)
    built = corpus(tmp_path, max_length=2, max_frames=longest - 1)
    assert built.report.dropped == {"empty side": 1, "over audio.max_frames": 1, "over max_length": 1}
    assert [utterance.text for utterance in built.utterances] == ["low", "high mid", "high", "mid mid"]
    dev = corpus(tmp_path, max_length=None, max_frames=longest - 1)
    assert dev.report.dropped == {}
    assert [utterance.text.strip() for utterance in dev.utterances].count(
        ""
    ) == 1  # silence, in which models hear words


def test_global_statistics_are_those_of_all_frames(tmp_path):
    built = corpus(tmp_path, normalise="none")
    whole = np.concatenate([built.collate(np.array([number])).source[0].numpy() for number in range(6)])
    statistics, wanted = built.statistics(), Statistics.of(whole)
    np.testing.assert_allclose(statistics.mean, wanted.mean, rtol=1e-9)
    np.testing.assert_allclose(statistics.variance, wanted.variance, rtol=1e-6)
    normalised = corpus(tmp_path, normalise="global", statistics=statistics)
    batch = normalised.collate(np.arange(6))
    assert abs(float(batch.source[batch.source_mask].mean())) < 1e-5


def test_the_fingerprint_is_of_sound_and_text(tmp_path):
    first = corpus(tmp_path)
    assert corpus(tmp_path).fingerprint == corpus(tmp_path, cache=False).fingerprint == first.fingerprint
    assert corpus(tmp_path, max_length=1).fingerprint != first.fingerprint
    manifest = tmp_path / "train.tsv"
    manifest.write_text(manifest.read_text().replace("mid mid", "mid low"))
    assert corpus(tmp_path).fingerprint != first.fingerprint


@pytest.mark.skipif("HEADWAY_DATA" not in os.environ, reason="HEADWAY_DATA, the folder of corpora, is not set")
def test_utterances_of_librispeech(tmp_path):
    audio = Path(os.environ["HEADWAY_DATA"]) / "librispeech-mini" / "mix_cut_test" / "audio" / "storage"
    if not audio.is_dir():
        pytest.skip("HEADWAY_DATA does not hold librispeech-mini")
    chapter = tmp_path / "2412" / "153948"
    chapter.mkdir(parents=True)
    for number in (0, 1):
        (chapter / f"2412-153948-000{number}.flac").symlink_to(audio / f"2412-153948-000{number}.flac")
    (chapter / "2412-153948.trans.txt").write_text("2412-153948-0000 LOW\n2412-153948-0001 HIGH\n")
    utterances = read_utterances(open_recordings({"librispeech": tmp_path}, "data.train"))
    config = AudioConfig()
    store = build_frames([utterance.audio for utterance in utterances], config, cache=tmp_path / "cache")
    built = build_speech("data.train", utterances, store, (AudioProcessor(config), SIDE), max_length=10)
    assert built.report.sample_rates == {"16000": 2}
    assert built.report.hours * 3600 == pytest.approx(11.66 + 10.51, abs=0.01)
    assert built.collate(np.array([0])).source.shape == (1, 1164, 80)
