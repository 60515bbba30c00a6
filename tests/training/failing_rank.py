"""Run by torchrun: the command line, of which one rank fails once, in the first attempt, at a chosen place.

    torchrun ... -m tests.training.failing_rank PLACE RANK train RECIPE --output OUTPUT

`PLACE`, after a signal's name and a colon: `start` (data is being read), `update`, `checkpoint` (its files are being
written), `evaluation`, or `never`.
"""

import os
import signal
import sys

import headway.training.checkpoints
import headway.training.loop
import headway.training.parallel
import headway.training.session
import headway.training.start
from headway.cli import main

# The module and the function of each place, and which of its calls fails.
PLACES = {
    "start": (headway.training.start, "new_model", 1),
    "update": (headway.training.loop, "make_update", 4),
    "checkpoint": (headway.training.checkpoints, "write_text", 2),
    "evaluation": (headway.training.session, "dev_loss", 1),
}


def fail_once(place: str, number: int) -> None:
    """Send this process a signal when it comes to a place."""
    module, name, left = PLACES[place]
    whole = getattr(module, name)

    def failing(*arguments: object, **options: object) -> object:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), number)
        return whole(*arguments, **options)

    setattr(module, name, failing)


if __name__ == "__main__":
    what, rank = sys.argv[1:3]
    headway.training.parallel.EVERY, headway.training.parallel.SILENCE = 0.2, 3.0
    if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and os.environ["RANK"] == rank:
        name, _, place = what.partition(":")
        fail_once(place, signal.Signals[name])
    main(sys.argv[3:])
