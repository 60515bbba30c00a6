"""Padding and the number of shapes of a recipe's batches, with `training.shapes: any` and with `few`."""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from headway.claims.reproduce import ResultRecord, measured_now, write_record
from headway.core.tables import Cell, Column, Table
from headway.corpora.shapes import Shape, few_shapes
from headway.recipe import load_recipe
from headway.tasks import build_task
from headway.tasks.task import TrainingCorpus
from headway.tensors.batch import Indices


def sizes_of(corpus: TrainingCorpus, batches: Sequence[Indices], shapes: Sequence[Shape] = ()) -> list[Shape]:
    """The sizes of batches, padded to `shapes` where there are any."""
    source, target = corpus.widths()
    sizes = (Shape(len(batch), int(source[batch].max()), int(target[batch].max())) for batch in batches)
    return [size.fitted(shapes) for size in sizes]


def padding(corpus: TrainingCorpus, batches: Sequence[Indices], shapes: Sequence[Shape] = ()) -> float:
    """The share of the positions of all batches, on both sides and in spare rows, that hold no token."""
    tokens = sum(int(width[batch].sum()) for width in corpus.widths() for batch in batches)
    return 1 - tokens / sum(size.rows * size.row for size in sizes_of(corpus, batches, shapes))


def paddings(corpora: Mapping[str, TrainingCorpus], sizes: Sequence[int]) -> Table:
    """Batches, sizes and padding of an epoch, with any and with few shapes, for each number of tokens."""
    rows: list[list[Cell]] = []
    for name, corpus in corpora.items():
        for tokens in sizes:
            for kind, shapes in ("any", []), ("few", few_shapes(*corpus.widths(), tokens)):
                batches = corpus.plan(1, 0, batch_tokens=tokens, shapes=shapes)
                count = len(set(sizes_of(corpus, batches, shapes)))
                rows.append([name, tokens, kind, len(batches), count, padding(corpus, batches, shapes)])
    columns = [Column("tokens a batch", format=","), "shapes", "batches", "different shapes"]
    return Table(["corpus", *columns, Column("padding", format=".1%")], rows, title="Padding of real batches")


def corpus_of(path: Path, overrides: Sequence[str]) -> TrainingCorpus:
    """The encoded training corpus of a recipe."""
    recipe = load_recipe(path, overrides)
    with TemporaryDirectory() as folder:
        return build_task(recipe.task).corpora(recipe, Path(folder) / "vocabulary").train


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recipe", type=Path)
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="changes, such as data.folder=FOLDER")
    parser.add_argument(
        "--tokens", type=int, nargs="+", default=[1024, 4096, 16384, 25000], help="training.batch_tokens"
    )
    parser.add_argument("--output", type=Path, help="a record for results/speed, in which FOLDER is the data's folder")
    given = parser.parse_args()
    table = paddings({given.recipe.stem: corpus_of(given.recipe, given.overrides)}, given.tokens)
    print(table.text())
    if given.output is not None:
        tokens = " ".join(map(str, given.tokens))
        command = f"python benchmarks/shapes.py {given.recipe} data.folder=FOLDER --tokens {tokens}"
        title = f"Padding of batches, {given.recipe.parent.name} {given.recipe.stem}"
        write_record(
            given.output, ResultRecord(title=title, measured=measured_now([command], (1,)), tables=(table.to_json(),))
        )


if __name__ == "__main__":
    main()
