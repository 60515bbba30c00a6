"""The model card, README.md, of a run and of its exports, with the metadata that the Hugging Face hub reads."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from headway.core.documents import dump_yaml
from headway.core.files import write_text
from headway.core.languages import UNDETERMINED, base_language
from headway.core.log import counted
from headway.core.version import VERSION
from headway.recipe import Recipe, dump_recipe, parse_recipe
from headway.runs.run import StoredRun
from headway.runs.run_folder import portable, precision_of
from headway.tasks import dev_metrics

FILL_IN = "to be filled in"
UNSTATED = "its licence is not stated"
PIPELINES = {
    "translation": "translation",
    "summarization": "summarization",
    "speech_recognition": "automatic-speech-recognition",
    "tagging": "token-classification",
    "error_detection": "token-classification",
}


def write_card(run: StoredRun) -> None:
    """Write the card of a trained run, unless its card is of the same weights, and so may have been edited."""
    card, digest = run.folder.card, str(run.manifest.get("model_sha256"))
    if card.is_file() and digest in card.read_text(encoding="utf-8"):
        return
    name = run.path.resolve().name
    usage = (
        f"With headway {VERSION}:\n\n"
        f"    headway predict {name} < input > output\n\n"
        f'```python\nimport headway\n\nmodel = headway.load("{name}")\n```'
    )
    write_text(card, card_of(run, usage))


def card_of(
    run: StoredRun,
    usage: str,
    *,
    head: Mapping[str, Any] | None = None,
    licence: str | None = None,
    export: str | None = None,
) -> str:
    """The card of a model, as Markdown.

    Args:
        run: the model's run.
        usage: how to use the model.
        head: further metadata keys.
        licence: as the hub names it; None leaves it to be filled in.
        export: a text on an export of the run.
    """
    manifest, recipe = run.manifest, run.recipe
    task, languages, imported = recipe.task, _languages(recipe), manifest.get("imported", {})
    licence = licence or imported.get("licence")
    keys = {
        **({"language": list(dict.fromkeys(map(base_language, languages)))} if languages else {}),
        "license": licence or "other",
        **({} if licence else {"license_name": FILL_IN.replace(" ", "-")}),
        "tags": ["headway", task],
        **({"pipeline_tag": PIPELINES[task]} if task in PIPELINES else {}),
        **(head or {}),
    }
    shown = parse_recipe(portable(recipe.model_dump(mode="json")))  # without the folders of this machine
    facts = {
        "headway": VERSION,
        f"{'imported' if imported else 'trained'} with headway": manifest.get("headway"),
        **{f"{each['name']}, its SHA-256": each["sha256"] for each in imported.get("files", ())},
        "seed": manifest.get("seed"),
        "updates": manifest.get("updates"),
        "SHA-256 of the weights": manifest.get("model_sha256"),
        **origin_facts(manifest),
    }
    sections = {
        "Use": usage,
        "Task and data": _data(recipe, manifest),
        "Scores": _scores(run),
        "Speed": _speed(manifest),
        **({} if export is None else {"The export": export}),
        "Licence": licence or f"{FILL_IN.capitalize()}. The terms of the training data bind the weights.",
        "Recipe": f"```yaml\n{dump_recipe(shown).strip()}\n```",
        "Provenance": "\n".join(f"- {name}: {value}" for name, value in facts.items() if value is not None),
    }
    body = "\n\n".join(f"## {name}\n\n{text}" for name, text in sections.items())
    return f"---\n{dump_yaml(keys)}---\n\n# {run.path.resolve().name}\n\n{body}\n"


def licences_of(manifest: Mapping[str, Any]) -> dict[str, str | None] | None:
    """The licences of a student's data and teacher, None for one that is not stated; None for other runs."""
    if provenance := manifest.get("provenance"):
        return {name: provenance[name].get("licence") for name in ("data", "teacher")}
    licences: dict[str, str | None] | None = manifest.get("imported", {}).get("licences")
    return licences


