"""Heartbeats: the processes of a run tell each other that they live, and end where one of them has fallen silent."""

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import count

from torch.distributed.distributed_c10d import Store

from headway.log import last_word

EVERY = 3.0  # seconds between two beats
# Seconds without a beat after which a process counts as hung. Its thread beats on whatever it reads, computes or waits
# for, unless foreign code keeps the interpreter's lock: sorting many millions of lines takes some seconds of these.
SILENCE = 45.0
ENDED, HUNG = "ended", "hung"  # in the place of a beat; the key that says that a process is silent


class Heartbeat:
    """The beats of this process in a store, and those of the next rank, to which it listens.

    Silence is counted in this process's own ticks, so that a whole run that was stopped, and goes on, has missed none.
    One thread talks with the store, which may block it; the other counts.
    """

    def __init__(self, store: Store, rank: int, world_size: int, host: str, every: float, silence: float) -> None:
        self._store, self._rank, self._next, self._host = store, rank, (rank + 1) % world_size, host
        self._every, self._silence = every, silence
        self._unheard = self._unanswered = 0  # ticks since the next rank's last beat, and since the store's answer
        self._name, self._told_by_another = f"rank {self._next}", False
        self._over = threading.Event()
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._beat, self._watch)]
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        """Say goodbye; where a process has fallen silent, wait for the end of this one, whose reason is that."""
        self._over.set()
        self._threads[1].join()
        self._threads[0].join(self._every)

    def _beat(self) -> None:
        heard, here = "", f"process {os.getpid()} of {socket.gethostname()}"
        with suppress(RuntimeError):  # the store has gone, and the other thread counts its silence
            for number in count():
                self._store.set(str(self._rank), f"{number} {here}")
                beat = self._store.get(str(self._next)).decode() if self._store.check([str(self._next)]) else ""
                if beat == ENDED or beat != heard:
                    heard, self._unheard, self._name = beat, 0, f"rank {self._next} ({beat.partition(' ')[2]})"
                self._unanswered = 0
                self._told_by_another = self._store.check([HUNG])
                if self._over.wait(self._every):
                    self._store.set(str(self._rank), ENDED)
                    return

    def _watch(self) -> None:
        while not self._over.wait(self._every):
            self._unheard, self._unanswered = self._unheard + 1, self._unanswered + 1
            if self._told_by_another or self._unheard * self._every >= self._silence:
                self._end_process()

    def _end_process(self) -> None:
        """End at once: the main thread may wait in foreign code, where no exception reaches it."""
        if not self._told_by_another:
            name = self._host if self._unanswered * self._every >= self._silence else self._name
            what = "is stopped, or hangs; the run can go on from its last checkpoint"
            text = f"{name} has given no sign of life for {self._silence:g} seconds: it {what}"
            for tell in (partial(last_word, text), partial(self._store.set, HUNG, "")):  # neither may hold this up
                threading.Thread(target=tell, daemon=True).start()
        time.sleep(2 * self._every)  # until the others know why connections are lost
        os._exit(1)


@contextmanager
def heartbeat(store: Store, rank: int, world_size: int, host: str) -> Iterator[None]:
    """Within this context this process beats, and ends by itself, with one message, where another falls silent."""
    beats = Heartbeat(store, rank, world_size, host, EVERY, SILENCE)
    try:
        yield
    finally:
        beats.end()
