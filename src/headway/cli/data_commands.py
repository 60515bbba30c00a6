"""`headway data ...`: inspect data, and prepare it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from headway.cli.shell import Overrides, argument, command, flag, new_app, section_of
from headway.cli.standard_streams import output_to, write
from headway.core.config import WRITES_FILE, WRITES_FOLDER, Count, Section, Seed, Whole
from headway.core.errors import UserError, check_companions, option
from headway.core.languages import LanguageCode

if TYPE_CHECKING:
    from headway.formats.corpus_format import Broken

data_app = new_app("data")


@command(data_app, "check")
def data_check(
    recipe: Annotated[Path, argument("RECIPE", "The recipe.")],
    /,
    *overrides: Overrides,
    json_output: Annotated[bool, flag("Write JSON.", name="--json", negative=())] = False,
) -> None:
    """Read a recipe's corpora as training would and say what is in them; nothing is trained but the vocabulary."""
    import json

    from headway.processing.text.text_processor import check_languages
    from headway.recipe import load_recipe
    from headway.tasks import build_task

    loaded = load_recipe(recipe, overrides)
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
        argument(
            "FILE",
            "A word a row, a blank line between sentences; with columns, a pair a row; or, with TARGET, sources.",
        ),
    ],
    target: Annotated[Path | None, argument("TARGET", "The sources' targets, a line each.")] = None,
    /,
    *,
    output: Annotated[Path, WRITES_FOLDER, flag("The folder to write train, dev and test to.")],
    columns: Annotated[
        list[str] | None,
        flag("Those of source and target in FILE (.tsv, .jsonl): numbers or names.", consume_multiple=True),
    ] = None,
    shares: Annotated[
        tuple[float, float, float] | None, flag("Of train, dev and test.", "80 10 10, and 1,000 and 2,000 at most")
    ] = None,
    counts: Annotated[
        tuple[int, int] | None,
        flag("Sentences or pairs of dev and test; train gets the rest.", "by shares"),
    ] = None,
    shuffle: Annotated[bool, flag("Draw the parts at random, not in the file's order.", negative=())] = False,
    seed: Annotated[Seed | None, flag("The seed of the draw.", "1")] = None,
    disjoint_sources: Annotated[
        bool, flag("Let no source stand in two parts, whatever its target.", negative=())
    ] = False,
    disjoint_targets: Annotated[
        bool, flag("Let no target stand in two parts, whatever its source.", negative=())
    ] = False,
    skip_broken: Annotated[bool, flag("Leave out rows that cannot be read, instead of stopping.", negative=())] = False,
) -> None:
    """Cut sentences or pairs into train, dev and test: in their order, so that documents stay whole, or at random."""
    from headway.corpora.split import SplitOptions, split_parallel, split_sentences, split_table

    given = {"seed": seed is not None, "shuffle": shuffle, "skip_broken": skip_broken}
    given |= {"disjoint_sources": disjoint_sources, "disjoint_targets": disjoint_targets}
    given |= {"columns": columns is not None, "target": target is not None}
    pairs = ("columns", "target")
    needs = {"seed": ("shuffle",), "disjoint_sources": pairs, "disjoint_targets": pairs, "skip_broken": pairs}
    check_companions([name for name, is_given in given.items() if is_given], needs)
    if shares is not None and counts is not None:
        raise UserError("sizes are shares or counts, not both", where=option("counts"), received=list(counts))
    if columns is not None and target is not None:
        raise UserError("pairs stand in columns or in two files, not both", where=option("columns"))
    drawn = (1 if seed is None else seed) if shuffle else None
    options = SplitOptions(shares, counts, drawn, disjoint_sources, disjoint_targets)
    broken: Broken = "skip" if skip_broken else "error"
    if target is not None:
        split = split_parallel(file, target, output, options, broken)
    elif columns is not None:
        split = split_table(file, columns, output, options, broken)
    else:
        split = split_sentences(file, output, options)
    write(split.text())


