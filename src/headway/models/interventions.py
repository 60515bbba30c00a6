"""Interventions: replace the values of named parts of a model while it runs.

A part is the output of a sublayer (`encoder.2.self`, `decoder.1.cross`, `decoder.1.feed_forward`), a component of it
(`decoder.1.cross:head=3`, `encoder.1.self:offset=-1`), or a layer (`encoder.2`), which stands for all of its sublayers.
With y the vector that a sublayer adds to the residual stream, and o^k the output of its head k,

    y = W_o [o^1; ...; o^K] + b = sum over k of W_o^k o^k + b

an intervention in the sublayer replaces y, and one in head k replaces o^k: a zeroed head adds nothing, and everything
else is unchanged. An intervention in an offset j of an n-gram replaces the term h_j of its hidden layer,
ReLU(sum over j of h_j + b). `encoder.2.residual` is the output of the layer, `decoder.1.state` the output of a
recurrent layer; the recurrent state itself is not changed.

Shapes: B rows, L positions, C channels, R rows of a decoding step, n new positions.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from typing import Any, Literal

import torch
from torch import Tensor, nn

from headway.core.errors import UserError, nearest
from headway.mixers.points import Edit, Points

SHORT = {"layers": "*.*", "heads": "*.*.*:head=*", "offsets": "*.*.*:offset=*"}
SUBLAYERS = ("self", "cross", "feed_forward")
DRAWS = 1 << 12  # the random sentences repeat after this number of positions

Recorded = Mapping[str, Sequence[Tensor]]  # by part: the values (L, C) in each sentence


class Rule(ABC):
    """A replacement for the output of one part of a model (a head, an offset, a layer)."""

    @abstractmethod
    def values(self, name: str, given: Tensor, positions: Tensor, whole: bool) -> Tensor:
        """Return the replacement values (B, L, C).

        Args:
            name: the part.
            given: (B, L, C), the values that the model has computed.
            positions: (B or 1, L), counted from 0.
            whole: whether all positions of the rows are read in this call, as opposed to a decoding step.
        """


def _of(recorded: Recorded, name: str) -> Sequence[Tensor]:
    """The recorded values of a part. Raises UserError if there are none."""
    if not recorded.get(name):
        what = "a rule leaves this part no value: none was recorded"
        raise UserError(what, where=name, received=list(recorded), allowed="model.recorded([name, ...], batches)")
    return recorded[name]


class Zero(Rule):
    """Replace values by zeros."""

    def values(self, name: str, given: Tensor, positions: Tensor, whole: bool) -> Tensor:
        return torch.zeros_like(given)


@dataclass(frozen=True)
class Mean(Rule):
    """Replace values by the mean of the recorded values over all positions."""

    recorded: Recorded

    def values(self, name: str, given: Tensor, positions: Tensor, whole: bool) -> Tensor:
        return torch.cat(list(_of(self.recorded, name))).mean(0).expand_as(given)


@dataclass(frozen=True)
class Resample(Rule):
    """Replace the value at each position by that of a random recorded sentence there, or at its end.

    The sentence depends only on the position and the seed, so scoring, search and all batches use the same values.
    """

    recorded: Recorded
    seed: int = 0

    def values(self, name: str, given: Tensor, positions: Tensor, whole: bool) -> Tensor:
        sentences = _of(self.recorded, name)
        ends = torch.tensor([len(sentence) - 1 for sentence in sentences], device=positions.device)
        draws = torch.randint(len(sentences), (DRAWS,), generator=torch.Generator().manual_seed(self.seed))
        drawn = draws.to(positions.device)[positions % DRAWS]
        begins = (ends + 1).cumsum(0) - ends - 1
        return torch.cat(list(sentences))[begins[drawn] + torch.minimum(positions, ends[drawn])].expand_as(given)


@dataclass(frozen=True)
class Freeze(Rule):
    """Replace values by those of another input, position by position: of one sentence, or of one per row.

    `lengths` is the rule for an input of another length: beyond the recorded positions a part keeps its own values
    (`own`) or repeats the last recorded value (`last`).
    """

    recorded: Recorded
    lengths: Literal["same", "own", "last"] = "same"

    def values(self, name: str, given: Tensor, positions: Tensor, whole: bool) -> Tensor:
        sentences = _of(self.recorded, name)
        if len(sentences) not in (1, len(given)):
            allowed = f"1, or {len(given)}"
            what = "values are frozen to those of one input, or of as many as there are rows"
            raise UserError(what, where=name, received=len(sentences), allowed=allowed)
        count = given.shape[1] if whole else int(positions.max()) + 1
        other = [len(each) for each in sentences if (len(each) != count if whole else len(each) < count)]
        if self.lengths == "same" and other:
            what, received = "the input that is frozen has another length than this one", f"{other[0]} and {count}"
            allowed = "as many positions, or lengths own or last, for those beyond"
            raise UserError(what, where=name, received=received, allowed=allowed)
        rows = []
        for row, of_row in enumerate(positions.expand(given.shape[:2])):
            sentence = sentences[row % len(sentences)]
            frozen = sentence[of_row.clamp(max=len(sentence) - 1)].to(given.dtype)
            beyond = (of_row >= len(sentence))[:, None] & (self.lengths == "own")
            rows.append(torch.where(beyond, given[row], frozen))
        return torch.stack(rows)


@dataclass(frozen=True)
class Apply(Rule):
    """Replace values (B, L, C) by the result of a function of them."""

    function: Callable[[Tensor], Tensor]

    def values(self, name: str, given: Tensor, positions: Tensor, whole: bool) -> Tensor:
        return self.function(given)


Rules = Mapping[str, Rule | Callable[[Tensor], Tensor] | Literal["zero"]]  # by names or patterns of parts


def parts_of(points: Points) -> dict[str, tuple[str, ...]]:
    """The names of the parts of a model, each with the names of its points: a layer has the points of its sublayers."""
    parts: dict[str, tuple[str, ...]] = {name: (name,) for name in points}
    for name in points:
        layer, _, kind = name.rpartition(".")
        if kind in SUBLAYERS and layer not in points:
            parts[layer] = (*parts.get(layer, ()), name)
    return parts


def named_parts(points: Points, pattern: str) -> list[str]:
    """The names of the parts that match a name or a pattern. `*` matches anything between dots.

    `heads`, `offsets`, `layers`, `self`, `cross` and `feed_forward` alone match those of all layers; `:heads` and
    `:offsets` after a sublayer match all of its heads or offsets.

    Raises:
        UserError: no part matches.
    """
    parts = parts_of(points)
    asked = SHORT.get(pattern, f"*.*.{pattern}" if pattern in SUBLAYERS else pattern)
    place, colon, within = asked.partition(":")
    within = {"heads": "head=*", "offsets": "offset=*"}.get(within, within)
    wanted = place.split("."), f"{colon}{within}"

    def matches(name: str) -> bool:
        place, colon, within = name.partition(":")
        words = place.split(".")
        same = len(words) == len(wanted[0]) and all(map(fnmatchcase, words, wanted[0]))
        return same and fnmatchcase(f"{colon}{within}", wanted[1])

    found = [name for name in parts if matches(name)]
    if not found:
        kinds = dict.fromkeys(re.sub(r"\d+", "*", name.partition("=")[0], count=1) for name in parts)
        allowed = [re.sub(r":(head|offset)$", r":\1s", kind) for kind in kinds]
        what = f"no part of this model has such a name{nearest(pattern, [*parts, *allowed])}"
        raise UserError(what, received=pattern, allowed=allowed or "none; nothing in it can be named")
    return found


class Clock:
    """The positions that a model is reading: of the current decoding step, or None if it reads all at once."""

    def __init__(self) -> None:
        self.now: Tensor | None = None

    def positions(self, values: Tensor) -> Tensor:
        """The positions (B or 1, L) of values (B, L, C); if L exceeds the current step, the last L, ending with it."""
        rows, length = values.shape[:2]
        if self.now is None:
            return torch.arange(length, device=values.device)[None]
        if self.now.numel() == rows * length:  # also if the hypotheses of a sentence form one row
            return self.now.reshape(rows, length)
        return (self.now[:, -1:] + torch.arange(1 - length, 1, device=values.device)).clamp(min=0)

    @contextmanager
    def listening(self, module: nn.Module, method: str) -> Iterator[None]:
        """Return a context in which calls `method(tokens (R, n), state)` of `module` set the current positions."""
        call, outer = getattr(module, method), vars(module).get(method)

        def timed(new: Tensor, state: Any, *more: Any) -> Any:
            before, first = self.now, state.lengths[:, None]
            self.now = first + torch.arange(new.shape[1], device=first.device)
            try:
                return call(new, state, *more)
            finally:
                self.now = before

        vars(module)[method] = timed  # takes precedence over the method of the class
        try:
            yield
        finally:
            del vars(module)[method]
            vars(module).update({} if outer is None else {method: outer})


@contextmanager
def edited(model: Any, places: Mapping[str, Callable[[Tensor, Tensor, bool], Tensor]]) -> Iterator[None]:
    """Return a context in which functions replace the values of points. Their arguments are as in `Rule.values`."""
    points, clock = model.points(), Clock()

    def edit(replaced: Callable[[Tensor, Tensor, bool], Tensor]) -> Edit:
        return lambda values: replaced(values, clock.positions(values), clock.now is None)

    with ExitStack() as stack:
        for module, method in model.steps():
            stack.enter_context(clock.listening(module, method))
        for name, replaced in places.items():
            stack.callback(points[name](edit(replaced)))
        yield


@contextmanager
def intervened(model: Any, rules: Rules) -> Iterator[Counter[str]]:
    """See `Model.intervened`."""
    points, reached = model.points(), Counter[str]()
    chosen: dict[str, Rule] = {}
    for pattern, given in rules.items():
        rule = Zero() if given == "zero" else given if isinstance(given, Rule) else Apply(given)
        for part in named_parts(points, pattern):
            chosen |= dict.fromkeys(parts_of(points)[part], rule)

    def replaced(name: str, rule: Rule) -> Callable[[Tensor, Tensor, bool], Tensor]:
        def replace(values: Tensor, positions: Tensor, whole: bool) -> Tensor:
            new = rule.values(name, values, positions, whole)
            if not isinstance(new, Tensor) or new.shape != values.shape:
                received = tuple(new.shape) if isinstance(new, Tensor) else type(new).__name__
                what, allowed = "a rule leaves this part no value", f"a tensor {tuple(values.shape)}"
                raise UserError(what, where=name, received=received, allowed=allowed)
            reached[name] += 1
            return new.to(values)

        return replace

    with edited(model, {name: replaced(name, rule) for name, rule in chosen.items()}):
        yield reached


@torch.no_grad()
def recorded(model: Any, patterns: Iterable[str], batches: Iterable[Any]) -> dict[str, list[Tensor]]:
    """See `Model.recorded`."""
    points = model.points()
    parts = [part for pattern in patterns for part in named_parts(points, pattern)]
    names = dict.fromkeys(name for part in parts for name in parts_of(points)[part])
    found: dict[str, list[Tensor]] = {name: [] for name in names}
    calls: dict[str, list[Tensor]] = {}

    def listen(name: str) -> Callable[[Tensor, Tensor, bool], Tensor]:
        def keep(values: Tensor, positions: Tensor, whole: bool) -> Tensor:
            calls.setdefault(name, []).append(values.clone())
            return values

        return keep

    with edited(model, {name: listen(name) for name in names}):
        for batch in batches:
            masks = (getattr(batch, field.name) for field in fields(batch))
            if not all(mask.all() for mask in masks if isinstance(mask, Tensor) and mask.dtype == torch.bool):
                raise ValueError("values are recorded of batches without padding")
            calls.clear()
            model(batch)
            for name, values in calls.items():
                found[name] += torch.cat(values, 1).unbind(0)
    return found
