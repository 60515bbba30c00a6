"""`headway data ...`: look at data, and make it ready."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli.arguments import LARGEST_SEED, MOST
from headway.cli.help_pages import Group
from headway.cli.options import command
from headway.cli.standard_streams import write
from headway.config import WRITES_FOLDER

if TYPE_CHECKING:
    from headway.formats.corpus_format import Broken

data_app = typer.Typer(cls=Group, no_args_is_help=True, help="Look at data before training on it, and make it ready.")

Output = Annotated[Path, WRITES_FOLDER, typer.Option(help="The folder to write to.")]
LENGTH_TASKS = "copy, reverse, addition, summation, parity, sorting, polynomial, lego or scan."


@command(data_app, "check")
def data_check(
    recipe: Annotated[Path, typer.Argument(metavar="RECIPE.yaml", help="The recipe.")],
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY.PATH=VALUE ...]", help="Changes to it.")
    ] = None,
    json_output: Annotated[bool, typer.Option("--json", help="Write JSON.")] = False,
) -> None:
    """Read a recipe's corpora as training would and say what is in them; nothing is trained but the vocabulary."""
    import json

    from headway.processing.text.text_processor import check_languages
    from headway.recipe import load_recipe
    from headway.tasks import build_task

    loaded = load_recipe(recipe, overrides or ())
    check_languages(loaded.text)
    task = build_task(loaded.task)
    task.check(loaded)
    result = task.check_data(loaded)
    write(json.dumps(result.to_json(), ensure_ascii=False, indent=1) if json_output else result.text())
    result.refuse()


@command(data_app, "split")
def data_split(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="A word a row, a blank line between sentences; with columns, a pair a row; or, with TARGET, sources.",
        ),
    ],
    target: Annotated[
        Path | None, typer.Argument(metavar="[TARGET]", help="The sources' targets, a line each.")
    ] = None,
    *,
    output: Annotated[Path, WRITES_FOLDER, typer.Option(help="The folder to write train, dev and test to.")],
    columns: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN...", help="Those of source and target in FILE (.tsv, .jsonl): numbers or names."),
    ] = None,
    shares: Annotated[
        tuple[float, float, float] | None, typer.Option(help="Of train, dev and test.", show_default="80 10 10")
    ] = None,
    counts: Annotated[
        tuple[int, int] | None,
        typer.Option(help="Sentences or pairs of dev and test; train gets the rest.", show_default="by shares"),
    ] = None,
    shuffle: Annotated[
        bool, typer.Option("--shuffle", help="Draw the parts at random, not in the file's order.")
    ] = False,
    seed: Annotated[
        int | None, typer.Option(min=0, max=LARGEST_SEED, help="The seed of the draw.", show_default="1")
    ] = None,
    disjoint_sources: Annotated[
        bool, typer.Option("--disjoint-sources", help="Let no source stand in two parts, whatever its target.")
    ] = False,
    skip_broken: Annotated[
        bool, typer.Option("--skip-broken", help="Leave out rows that cannot be read, instead of stopping.")
    ] = False,
) -> None:
    """Cut sentences or pairs into train, dev and test: in their order, so that documents stay whole, or at random."""
    from headway.corpora.split import SHARES, SplitOptions, split_parallel, split_sentences, split_table
    from headway.errors import UserError, check_companions, option

    given = {"seed": seed is not None, "disjoint_sources": disjoint_sources, "skip_broken": skip_broken}
    given |= {"shuffle": shuffle, "columns": columns is not None, "target": target is not None}
    pairs = ("columns", "target")
    needs = {"seed": ("shuffle",), "disjoint_sources": pairs, "skip_broken": pairs}
    check_companions([name for name, is_given in given.items() if is_given], needs)
    if shares is not None and counts is not None:
        raise UserError("sizes are shares or counts, not both", where=option("counts"), received=list(counts))
    if columns is not None and target is not None:
        raise UserError("pairs stand in columns or in two files, not both", where=option("columns"))
    drawn = (1 if seed is None else seed) if shuffle else None
    options = SplitOptions(shares or SHARES, counts, drawn, disjoint_sources)
    broken: Broken = "skip" if skip_broken else "error"
    if target is not None:
        split = split_parallel(file, target, output, options, broken)
    elif columns is not None:
        split = split_table(file, columns, output, options, broken)
    else:
        split = split_sentences(file, output, options)
    write(split.text())


