"""Claims: what is to be found out, written before it is measured.

A claim file has the variants, the data with the commands that prepare them, the budgets, the paper's numbers, and each
claim as an inequality with a margin. What was found stands beside the claims, a sentence a finding.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field, ValidationError, field_validator, model_validator

from headway.comparison.cell_results import Costs
from headway.comparison.grid_config import GridConfig
from headway.comparison.reproduce_options import USUAL_BUDGET
from headway.comparison.statistics import LEVEL
from headway.config import Section, explain, merge
from headway.errors import UserError, nearest
from headway.recipe import read_tree

Relation = Literal[">", "=", ">="]
INEQUALITY = re.compile(r"\s*(\S+)\s*(>=|>|=)\s*(\S+)\s*")
COSTS = tuple(field.name for field in fields(Costs))


class Inequality(NamedTuple):
    """`left > right`: is better; `left = right`: are even; `left >= right`: is not worse."""

    left: str
    relation: Relation
    right: str


class ClaimConfig(Section):
    """One claim.

    `says`: in a sentence. `claim`: an inequality of two variants, `A > B` (A is better), `A = B` (even) or `A >= B`
    (not worse), whichever direction of the metric is better. `metric`: one of the grid's, by default the first, or a
    cost such as `cpu_seconds`. `test`: the test set, where there are several. `margin`: in units of the metric: how
    much better A is at least, or what counts as even. `paper`: the numbers of the document by variant.
    """

    says: str
    claim: str
    metric: str | None = None
    test: str | None = None
    margin: Annotated[float, Field(ge=0, le=1e9)] = 0.0
    paper: dict[str, float] = Field(default={})

    @field_validator("claim")
    @classmethod
    def _inequality(cls, value: str) -> str:
        match = INEQUALITY.fullmatch(value)
        if match is None or match[1] == match[3]:
            raise ValueError("a claim is A > B, A = B or A >= B, A and B being two variants")
        return value

    @model_validator(mode="after")
    def _even_within(self) -> ClaimConfig:
        if self.inequality.relation != ">" and not self.margin and self.metric not in COSTS:
            raise ValueError("what is even, or not worse, needs a margin")
        return self

    def paper_difference(self, *, higher_is_better: bool) -> float | None:
        """The difference of the document's numbers, above 0 where the left variant is better; None without numbers."""
        left, right = (self.paper.get(name) for name in (self.inequality.left, self.inequality.right))
        return None if left is None or right is None else (left - right) * (1 if higher_is_better else -1)

    @property
    def inequality(self) -> Inequality:
        """The claim, taken apart."""
        match = INEQUALITY.fullmatch(self.claim)
        assert match is not None
        return Inequality(match[1], match[2], match[3])  # type: ignore[arg-type]


class ClaimData(Section):
    """The data of a claim file.

    `about`: what they are and where they come from. `prepare`: shell commands that write into `$OUTPUT`, and read
    what the user has in `$DATA`; they are run in the folder of the claim file. `needs`: files that have to be in
    `$DATA`; without any the commands make all data.
    """

    about: str
    prepare: str
    needs: tuple[str, ...] = ()


class BudgetConfig(Section):
    """A budget: changes to the grid. `as_printed`: data and budget are those of the document, as are its numbers."""

    grid: dict[str, Any] = Field(default={})
    as_printed: bool = False


class ClaimFile(Section):
    """A table of a document, or a question of our own.

    `document`: whose claims these are. `table`: where in it. `setting`: what the document trained on, and how long.
    `data`: for the budget `small`, and for `full` unless `full_data` says otherwise. `grid`: the keys of a grid, or the
    path of a grid file; `$OUTPUT` in its texts is the folder of the data. `looks`: how often findings were looked at,
    where seeds or learning rates were added to what was still open, or all was measured again.
    """

    title: str
    document: str
    table: str = ""
    setting: str = ""
    data: ClaimData
    full_data: ClaimData | None = None
    grid: dict[str, Any]
    budgets: Annotated[dict[Literal["small", "full"], BudgetConfig], Field(min_length=1)]
    looks: Annotated[int, Field(ge=1, le=100)] = 1
    claims: tuple[ClaimConfig, ...]
    findings: tuple[str, ...] = ()

    @property
    def usual_budget(self) -> str:
        """The budget of those who name none, or the only one that the file has."""
        return USUAL_BUDGET if USUAL_BUDGET in self.budgets else next(iter(self.budgets))

    @property
    def level(self) -> float:
        """Of the intervals of the last look: look k has a kth of the first one's probability of a wrong finding."""
        return 1 - (1 - LEVEL) / self.looks

    @property
    def kept_level(self) -> float:
        """The level that all looks keep together at least, were each decided on by the one before (Bonferroni)."""
        return 1 - sum((1 - LEVEL) / look for look in range(1, self.looks + 1))

    def tree(self, budget: str) -> dict[str, Any]:
        """The grid of a budget, as a raw tree. Raises UserError where the file has no such budget."""
        return merge(self.grid, self.budget(budget).grid)

    def budget(self, budget: str) -> BudgetConfig:
        """A budget by name. Raises UserError where the file has no such one."""
        for name, config in self.budgets.items():
            if name == budget:
                return config
        raise UserError("these claims have no such budget", where="budget", received=budget, allowed=list(self.budgets))

    def data_of(self, budget: str) -> ClaimData:
        """The data of a budget."""
        return self.full_data if budget == "full" and self.full_data is not None else self.data


