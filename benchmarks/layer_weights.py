"""A record of what taggers read from the layers of their encoder: table 2 of Kaneko and Komachi (2019).

python benchmarks/layer_weights.py results/realec-layers.json --title "Weights of layers" --data test.tsv \
    runs/shmla-1 runs/shmla-2 runs/mhmla-1 runs/mhmla-2

A cell is the mean weight of a layer over all words and heads, with the standard deviation between seeds.
"""

from pathlib import Path

from inspected_runs import Values, keep, parser_of

from headway.core.errors import UserError
from headway.inspect.inspect_options import LayerOptions
from headway.inspect.layers import inspect_layers


def weights_of(run: Path, data: Path) -> Values:
    """The mean weight of each layer, lowest first, times 100. Raises UserError where the model weighs no layers."""
    weights = inspect_layers(run, LayerOptions(data=data)).weights
    if weights is None:
        raise UserError("this model does not attend to layers", where=str(run))
    return {f"layer {layer}": 100 * float(weight) for layer, weight in enumerate(weights.mean.mean(0), start=1)}


def main() -> None:
    """Write the record."""
    parser = parser_of(__doc__)
    parser.add_argument("--data", type=Path, required=True, help="labelled words, a word a line")
    given = parser.parse_args()
    command = f"python benchmarks/layer_weights.py --data FOLDER/{given.data.name}"
    keep(given, lambda run: weights_of(run, given.data), "Weights of layers, times 100", command)


if __name__ == "__main__":
    main()