@command(data_app, "labels")
def data_labels(
    m2: Annotated[Path | None, typer.Option(help="An M2 file.")] = None,
    annotator: Annotated[int | None, typer.Option(min=0, max=MOST, help="Of the M2 file.", show_default="all")] = None,
    source: Annotated[Path | None, typer.Option(help="Sentences, their words separated by spaces.")] = None,
    references: Annotated[list[Path] | None, typer.Option(metavar="FILE...", help="Their corrections.")] = None,
) -> None:
    """Write which words are wrong, a word a row: from the edits of an M2 file, or by comparing with corrections."""
    from headway.errors import UserError, check_companions, option
    from headway.formats.corpus_format import ERRORS
    from headway.formats.labelled_words import open_labelled, union, write_columns
    from headway.formats.lines import check_file

    given = {"m2": m2, "annotator": annotator, "source": source, "references": references or None}
    names = [name for name, value in given.items() if value is not None]
    check_companions(names, {"annotator": ("m2",), "source": ("references",), "references": ("source",)})
    if ("m2" in names) == ("source" in names):
        allowed = f"{option('m2')}, or {option('source')} and {option('references')}"
        raise UserError("one origin of the words is needed", received=names or "nothing", allowed=allowed)
    for name, files in (("m2", [m2]), ("source", [source]), ("references", references or [])):
        for path in filter(None, files):
            check_file(path, option(name))
    sentences = open_labelled(given, "headway data labels", ERRORS)
    write(write_columns([(sentence.words, union(sentence.labels)) for sentence in sentences]), end="")


@command(data_app, "annotate")
def data_annotate(
    corpus: Annotated[
        Path, typer.Argument(metavar="RECIPE.yaml|FILE", help="A recipe with data.parses, or a text file.")
    ],
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY.PATH=VALUE ...]", help="Changes to the recipe.")
    ] = None,
    parser: Annotated[
        str | None, typer.Option(help="For a text file: KIND:MODEL, such as spacy:ja_ginza, stanza:en, conllu:FILE.")
    ] = None,
    whitespace: Annotated[
        str | None,
        typer.Option(help="For a text file: what white space is there: text, tokens or none.", show_default="text"),
    ] = None,
    folder: Annotated[
        Path | None, WRITES_FOLDER, typer.Option(help="For a text file: keep parses there, not beside it.")
    ] = None,
    processes: Annotated[
        int | None, typer.Option(min=1, max=1024, help="How many parse.", show_default="one a core")
    ] = None,
    sample: Annotated[
        int | None,
        typer.Option(min=1, max=MOST, help="Only parse and draw so many sentences a side.", show_default="parse all"),
    ] = None,
) -> None:
    """Parse a corpus, both sides. If it is killed, the same command continues where it stopped."""
    from headway.errors import check_companions
    from headway.formats.lines import kept_pipes
    from headway.parses.annotation import draw_samples, part_of_file, parts_of_corpora, run_annotate
    from headway.recipe import load_recipe, parse_parser

    given = {"parser": parser, "whitespace": whitespace, "folder": folder}
    needs = {"whitespace": ("parser",), "folder": ("parser",)}
    check_companions([name for name, value in given.items() if value], needs)
    with kept_pipes():
        if parser is None:
            data = load_recipe(corpus, overrides or ()).data
            parts = parts_of_corpora({"data.train": data.train, "data.dev": data.dev}, data.parses, data.broken)
        else:
            parts = [part_of_file(corpus, parse_parser(parser, whitespace or "text"), folder)]
        if sample is None:
            run_annotate(parts, processes)
            return
        for drawn in draw_samples(parts, sample):
            write(drawn)


