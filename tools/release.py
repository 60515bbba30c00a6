"""Builds a release in dist/, and tries its wheel in clean environments. `make release` calls it.

`python tools/release.py --from SOURCE` writes into every page what pip installs headway from, such as a name in a
registry. pyproject.toml holds it (`tool.headway.source`).
"""

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from pathlib import Path

from headway.core.version import VERSION

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
WHEEL = f"headway-{VERSION}-py3-none-any.whl"
PYTHONS = ("python3.11", "python3.12", "python3.13")
LESSON = "1-attention.ipynb"
IMAGE = ("Dockerfile", "constraints.txt", f"dist/{WHEEL}")


def source() -> str:
    """What the pages give to pip for headway: a file, a name or an address."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return str(project["tool"]["headway"]["source"])


def tracked() -> list[Path]:
    """The files of the repository."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [path for name in listed.split("\0") if name and (path := ROOT / name).is_file() and not path.is_symlink()]


def pages() -> list[Path]:
    """The files that tell how to install headway."""
    return [path for path in tracked() if path.suffix in {".md", ".ipynb", ".toml"} and path.name != "CHANGELOG.md"]


def fill(new: str) -> None:
    """Write another source into all pages."""
    old = source()
    for path in pages():
        text = path.read_text(encoding="utf-8")
        if old in text:
            path.write_text(text.replace(old, new), encoding="utf-8")


def notes() -> str:
    """What the changelog says of this version. Raises SystemExit if lines belong to none."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    sections = dict(re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE))
    ours = [part for title, part in sections.items() if title.split()[0] == VERSION]
    if not ours or sections.get("Unreleased", "").strip():
        sys.exit(f"CHANGELOG.md: lines stand under Unreleased, or none under {VERSION}")
    return ours[0].strip() + "\n"


def call(*command: str | Path, cwd: Path = ROOT) -> None:
    print("$", *command, flush=True)
    bare = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    subprocess.run(command, cwd=cwd, check=True, env=bare)


def starts(python: str) -> bool:
    """Whether a Python runs. Version managers have names on PATH for versions that are not installed."""
    return shutil.which(python) is not None and not subprocess.run([python, "-c", ""], capture_output=True).returncode


def try_out(python: str, wheel: Path) -> None:
    """Install the wheel in a new environment, and run what a new user runs."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        call(python, "-m", "venv", folder / "venv")
        binaries = folder / "venv" / ("Scripts" if sys.platform == "win32" else "bin")
        pip = [binaries / "python", "-m", "pip", "install", "--quiet", "--constraint", ROOT / "constraints.txt"]
        torch = re.search(r"^torch==\S+", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE)
        assert torch is not None
        call(*pip, torch[0])
        call(*pip, wheel, "nbclient", "ipykernel")
        (folder / "work").mkdir()
        shutil.copy(ROOT / "lessons" / LESSON, folder / "work")
        lesson = f"import nbformat, nbclient; nbclient.NotebookClient(nbformat.read('{LESSON}', 4)).execute()"
        for command in (
            [binaries / "headway", "doctor"],
            [binaries / "headway", "demo"],
            [binaries / "python", "-c", lesson],
        ):
            call(*command, cwd=folder / "work")


def release(pythons: list[str]) -> None:
    """Build wheel, sdist and the context of the image, and try the wheel."""
    text = notes()
    shutil.rmtree(DIST, ignore_errors=True)
    call(sys.executable, "-m", "build", "--outdir", DIST)
    for python in pythons:
        try_out(python, DIST / WHEEL)
    with tarfile.open(DIST / f"headway-{VERSION}-image.tar.gz", "w:gz") as context:
        for name in IMAGE:
            context.add(ROOT / name, arcname=name)
    (DIST / "NOTES.md").write_text(text, encoding="utf-8")
    sums = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n"
        for path in sorted(DIST.iterdir())
        if path.suffix in {".whl", ".gz"}
    ]
    (DIST / "SHA256SUMS").write_text("".join(sums), encoding="utf-8")
    print(*sums, sep="", end="")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--from", dest="source", help="write this into all pages, and build nothing")
    parser.add_argument(
        "--python", nargs="*", default=[*filter(starts, PYTHONS)], help="the Pythons that try the wheel"
    )
    options = parser.parse_args()
    if options.source is not None:
        fill(options.source)
    else:
        release(options.python)


if __name__ == "__main__":
    main()
