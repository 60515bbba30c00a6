"""Loops whose proposals are files of drawn scores."""

import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from headway.gate.judge import CLOSING_SEEDS, Judge, begin, judging
from headway.gate.options import GateOptions, NewOptions

SEEDS = (*range(1, 5), *range(101, 113), *range(1001, 1005), *range(1101, 1113), *range(2001, 2005), *range(2101, 2113))


def write_scores(
    path: Path,
    effect: float = 0.0,
    seeds: Iterable[int] = SEEDS,
    segments: int = 1,
    odd: dict[int, float] | None = None,
) -> Path:
    """A file of scores around an effect: a deviation of 1 between seeds, of 1 between segments for all, and noise."""
    lines, names = ["seed\tsegment\tscore\tset"], ["all"] if segments == 1 else [f"s{i}" for i in range(segments)]
    for seed in seeds:
        rng = random.Random(f"{path.stem}-{seed}")
        quality = (odd or {}).get(seed, effect + rng.gauss(0, 1))
        part = "test" if seed > CLOSING_SEEDS else "sealed" if seed % 1000 > 100 else "public"
        for name in names:
            by_segment = 0.0 if segments == 1 else random.Random(part + name).gauss(0, 3) + rng.gauss(0, 0.5)
            lines.append(f"{seed}\t{name}\t{30 + quality + by_segment!r}\t{part}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def begun(folder: Path, segments: int = 1, name: str = "base", **options: Any) -> Path:
    """A new ledger, whose baseline has scores for three generations."""
    scores = write_scores(folder / f"{name}.tsv", segments=segments)
    begin(folder / "loop.jsonl", NewOptions(**{"baseline": (name,), "scores": scores, **options}))
    return folder / "loop.jsonl"


def asked(judge: Judge, scores: Path, **options: Any) -> dict[str, Any]:
    """The answer on a file of scores, by a judge who keeps the ledger open."""
    judge.options = GateOptions(propose=(scores.stem,), scores=scores, **options)
    return judge.propose(())


def propose(path: Path, scores: Path, **options: Any) -> dict[str, Any]:
    """The answer on a file of scores."""
    given = GateOptions(propose=(scores.stem,), scores=scores, wait=0, **options)
    with judging(path, given) as judge:
        return judge.propose(())
