"""Strings of one to five spoken digits, joined from recordings of single ones: a small corpus of continuous speech.

    python recipes/speech/digits.py RECORDINGS OUTPUT       # --help has sizes, seed and rate

RECORDINGS are named DIGIT_SPEAKER_TAKE.wav, as those of github.com/Jakobovski/free-spoken-digit-dataset.

Shapes: N samples.
"""

import argparse
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from headway.core.errors import HeadwayError, UserError
from headway.core.files import write_text
from headway.processing.audio.audio_files import Samples, read_recording, write_wav

WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
NAME = re.compile(r"(?P<digit>\d)_(?P<speaker>[^_]+)_(?P<take>\d+)\.(?:wav|flac)")
MOST_DIGITS = 5
PAUSE = (0.05, 0.3)  # seconds before, between and after digits
SIGNAL_TO_NOISE = (10.0, 30.0)  # decibels of the digits over white noise
GAIN = (-6.0, 6.0)  # decibels
LOUDEST = 0.99  # of the range of samples


class Spoken(NamedTuple):
    """One digit, spoken once."""

    digit: int
    speaker: str
    take: int
    samples: Samples


@dataclass(frozen=True)
class DigitOptions:
    """Settings: the seed, sizes, the takes that only dev has, the speaker whom only the test has, and the rate."""

    seed: int = 1
    train_size: int = 5000
    test_size: int = 400
    dev_takes: tuple[int, int] = (45, 49)
    left_out: str | None = None
    sample_rate: int = 8000


@dataclass(frozen=True)
class DigitPart:
    """How much a part holds."""

    strings: int
    digits: int
    seconds: float


def read_digits(folder: Path, sample_rate: int) -> list[Spoken]:
    """All recordings `DIGIT_SPEAKER_TAKE.wav` in a folder. Raises UserError where there are none, or one is broken."""
    if not folder.is_dir():
        raise UserError("there is no such folder", where=str(folder))
    recordings = []
    for path in sorted(folder.glob("*")):
        if named := NAME.fullmatch(path.name):
            samples = read_recording(path, sample_rate)
            if not len(samples):
                raise UserError("this recording has no samples", where=str(path))
            recordings.append(Spoken(int(named["digit"]), named["speaker"], int(named["take"]), samples))
    if not recordings:
        raise UserError("there are no recordings DIGIT_SPEAKER_TAKE.wav here", where=str(folder))
    return recordings


def split_digits(spoken: Sequence[Spoken], options: DigitOptions) -> dict[str, list[Spoken]]:
    """The recordings of train, dev and test-speaker; no recording is in two of them.

    Raises:
        UserError: no such speaker, or a part without recordings.
    """
    speakers = sorted({digit.speaker for digit in spoken})
    left_out = options.left_out or speakers[-1]
    if left_out not in speakers:
        raise UserError("nobody of this name speaks", where="--left-out", received=left_out, allowed=speakers)
    first, last = options.dev_takes
    known = [digit for digit in spoken if digit.speaker != left_out]
    parts = {
        "train": [digit for digit in known if not first <= digit.take <= last],
        "dev": [digit for digit in known if first <= digit.take <= last],
        "test-speaker": [digit for digit in spoken if digit.speaker == left_out],
    }
    for name, part in parts.items():
        if not part:
            where, received = (
                ("--left-out", left_out) if name == "test-speaker" else ("--dev-takes", f"{first} to {last}")
            )
            takes = sorted({digit.take for digit in spoken})
            allowed = f"some of the takes {takes[0]} to {takes[-1]}, but not all"
            raise UserError(f"nothing is left for {name}", where=where, received=received, allowed=allowed)
    return parts


def join(spoken: Sequence[Spoken], random: np.random.Generator, sample_rate: int) -> Samples:
    """The samples (N,) of these digits one after the other, with pauses around them, and noise over all."""

    def pause() -> Samples:
        return np.zeros(round(random.uniform(*PAUSE) * sample_rate), dtype=np.float32)

    parts = [pause()]
    for digit in spoken:
        parts += [digit.samples, pause()]
    speech = np.concatenate(parts)
    power = np.mean(np.concatenate([digit.samples for digit in spoken]).astype(np.float64) ** 2)
    noise = np.sqrt(power * 10 ** (-random.uniform(*SIGNAL_TO_NOISE) / 10)) * random.standard_normal(len(speech))
    loud = (speech + noise) * 10 ** (random.uniform(*GAIN) / 20)
    samples: Samples = np.clip(loud, -LOUDEST, LOUDEST).astype(np.float32)
    return samples


def write_digits(folder: Path, output: Path, options: DigitOptions) -> dict[str, DigitPart]:
    """Write train, dev and test-speaker: a folder of WAV files and a manifest `NAME.tsv` (file TAB words) each.

    A string has one to five digits, all by one speaker, with equal probability; the seed decides everything. Manifests
    are written last, so that one that is there is whole.

    Args:
        folder: recordings of single digits.
        output: the folder to write to, which is made where it does not exist.
        options: what is made.

    Returns:
        What each part holds.

    Raises:
        UserError: as `read_digits` and `split_digits`.
    """
    parts = split_digits(read_digits(folder, options.sample_rate), options)
    sizes = {"train": options.train_size, "dev": options.test_size, "test-speaker": options.test_size}
    made = {}
    for number, (name, spoken) in enumerate(parts.items()):
        random = np.random.default_rng([options.seed, number])
        (output / name).mkdir(parents=True, exist_ok=True)
        by_speaker: dict[str, list[Spoken]] = {}
        for digit in spoken:
            by_speaker.setdefault(digit.speaker, []).append(digit)
        groups, rows, digits, length = list(by_speaker.values()), list[str](), 0, 0
        for string in range(1, sizes[name] + 1):
            group = groups[random.integers(len(groups))]
            chosen = [group[index] for index in random.integers(len(group), size=random.integers(1, MOST_DIGITS + 1))]
            samples = join(chosen, random, options.sample_rate)
            path = Path(name) / f"{string:05}-{chosen[0].speaker}.wav"
            write_wav(output / path, samples, options.sample_rate)
            rows.append(f"{path}\t{' '.join(WORDS[digit.digit] for digit in chosen)}\n")
            digits, length = digits + len(chosen), length + len(samples)
        write_text(output / f"{name}.tsv", "".join(rows))
        made[name] = DigitPart(len(rows), digits, length / options.sample_rate)
    return made


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the parts, and print how much each has."""
    usual = DigitOptions()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recordings", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--seed", type=int, default=usual.seed)
    parser.add_argument("--train-size", type=int, default=usual.train_size, help="strings to train on")
    parser.add_argument("--test-size", type=int, default=usual.test_size, help="strings of dev, and of the test")
    parser.add_argument("--dev-takes", type=int, nargs=2, default=usual.dev_takes, help="first and last take of dev")
    parser.add_argument("--left-out", help="the speaker whom only the test has; by default the last by name")
    parser.add_argument("--sample-rate", type=int, default=usual.sample_rate, help="of what is written, in Hz")
    given = vars(parser.parse_args(arguments))
    folder, output = given.pop("recordings"), given.pop("output")
    options = DigitOptions(**given | {"dev_takes": tuple(given["dev_takes"])})
    for name, part in write_digits(folder, output, options).items():
        print(f"{name}: {part.strings:,} strings, {part.digits:,} digits, {part.seconds / 60:.1f} minutes")


if __name__ == "__main__":
    try:
        main()
    except (HeadwayError, OSError) as error:
        sys.exit(f"digits.py: {error}")
