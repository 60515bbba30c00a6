"""The exercises of the lessons: each compares an answer with its equation on random inputs, and names what broke.

An exercise knows what usual mistakes give, and says which one it sees. Its docstring says what is asked.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations, combinations_with_replacement, pairwise
from typing import Any

import numpy as np
import torch
from scipy import stats
from torch import Tensor

from headway.mixers.conformance import ConformanceError, check_repeated_calls
from headway.mixers.conformance import check as require
from headway.mixers.conformance_report import mixer_checks

Answer = Callable[..., Any]
Path = tuple[int, ...]


def _draw(*shapes: tuple[int, ...]) -> list[Tensor]:
    generator = torch.Generator().manual_seed(62)
    return [torch.randn(shape, generator=generator) for shape in shapes]


def _tensor(value: Any, shape: tuple[int, ...], name: str = "the output") -> Tensor:
    require(isinstance(value, Tensor), f"{name} must be a tensor; it is a {type(value).__name__}")
    require(value.shape == shape, f"{name} must have the shape {shape}; it has {tuple(value.shape)}")
    found: Tensor = value.detach().float()
    return found


def _several(value: Any, *names: str) -> Any:
    found = isinstance(value, tuple) and len(value) == len(names)
    require(found, f"the answer must return {', '.join(names)}; it returns a {type(value).__name__}")
    return value


def _same(one: Tensor, other: Tensor) -> bool:
    return torch.allclose(one, other, rtol=1e-3, atol=1e-4)


def _equals(found: Tensor, right: Tensor, mistakes: Mapping[str, Tensor], name: str = "the output") -> None:
    """Raise unless `found` is right, with the message of the mistake that gives it, if that is known."""
    if not _same(found, right):
        known = [message for message, wrong in mistakes.items() if _same(found, wrong)]
        difference = f"differs from the equation, by up to {float((found - right).abs().max()):.3g}"
        require(False, known[0] if known else f"{name} {difference}")


def attention(answer: Answer) -> None:
    """attention(queries, keys, values, mask) returns the mixed values and the weights."""
    queries, keys, values = _draw((4, 6), (5, 6), (5, 3))
    mask = torch.ones(4, 5, dtype=torch.bool).tril(1)
    mixed, weights = _several(answer(queries, keys, values, mask), "the mixed values", "the weights")
    weights = _tensor(weights, (4, 5), "the matrix of weights")
    hidden, sums, what = float(weights[~mask].abs().max()), weights.sum(1), "each row of weights must sum to 1"
    require(hidden == 0, f"what may not be seen must weigh 0; one such weight is {hidden:.2g}: no mask is used")
    across = _same(weights.sum(0), torch.ones(5))
    require(not across, f"{what}; here each column does: the softmax runs over the queries, not over the keys")
    row = int((sums - 1).abs().argmax())
    why = f"over the positions that may be seen; row {row} sums to {sums[row]:.2g}: the mask is used after the softmax"
    require(_same(sums, torch.ones(4)), f"{what} {why}")
    scores = (queries @ keys.T).masked_fill(~mask, -math.inf)
    mistakes = {
        "scores must be divided by the square root of d; here they are not divided": scores.softmax(1),
        "scores must be divided by the square root of d; here they are divided by d": (scores / 6).softmax(1),
    }
    _equals(weights, (scores / math.sqrt(6)).softmax(1), mistakes, "the matrix of weights")
    _equals(_tensor(mixed, (4, 3), "the matrix of mixed values"), weights @ values, {}, "the matrix of mixed values")


def heads(answer: Answer) -> None:
    """heads(x, query, key, value, out, count) returns multi-head self-attention of x."""
    x, *maps, out = _draw((5, 8), (8, 8), (8, 8), (8, 8), (8, 8))

    def answered(x: Tensor, times: float = 1) -> Tensor:
        return _tensor(answer(x, *maps, times * out, 2), (5, 8))

    def oracle(count: int, size: int, axis: int = 2) -> Tensor:
        query, key, value = ((x @ each).view(5, count, -1).transpose(0, 1) for each in maps)
        weights = (query @ key.transpose(1, 2) / math.sqrt(size)).softmax(axis)
        return (weights @ value).transpose(0, 1).flatten(1) @ out

    found, order = answered(x), torch.tensor([3, 0, 4, 1, 2])
    require(_same(answered(x, 2), 2 * found), "doubling `out` must double the output; here heads are not mapped by it")
    what = "the same vectors in another order must give the same outputs in that order; here the heads mix positions"
    how = "view(length, count, d) and transpose(0, 1) cut each vector, view(count, length, d) cuts the sequence"
    require(_same(answered(x[order]), found[order]), f"{what}: {how}")
    one = "the number of heads must matter; here one softmax serves the whole vector"
    root = "scores of a head must be divided by the root of its own size, D / count; here by the root of D"
    mistakes = {one: oracle(1, 8), root: oracle(2, 8)}
    over = {"heads": oracle(2, 4, 0), "queries": oracle(2, 4, 1)}
    mistakes |= {
        f"each row of weights must sum to 1; here the softmax runs over the {key}": each for key, each in over.items()
    }
    _equals(found, oracle(2, 4), mistakes)


def ngram(answer: Answer) -> None:
    """ngram(x, weight, bias) returns relu(sum over i of x[t - i] @ weight[i] + bias) for each position t."""
    x, weight, bias = _draw((9, 4), (3, 4, 5), (5,))
    found = answer(x, weight, bias)
    short = isinstance(found, Tensor) and len(found) == 7
    require(not short, "each position must have an output; here 9 give 7: put n - 1 vectors of zeros before them")
    found = _tensor(found, (9, 5))
    least = float(found.min())
    require(least >= 0, f"outputs must not be negative; here the least is {least:.2g}: relu is missing")
    changed = [answer(torch.where(torch.arange(9)[:, None] == position, -x, x), weight, bias) for position in range(9)]
    seen = torch.stack([(_tensor(each, (9, 5)) - found).abs().amax(1) > 0 for each in changed], 1)  # written x read
    require(not seen[:2, 7:].any(), "the first position must not see the last one; here roll makes a ring of them")
    require(not seen.triu(1).any(), "a position must not see a later one; here the window reaches into the future")
    require(not seen.tril(-3).any(), "a position must see n - 1 positions before itself; here it sees one further off")
    padded = torch.cat([torch.zeros(2, 4), x]).unfold(0, 3, 1)  # (9, 4, 3), the position itself last
    right, reverse = (torch.einsum("tdn,ndk->tk", padded, each) for each in (weight.flip(0), weight))
    order = "weight[0] must read the position itself, weight[n - 1] the furthest one; here the order is reversed"
    _equals(found, (right + bias).relu(), {order: (reverse + bias).relu(), "here the bias is missing": right.relu()})


def rotate(answer: Answer) -> None:
    """rotate(x, base) turns dimensions i and i + d / 2 of position t by the angle t * base ** (-2 i / d)."""
    (x,) = _draw((7, 6))
    found, exponents, order = _tensor(answer(x, 50.0), (7, 6)), torch.arange(3) / 3, [0, 2, 4, 1, 3, 5]

    def oracle(x: Tensor, exponents: Tensor, sign: int = 1) -> Tensor:
        angles = sign * torch.arange(7)[:, None] * 50.0**-exponents
        turned = torch.complex(x[:, :3], x[:, 3:]) * torch.polar(torch.ones_like(angles), angles)
        return torch.cat([turned.real, turned.imag], 1)

    require(_same(found[0], x[0]), "position 0 must stay as it is; here it is turned: positions count from 0")
    times = float(found[1].norm() / x[1].norm())
    what = f"a rotation must keep the length of a vector; here that of position 1 is {times:.2g} times as long"
    require(_same(found.norm(dim=1), x.norm(dim=1)), f"{what}: (a, b) becomes (a cos - b sin, a sin + b cos)")
    mistakes = {
        "each pair must turn at a speed of its own; here all turn alike": oracle(x, torch.zeros(3)),
        "pair i must turn by t * base ** (-2 i / d); here the exponent is another one": oracle(x, exponents / 2),
        "a pair must turn by its angle; here it turns the other way": oracle(x, exponents, -1),
    }
    beside = "dimension i must turn together with i + d / 2; here it turns with its neighbour"
    mistakes[beside] = oracle(x[:, order], exponents)[:, [order.index(i) for i in range(6)]]
    _equals(found, oracle(x, exponents), mistakes)


def align(answer: Answer) -> None:
    """align(weights) returns a read position for each written one: never back, the product of the weights largest."""
    tables = [table.softmax(1) for table in torch.stack(_draw(*[(4, 5)] * 20))]
    paths, found = [*combinations_with_replacement(range(5), 4)], []
    for table in tables:
        path = answer(table.clone())
        path = tuple(path.tolist() if isinstance(path, Tensor) else map(int, path))
        require(len(path) == 4 and set(path) <= {*range(5)}, f"4 rows must have a column of 0 to 4 each; here {path}")
        back = any(two < one for one, two in pairwise(path))
        require(not back, f"an alignment must not go back; here {path} does: each row's largest weight is taken alone")
        found.append(path)

    def best(allowed: Sequence[Path], worth: Callable[[Tensor], Tensor] = torch.prod) -> list[Path]:
        return [max(allowed, key=lambda path: float(worth(table[range(4), path]))) for table in tables]

    def greedy(table: Tensor) -> Path:
        path = [0]
        for row in table:
            path.append(path[-1] + int(row[path[-1] :].argmax()))
        return tuple(path[1:])

    short = [path for path in paths if all(two - one <= 1 for one, two in pairwise((0, *path)))]
    mistakes = {
        "the whole path must be the best; here each step takes the best that is left": [*map(greedy, tables)],
        "the product of the weights must be largest; here their sum is": best(paths, torch.sum),
        "two rows may share a column; here each has its own": best([*combinations(range(5), 4)]),
        "columns may be left out; here a step goes on by one at most": best(short),
    }
    known = [message for message, wrong in mistakes.items() if found == wrong]
    require(found == best(paths), known[0] if known else "the product of the weights must be largest; here it is not")


def layers(answer: Answer) -> None:
    """layers(hidden, value, key, score) returns the mixed values of each token and the weights of the layers."""
    hidden, value, key, score = _draw((3, 4, 5), (3, 5, 2), (3, 5, 2), (3, 2))
    mixed, weights = _several(answer(hidden, value, key, score), "the mixed values", "the weights")
    weights, what = _tensor(weights, (3, 4), "the matrix of weights"), "weights must sum to 1 over the layers"
    require(not _same(weights.sum(1), torch.ones(3)), f"{what}; here each layer's sum to 1 over the tokens")
    require(_same(weights.sum(0), torch.ones(4)), f"{what}; here those of token 0 sum to {weights[:, 0].sum():.2g}")
    scores, unrectified = (((hidden @ key).clamp(min=least) * score[:, None]).sum(2) for least in (0.0, -math.inf))
    mistakes = {
        "a layer's weight must depend on its vector; here all layers have the same": torch.full((3, 4), 1 / 3),
        "each token must weigh the layers by itself; here all have the same weights":
            scores.mean(1, keepdim=True).softmax(0).expand(3, 4),
        "keys must go through relu before they are scored; here they do not": unrectified.softmax(0),
    }  # fmt: skip
    _equals(weights, scores.softmax(0), mistakes, "the matrix of weights")
    name, values = "the matrix of mixed values", hidden @ value
    mistakes = {"values must be weighted; here their mean is taken": values.mean(0)}
    _equals(_tensor(mixed, (4, 2), name), (weights[..., None] * values).sum(0), mistakes, name)


def verdict(answer: Answer) -> None:
    """verdict(a, b) returns the ends of the 95 % interval of b - a over paired seeds, and a word."""
    drawn = np.random.default_rng(62).normal(0, 1, (2, 4))
    for gain, word in ((4.0, "better"), (-4.0, "worse"), (0.3, "no verdict")):
        a, b = np.array([46.0, 50, 54, 50]) + drawn + [[0], [gain]]
        low, high, said = _several(answer(a.tolist(), b.tolist()), "low", "high", "a word")
        gains, few = b - a, float(stats.t.ppf(0.975, 3))
        error, apart = gains.std(ddof=1) / 2, math.sqrt((a.var(ddof=1) + b.var(ddof=1)) / 4)
        halves = {
            "few seeds need Student's t with n - 1 degrees of freedom; here the quantile is 1.96": 1.96 * error,
            "the variance of a sample is a sum over n - 1; here it is one over n": few * gains.std() / 2,
            "the interval must be one of the mean; here the deviation is not divided by the root of n": few * error * 2,
            "seeds are pairs whose differences come first; here two groups are compared": stats.t.ppf(0.975, 6) * apart,
        }
        ends = {what: torch.tensor([gains.mean() - each, gains.mean() + each]) for what, each in halves.items()}
        right = torch.tensor([gains.mean() - few * error, gains.mean() + few * error])
        ends["the difference must be b - a; here it is a - b"] = -right.flip(0)
        _equals(torch.tensor([low, high], dtype=right.dtype), right, ends, "the interval")
        require(said == word, f"an interval from {low:.2f} to {high:.2f} must be {word!r}; here it is {said!r}")
    found, nothing = answer([50.0], [60.0]), (-math.inf, math.inf, "no verdict")
    require(found == nothing, f"one seed says nothing of a method, and must give {nothing}; here it gives {found}")


def mixer(answer: Answer) -> None:
    """Own(dim, causal) is a mixer, and keeps the contract of mixers."""
    cases = mixer_checks(lambda causal: answer(8, causal), dim=8)
    for case in sorted(cases, key=lambda case: case.check is not check_repeated_calls):  # chance breaks others, too
        try:
            case()
        except ConformanceError as error:
            if isinstance(error.__cause__, NotImplementedError):
                raise error.__cause__ from None
            property = " ".join((case.check.__doc__ or "").replace("`", "").split())
            require(False, f"{property} Here ({case.__name__}), {error}")


# The name of what is asked for, and its exercise, in the order of the lessons.
EXERCISES: dict[str, Callable[[Answer], None]] = {
    **{each.__name__: each for each in (attention, heads, ngram, rotate, align, layers, verdict)}, "Own": mixer,
}  # fmt: skip