@command(data_app, "filter")
def data_filter(
    file: Annotated[Path, argument("FILE", "A pair a row (.tsv, .jsonl); or, with TARGET, the sources.")],
    target: Annotated[Path | None, argument("TARGET", "The sources' targets, a line each.")] = None,
    /,
    *,
    output: Annotated[Path, WRITES_FOLDER, flag("The folder to make.")],
    rules: Annotated[Literal["mozilla"], flag("The rules that pairs must keep.", "mozilla")] = "mozilla",
    without: Annotated[
        list[str] | None, flag("Rules that are not applied, such as untranslated.", consume_multiple=True)
    ] = None,
    source_language: Annotated[LanguageCode | None, flag("Such as ja.", "by the names of files or columns")] = None,
    target_language: Annotated[LanguageCode | None, flag("Such as en.", "likewise")] = None,
    columns: Annotated[
        tuple[str, str] | None, flag("Those of source and target in FILE: numbers or names.", "1 2")
    ] = None,
    skip_broken: Annotated[bool, flag("Leave out rows that cannot be read, instead of stopping.", negative=())] = False,
) -> None:
    """Clean a corpus for training: repair its texts, and reject pairs that are probably no translations."""
    from headway.core.languages import languages_of_names
    from headway.corpora.cleaning import clean_corpus

    if columns is not None and target is not None:
        raise UserError("pairs stand in columns or in two files, not both", where=option("columns"))
    files, chosen = [file] if target is None else [file, target], columns or ("1", "2")
    named = zip((source_language, target_language), languages_of_names(files, chosen), strict=True)
    cleaned = clean_corpus(
        files, chosen, output, [given or hint for given, hint in named],
        rules=rules, without=without or (), broken="skip" if skip_broken else "error",
    )  # fmt: skip
    write(cleaned.text())


@command(data_app, "annotate")
def data_annotate(
    corpus: Annotated[Path, argument("RECIPE|FILE", "A recipe with data.parses or data.links, or a text file.")],
    /,
    *overrides: Overrides,
    parser: Annotated[
        str | None, flag("For a text file: KIND:MODEL, such as spacy:ja_ginza, stanza:en, conllu:FILE.")
    ] = None,
    whitespace: Annotated[
        str | None,
        flag("For a text file: what white space is there: text, tokens or none.", "text"),
    ] = None,
    folder: Annotated[Path | None, WRITES_FOLDER, flag("For a text file: keep parses there, not beside it.")] = None,
    processes: Annotated[
        Annotated[int, Field(ge=1, le=1024)] | None,
        flag("How many parse.", "one a core"),
    ] = None,
    sample: Annotated[
        Count | None,
        flag("Only parse and draw so many sentences a side.", "parse all"),
    ] = None,
    links: Annotated[bool, flag("Align the words of a recipe's pairs, as data.links says.", negative=())] = False,
) -> None:
    """Parse a corpus, both sides, or align its words. If it is killed, the same command continues where it stopped."""
    from headway.core.errors import check_companions
    from headway.formats.lines import kept_pipes
    from headway.parses.annotation import draw_samples, part_of_file, parts_of_corpora, run_annotate
    from headway.recipe import load_recipe, parse_parser

    given: dict[str, Any] = {"parser": parser, "whitespace": whitespace, "folder": folder}
    needs = {"whitespace": ("parser",), "folder": ("parser",)}
    check_companions([name for name, value in given.items() if value], needs)
    if links:
        given |= {"processes": processes, "sample": sample}
        if wrong := [name for name, value in given.items() if value]:
            raise UserError("this is an option of parses, not of links", where=option(wrong[0]))
        from headway.augment.link_annotation import annotate_links

        with kept_pipes():
            annotate_links(load_recipe(corpus, overrides))
        return
    with kept_pipes():
        if parser is None:
            data = load_recipe(corpus, overrides).data
            parts = parts_of_corpora({"data.train": data.train, "data.dev": data.dev}, data.parses, data.broken)
        else:
            parts = [part_of_file(corpus, parse_parser(parser, whitespace or "text"), folder)]
        if sample is None:
            run_annotate(parts, processes)
            return
        for drawn in draw_samples(parts, sample):
            write(drawn)


class ToFolder(Section):
    """Output options of kinds that write a folder."""

    output: Annotated[Path, WRITES_FOLDER]


class ToFile(Section):
    """Output options of kinds that write a file, or standard output."""

    output: Annotated[Path | None, WRITES_FILE] = None


class Dates(ToFolder):
    """Dates in many languages, and the same as ISO 8601: train, dev and two tests as TSV."""

    seed: Seed = 1
    train_size: Count = 60_000
    dev_size: Count = 1000
    test_size: Count = 2000

    def write(self) -> None:
        from headway.corpora.generated.dates import generate_dates, write_dates

        write_dates(generate_dates(self.seed, self.train_size, self.dev_size, self.test_size), self.output)


