"""Strings of digits: who and what is in which part, how they are joined, and that the seed decides everything."""

import numpy as np
import pytest
import soundfile
from digits import WORDS, DigitOptions, join, main, read_digits, split_digits, write_digits

from headway.core.errors import UserError
from tests.processing.audio.tones import tone

OPTIONS = DigitOptions(seed=3, train_size=30, test_size=12, dev_takes=(2, 3))


@pytest.fixture
def folder(tmp_path):
    """Ten digits by three speakers, in four takes; each digit is a tone, which the take makes longer."""
    single = tmp_path / "single"
    single.mkdir()
    for digit in range(10):
        for number, speaker in enumerate(("anna", "ben", "cleo")):
            for take in range(4):
                samples = tone(300 + 300 * digit, 0.05 + 0.01 * take, volume=0.2 + 0.1 * number)
                soundfile.write(single / f"{digit}_{speaker}_{take}.wav", samples, 8000)
    (single / "notes.txt").write_text("no recording")
    return single


def test_no_recording_is_in_two_parts(folder):
    spoken = read_digits(folder, 8000)
    assert len(spoken) == 120
    parts = split_digits(spoken, OPTIONS)
    assert {name: len(part) for name, part in parts.items()} == {"train": 40, "dev": 40, "test-speaker": 40}
    assert {digit.take for digit in parts["train"]} == {0, 1}
    assert {digit.take for digit in parts["dev"]} == {2, 3}
    assert {digit.speaker for digit in parts["train"] + parts["dev"]} == {"anna", "ben"}
    assert {digit.speaker for digit in parts["test-speaker"]} == {"cleo"}
    other = split_digits(spoken, DigitOptions(dev_takes=(2, 3), left_out="ben"))
    assert {digit.speaker for digit in other["test-speaker"]} == {"ben"}


def test_digits_stand_apart_in_noise(folder):
    spoken = read_digits(folder, 8000)[:3]
    random = np.random.default_rng(1)
    samples = join(spoken, random, 8000)
    spoken_length = sum(len(digit.samples) for digit in spoken)
    pauses = (len(samples) - spoken_length) / 8000
    assert 4 * 0.05 <= pauses <= 4 * 0.3 + 1e-3
    assert np.abs(samples[:400]).max() > 0  # the first pause is not silent
    assert samples[:400].std() < 0.5 * samples[2400 : len(samples) // 2].std() or samples[:400].std() < 0.1
    assert np.abs(samples).max() <= 0.99


def test_what_is_written(folder, tmp_path):
    made = write_digits(folder, tmp_path / "strings", OPTIONS)
    assert {name: part.strings for name, part in made.items()} == {"train": 30, "dev": 12, "test-speaker": 12}
    lengths = set()
    for name, part in made.items():
        rows = [line.split("\t") for line in (tmp_path / "strings" / f"{name}.tsv").read_text().splitlines()]
        words = [text.split() for _, text in rows]
        assert sum(map(len, words)) == part.digits
        assert {word for string in words for word in string} <= set(WORDS)
        lengths |= set(map(len, words))
        infos = [soundfile.info(tmp_path / "strings" / path) for path, _ in rows]
        assert sum(info.duration for info in infos) == pytest.approx(part.seconds)
        speakers = {path.rpartition("-")[2] for path, _ in rows}
        assert speakers == ({"cleo.wav"} if name == "test-speaker" else {"anna.wav", "ben.wav"})
    assert lengths == {1, 2, 3, 4, 5}


def test_the_seed_decides_everything(folder, tmp_path):
    for name, seed in (("one", 3), ("same", 3), ("other", 4)):
        write_digits(folder, tmp_path / name, DigitOptions(seed, 5, 3, (2, 3)))
    files = sorted(path.relative_to(tmp_path / "one") for path in (tmp_path / "one").rglob("*") if path.is_file())
    assert len(files) == 3 + 5 + 3 + 3
    assert all((tmp_path / "one" / name).read_bytes() == (tmp_path / "same" / name).read_bytes() for name in files)
    assert (tmp_path / "one" / "train.tsv").read_text() != (tmp_path / "other" / "train.tsv").read_text()


def test_mistakes(folder, tmp_path):
    with pytest.raises(UserError, match="missing: there is no such folder"):
        main([str(tmp_path / "missing"), str(tmp_path / "out")])
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"no recordings DIGIT_SPEAKER_TAKE\.wav"):
        read_digits(tmp_path / "empty", 8000)
    with pytest.raises(UserError, match="nobody of this name speaks; received 'dora'; allowed: anna, ben, cleo"):
        write_digits(folder, tmp_path / "out", DigitOptions(left_out="dora"))
    with pytest.raises(
        UserError, match=r"--dev-takes: nothing is left for train; received '0 to 3'; allowed: some of the"
    ):
        write_digits(folder, tmp_path / "out", DigitOptions(dev_takes=(0, 3)))
    soundfile.write(tmp_path / "empty" / "1_anna_0.wav", np.zeros(0), 8000)
    with pytest.raises(UserError, match=r"1_anna_0\.wav: this recording has no samples"):
        read_digits(tmp_path / "empty", 8000)


def test_the_script(folder, tmp_path, capsys):
    main([str(folder), str(tmp_path / "out"), "--train-size", "4", "--test-size", "2", "--dev-takes", "2", "3"])
    assert capsys.readouterr().out.startswith("train: 4 strings, ")
