"""A record of what dependency heads have learned, and how well both sides agree: Deguchi et al. (2021).

python benchmarks/dependency_heads.py results/FILE.json --title "Dependency heads" runs/both-1 runs/both-2

UAS is of the words of dev, beside the parser of the recipe. D and D' are there where a run compares them.
"""

from pathlib import Path

from inspected_runs import Values, keep, parser_of

from headway.runs.inspect.dependency_analysis import inspect_dependencies
from headway.runs.inspect.inspect_options import DependencyOptions


def scores_of(run: Path) -> Values:
    """The attachment of each side by argmax, and the rows in which D and D' have the same argmax, in percent."""
    found = inspect_dependencies(run, (), DependencyOptions()).to_json()
    scores = {f"UAS, {side}": found[side]["uas_argmax"] for side in ("source", "target") if side in found}
    if "agreement" in found:
        scores["D and D' have the same argmax"] = found["agreement"]["same_argmax"]
    return scores


def main() -> None:
    """Write the record."""
    given = parser_of(__doc__).parse_args()
    keep(given, scores_of, "Attachment of words on dev, and agreement, in %", "python benchmarks/dependency_heads.py")


if __name__ == "__main__":
    main()
