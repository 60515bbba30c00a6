"""The preparation of LibriSpeech, in miniature on made archives."""

import hashlib
import io
import tarfile
from pathlib import Path

from tests.preparation import RECIPES, prepare, write

SCRIPT = RECIPES / "speech" / "prepare-librispeech.sh"


def write_archives(folder: Path) -> Path:
    """Two parts of one chapter each, with two transcripts; the file of their checksums."""
    sums = ""
    folder.mkdir(exist_ok=True)
    for part in ("dev-clean", "train-clean-100"):
        name = f"LibriSpeech/{part}/84/121123/84-121123"
        files = {
            f"{name}.trans.txt": f"84-121123-0000 {part.upper()}\n84-121123-0001 GO ON\n",
            f"{name}-0000.flac": "x",
        }
        with tarfile.open(folder / f"{part}.tar.gz", "w:gz") as archive:
            for member, content in files.items():
                entry = tarfile.TarInfo(member)
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content.encode()))
        sums += f"{hashlib.sha256((folder / f'{part}.tar.gz').read_bytes()).hexdigest()}  {part}.tar.gz\n"
    return write(folder / "sums", sums)


def test_archives_are_checked_and_unpacked(tmp_path: Path) -> None:
    sums, output = write_archives(tmp_path / "archives"), tmp_path / "data"
    ended = prepare(SCRIPT, sums.parent, output, sums)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines() == ["dev-clean: 2 utterances", "train-clean-100: 2 utterances"]
    assert (output / "LibriSpeech" / "train-clean-100" / "84" / "121123" / "84-121123-0000.flac").is_file()


def test_an_archive_that_is_not_whole_is_named(tmp_path: Path) -> None:
    sums, output = write_archives(tmp_path / "archives"), tmp_path / "data"
    archive = sums.parent / "train-clean-100.tar.gz"
    archive.write_bytes(archive.read_bytes()[:-9])
    ended = prepare(SCRIPT, sums.parent, output, sums)
    assert ended.returncode == 2
    assert f"{archive} is not whole" in ended.stderr
    assert not list(output.iterdir())


def test_every_part_of_the_recipes_has_a_checksum() -> None:
    sums = dict(line.split("  ")[::-1] for line in (SCRIPT.parent / "librispeech.sha256").read_text().splitlines())
    assert all(len(value) == 64 for value in sums.values())
    recipe = (SCRIPT.parent / "librispeech-attention.yaml").read_text(encoding="utf-8")
    assert all(name.removesuffix(".tar.gz") in recipe for name in sums if not name.startswith("test-other"))
