"""Speech that needs no speaker: each word is a tone, and a sentence tones with pauses between them."""

from pathlib import Path

import numpy as np
import soundfile

from headway.processing.audio.audio_files import Samples

RATE = 8000
WORDS = {"low": 400.0, "mid": 1100.0, "high": 2500.0}


def tone(frequency: float, seconds: float, rate: int = RATE, volume: float = 0.3) -> Samples:
    time = np.arange(round(seconds * rate)) / rate
    return (volume * np.sin(2 * np.pi * frequency * time)).astype(np.float32)


def say(text: str, seed: int = 0, rate: int = RATE) -> Samples:
    """A tone for each word of `text`, of varying length and volume, with pauses and a little noise."""
    random = np.random.default_rng(seed)
    pieces = [np.zeros(round(random.uniform(0.02, 0.05) * rate), dtype=np.float32)]
    for word in text.split():
        pieces.append(tone(WORDS[word], random.uniform(0.08, 0.14), rate, random.uniform(0.2, 0.5)))
        pieces.append(np.zeros(round(random.uniform(0.03, 0.06) * rate), dtype=np.float32))
    samples = np.concatenate(pieces)
    return (samples + 0.002 * random.standard_normal(len(samples))).astype(np.float32)


def write(path: Path, samples: Samples, rate: int = RATE) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, samples, rate)
    return path


def write_corpus(folder: Path, sentences: list[str], name: str = "train", first_seed: int = 0) -> Path:
    """WAV files in a folder, and the manifest `NAME.tsv` beside it."""
    rows = []
    for number, text in enumerate(sentences):
        write(folder / name / f"{number}.wav", say(text, first_seed + number))
        rows.append(f"{name}/{number}.wav\t{text}\n")
    manifest = folder / f"{name}.tsv"
    manifest.write_text("".join(rows), encoding="utf-8")
    return manifest
