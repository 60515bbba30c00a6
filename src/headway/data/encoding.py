"""From raw pairs to ids, in chunks, on all cores, in order."""

import hashlib
import multiprocessing
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from headway.data.sources import Pair
from headway.errors import RunError
from headway.text.side import Side, load_sides

CHUNK = 2000  # pairs: large beside the cost of handing them to a process, small in memory
PATIENCE = 2.0  # seconds of work in one process before others, which take as long to start, join in


@dataclass(frozen=True)
class Chunk:
    """Some consecutive pairs as raw text, and the lines of those that are left out as duplicates."""

    lines: list[int]
    sources: list[str]
    targets: list[str]
    duplicates: list[int]


@dataclass(frozen=True)
class EncodedSide:
    """One side of N pairs: the ids of all lines one after the other, and the length of each line (N,)."""

    ids: NDArray[np.integer]
    lengths: NDArray[np.int64]

    def select(self, kept: NDArray[np.bool_]) -> "EncodedSide":
        """The lines where `kept` (N,) is True."""
        return EncodedSide(self.ids[np.repeat(kept, self.lengths)], self.lengths[kept])


@dataclass(frozen=True)
class EncodedChunk:
    """A chunk in ids: `lines` (N,) and both sides of N pairs. An empty text has no ids."""

    lines: NDArray[np.int64]
    source: EncodedSide
    target: EncodedSide
    duplicates: list[int]


def chunks(pairs: Iterable[Pair], drop_duplicates: bool) -> Iterator[Chunk]:
    """The pairs in chunks; duplicates, if they are to be dropped, only as line numbers.

    To find duplicates, a hash of every pair is kept, in about 100 bytes a pair. With 128 bits, two of a billion
    different pairs agree with a probability below 1e-20. A pair with a blank side is never a duplicate.
    """
    seen: set[bytes] = set()
    stream = iter(pairs)
    while some := list(islice(stream, CHUNK)):
        chunk = Chunk([], [], [], [])
        for line, source, target in some:
            blank = not source.strip() or not target.strip()
            if drop_duplicates and not blank:
                before = len(seen)
                seen.add(_hash(source, target))
                if len(seen) == before:
                    chunk.duplicates.append(line)
                    continue
            chunk.lines.append(line)
            chunk.sources.append(source)
            chunk.targets.append(target)
        yield chunk


def _hash(source: str, target: str) -> bytes:
    # The length keeps ("ab", "c") and ("a", "bc") apart.
    return hashlib.blake2b(f"{len(source)}:{source}{target}".encode(), digest_size=16).digest()


def encode(chunk: Chunk, sides: tuple[Side, Side]) -> EncodedChunk:
    """Encode one chunk."""
    source, target = (
        _flat(side.encode_lines(texts)) for side, texts in zip(sides, (chunk.sources, chunk.targets), strict=True)
    )
    return EncodedChunk(np.array(chunk.lines, dtype=np.int64), source, target, chunk.duplicates)


def _flat(lines: list[list[int]]) -> EncodedSide:
    lengths = np.array([len(line) for line in lines], dtype=np.int64)
    return EncodedSide(np.fromiter(chain.from_iterable(lines), dtype=np.int32, count=int(lengths.sum())), lengths)


def encode_all(stream: Iterator[Chunk], sides: tuple[Side, Side], sides_folder: Path) -> Iterator[EncodedChunk]:
    """Encode chunks in order, with all cores once there is enough work for it to pay to start processes.

    Only a few chunks a process are in memory at a time.

    Args:
        stream: the chunks.
        sides: source and target side.
        sides_folder: where the same sides are stored, for the processes to load.

    Raises:
        RunError: a process died.
    """
    processes = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    began = time.monotonic()
    for chunk in stream:
        yield encode(chunk, sides)
        if processes > 1 and time.monotonic() - began > PATIENCE:
            yield from _encode_in_processes(stream, processes, sides_folder)


def _encode_in_processes(stream: Iterator[Chunk], processes: int, sides_folder: Path) -> Iterator[EncodedChunk]:
    # Forked copies of a process with threads may deadlock; spawned ones cannot.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(processes, mp_context=context, initializer=_start, initargs=(sides_folder,))
    waiting: deque[Future[EncodedChunk]] = deque()
    try:
        for chunk in stream:
            waiting.append(pool.submit(_encode_here, chunk))
            if len(waiting) > 3 * processes:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except BrokenProcessPool as error:
        raise RunError(
            "a process that encodes the corpus died: it was out of memory, or was started by a script that does its "
            "work outside of `if __name__ == '__main__':`"
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


_loaded: tuple[Side, Side]  # of this process, where it is one of the pool's


def _start(sides_folder: Path) -> None:
    global _loaded
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent, which ends the pool
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _loaded = load_sides(sides_folder)


def _end_with_parent() -> None:
    """A pool's process waits for work forever when its parent is killed, unless something ends it."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _encode_here(chunk: Chunk) -> EncodedChunk:
    return encode(chunk, _loaded)