def origin_facts(manifest: Mapping[str, Any]) -> dict[str, str]:
    """The origins in the manifest of a student, as text: data, teacher, outputs, and the licences of both."""
    if not (provenance := manifest.get("provenance")):
        licences = manifest.get("imported", {}).get("licences") or {}
        return {name.capitalize(): licence or UNSTATED for name, licence in licences.items()}
    data, teacher, outputs = (provenance[name] for name in ("data", "teacher", "outputs"))
    name = teacher.get("command") or teacher.get("name") or ", ".join(str(run["run"]) for run in teacher["runs"])
    unknown = f", {outputs['unknown_words']:.1%} of words unknown" if "unknown_words" in outputs else ""
    filtered = provenance["filter"]
    files = ", ".join(f"{file} `{digest}`" for file, digest in data["files"].items())
    return {
        "Data": f"{files} ({data['licence'] or UNSTATED}), {filtered['kept']:,} pairs after the filter",
        "Teacher": f"{name} {teacher.get('version') or ''}".strip() + f" ({teacher.get('licence') or UNSTATED})",
        "Teacher's outputs": f"{outputs['kept']:,} of {outputs['read']:,} lines{unknown}, `{outputs['sha256']}`",
    }


def _languages(recipe: Recipe) -> tuple[str, ...]:
    """The known languages of both sides. Empty for translation if one is missing, or both are the same."""
    both = recipe.text.source.language, recipe.text.target.language
    known = tuple(code for code in both if code != UNDETERMINED)
    return () if recipe.task == "translation" and len(set(known)) < 2 else known


def _data(recipe: Recipe, manifest: Mapping[str, Any]) -> str:
    languages = _languages(recipe) if recipe.task == "translation" else ()
    direction = " from `{}` to `{}`".format(*languages) if languages else ""
    lines = [f"Task: {recipe.task}{direction}.", ""]
    for name, corpus in (("train", recipe.data.train), ("dev", recipe.data.dev)):
        for entry in corpus if isinstance(corpus, Sequence) else [corpus] if corpus is not None else []:
            values = portable(entry.model_dump(mode="json", exclude_defaults=True))
            lines.append(f"- data.{name}: `{json.dumps(values, ensure_ascii=False)}`")
        if name in manifest.get("examples", {}):
            lines.append(f"- data.{name}, what was used of it: {manifest['examples'][name]:,} examples")
        if name in manifest.get("data", {}):
            lines.append(f"- data.{name}, hash of its content: `{manifest['data'][name]}`")
    parameters = manifest.get("parameters")
    model = f"`{recipe.model.kind}`" + (f", {parameters:,} parameters" if parameters else "")
    return "\n".join([*lines, f"- Model: {model}"])


def _scores(run: StoredRun) -> str:
    """The dev scores of the checkpoint of the weights, or of the checkpoints that were averaged."""
    evaluations = run.kept_evaluations() if run.folder.metrics.is_file() else []
    if not evaluations:
        return "No scores were recorded with this run."
    with run.trusted():
        metrics = dev_metrics(run.recipe, by_language="dev_language" in run.manifest)
    steps = run.manifest.get("references", "")
    signatures = {metric.name: (metric.label, metric.signature().with_references(steps)) for metric in metrics}
    rows = ["| on dev, after update | metric | score | signature |", "|---|---|---|---|"]
    for entry in evaluations:
        for name, value in entry["dev"].items():
            label, signature = signatures.get(name, (name, ""))
            rows.append(f"| {entry['update']} | {label} | {value:.2f} | `{str(signature).replace('|', '&#124;')}` |")
    return "\n".join(rows) + f"\n\nThe weights are {run.weights_shown()}."


def _speed(manifest: Mapping[str, Any]) -> str:
    """The time of training, and the machine."""
    seconds, machine = manifest.get("seconds"), manifest.get("machine", {})
    if not seconds:
        return "No time of training was recorded with this run."
    tokens = manifest.get("target_tokens", 0) / seconds
    speed = f", {tokens:,.0f} target tokens a second" if tokens else ""
    where = [machine.get("accelerator") or machine.get("processor") or "an unknown machine"]
    where += [counted(machine["threads"], "thread")] if machine.get("threads") else []
    where += [precision] if (precision := precision_of(manifest)) else []
    return f"Training took {seconds / 60:,.1f} minutes{speed} ({', '.join(where)})."
