"""`headway import`: make a run folder from a model that others have trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from headway.core.config import merge, validated_options
from headway.core.errors import UserError, option, require_installed
from headway.core.files import sha256, write_bytes
from headway.core.log import say
from headway.core.registry import config_of
from headway.core.storage import check_new, put_in_place, workspace
from headway.core.version import VERSION
from headway.formats.absent import ABSENT
from headway.importing import IMPORTERS
from headway.importing.importer import Imported, Importer
from headway.processing.processor import Processors
from headway.processing.text.text_processor import TextProcessor, check_languages, save_processors
from headway.recipe import Recipe, apply_overrides, recipe_of
from headway.runs.model_card import write_card
from headway.runs.run import NoInitialValues, open_run
from headway.runs.run_folder import ImportedEntry, ImportedFile, RunFolder, load_weights, model_weights
from headway.tasks import build_task

WHERE = "headway import"
# Required sections of a recipe that imported runs do not use.
UNUSED: dict[str, Any] = {"data": {"train": {"kind": ABSENT}}, "training": {"updates": 1}}


def split_format(words: Sequence[str]) -> tuple[str, list[str]]:
    """The name of a format and the places; `hf:NAME` is short for `hf NAME`. Raises UserError if they are missing."""
    head, colon, rest = words[0].partition(":") if words else ("", "", "")
    name, places = (head, [rest, *words[1:]]) if colon and head in IMPORTERS else (head + colon + rest, [*words[1:]])
    if not name or not places:
        usage = f"headway import {name or 'FORMAT'} FILES {option('output')} RUN"
        what = "an import needs a format, and what is to be read"
        raise UserError(what, where=WHERE, received=name or None, allowed=usage)
    return name, places


def build_importer(name: str, given: Mapping[str, Any]) -> Importer:
    """Build the importer of a format with its options.

    Raises:
        UserError: the format is unknown, options are wrong, or a package is not installed.
    """
    kind = IMPORTERS.get(name, WHERE)
    require_installed(f"the format {name}", kind.packages, kind.extra, WHERE)
    return kind(validated_options(config_of(kind), given))


def import_run(words: Sequence[str], output: Path, keys: Sequence[str] = (), licence: str | None = None) -> None:
    """Make a run folder from a model that others have trained. The folder appears when it is complete.

    Args:
        words: the format, and its files or names.
        output: the run folder to make.
        keys: `KEY=VALUE` options of the format, and of the recipe, such as `text.source.language=ja`.
        licence: of the weights, as the hub names it, if the files do not state it.

    Raises:
        UserError: as `Importer.read`; the recipe has no such key, or weights do not belong to the model.
    """
    check_new(output, "output")
    name, places = split_format(words)
    own = config_of(IMPORTERS.get(name, WHERE)).model_fields
    given: dict[str, Any] = {}
    apply_overrides(given, [key for key in keys if key.partition("=")[0] in own])
    imported = build_importer(name, given).read(places)
    tree = merge(UNUSED, imported.sections)
    apply_overrides(tree, [key for key in keys if key.partition("=")[0] not in own])
    recipe = recipe_of(tree, [])
    check_languages(recipe.text)
    files = [ImportedFile(name=file.name, sha256=sha256(file)) for file in imported.files]
    found = licence or imported.licence
    origin = ImportedEntry(
        format=name, files=files, licence=found, factors=imported.factors, licences=imported.licences
    )
    with workspace(output.absolute().parent, output) as space:
        built = space / output.name  # which the card names
        built.mkdir()
        _write(RunFolder(built), recipe, imported, origin)
        put_in_place(built, output)
    parameters = RunFolder(output).read_manifest()["parameters"]
    say(f"{output}: {recipe.model.kind}, {parameters:,} parameters")


def _write(folder: RunFolder, recipe: Recipe, imported: Imported, origin: ImportedEntry) -> None:
    """Write all files of a run folder. Raises UserError if the weights do not match the recipe's model."""
    folder.write_recipe(recipe)
    configs = recipe.text.source, recipe.text.target
    source, target = map(TextProcessor, configs, imported.vocabularies)
    save_processors((source, target), folder.vocabulary)
    for file in imported.kept:
        write_bytes(folder.vocabulary / file.name, file.read_bytes())
    with torch.device("meta"), NoInitialValues():
        model = build_task(recipe.task).model(recipe, Processors(source, target), initial=False)
    tensors = model_weights(model)
    weights = imported.weights(tensors)
    load_weights(model, weights, ", ".join(file.name for file in imported.files))
    parameters = sum(parameter.numel() for parameter in model.parameters())
    known = {"headway": VERSION, "status": "imported", "imported": origin.model_dump(exclude_none=True)}
    folder.metrics.touch()
    folder.write_weights(weights, known | {"parameters": parameters, "vocabulary": folder.vocabulary_hashes()})
    write_card(open_run(folder.path))