class Lengths(ToFolder):
    """A task (copy, reverse, addition, ...) whose test is longer than its training: TSV, and the test's lengths."""

    task: str
    variant: str | None = None
    seed: Seed = 1
    train_size: Count = 20_000
    dev_size: Count = 500
    test_size: Count = 100
    train_length: Count | None = None
    test_length: Count | None = None
    scan: Path | None = None

    def write(self) -> None:
        from headway.corpora.generated.length_tasks import Sizes, lengths_data, write_lengths

        data = lengths_data(
            self.task, self.variant, seed=self.seed, sizes=Sizes(self.train_size, self.dev_size, self.test_size),
            trained=self.train_length, tested=self.test_length, scan=self.scan,
        )  # fmt: skip
        write_lengths(data, self.output, {"task": self.task, "variant": self.variant or "", "seed": self.seed})


class Treebanks(ToFolder):
    """source.txt and target.txt, a sentence a line, and gold.txt, Pharaoh links, of a TreeAligner file."""

    file: Path

    def write(self) -> None:
        from headway.core.files import write_new_texts
        from headway.formats.alignments import read_treebanks
        from headway.formats.lines import kept_pipes

        with kept_pipes():
            pairs = read_treebanks(self.file)
        sides = {
            "source": [" ".join(pair.source) for pair in pairs],
            "target": [" ".join(pair.target) for pair in pairs],
            "gold": [pair.links.pharaoh() for pair in pairs],
        }
        texts = {self.output / f"{name}.txt": "".join(f"{line}\n" for line in lines) for name, lines in sides.items()}
        write_new_texts(texts)


class Trees(ToFile):
    """The trees of a treebank in Penn brackets or TIGER-XML: drawing, brackets, linear, words or tagged."""

    file: Path
    format: str = "drawing"
    sample: Count | None = None
    leaves: str | None = None
    functions: bool = False

    def write(self) -> None:
        from headway.formats.lines import kept_pipes
        from headway.formats.treebanks import write_trees

        with kept_pipes(), output_to(self.output):
            for text in write_trees(
                self.file, self.format, sample=self.sample, leaves=self.leaves, functions=self.functions
            ):
                write(text)


class Labels(ToFile):
    """Words that are wrong, a word a row: by the edits of an M2 file, or by comparing a source with references."""

    m2: Path | None = None
    annotator: Whole | None = None
    source: Path | None = None
    references: tuple[Path, ...] | Path | None = None

    def write(self) -> None:
        from headway.formats.corpus_format import ERRORS
        from headway.formats.labelled_words import open_labelled, union, write_columns
        from headway.formats.lines import check_file

        references = [self.references] if isinstance(self.references, Path) else list(self.references or ())
        given = {"m2": self.m2, "annotator": self.annotator, "source": self.source, "references": references or None}
        names = [name for name, value in given.items() if value is not None]
        check_companions(names, {"annotator": ("m2",), "source": ("references",), "references": ("source",)})
        if ("m2" in names) == ("source" in names):
            allowed = "m2, or source and references"
            raise UserError("one origin of the words is needed", received=names or "nothing", allowed=allowed)
        for name, files in (("m2", [self.m2]), ("source", [self.source]), ("references", references)):
            for path in filter(None, files):
                check_file(path, option(name))
        sentences = open_labelled(given, "headway data make labels", ERRORS)
        with output_to(self.output):
            write(write_columns([(sentence.words, union(sentence.labels)) for sentence in sentences]), end="")


MADE: dict[str, Any] = {
    "dates": Dates, "lengths": Lengths, "treebanks": Treebanks, "trees": Trees, "labels": Labels,
}  # fmt: skip
KINDS = " ".join(f"{name}: {kind.__doc__}" for name, kind in MADE.items())
KEYS = "; ".join(f"{name}: {', '.join([*kind.model_fields][1:])}" for name, kind in MADE.items())


@command(data_app, "make")
def data_make(
    kind: Annotated[Literal["dates", "lengths", "treebanks", "trees", "labels"], argument("KIND", KINDS)],
    /,
    *keys: Annotated[str, argument("KEY=VALUE", f"Options; a word alone is the first. {KEYS}.")],
    output: Annotated[
        Path | None,
        flag(
            "The folder to write to; for trees and labels a file.",
            "standard output for trees and labels",
        ),
    ] = None,
) -> None:
    """Write data that are generated, or made of other files."""
    section_of(keys, MADE[kind], {} if output is None else {"output": output}).write()
