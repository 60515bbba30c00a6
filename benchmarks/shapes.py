"""Padding and the number of shapes of a recipe's batches, with `training.shapes: any` and with `few`."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from headway.core.tables import Table
from headway.corpora.shapes import Shape, Widths, few_shapes
from headway.recipe import load_recipe
from headway.tasks import build_task
from headway.tasks.task import TrainingCorpus


def sizes_of(corpus: TrainingCorpus, tokens: int, shapes: Sequence[Shape] = ()) -> list[Shape]:
    """The sizes of the batches of an epoch, padded to `shapes` where there are any."""
    source, target = corpus.widths()
    plan = corpus.plan(1, 0, batch_tokens=tokens, shapes=shapes)
    sizes = [Shape(len(batch), int(source[batch].max()), int(target[batch].max())) for batch in plan]
    return [shape.fitted(shapes) for shape in sizes]


def padding(widths: tuple[Widths, Widths], sizes: Sequence[Shape]) -> float:
    """The padding of both sides, spare rows counted, in percent of what is no padding."""
    real = sum(int(each.sum()) for each in widths)
    return 100 * sum(shape.rows * shape.row for shape in sizes) / real - 100


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recipe", type=Path)
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="changes, such as data.folder=FOLDER")
    parser.add_argument(
        "--tokens", type=int, nargs="+", default=[1024, 4096, 16384, 25000], help="training.batch_tokens"
    )
    given = parser.parse_args()
    recipe = load_recipe(given.recipe, given.overrides)
    with TemporaryDirectory() as folder:
        corpus = build_task(recipe.task).corpora(recipe, Path(folder) / "vocabulary").train
    rows = []
    for tokens in given.tokens:
        for name, shapes in ("any", []), ("few", few_shapes(*corpus.widths(), tokens)):
            sizes = sizes_of(corpus, tokens, shapes)
            share = f"{padding(corpus.widths(), sizes):.1f}"
            rows.append((f"{tokens:,}", name, f"{len(sizes):,}", f"{len(set(sizes)):,}", share))
    print(Table(["batch_tokens", "shapes", "batches", "distinct shapes", "padding %"], rows).text())


if __name__ == "__main__":
    main()
