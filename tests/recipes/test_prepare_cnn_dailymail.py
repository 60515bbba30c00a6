"""The preparation of CNN/DailyMail, in miniature on made archives."""

import hashlib
import io
import tarfile
from pathlib import Path

from tests.preparation import RECIPES, prepare, write

SCRIPT = RECIPES / "summarization" / "cnn-dailymail" / "prepare.py"
STORIES = {
    "cnn": {
        "a": "(CNN) It rained.\n\nIt  stopped\n\n@highlight\n\nRain fell\n\n@highlight\n\nIt ended!\n",
        "b": "Alone.\n",
    },
    "dailymail": {"c": "Sun shone.\n\n@highlight\n\nSunny\n", "d d": "Snow.\n\n@highlight\n\nCold\n"},
}


def name(address: str) -> str:
    return hashlib.sha1(address.encode(), usedforsecurity=False).hexdigest()


def write_corpus(folder: Path) -> Path:
    """Both archives and the lists of addresses; the file of the sets' sizes."""
    folder.mkdir()
    for source, stories in STORIES.items():
        with tarfile.open(folder / f"{source}_stories.tgz", "w:gz") as archive:
            for address, text in stories.items():
                entry = tarfile.TarInfo(f"{source}/stories/{name(address)}.story")
                entry.size = len(text)
                archive.addfile(entry, io.BytesIO(text.encode()))
    for part, addresses in {"train": ["a", "b"], "val": ["c"], "test": ["d d"]}.items():
        write(folder / f"all_{part}.txt", "".join(f"{address}\n" for address in addresses))
    return write(folder / "counts", "train\t1\nval\t1\ntest\t1\n")


def test_a_line_is_an_article_or_its_highlights(tmp_path: Path) -> None:
    counts, output = write_corpus(tmp_path / "stories"), tmp_path / "data"
    ended = prepare(SCRIPT, counts.parent, output, counts)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines()[0] == "train: 1 pairs, 1 stories without an article or highlights"
    assert {path.name: path.read_text(encoding="utf-8") for path in output.iterdir()} == {
        "train.source": "(CNN) It rained. It stopped.\n", "train.target": "Rain fell. It ended!\n",
        "val.source": "Sun shone.\n", "val.target": "Sunny.\n", "test.source": "Snow.\n", "test.target": "Cold.\n",
    }  # fmt: skip


def test_what_is_wrong_is_named(tmp_path: Path) -> None:
    counts, output = write_corpus(tmp_path / "stories"), tmp_path / "data"
    assert "train has 1 pairs, and should have 287,113" in prepare(SCRIPT, counts.parent, output).stderr
    write(counts.parent / "all_train.txt", "a\nmissing\n")
    ended = prepare(SCRIPT, counts.parent, output, counts)
    assert ended.returncode == 1
    assert f"1 stories of train are in no archive, such as {name('missing')}" in ended.stderr
