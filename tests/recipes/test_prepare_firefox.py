"""The pairs of LibreOffice's help, on made packages."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.preparation import RECIPES

PAIRS, SCRIPT = RECIPES / "firefox" / "pairs.py", RECIPES / "firefox" / "prepare.sh"
ENGLISH = [f"The cell number {number} has a note of kind {'abcdefghij'[number % 10]}" for number in range(200)]


def write_help(package: Path, language: str, texts: list[str]) -> Path:
    """An unpacked package with a page of paragraphs."""
    page = package / "usr/share/libreoffice/help" / language / "text" / "calc" / "01.html"
    page.parent.mkdir(parents=True)
    rows = [f'<p id="par_id{number}" class="x">{text}</p>' for number, text in enumerate(texts)]
    page.write_text("<html>" + "\n".join(rows) + "</html>", encoding="utf-8")
    return package


def made(folder: Path) -> dict[str, list[list[str]]]:
    texts = {part: (folder / f"{part}.tsv").read_text("utf-8") for part in ("train", "dev", "test")}
    return {part: [line.split("\t") for line in text.splitlines()] for part, text in texts.items()}


def test_a_sentence_and_its_variants_are_in_one_part(tmp_path: Path) -> None:
    source = [*ENGLISH, "Open <b>the</b> file &amp; read it", "too short", "Nothing is translated here", *ENGLISH[:1]]
    target = [f"Celda {number} con una nota" for number in range(200)]
    target += ["Abrir <i>el</i> archivo &amp; leerlo", "muy corto", "Nothing is translated here", target[0]]
    packages = [write_help(tmp_path / code, code, texts) for code, texts in (("en-US", source), ("es", target))]
    subprocess.run([sys.executable, PAIRS, *packages, tmp_path / "pairs"], check=True, capture_output=True)
    parts = made(tmp_path / "pairs")
    rows = [row for part in parts.values() for row in part]
    assert ["Open the file & read it", "Abrir el archivo & leerlo"] in rows
    assert len(rows) == 201, "one is too short, one is not translated, one is there twice"
    kinds = {part: {row[0].rsplit(" ", 1)[-1] for row in found} for part, found in parts.items()}
    for one, other in (("train", "dev"), ("train", "test"), ("dev", "test")):
        assert not kinds[one] & kinds[other], "sentences that differ by a number"


@pytest.mark.skipif(os.name == "nt", reason="a script of sh")
def test_packages_are_fetched_once(tmp_path: Path) -> None:
    programs, log = tmp_path / "bin", tmp_path / "log"
    programs.mkdir()
    for code in ("en-us", "es"):
        write_help(tmp_path / "made" / f"libreoffice-help-{code}", code, ENGLISH if code == "en-us" else ENGLISH[::-1])
    for name, text in {
        "apt-get": f'echo "$2" >> {log}; touch "$2.deb"',
        "dpkg-deb": f'cp -r "{tmp_path}/made/$(basename "$2" .deb)" "$3"',
        "python3": f'exec {sys.executable} "$@"',
    }.items():
        (programs / name).write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        (programs / name).chmod(0o755)
    environment = os.environ | {"PATH": f"{programs}:{os.environ['PATH']}"}
    for _ in range(2):
        subprocess.run(["sh", SCRIPT, tmp_path / "help", "es"], check=True, env=environment, capture_output=True)
    assert log.read_text("utf-8").split() == ["libreoffice-help-en-us", "libreoffice-help-es"]
    assert len(made(tmp_path / "help" / "en-es")["train"]) > 100
    assert sorted(path.name for path in (tmp_path / "help").iterdir()) == ["en-es", "packages"]
    assert subprocess.run(["sh", SCRIPT, tmp_path], capture_output=True, check=False).returncode == 2
