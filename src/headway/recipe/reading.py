"""Read, override, check and write recipes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from difflib import get_close_matches as alike
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from headway.core.config import Section, explain, merge
from headway.core.documents import dump_yaml, parse_yaml, read_json, read_yaml
from headway.core.errors import UserError, option
from headway.core.files import exists, first_existing, sha256
from headway.core.registry import import_paths
from headway.corpora.lead import LeadConfig
from headway.formats.corpus_config import paths_resolved
from headway.models import ModelSection, TaggerConfig
from headway.models.matching import other_model
from headway.parses.parsers import AnyParser, ParserConfig
from headway.processing.marian_files import PREFIX, marian_folder, marian_section, marian_vocabulary, read_config
from headway.processing.text.text_processor import PreparationConfig, TextConfig
from headway.recipe.migration import FORMAT, todays_recipe
from headway.recipe.sections import Recipe

MOST_BASES = 20  # in a chain
HANDED_ON = ("task", "text", "vocabulary", "model")  # sections that a run inherits from the run in `training.from`


def load_recipe(recipe: str | Path | Mapping[str, Any], overrides: Sequence[str] = ()) -> Recipe:
    """Read a recipe, apply `key.path=value` overrides (values are YAML) and check it as a whole.

    `recipe` is a file, or a mapping of sections.

    A recipe may extend another one: `base: FILE`, relative to the recipe, provides all keys that it does not set.
    Relative paths of data are resolved in `data.folder` if it is set, or else in the current folder or next to the
    recipe.

    Raises:
        UserError: the file cannot be read, is not a YAML mapping, or has unknown keys or invalid values; or an override
            is malformed (see `apply_overrides`).
    """
    if isinstance(recipe, Mapping):
        tree, beside = deepcopy(dict(recipe)), Path()
    else:
        tree, beside = read_tree(Path(recipe)), Path(recipe).parent
    apply_overrides(tree, overrides)
    return recipe_of(tree, [beside])


def recipe_of(tree: dict[str, Any], folders: Sequence[Path]) -> Recipe:
    """The recipe of a raw tree. Relative paths are resolved as in `load_recipe`, with `folders` as the last ones.

    Raises:
        UserError: a key is unknown, or a value is invalid.
    """
    _fill_from_origins(tree, [Path(), *folders])
    _resolve_match(tree, [Path(), *folders])
    recipe = parse_recipe(tree)
    return resolve_paths(recipe, [recipe.data.folder] if recipe.data.folder else [Path(), *folders])


def is_run(folder: Path) -> bool:
    """Whether `folder` is a run folder, from training, an import or a pack. A folder with only a recipe is not one."""
    made = any(
        exists(folder / name) for name in (".lock", "manifest.json", "metrics.jsonl", "vocabulary", "checkpoints")
    )
    return made and exists(folder / "recipe.yaml", "file")


def runs_near(path: Path) -> str:
    """The end of an error message: the run folders in `path`, around it, or beside it under a similar name."""
    folders = [folder for folder in (path, path.parent) if exists(folder, "folder")]
    places = [place for folder in folders for depth in ("*", "*/*") for place in sorted(folder.glob(depth))]
    runs = [run for run in dict.fromkeys([*path.parents, *places]) if is_run(run)]
    meant = [run for run in runs if run in path.parents or path in run.parents or alike(path.name, [run.name])]
    return f"; there is {', '.join(map(str, meant[:3]))}" if meant else ""


def _of_others(path: Path) -> str:
    """The end of an error message: how to use a pack, or a model of Hugging Face, that is named like a run folder."""
    if path.suffix == ".zip" and exists(path, "file"):
        return "; unzip this pack, and name its folder"
    is_model = all(exists(path / name, "file") for name in ("config.json", "model.safetensors"))
    return f"; a model of Hugging Face is named {PREFIX}{path}" if is_model else ""


def check_run(path: Path, where: str | None = None) -> None:
    """Raise UserError if `path` is not a run folder."""
    if not is_run(path):
        what = (
            f"this is not a run folder: it has no recipe.yaml that training wrote{_of_others(path) or runs_near(path)}"
        )
        raise UserError(what, where=where or str(path), received=where and str(path))


def _fill_from_origins(tree: dict[str, Any], folders: Sequence[Path]) -> None:
    """Fill in the sections that a raw tree takes from the run `training.from` or the model `model.from`.

    So the recipe in the run folder is complete. Raises UserError if the run or the model does not exist.
    """
    training, model = tree.get("training"), tree.get("model")
    if isinstance(training, dict) and training.get("from") is not None:
        folder = first_existing(Path(str(training["from"])), folders, "folder")
        training["from"] = str(folder)
        check_run(folder, "training.from")
        older = read_tree(folder / "recipe.yaml", alone=True)
        added = {name: older[name] for name in HANDED_ON if name in older and name not in tree}
        if code := import_paths(added) - import_paths(tree):
            raise UserError(
                "the run of training.from names code that is no part of headway", where="training.from",
                received=", ".join(sorted(code)), allowed="the same names in this recipe, where you trust that code",
            )  # fmt: skip
        tree.update(added)
    elif isinstance(model, dict) and model.get("from") is not None:
        if model.get("kind", "transformer") != "transformer" or "preset" in model:
            what, received = "a model that begins from another is of its kind", model.get("preset", model.get("kind"))
            raise UserError(what, where="model.from", received=received, allowed="neither kind nor preset")
        vocabulary = tree.get("vocabulary")
        if vocabulary is not None and not (isinstance(vocabulary, dict) and vocabulary.get("kind") == "marian"):
            what, allowed = "the vocabulary comes with the model", "no vocabulary beside model.from"
            raise UserError(what, where="vocabulary", received=vocabulary, allowed=allowed)
        place = str(model["from"])
        if place.startswith(PREFIX):
            folder = first_existing(Path(place.removeprefix(PREFIX)), folders, "folder")
            model["from"] = place = f"{PREFIX}{folder}" if exists(folder, "folder") else place
        config = read_config(marian_folder(place))
        tree["model"] = merge(marian_section(config), model)
        tree.setdefault("vocabulary", marian_vocabulary(config))


def _resolve_match(tree: dict[str, Any], folders: Sequence[Path], below: int = 0) -> None:
    """Replace the path in `model.match_parameters` by the model of that recipe."""
    to = _matched(tree)
    if isinstance(to, dict):
        _set_matched(tree, other_model(to).model_dump(mode="json"))
    if not isinstance(to, str):
        return
    path = first_existing(Path(to), folders)
    other = read_tree(path)
    if below == MOST_BASES:
        raise UserError("recipes cannot match each other's parameters", where="model.match_parameters", received=to)
    _resolve_match(other, [Path(), path.parent], below + 1)
    _set_matched(tree, other_model(other.get("model", {})).model_dump(mode="json"))


def _matched(tree: dict[str, Any]) -> Any:
    """The recipe, the model or the number in `model.match_parameters`; None if it is not set."""
    model = tree.get("model")
    match = model.get("match_parameters") if isinstance(model, dict) else None
    return match.get("to") if isinstance(match, dict) else match


def _set_matched(tree: dict[str, Any], to: Any) -> None:
    match = tree["model"]["match_parameters"]
    tree["model"]["match_parameters"] = (match if isinstance(match, dict) else {}) | {"to": to}


def read_tree(path: Path, below: int = 0, *, alone: bool = False) -> dict[str, Any]:
    """The raw tree of a recipe file, merged over its `base`. A recipe of an older run is converted.

    Args:
        path: the file.
        below: the number of recipes that extend this one.
        alone: refuse a `base`, which the recipe of a run must not have.

    Raises:
        UserError: a file cannot be read or is not a YAML mapping, or recipes extend each other.
    """
    tree = read_yaml(path, "recipe", piped=not (below or alone))
    if not isinstance(tree, dict):
        raise UserError("a recipe is a mapping of keys to values", where=str(path), received=type(tree).__name__)
    tree = todays_recipe(tree, _format_of(path))
    if alone:
        if "base" in tree:
            raise UserError("the recipe of a run has no base", where=f"{path}: base", received=tree["base"])
        return tree
    if isinstance(to := _matched(tree), str) and exists(path.parent / to):
        _set_matched(tree, str((path.parent / to).resolve()))  # relative to this recipe, not to one that extends it
    if "base" not in tree:
        return tree
    base = tree.pop("base")
    if not isinstance(base, str):
        raise UserError("the base of a recipe is the path of another", where=f"{path}: base", received=base)
    if below == MOST_BASES:
        raise UserError(f"more than {MOST_BASES} recipes begin from each other", where=f"{path}: base", received=base)
    return merge(read_tree(path.parent / base, below + 1), tree)


def _format_of(path: Path) -> int:
    """The format of the run that this recipe file belongs to; the current format for any other file."""
    manifest = path.with_name("manifest.json")
    known = read_json(manifest, what="manifest") if path.name == "recipe.yaml" and exists(manifest, "file") else None
    if not isinstance(known, dict) or known.get("next_recipe_sha256") == sha256(path):
        return FORMAT
    return version if isinstance(version := known.get("format"), int) else FORMAT


def apply_overrides(tree: dict[str, Any], overrides: Sequence[str]) -> None:
    """Set each `key.path=value` in the raw tree, in order, so a later override wins. Values are YAML.

    Args:
        tree: the raw tree of a recipe.
        overrides: one override or several.

    Raises:
        UserError: an override has another form.
    """
    for override in [overrides] if isinstance(overrides, str) else overrides:
        key, separator, text = override.partition("=")
        if not separator or not key:
            allowed = f"{option('output')} {override}, for a run folder" if is_run(Path(override)) else None
            raise UserError("an override is key.path=value", where=override, allowed=allowed)
        set_key(tree, key, parse_yaml(text, override, "the value of this override", numbered=False), override)


def set_key(tree: dict[str, Any], key: str, value: Any, where: str) -> None:
    """Set the value at a `key.path` of the raw tree. Raises UserError, at `where`, if a parent is not a section."""
    *parents, last = key.split(".")
    section = tree
    for parent in parents:
        below = section.get(parent)
        if below is None:
            below = section[parent] = {}
        elif isinstance(below, str):  # a bare name, such as a preset or a mixer
            below = section[parent] = {"preset" if parent == "model" else "kind": below}
        if not isinstance(below, dict):
            raise UserError(f"{parent} holds a value, not keys", where=where, received=below)
        section = below
    section[last] = value


def parse_recipe(tree: dict[str, Any]) -> Recipe:
    """Validate a raw tree. Raises UserError that lists every mistake with its recipe key."""
    try:
        return Recipe.model_validate(tree)
    except ValidationError as error:
        raise UserError(explain(error, Recipe)) from error


def resolve_paths(recipe: Recipe, folders: Sequence[Path]) -> Recipe:
    """The recipe with absolute paths, resolved in `folders`, so that the recipe in a run folder works from anywhere."""

    def resolve(path: Path) -> Path:
        return first_existing(path, folders)

    def parser(config: ParserConfig | None) -> ParserConfig | None:
        """Resolve a model that is a file or folder. Other models are names."""
        path = config and resolve(Path(config.model))
        return config.model_copy(update={"model": str(path)}) if config and path and exists(path) else config

    def model(config: ModelSection) -> ModelSection:
        """Resolve an encoder that is a folder. Other encoders are names."""
        if not isinstance(config, TaggerConfig) or not isinstance(config.encoder, str):
            return config
        if not exists(folder := resolve(Path(config.encoder)), "folder"):
            return config
        return config.model_copy(update={"encoder": str(folder)})

    def prepared(config: PreparationConfig) -> PreparationConfig:
        """Resolve a segmenter's model that is a file."""
        segment = config.segment
        if isinstance(segment, str) or not isinstance(segment.get("model"), str):
            return config
        path = resolve(Path(segment["model"]))
        return config.model_copy(update={"segment": {**segment, "model": str(path)}}) if exists(path) else config

    data, parses = recipe.data, recipe.data.parses
    parses = parses.model_copy(
        update={
            "source": parser(parses.source),
            "target": parser(parses.target),
            "folder": parses.folder and parses.folder.absolute(),
        }
    )
    links = data.links and data.links.model_copy(
        update={
            "file": data.links.file and resolve(data.links.file),
            "run": data.links.run and resolve(data.links.run),
            "folder": data.links.folder and data.links.folder.absolute(),
        }
    )
    resolved = {
        "train": paths_resolved(data.train, resolve),
        "dev": data.dev and paths_resolved(data.dev, resolve),
        "general": data.general and paths_resolved(data.general, resolve),
        "folder": None,
        "parses": parses,
        "links": links,
    }
    text = TextConfig(source=prepared(recipe.text.source), target=prepared(recipe.text.target))
    changes = {"data": data.model_copy(update=resolved), "model": model(recipe.model), "text": text}
    return recipe.model_copy(update=changes)


