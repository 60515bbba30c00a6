"""Checks of cells before they are compared: each mistake is one error that says what, where and what would be right."""

import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from headway.comparison.cell_results import CellResult
from headway.errors import UserError, option

SURE = 0.9  # the share from which on outputs are called tokenised; below 1 - SURE they are not
LEAST = 10  # places that must be seen before anything is said

PUNCTUATION = re.compile(r"(?<=\w)( ?)[.,!?;:](?=\s|$)")
WIDE = r"[\u3040-\u30ff\u3400-\u9fff]"
BETWEEN_CHARACTERS = re.compile(rf"(?<={WIDE})( ?)(?={WIDE})")
PIECES = re.compile(r"@@(?=\s|$)|▁")


def check_cells(cells: Sequence[CellResult], *, any_tokenization: bool = False) -> None:
    """See that cells can be compared.

    Args:
        cells: of all variants.
        any_tokenization: allow hypotheses of which some look tokenised and others do not.

    Raises:
        UserError: fewer than two variants, two cells of one name, a seed that a variant has not, test sets that are
            not the same, hypotheses that are not one a segment, or of different tokenisation.
    """
    names = list(dict.fromkeys(cell.variant for cell in cells))
    if len(names) < 2:
        raise UserError("a comparison needs two variants or more", where="variants", received=", ".join(names))
    check_names(cells)
    _check_seeds(cells, names)
    _check_tests(cells)
    if not any_tokenization:
        _check_tokenization(cells)


def check_names(cells: Sequence[CellResult]) -> None:
    """Raise UserError where two cells have the same variant and seed."""
    twice = [name for name, count in Counter((cell.variant, cell.seed) for cell in cells).items() if count > 1]
    for variant, seed in twice:
        paths = [str(cell.path) for cell in cells if (cell.variant, cell.seed) == (variant, seed) and cell.path]
        allowed = "one cell a variant and seed; NAME:SEED=PATH gives a name and a seed"
        where = f"{variant}, seed {seed}"
        raise UserError("two cells of one name", where=where, received=", ".join(paths) or None, allowed=allowed)


def _check_seeds(cells: Sequence[CellResult], names: Sequence[str]) -> None:
    """Raise UserError where a variant has a seed that another has not; a seed alone is paired with any."""
    seeds = {name: sorted(cell.seed for cell in cells if cell.variant == name) for name in names}
    if all(len(row) == 1 for row in seeds.values()):
        return
    every = sorted(set().union(*seeds.values()))
    for name, row in seeds.items():
        missing = [str(seed) for seed in every if seed not in row]
        if missing:
            what = f"seed {', '.join(missing)} is missing; seeds are paired by their number"
            received, allowed = ", ".join(map(str, row)), ", ".join(map(str, every))
            raise UserError(what, where=name, received=received, allowed=f"the seeds of all variants: {allowed}")


def _check_tests(cells: Sequence[CellResult]) -> None:
    first = cells[0]
    if not first.outputs:
        raise UserError("there is no test set", where=first.name)
    for cell in cells:
        tests = [output.test.name for output in cell.outputs]
        wanted = [output.test.name for output in first.outputs]
        if tests != wanted:
            received, allowed = ", ".join(tests), f"those of {first.name}: {', '.join(wanted)}"
            raise UserError(
                "variants are compared on the same test sets", where=cell.name, received=received, allowed=allowed
            )
        for output, other in zip(cell.outputs, first.outputs, strict=True):
            test = output.test
            for lines in test.references:
                if len(lines) != len(test):
                    raise UserError(
                        f"{len(lines)} references beside {len(test)}; there must be one a segment", where=test.name
                    )
            if len(output.hypotheses) != len(test):
                what = f"{len(output.hypotheses)} hypotheses for {len(test)} references; there must be one a segment"
                raise UserError(what, where=f"{cell.name}, {test.name}")
            if test is not other.test and test.references != other.test.references:
                what = f"the references of {test.name} are not those of {first.name}"
                raise UserError(what, where=cell.name, allowed="the same test set for all variants")


class Tokenization(NamedTuple):
    """The share of places at which hypotheses look tokenised, where there are enough of them."""

    punctuation: float | None
    characters: float | None
    pieces: bool


def tokenization(lines: Sequence[str]) -> Tokenization:
    """How outputs look: blanks before punctuation, blanks between wide characters, pieces that were not joined."""
    text = "\n".join(lines)
    return Tokenization(_share(PUNCTUATION, text), _share(BETWEEN_CHARACTERS, text), len(PIECES.findall(text)) >= LEAST)


def _share(places: re.Pattern[str], text: str) -> float | None:
    found = [bool(blank) for blank in places.findall(text)]
    return sum(found) / len(found) if len(found) >= LEAST else None


def _check_tokenization(cells: Sequence[CellResult]) -> None:
    """Raise UserError where the hypotheses of one cell look tokenised and those of another do not."""
    for outputs in zip(*(cell.outputs for cell in cells), strict=True):
        looks = [tokenization(output.hypotheses) for output in outputs]
        for kind, shares in (
            ("punctuation stands apart", [look.punctuation for look in looks]),
            ("characters stand apart", [look.characters for look in looks]),
            ("pieces are not joined", [float(look.pieces) for look in looks]),
        ):
            known = [(share, cell) for share, cell in zip(shares, cells, strict=True) if share is not None]
            apart = [cell.name for share, cell in known if share >= SURE]
            joined = [cell.name for share, cell in known if share <= 1 - SURE]
            if apart and joined:
                what = f"these hypotheses are tokenised ({kind}), and those of {joined[0]} are not"
                allowed = f"the same tokenisation for all, or {option('any_tokenization')}"
                raise UserError(what, where=apart[0], allowed=allowed)
