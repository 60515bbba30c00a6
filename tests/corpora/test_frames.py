"""Frames are computed once, kept whole, recognised by content, and the same when they are not kept."""

import numpy as np
import pytest

from headway.corpora import speech_corpus
from headway.corpora.speech_corpus import build_frames
from headway.processing.audio.audio_files import read_recording
from headway.processing.audio.features import AudioConfig, filterbanks
from tests.processing.audio.tones import say, write

CONFIG = AudioConfig(sample_rate=8000, bins=9)


@pytest.fixture
def paths(tmp_path):
    texts = ["low", "high mid", "mid low low", "high"]
    written = [write(tmp_path / f"{number}.wav", say(text, number)) for number, text in enumerate(texts)]
    return [*written[:2], tmp_path / "missing.wav", *written[2:]]


@pytest.mark.parametrize("cache", [True, False])
def test_frames_are_those_of_each_recording(tmp_path, paths, cache):
    config = CONFIG.model_copy(update={"cache": cache})
    done = []
    store = build_frames(paths, config, progress=done.append, cache=tmp_path / "cache")
    assert done == [5]
    for number, path in enumerate(paths):
        if number == 2:
            assert store.lengths[number] == 0
            assert store.facts[number].problem == "there is no such recording"
            continue
        wanted = filterbanks(read_recording(path, 8000), config)
        np.testing.assert_array_equal(store[number], wanted)
        assert store.lengths[number] == len(wanted)
        assert (store.facts[number].sample_rate, store.facts[number].problem) == (8000, None)


def test_what_is_kept_is_not_computed_again(tmp_path, paths, monkeypatch):
    first = build_frames(paths, CONFIG, cache=tmp_path / "cache")
    monkeypatch.setattr(speech_corpus, "filterbanks", None)
    again = build_frames(paths, CONFIG, cache=tmp_path / "cache")
    assert again.content == first.content
    np.testing.assert_array_equal(again[4], first[4])


def test_other_content_and_other_settings_are_other_frames(tmp_path, paths):
    def content(**changes) -> str:
        return build_frames(paths, CONFIG.model_copy(update=changes), cache=tmp_path / "cache").content

    first = content()
    assert content(cache=False) == content(min_frames=7) == first
    assert len({first, content(bins=8), content(frame_shift=20.0)}) == 3
    write(paths[0], say("high"))
    assert content() != first


@pytest.mark.parametrize("name", ["frames.npy", "lengths.npy", "facts.json"])
def test_a_damaged_store_is_made_anew(tmp_path, paths, name):
    wanted = build_frames(paths, CONFIG, cache=tmp_path / "cache")[1].copy()
    (folder,) = (tmp_path / "cache" / "frames").iterdir()
    (folder / name).write_bytes((folder / name).read_bytes()[:-40])
    np.testing.assert_array_equal(build_frames(paths, CONFIG, cache=tmp_path / "cache")[1], wanted)
    assert {store.name for store in (tmp_path / "cache" / "frames").iterdir()} - {".lock"} == {folder.name}


@pytest.mark.slow
def test_several_processes_give_the_same(tmp_path, paths, monkeypatch):
    alone = build_frames(paths, CONFIG, cache=tmp_path / "alone")
    for name, value in (("CHUNK", 2), ("PATIENCE", -1.0), ("cores", lambda: 2)):
        monkeypatch.setattr(speech_corpus, name, value)
    shared = build_frames(paths, CONFIG, cache=tmp_path / "shared")
    assert shared.facts == alone.facts
    for number in (0, 1, 3, 4):
        np.testing.assert_array_equal(shared[number], alone[number])
