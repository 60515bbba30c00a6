"""The preparation of two shifts of domain, from catalogs that are made here to the runs that are fine-tuned."""

import struct
from pathlib import Path

import pytest

from tests.preparation import RECIPES, prepare, write
from tests.tiers import thinned

SCRIPT = RECIPES / "fine-tuning" / "prepare.sh"
MESSAGES = RECIPES / "fine-tuning" / "messages.py"
TINY = [
    "model.dim=8", "model.feed_forward=8", "model.heads=2", "model.encoder.layers=1", "model.decoder.layers=1",
    "vocabulary.kind=char", "training.updates=1", "training.checkpoint_every=1", "training.dev_metrics=[]",
]  # fmt: skip


def write_catalog(path: Path, messages: dict[str, str], header: str = "charset=UTF-8") -> None:
    """A compiled catalog: the header, two tables of lengths and offsets, and texts that end with a zero byte."""
    entries = sorted(({"": f"Content-Type: text/plain; {header}\n"} | messages).items())
    tables, texts = [b"", b""], b""
    for column in (0, 1):
        for entry in entries:
            text = entry[column].encode()
            tables[column] += struct.pack("<II", len(text), 28 + 16 * len(entries) + len(texts))
            texts += text + b"\0"
    numbers = struct.pack("<7I", 0x950412DE, 0, len(entries), 28, 28 + 8 * len(entries), 0, 0)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(numbers + b"".join(tables) + texts)


def test_messages_that_are_no_sentences_are_left_out_and_counted(tmp_path: Path) -> None:
    folder = tmp_path / "locale" / "de" / "LC_MESSAGES"
    kept = {"open the file": "die Datei öffnen", "menu\x04close the file": "die Datei schließen"}
    left_out = {
        "Close": "Schließen", "two\nlines here": "zwei\nZeilen hier", "_Save the file": "Datei _speichern",
        "same in both": "same in both", "not done": "", f"{'very ' * 30}long": "zu lang",
    }  # fmt: skip
    write_catalog(folder / "one.mo", kept | left_out)
    write_catalog(folder / "two.mo", {"open the file": "Datei öffnen"})
    (folder / "broken.mo").write_bytes(b"no catalog")
    write_catalog(folder / "strange.mo", {"open the file": "Datei öffnen"}, "charset=CHARSET")
    write_catalog(folder / "odd.mo", {"open the file": "Datei öffnen"}, "charset=UTF-8\nPlural-Forms: nplurals=2;")
    ended = prepare(MESSAGES, tmp_path / "locale", "de", tmp_path / "out.tsv")
    assert ended.returncode == 0, ended.stderr
    for name in ("broken", "strange", "odd"):
        assert f"{name}.mo is left out" in ended.stderr
    assert ended.stdout.strip().split("; ") == [
        "de: 2 messages", "1 long", "2 not translated", "1 of one word", "1 of several lines", "1 there already",
        "1 with a shortcut",
    ]  # fmt: skip
    lines = (tmp_path / "out.tsv").read_text(encoding="utf-8").splitlines()
    assert sorted(lines) == ["die Datei schließen\tclose the file", "die Datei öffnen\topen the file"]


@pytest.mark.parametrize(("shift", "language"), thinned([("strings", "ja"), ("captions", "de")], 2))
def test_a_shift_has_six_corpora_and_a_run(tmp_path: Path, shift: str, language: str) -> None:
    data, output = tmp_path / "data", tmp_path / "output"
    messages = {f"message number {number} of many": f"Meldung Nummer {number} von vielen" for number in range(1600)}
    write_catalog(data / "locale" / language / "LC_MESSAGES" / "all.mo", messages)
    rows = {"ja": "私 は {} 歳 です 。", "de": "Ein Kind ist {} Jahre alt.", "en": "someone is {} years old ."}
    for corpus, sides, parts in (
        ("tanaka", ("ja", "en"), {"train": 1010, "dev": 3}),
        ("multi30k", ("de", "en"), {"train": 20, "val": 3, "test_2016_flickr": 4}),
    ):
        for side in sides:
            for part, count in parts.items():
                write(data / corpus / f"{part}.{side}", "".join(f"{rows[side].format(n)}\n" for n in range(count)))
    ended = prepare(SCRIPT, shift, data, output, *TINY)
    assert ended.returncode == 0, ended.stderr
    sizes = {path.stem: len(path.read_text(encoding="utf-8").splitlines()) for path in output.glob("*-*.tsv")}
    captions = {"general-dev": 500, "general-test": 1000, "domain-dev": 3, "domain-test": 4}
    strings = {"general-dev": 3, "general-test": 1000, "domain-dev": 500, "domain-test": 1000}
    assert sizes == (strings if shift == "strings" else captions)
    assert (output / "runs" / "general" / "model.safetensors").is_file()
    first = (
        (output / f"{'general' if shift == 'strings' else 'domain'}.tsv").read_text(encoding="utf-8").splitlines()[0]
    )
    pairs = {
        "strings": "私は0歳です。\tsomeone is 0 years old .",
        "captions": "Ein Kind ist 0 Jahre alt.\tsomeone is 0 years old .",
    }
    assert first == pairs[shift]


def test_another_shift_is_named(tmp_path: Path) -> None:
    ended = prepare(SCRIPT, "poems", tmp_path, tmp_path)
    assert ended.returncode == 2
    assert "no shift 'poems'; allowed: strings, captions" in ended.stderr
