"""Runs of every kind, as headway writes them today, and files of every format: what cases begin with."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from headway.predictors.predictor import WEIGHTS
from headway.runs.packing import pack_run
from headway.runs.run_folder import RunFolder
from tests.runs.old_runs import copied

RUNS = {
    "run": "translation-transformer", "other": "translation-decoder-only", "tagger": "tagging", "parser": "parsing",
    "speech": "speech_recognition", "dependency": "translation-dependency", "detector": "error_detection",
    "recurrent": "translation-recurrent-luong",
}  # fmt: skip
TAGGED = "a\tNOUN\ndog\tX\n" + "".join(f"\n{word}\tX\n" for word in "bcdefghij")
CONLLU = "1\ta\ta\tDET\tDT\t_\t2\tdet\t_\t_\n2\tdog\tdog\tNOUN\tNN\t_\t0\troot\t_\t_\n\n"


def write_run(name: str, folder: Path) -> Path:
    """A copy of an old run, with all in its manifest that a run of today has."""
    case = copied(RUNS[name], folder)
    run = RunFolder(case.run)
    run.write_recipe(run.read_recipe())
    run.write_manifest({"vocabulary": run.vocabulary_hashes()})
    assert (run.path / WEIGHTS).is_file()
    return run.path


def prepared_files(folder: Path) -> tuple[Path, dict[str, Path]]:
    """A folder and what `write_files` writes there, beside a cache, for a process that is to reach no network."""
    os.environ |= {"HF_HUB_OFFLINE": "1", "HEADWAY_CACHE": str(folder / "cache"), "COLUMNS": "100"}
    files = folder / "files"
    files.mkdir()
    return files, write_files(files)


def write_files(folder: Path) -> dict[str, Path]:
    """Runs by the names of `RUNS`, and files of other names; of each, a case gets a copy."""
    paths = {name: write_run(name, folder / name) for name in RUNS}
    texts: dict[str, str | bytes] = {
        "text": "a dog .\nhaus 12\n日本語\n", "empty": "", "odd": "a\u2028b\x85c\x1b[31m\r\n\ufeff日本\u202e\n",
        "binary": b"\xff\xfe\x00\n\x80\x81", "tsv": TAGGED, "conllu": CONLLU * 3,
        "trees": "(S (NN a) (VB b))\n", "json": '{"s": "a", "t": "b"}\n', "grid": "recipes: {}\n",
    }  # fmt: skip
    for name, content in texts.items():
        paths[name] = folder / f"{name}.txt"
        paths[name].write_bytes(content if isinstance(content, bytes) else content.encode())
    paths["recipe"] = paths["run"].parent / "recipe.yaml"
    paths["wav"] = shutil.copy(next((paths["speech"].parent / "data").rglob("*.wav")), folder / "wav.wav")
    paths["folder"], paths["zip"] = folder / "folder", folder / "pack.zip"
    paths["folder"].mkdir()
    paths["loop"] = folder / "loop"
    paths["loop"].symlink_to("loop")
    pack_run(paths["run"], paths["zip"])
    return paths


def copy_to(path: Path, target: Path) -> None:
    """Copy a file, a link or a folder."""
    if path.is_symlink():
        target.symlink_to(path.readlink())
    elif path.is_dir():
        shutil.copytree(path, target)
    else:
        shutil.copy(path, target)
