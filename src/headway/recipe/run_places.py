"""Run folders by their names."""

from difflib import get_close_matches as alike
from pathlib import Path

from headway.core.errors import UserError
from headway.core.files import exists

MADE = ("manifest.json", "vocabulary", "checkpoints")  # beside recipe.yaml, which alone may be of a training to come


def is_run(folder: Path) -> bool:
    """Whether training, an import or a pack made this folder."""
    return exists(folder / "recipe.yaml", "file") and any(exists(folder / name) for name in MADE)


def runs_near(path: Path) -> str:
    """The end of a message: the runs in `path`, around it, or beside it under a similar name."""
    folders = [folder for folder in (path, path.parent) if exists(folder, "folder")]
    places = [place for folder in folders for depth in ("*", "*/*") for place in sorted(folder.glob(depth))]
    runs = [run for run in dict.fromkeys([*path.parents, *places]) if is_run(run)]
    meant = [run for run in runs if run in path.parents or path in run.parents or alike(path.name, [run.name])]
    return f"; there is {', '.join(map(str, meant[:3]))}" if meant else ""


def check_run(path: Path, where: str | None = None) -> None:
    """Raise UserError if `path` is no run folder."""
    if not is_run(path):
        why = "its recipe.yaml is not that of a run" if exists(path / "recipe.yaml") else "it has no recipe.yaml"
        what, received = f"this is not a run folder: {why}{runs_near(path)}", where and str(path)
        raise UserError(what, where=where or str(path), received=received)
