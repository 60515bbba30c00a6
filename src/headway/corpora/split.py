"""Splitting sentences or pairs into train, dev and test: in order, so that documents stay whole, or at random."""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from math import inf
from pathlib import Path

from headway.core.errors import UserError, option
from headway.core.files import COMPRESSED, write_new_texts
from headway.core.log import counted
from headway.corpora.data_checks import folded
from headway.formats.conllu import is_conllu
from headway.formats.corpus_format import Broken, PairSource, RowErrors
from headway.formats.lines import blocks, kept_pipes, read_rows
from headway.formats.pair_formats import JsonLines, ParallelFiles, TabSeparated

PARTS = ("train", "dev", "test")
SHARES = (80.0, 10.0, 10.0)
MOST = (1000, 2000)  # default maximum of dev and test: more would take time for little information


@dataclass(frozen=True)
class SplitOptions:
    """The sizes of the parts, and how examples are assigned to them.

    Attributes:
        shares: the shares of train, dev and test, in any unit; None for `SHARES`, with at most `MOST` for dev and test.
        counts: the sizes of dev and test, instead of shares; train gets the rest.
        seed: assigns examples at random with this seed; None keeps their order.
        disjoint_sources: whether no source may occur in two parts, whatever its target.
        disjoint_targets: whether no target may occur in two parts, whatever its source.
    """

    shares: tuple[float, float, float] | None = None
    counts: tuple[int, int] | None = None
    seed: int | None = None
    disjoint_sources: bool = False
    disjoint_targets: bool = False

    def assign(self, count: int, where: str, unit: str) -> list[str]:
        """The part of each of `count` units, `sentence` or `pair`. Raises UserError if a part gets none."""
        if self.counts is not None:
            sizes = [count - sum(self.counts), *self.counts]
        else:
            shares = self.shares or SHARES
            if not all(0 < share < inf for share in shares):
                raise UserError("shares are numbers above 0", where=option("shares"), received=list(shares))
            ends = [round(count * part / sum(shares)) for part in accumulate(shares)]
            sizes = [end - begin for begin, end in pairwise([0, *ends])]
            if self.shares is None:
                held_out = [min(size, most) for size, most in zip(sizes[1:], MOST, strict=True)]
                sizes = [count - sum(held_out), *held_out]
        if min(sizes) < 1:
            what = f"every part needs one {unit} or more, and there are {count:,}"
            raise UserError(what, where=where, received=dict(zip(PARTS, sizes, strict=True)))
        parts = [name for name, size in zip(PARTS, sizes, strict=True) for _ in range(size)]
        if self.seed is not None:
            random.Random(self.seed).shuffle(parts)
        return parts

    def keys(self, source: str, targets: Sequence[str]) -> set[str]:
        """The keys of a pair. Pairs that share a key must not be in different parts."""
        keys = {f"source\0{source}"} if self.disjoint_sources else set[str]()
        keys |= {f"target\0{target}" for target in targets if self.disjoint_targets}
        return keys or {"\0".join((source, *targets))}


IN_ORDER = SplitOptions()


@dataclass(frozen=True)
class Split:
    """The result of a split.

    Attributes:
        sizes: the number of units of each part.
        unit: the unit that is counted: `sentence` or `pair`.
        left_out: the numbers of units that are in no part, by a description of the reason.
    """

    sizes: Mapping[str, int]
    unit: str
    left_out: Mapping[str, int] = field(default_factory=dict)

    def text(self) -> str:
        """The sizes as text of a few lines."""
        lines = [", ".join(f"{name}: {counted(size, self.unit)}" for name, size in self.sizes.items())]
        lines += [f"left out {count:,}: {what}" for what, count in self.left_out.items() if count]
        return "\n".join(lines)


@kept_pipes()
def split_sentences(path: Path, output: Path, options: SplitOptions = IN_ORDER) -> Split:
    """Split a file of sentences into parts, which keep the order of the file.

    No sentence is in two parts: test has priority over dev, and dev over train. Sentences of CoNLL-U are equal if their
    rows are equal except for the last column.

    Args:
        path: sentences with a word per row, separated by blank lines.
        output: the folder to write `train`, `dev` and `test` to, with the suffix of the file.
        options: the sizes of the parts.

    Raises:
        UserError: the file cannot be read, or has too few sentences for all parts.
    """
    rows = [[row for _, row in block] for block in blocks(path)]
    sentences = ["".join(f"{row}\n" for row in [*block, ""]) for block in rows]  # CoNLL-U also ends with a blank line
    if len(sentences) < len(PARTS):
        what = "there are too few sentences, which blank lines separate, for these parts"
        allowed = f"for pairs, a row each, {option('columns')} with their source and target"
        raise UserError(what, where=str(path), received=len(sentences), allowed=allowed)
    compared = rows
    if is_conllu(path):  # without comments, and without the last column, MISC
        compared = [[row.rpartition("\t")[0] for row in block if not row.startswith("#")] for block in rows]
    keys = [{"\n".join(map(folded, block))} for block in compared]
    parts, split = _parts(keys, options, str(path), "sentence")
    texts = {
        output / f"{name}{suffix_of(path)}": "".join(
            sentence for sentence, part in zip(sentences, parts, strict=True) if part == name
        )
        for name in PARTS
    }
    write_new_texts(texts)
    return split