def dump_recipe(recipe: Recipe) -> str:
    """The recipe as YAML with all keys."""
    return dump_yaml(recipe.model_dump(mode="json"))


def changed_keys(before: Recipe, after: Recipe) -> dict[str, tuple[Any, Any]]:
    """The keys whose values differ between two recipes, with both values."""
    old, new = (flatten(recipe.model_dump(mode="json")) for recipe in (before, after))
    return {key: (old.get(key), new.get(key)) for key in sorted(old | new) if old.get(key) != new.get(key)}


def flatten(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """The values of a nested tree by their full keys, such as `model.heads`."""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        flat |= flatten(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return flat


def parse_lead(value: str) -> LeadConfig:
    """Parse a lead from the command line, such as `8` or `3-sentences`. Raises UserError."""
    try:
        return LeadConfig.model_validate(value)
    except ValidationError as error:
        reasons = [str(details["ctx"]["error"]) for details in error.errors() if details["type"] == "value_error"]
        what = ": ".join(["this is no beginning of a source", *reasons])
        allowed = "a number of words, or with a unit: 8-words, 3-sentences, 3-sentences-de, 20-characters"
        raise UserError(what, where=option("lead"), received=value, allowed=allowed) from error


class _ParserAlone(Section):
    parser: AnyParser


def parse_parser(value: str, whitespace: str) -> ParserConfig:
    """Parse a parser from the command line, in the notation of `data.parses`. Raises UserError."""
    try:
        parser = _ParserAlone.model_validate({"parser": value}).parser
        return _ParserAlone.model_validate({"parser": parser.model_dump() | {"whitespace": whitespace}}).parser
    except ValidationError as error:
        where = f"{option('parser')} or {option('whitespace')}"
        raise UserError(explain(error, _ParserAlone), where=where) from error
