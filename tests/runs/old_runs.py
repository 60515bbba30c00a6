"""Committed run folders, copied to where a test may use them."""

import json
import shutil
from pathlib import Path
from typing import Any, NamedTuple

FORMAT_1 = Path(__file__).parent / "format-1"
CASES = sorted(path.name for path in FORMAT_1.iterdir() if path.is_dir())
TEXTS = (".yaml", ".txt", ".tsv", ".json", ".jsonl", ".conllu", ".trees")


class Case(NamedTuple):
    """A copy of a case with real paths in it, and the folder it was copied from."""

    stored: Path
    folder: Path
    places: dict[str, str]

    @property
    def run(self) -> Path:
        """The run folder."""
        return self.folder / "run"

    def read(self, name: str) -> Any:
        """A JSON file of the case."""
        return json.loads((self.folder / name).read_text(encoding="utf-8"))

    def lines(self, name: str = "inputs.txt") -> list[str]:
        """The lines of a file of the case."""
        return (self.folder / name).read_text(encoding="utf-8").splitlines()

    def real(self, text: str) -> str:
        """A text with real paths in the place of `@RUN@` and the like."""
        for name, path in self.places.items():
            text = text.replace(name, path)
        return text


def copied(name: str, to: Path) -> Case:
    """A case, copied to a folder that does not exist yet."""
    stored, folder = FORMAT_1 / name, Path(shutil.copytree(FORMAT_1 / name, to))
    (folder / "out").mkdir()
    places = {f"@{place.upper()}@": str(folder / place) for place in ("data", "run", "out")} | {"@CASE@": str(folder)}
    case = Case(stored, folder, places)
    for path in folder.rglob("*"):
        if path.is_file() and path.suffix in TEXTS and "@" in (text := path.read_text(encoding="utf-8")):
            path.write_text(case.real(text), encoding="utf-8", newline="")
    return case
