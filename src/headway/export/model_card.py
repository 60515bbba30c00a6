"""The card of an exported model: README.md, with the head that the Hugging Face hub reads."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

import headway
from headway.export.parity import ParityReport
from headway.predictors.run import Run
from headway.processing.marian_files import PREFIX
from headway.recipe import dump_recipe
from headway.runs.run_folder import RunFolder
from headway.tasks import dev_metrics

FILL_IN = "to be filled in"
PIPELINES = {
    "translation": "translation",
    "summarization": "summarization",
    "speech_recognition": "automatic-speech-recognition",
    "tagging": "token-classification",
    "error_detection": "token-classification",
}


def card_of(run: Run, report: ParityReport, usage: str, head: Mapping[str, Any], licence: str | None) -> str:
    """The model card of an export, as Markdown.

    Args:
        run: the run that was exported.
        report: how its outputs compare with the run's.
        usage: how the folder is used.
        head: further keys of the card's head.
        licence: the licence of the weights, as the hub names it; None leaves it to be filled in.
    """
    assert run.path is not None
    manifest = RunFolder(run.path).read_manifest()
    sections = {
        "Use": usage,
        "Task and data": _data(run),
        "Scores": _scores(run),
        "The export": _report(report),
        "Licence": licence or f"{FILL_IN.capitalize()}. The terms of the training data bind the weights.",
        "Recipe": f"```yaml\n{dump_recipe(_portable(run)).strip()}\n```",
        "Provenance": _provenance(manifest),
    }
    title = f"# {run.path.resolve().name}"
    body = "\n\n".join(f"## {name}\n\n{text}" for name, text in sections.items())
    return f"---\n{_head(run, head, licence)}---\n\n{title}\n\n{body}\n"


def _head(run: Run, more: Mapping[str, Any], licence: str | None) -> str:
    text = run.recipe.text
    task = run.recipe.task
    head: dict[str, Any] = {
        "language": list(dict.fromkeys((text.source.language, text.target.language))),
        "license": licence or "other",
        **({} if licence else {"license_name": FILL_IN.replace(" ", "-")}),
        "tags": ["headway", task],
        **({"pipeline_tag": PIPELINES[task]} if task in PIPELINES else {}),
    }
    return yaml.safe_dump(head | dict(more), sort_keys=False, allow_unicode=True)


def _data(run: Run) -> str:
    recipe = run.recipe
    text = recipe.text
    direction = f" from `{text.source.language}` to `{text.target.language}`" if recipe.task == "translation" else ""
    lines = [f"Task: {recipe.task}{direction}.", ""]
    for name, corpus in (("Training", recipe.data.train), ("Dev", recipe.data.dev)):
        for entry in corpus if isinstance(corpus, Sequence) else [corpus] if corpus is not None else []:
            lines.append(f"- {name} data: `{_named(entry)}`")
    parameters = sum(parameter.numel() for parameter in run.model.parameters())
    return "\n".join([*lines, f"- Model: `{recipe.model.kind}`, {parameters:,} parameters"])


def _named(corpus: Any) -> str:
    """A corpus by its kind and the names of its files, without the folders of a machine."""
    values = corpus.model_dump(mode="json", exclude_defaults=True)
    return json.dumps(_without_folders(values), ensure_ascii=False)


def _without_folders(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_folders(each) for key, each in value.items()}
    if isinstance(value, list):
        return list(map(_without_folders, value))
    if isinstance(value, str) and value.removeprefix(PREFIX).startswith("/"):
        return value[: len(value) - len(value.removeprefix(PREFIX))] + value.rpartition("/")[2]
    return value


def _portable(run: Run) -> Any:
    """The recipe without the folders of a machine."""
    from headway.recipe import parse_recipe

    return parse_recipe(_without_folders(run.recipe.model_dump(mode="json")))


def _scores(run: Run) -> str:
    """The dev scores of the checkpoint that the weights are, or of those that they are the mean of."""
    assert run.path is not None
    folder = RunFolder(run.path)
    chosen = folder.read_manifest().get("averaged_updates", [])
    lines = folder.metrics.read_text(encoding="utf-8").splitlines() if folder.metrics.is_file() else []
    evaluations = [entry for line in lines if "dev" in (entry := json.loads(line)) and entry["update"] in chosen]
    if not evaluations:
        return "No scores were recorded with this run."
    signatures = {metric.name: (metric.label, metric.signature()) for metric in dev_metrics(run.recipe)}
    rows = ["| on dev, after update | metric | score | signature |", "|---|---|---|---|"]
    for entry in evaluations:
        for name, value in entry["dev"].items():
            label, signature = signatures.get(name, (name, ""))
            rows.append(f"| {entry['update']} | {label} | {value:.2f} | `{str(signature).replace('|', '&#124;')}` |")
    mean = f"\n\nThe weights are the mean of the checkpoints after updates {', '.join(map(str, chosen))}."
    return "\n".join(rows) + (mean if len(chosen) > 1 else "")


def _report(report: ParityReport) -> str:
    kind = "labels" if report.search.longest == 1 else f"beam {report.search.beam}, no length penalty"
    text = (
        f"Exported as `{report.format}`. {report.equal} of {report.lines} best outputs equal the run's ({kind}). "
        f"The largest difference of a log probability is {report.score_difference:.1e}. `parity.json` has all numbers."
    )
    if report.unknown:
        text += f" {report.unknown} outputs have unknown tokens, which libraries write in ways of their own."
    return text


def _provenance(manifest: Mapping[str, Any]) -> str:
    facts = {
        "headway": headway.__version__,
        "trained with headway": manifest.get("headway"),
        "seed": manifest.get("seed"),
        "updates": manifest.get("updates"),
        "SHA-256 of the weights": manifest.get("model_sha256"),
    }
    return "\n".join(f"- {name}: {value}" for name, value in facts.items() if value is not None)