@command(data_app, "treebanks")
def data_treebanks(
    path: Annotated[Path, typer.Argument(metavar="ALIGNMENT.xml", help="Its two treebanks lie beside it.")],
    output: Output,
) -> None:
    """Take a TreeAligner file apart: source.txt and target.txt, a sentence a line, and gold.txt, Pharaoh links."""
    from headway.files import write_new_texts
    from headway.formats.alignments import read_treebanks
    from headway.formats.lines import kept_pipes

    with kept_pipes():
        pairs = read_treebanks(path)
    sides = {
        "source": [" ".join(pair.source) for pair in pairs],
        "target": [" ".join(pair.target) for pair in pairs],
        "gold": [pair.links.pharaoh() for pair in pairs],
    }
    write_new_texts({output / f"{name}.txt": "".join(f"{line}\n" for line in lines) for name, lines in sides.items()})


@command(data_app, "dates")
def data_dates(
    output: Output,
    seed: Annotated[int, typer.Option(min=0, max=LARGEST_SEED, help="The seed of all random draws.")] = 1,
    train_size: Annotated[int, typer.Option(min=1, max=MOST, help="Dates to train on.")] = 60_000,
    dev_size: Annotated[int, typer.Option(min=1, max=MOST, help="Dates of dev.")] = 1000,
    test_size: Annotated[int, typer.Option(min=1, max=MOST, help="Dates of each of the two tests.")] = 2000,
) -> None:
    """Write dates in many languages, and the same as ISO 8601: train, dev and two tests as TSV."""
    from headway.corpora.generated.dates import generate_dates, write_dates

    write_dates(generate_dates(seed, train_size, dev_size, test_size), output)


@command(data_app, "lengths")
def data_lengths(
    task: Annotated[str, typer.Argument(metavar="TASK", help=LENGTH_TASKS)],
    output: Output,
    variant: Annotated[str | None, typer.Option(help="Of the task, such as copy's random, repeated, twice.")] = None,
    seed: Annotated[int, typer.Option(min=0, max=LARGEST_SEED, help="The seed of all random draws.")] = 1,
    train_size: Annotated[int, typer.Option(min=1, max=MOST, help="Training examples.")] = 20_000,
    dev_size: Annotated[int, typer.Option(min=1, max=MOST, help="Dev examples.")] = 500,
    test_size: Annotated[
        int, typer.Option(min=1, max=MOST, help="Test examples of each length, where there are as many.")
    ] = 100,
    train_length: Annotated[
        int | None, typer.Option(min=1, max=MOST, help="Longest in training.", show_default="the task's")
    ] = None,
    test_length: Annotated[
        int | None, typer.Option(min=1, max=MOST, help="Longest in the test.", show_default="the task's")
    ] = None,
    scan: Annotated[Path | None, typer.Option(help="With scan: the folder of its length split.")] = None,
) -> None:
    """Write a task whose test is longer than its training: train, dev and test as TSV, and the test's lengths."""
    from headway.corpora.generated.length_tasks import Sizes, lengths_data, write_lengths

    sizes = Sizes(train_size, dev_size, test_size)
    data = lengths_data(task, variant, seed=seed, sizes=sizes, trained=train_length, tested=test_length, scan=scan)
    write_lengths(data, output, {"task": task, "variant": variant or "", "seed": seed})


@command(data_app, "trees")
def data_trees(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Penn brackets or TIGER-XML.")],
    format: Annotated[str, typer.Option(help="drawing, brackets, linear, words or tagged.")] = "drawing",
    sample: Annotated[
        int | None, typer.Option(min=1, max=MOST, help="Only so many, drawn at random.", show_default="all")
    ] = None,
    leaves: Annotated[
        str | None, typer.Option(help="With linear: what words become, tags or xx.", show_default="tags")
    ] = None,
    functions: Annotated[bool, typer.Option("--functions", help="Keep grammatical functions in labels.")] = False,
) -> None:
    """Draw the trees of a treebank, or write them, or their sentences, a line each."""
    from headway.formats.lines import kept_pipes
    from headway.formats.treebanks import write_trees

    with kept_pipes():
        for text in write_trees(file, format, sample=sample, leaves=leaves, functions=functions):
            write(text)