@kept_pipes()
def split_parallel(
    source: Path, target: Path, output: Path, options: SplitOptions = IN_ORDER, broken: Broken = "error"
) -> Split:
    """`split_table` for two line-aligned files.

    The parts have the suffixes of the files, such as `train.ja` and `train.en`. Raises UserError also if the files have
    different numbers of lines, or the same suffix.
    """
    return _split_pairs(open_parallel(source, target), output, options, broken)


@kept_pipes()
def split_table(
    path: Path, columns: Sequence[str], output: Path, options: SplitOptions = IN_ORDER, broken: Broken = "error"
) -> Split:
    """Split a file with a pair per row into parts, which keep the order and the exact rows of the file.

    No pair is in two parts, ignoring white space: test has priority over dev, and dev over train. Pairs with a blank
    side are left out. All pairs that are left out are counted.

    Args:
        path: a table with tabs, or JSON lines if the name ends in .jsonl; plain, .gz or .xz.
        columns: the columns of the source and the targets: numbers, or names in the first row or of the fields.
        output: the folder to write `train`, `dev` and `test` to, as plain text with the suffix of the file.
        options: the sizes of the parts.
        broken: `error` stops at an unreadable row, `skip` leaves it out.

    Raises:
        UserError: the file cannot be read, lacks the columns, or has too few pairs for all parts.
    """
    header = suffix_of(path) != ".jsonl" and not all(map(str.isdecimal, columns))
    return _split_pairs(open_table(path, columns), output, options, broken, header=header)


def open_parallel(source: Path, target: Path) -> PairSource:
    """Open two line-aligned files. Raises UserError if they have the same suffix, which distinguishes their outputs."""
    suffixes = [suffix_of(path) for path in (source, target)]
    if suffixes[0] == suffixes[1]:
        what = "both files have the same suffix, so that their parts would have one name"
        raise UserError(what, where=f"{source}, {target}", received=suffixes[0], allowed="suffixes such as .ja and .en")
    return ParallelFiles(source, target)


def open_table(path: Path, columns: Sequence[str]) -> PairSource:
    """Open a file with a pair per row, as `split_table` does. Raises UserError if columns are not a pair's."""
    numbers = tuple(int(column) for column in columns if column.isdecimal())
    if len(set(columns)) < max(2, len(columns)) or 0 in numbers:
        what = "columns are one of the source and one or more of targets, all different, counted from 1"
        raise UserError(what, where=option("columns"), received=list(columns))
    if suffix_of(path) == ".jsonl":
        return JsonLines(path, tuple(columns))
    return TabSeparated(path, numbers if len(numbers) == len(columns) else tuple(columns))


def _split_pairs(
    pairs: PairSource, output: Path, options: SplitOptions, broken: Broken, *, header: bool = False
) -> Split:
    """Assign pairs to parts, and write the lines of each file to them. A header is written to every part."""
    pairs.row_errors = RowErrors(broken, remedy=option("skip_broken"))
    lines, keys, empty = list[int](), list[set[str]](), 0
    for pair in pairs:
        if not (pair.source.strip() and pair.target.strip()):
            empty += 1
            continue
        lines.append(pair.line)
        keys.append(options.keys(folded(pair.source), [folded(reference) for reference in pair.references]))
    parts, split = _parts(keys, options, pairs.name, "pair")
    part_of = dict(zip(lines, parts, strict=True))
    written: dict[Path, str] = {}
    for path in pairs.files:
        texts: dict[str, list[str]] = {name: [] for name in PARTS}
        for number, row in enumerate(read_rows(path), start=1):
            part = part_of.get(number)
            for name in PARTS:
                if name == part or (header and number == 1):
                    texts[name].append(f"{row}\n")
        written |= {output / f"{name}{suffix_of(path)}": "".join(rows) for name, rows in texts.items()}
    write_new_texts(written)
    left_out = {"pairs without text on one side": empty, "rows that cannot be read": pairs.row_errors.count}
    return replace(split, left_out={**left_out, **split.left_out})


def _parts(keys: Sequence[set[str]], options: SplitOptions, where: str, unit: str) -> tuple[list[str], Split]:
    """The part of each unit, and the split. Duplicates of units in test, or in dev for train, get the part `""`."""
    parts, left_out = options.assign(len(keys), where, unit), Counter[str]()
    for kept, others in (("test", ("train", "dev")), ("dev", ("train",))):
        held = {key for own, part in zip(keys, parts, strict=True) if part == kept for key in own}
        for index, (own, part) in enumerate(zip(keys, parts, strict=True)):
            if part in others and not held.isdisjoint(own):
                parts[index] = ""
                left_out[f"of {part}, also in {kept}"] += 1
    sizes = {name: parts.count(name) for name in PARTS}
    if not all(sizes.values()):
        raise UserError(f"a part has no {unit} that is not in another one", where=where, received=sizes)
    return parts, Split(sizes, unit, left_out)


def suffix_of(path: Path) -> str:
    """The suffix of a file name, ignoring that of its compression."""
    return path.with_suffix("").suffix if path.suffix in COMPRESSED else path.suffix
