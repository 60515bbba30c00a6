"""`headway inspect`: one verb, and several things to look at."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from headway.cli.arguments import Device
from headway.cli.options import given_options

# What goes with each of the things to look at; `--json` is another form of what is said.
ASPECTS = {
    "output": ("input", "text", "reference", "gold", "sentences", "nbest", "device"),
    "parameters": ("overrides", "vocabulary", "length", "json_output"),
    "figures": ("input", "reference", "within", "quality", "json_output", "device"),
    "layers": ("beside", "figure", "sentence", "json_output"),
    "dependencies": ("overrides", "source", "target", "figures", "sentences", "json_output", "device"),
}


def inspect(
    context: typer.Context,
    path: Annotated[Path, typer.Argument(metavar="RUN|RECIPE.yaml", help="A run folder; --parameters: or a recipe.")],
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY.PATH=VALUE ...]", help="Changes to the recipe.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="Write a page there: attention, alignments, outputs of sentences.")
    ] = None,
    input: Annotated[
        list[Path] | None,
        typer.Option(
            help="--output, --figures: a file with a sentence a line; --output takes several.", show_default="dev"
        ),
    ] = None,
    text: Annotated[
        list[str] | None, typer.Option(help="--output: a sentence; can be given several times, as --input can.")
    ] = None,
    reference: Annotated[
        Path | None,
        typer.Option(help="--output: what the sentences should become. --figures: what the model is given as outputs."),
    ] = None,
    gold: Annotated[
        Path | None, typer.Option(help="--output: alignments of the sentences and their references, for AER.")
    ] = None,
    nbest: Annotated[int, typer.Option(min=1, help="--output: outputs of each sentence.")] = 4,
    parameters: Annotated[
        bool, typer.Option("--parameters", help="Parameters and FLOPs a token of every part of the model.")
    ] = False,
    vocabulary: Annotated[
        int | None, typer.Option(min=5, help="Size of the vocabularies.", show_default="the run's or recipe's")
    ] = None,
    length: Annotated[int, typer.Option(min=2, help="Tokens of a source and of a target, for the FLOPs.")] = 32,
    layers: Annotated[
        Path | None,
        typer.Option(help="A tagger's weights of its layers, and its self-attention, over this TSV of words."),
    ] = None,
    beside: Annotated[
        Path | None, typer.Option(metavar="RUN", help="With --layers: the run whose last layer is compared.")
    ] = None,
    figure: Annotated[
        Path | None, typer.Option(help="With --layers: draw the self-attention of a sentence there.")
    ] = None,
    sentence: Annotated[int, typer.Option(min=1, help="With --figure: which sentence of the file.")] = 1,
    dependencies: Annotated[
        bool, typer.Option("--dependencies", help="How many words a run's dependency heads attach as a parser does.")
    ] = False,
    source: Annotated[
        Path | None, typer.Option(help="--dependencies: sentences instead of dev, as text or .conllu.")
    ] = None,
    target: Annotated[
        Path | None, typer.Option(help="--dependencies: their targets; the encoder alone without.")
    ] = None,
    figures: Annotated[
        Path | None,
        typer.Option(
            help="What a run attends to over a corpus, as figures and numbers in this folder; with --dependencies: the"
            " first sentences."
        ),
    ] = None,
    within: Annotated[int, typer.Option(min=1, help="--figures: n of the window whose share is shown.")] = 5,
    quality: Annotated[
        bool, typer.Option(help="--figures: decode and score by length where there are references.")
    ] = True,
    sentences: Annotated[
        int | None, typer.Option(min=1, help="How many are shown.", show_default="--output 100, --dependencies 3")
    ] = None,
    json_output: Annotated[bool, typer.Option("--json", help="Write JSON.")] = False,
    device: Device = "auto",
) -> None:
    """Look inside a model."""
    aspect = _aspect(given_options(context, "path"))
    if aspect == "output" and output is not None:
        from headway.runs.inspect.inspection_page import inspect_to_page

        said = inspect_to_page(
            path, output, inputs=input or (), texts=text or (), reference=reference, gold=gold,
            sentences=sentences, nbest=nbest, device=device,
        )  # fmt: skip
        typer.echo(said)
    elif aspect == "figures" and figures is not None:
        from headway.runs.inspect import corpus_analysis as corpus

        asked = corpus.Request(_one(input), reference, within, quality)
        typer.echo(corpus.inspect_corpus(path, figures, asked, device=device, as_json=json_output))
    elif aspect == "layers" and layers is not None:
        from headway.runs.inspect.layer_report import inspect_layers

        found = inspect_layers(path, layers, beside=beside, figure=figure, sentence=sentence)
        typer.echo(found.to_json() if json_output else found.text())
    elif aspect == "dependencies":
        from headway.runs.inspect.dependency_report import Request, inspect_dependencies

        request = Request(overrides or (), source, target, figures, sentences or 3)
        typer.echo(inspect_dependencies(path, request, device=device, as_json=json_output))
    else:
        from headway.runs.inspect.parameters import parameters_of

        result = parameters_of(path, overrides or [], vocabulary, length)
        typer.echo(result.to_json() if json_output else result.text())


def _aspect(given: Iterable[str]) -> str:
    """Which of `ASPECTS` is asked for. Raises UserError unless it is one, and all else that is given goes with it."""
    from headway.errors import UserError

    options = list(given)
    named = [name for name in ASPECTS if name in options]
    chosen = [name for name in named if not any(name in ASPECTS[other] for other in named)]
    if len(chosen) != 1:
        received = " ".join(map(_flag, chosen)) or None
        allowed = "one of --output PAGE.html, --figures DIR, --parameters, --layers FILE, --dependencies"
        raise UserError("say what to look at", where="headway inspect", received=received, allowed=allowed)
    (aspect,) = chosen
    for option in options:
        if option != aspect and option not in ASPECTS[aspect]:
            with_others = [_flag(name) for name, allowed in ASPECTS.items() if option in allowed]
            what = f"this does not go with {_flag(aspect)}"
            raise UserError(what, where=_flag(option), allowed=f"with {', '.join(with_others)}")
    return aspect


def _one(files: list[Path] | None) -> Path | None:
    """The file where there is one. Raises UserError for several."""
    if files is not None and len(files) > 1:
        from headway.errors import UserError

        raise UserError("--figures reads one file", where="--input", received=f"{len(files)} files")
    return files[0] if files else None


def _flag(name: str) -> str:
    special = {"json_output": "--json", "overrides": "KEY.PATH=VALUE"}
    return special.get(name, f"--{name}")
