"""A record of what dependency heads have learned, and how well both sides agree: Deguchi et al. (2021).

python benchmarks/dependency_heads.py results/FILE.json --title "Dependency heads" runs/both-1 runs/both-2

UAS is of the words of dev, beside the parser of the recipe. D and D' are there where a run compares them. With
`--gold FILE.conllu`, UAS is of the words of these sentences, read as sources, beside their own trees.
"""

from functools import partial
from pathlib import Path

from inspected_runs import Values, keep, parser_of

from headway.inspect.dependency_analysis import inspect_dependencies
from headway.inspect.inspect_options import DependencyOptions


def scores_of(gold: Path | None, run: Path) -> Values:
    """The attachment of each side by argmax, and the rows in which D and D' have the same argmax, in percent."""
    overrides = () if gold is None else (f"data.parses.source=conllu:{gold}",)
    found = inspect_dependencies(run, overrides, DependencyOptions(source=gold)).to_json()
    scores = {f"UAS, {side}": found[side]["uas_argmax"] for side in ("source", "target") if side in found}
    if gold is not None:
        scores["by maximum spanning tree"] = found["source"]["uas_tree"]
    elif "agreement" in found:
        scores["D and D' have the same argmax"] = found["agreement"]["same_argmax"]
    return scores


def main() -> None:
    """Write the record."""
    parser = parser_of(__doc__)
    parser.add_argument("--gold", type=Path, metavar="FILE.conllu", help="gold trees, in the place of dev and a parser")
    given = parser.parse_args()
    command, title = "python benchmarks/dependency_heads.py", "Attachment of words on dev, and agreement, in %"
    if given.gold is not None:
        command, title = f"{command} --gold FOLDER/{given.gold.name}", "Attachment of words beside gold trees, in %"
    keep(given, partial(scores_of, given.gold), title, command)


if __name__ == "__main__":
    main()