class ClaimPath(NamedTuple):
    """`PAPER[/TABLE[/CELL]]`: a document, a claim file of it, and a variant in that."""

    paper: str
    table: str | None = None
    cell: str | None = None

    @classmethod
    def parse(cls, text: str) -> ClaimPath:
        """Read `PAPER/TABLE/CELL`. Raises UserError for anything else."""
        parts = text.split("/")
        if not all(parts) or len(parts) > 3:
            raise UserError("a claim is named PAPER/TABLE/CELL", where=text)
        return cls(*parts)


def claims_folder(given: Path | None = None) -> Path:
    """The folder of the claim files: as given, `claims` here, or that which comes with headway."""
    if given is not None:
        return given
    here = Path("claims")
    return here if here.is_dir() else Path(str(files("headway.experiments"))) / "claims"


def claim_files(folder: Path) -> dict[str, Path]:
    """The claim files of a folder, named `PAPER-TABLE.yaml`, by `PAPER/TABLE`. Raises UserError without any."""
    found = {path.stem.replace("-", "/", 1): path for path in sorted(folder.glob("*.yaml"))}
    if not found:
        raise UserError("there are no claim files here", where=str(folder))
    return found


def chosen_files(folder: Path, chosen: ClaimPath) -> dict[str, Path]:
    """The claim files of a document, or the one that is named. Raises UserError where there is none."""
    known = claim_files(folder)
    wanted = chosen.paper if chosen.table is None else f"{chosen.paper}/{chosen.table}"
    found = {name: path for name, path in known.items() if name == wanted or name.startswith(f"{wanted}/")}
    if not found:
        raise UserError(f"no such claims{nearest(wanted, known)}", where=wanted, allowed=known)
    return found


def read_claims(path: Path) -> ClaimFile:
    """Read a claim file. Raises UserError with every mistake."""
    tree = read_tree(path)
    if isinstance(tree.get("grid"), str):
        tree["grid"] = _grid_of_file(path.parent / tree["grid"])
    try:
        claims = ClaimFile.model_validate(tree)
    except ValidationError as error:
        raise UserError(explain(error, ClaimFile, str(path))) from error
    variants = dict[str, Any]()
    for budget in claims.budgets:
        try:
            variants |= GridConfig.model_validate(claims.tree(budget)).variants
        except ValidationError as error:
            raise UserError(explain(error, GridConfig, f"{path}: grid")) from error
    said = [claim.says for claim in claims.claims]
    for claim in claims.claims:
        if said.count(claim.says) > 1:
            raise UserError("two claims say the same", where=str(path), received=claim.says)
        inequality = claim.inequality
        for name in (inequality.left, inequality.right, *claim.paper):
            if name not in variants:
                hint = nearest(name, variants)
                raise UserError(
                    f"no such variant{hint}", where=f"{path}: {claim.claim}", received=name, allowed=variants
                )
    return claims


def _grid_of_file(path: Path) -> dict[str, Any]:
    """The raw tree of a grid file, whose recipes have absolute paths. Raises UserError."""

    def absolute(recipe: Any) -> Any:
        return str((path.parent / recipe).resolve()) if isinstance(recipe, str) else recipe

    tree = read_tree(path)
    if "recipe" in tree:
        tree["recipe"] = absolute(tree["recipe"])
    variants = tree.get("variants")
    if isinstance(variants, dict):
        for name, entry in variants.items():
            given = isinstance(entry, dict) and "recipe" in entry
            variants[name] = entry | {"recipe": absolute(entry["recipe"])} if given else absolute(entry)
    return tree


def tree_of_cell(tree: Mapping[str, Any], claims: ClaimFile, cell: str) -> dict[str, Any]:
    """The grid with those variants alone that a variant is compared with in any claim. Raises UserError."""
    variants = tree["variants"]
    if cell not in variants:
        raise UserError(f"no such variant{nearest(cell, variants)}", where=cell, allowed=variants)
    pairs = [claim.inequality for claim in claims.claims]
    wanted = {name for pair in pairs if cell in (pair.left, pair.right) for name in (pair.left, pair.right)}
    match = tree.get("match_parameters")
    sized_to = match.get("to") if isinstance(match, dict) else None
    if match and sized_to is None:
        sized_to = next(iter(variants))
    chosen = {name: entry for name, entry in variants.items() if name in wanted | {cell, sized_to}}
    return {**tree, "variants": chosen}
