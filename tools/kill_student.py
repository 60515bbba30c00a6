"""Kill `headway new --student` at moments in all of its steps, resume it each time, and compare the exports' bytes.

    python tools/kill_student.py FOLDER [KILLS]    # 20 kills by default

FOLDER is made, and keeps the logs. The road is short: 500 pairs of numbers, a teacher that is a script, two passes. It
is made once without a kill, and once more in a folder of the same name with SIGKILL for its whole process group. At
last all stamps of steps are removed: a step that was complete before a kill, but not stamped, changes nothing either.
"""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from headway.core.storage import cache_folder
from headway.export.page_export import engine_files
from tests.export.student import lines

TEACHER = "import sys\nfor line in sys.stdin:\n    print(line.strip().upper(), flush=True)\n"
STEP = re.compile(r"^step (\d+) of", re.MULTILINE)
TIMES = ("schema", "last_modified")  # of records
EXPORTS = ("firefox", "page")


class Road:
    """A road in a folder, with a cache of its own."""

    def __init__(self, folder: Path, cache: Path) -> None:
        self.folder, self.student, self.cache = folder, folder / "student", cache
        shutil.copytree(cache_folder() / "npm", cache / "npm")

    def start(self, log: Path) -> subprocess.Popen[bytes]:
        """Begin the road, or go on."""
        teacher = f"command: {sys.executable} {self.folder / 'teacher.py'}"
        words = [
            sys.executable, "-m", "headway", "new", "--student", self.student, "--data", self.folder / "pairs",
            "--source-language", "en", "--target-language", "de", "--teacher", teacher, "--licence", "gpl-2.0",
            "--through", "2", "--data-licence", "mpl-2.0", "--passes", "2", "--rounded", "4", "--yes",
        ]  # fmt: skip
        with log.open("wb") as opened:
            return subprocess.Popen(
                list(map(str, words)), env=os.environ | {"HEADWAY_CACHE": str(self.cache)}, stdout=opened,
                stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip

    def killed(self, number: int, delay: float, log: Path) -> int | None:
        """Go on, and kill the road `delay` seconds after step `number` begins. Returns the step, None if it ended."""
        process = self.start(log)
        while process.poll() is None and _last_step(log) < number:
            time.sleep(0.02)
        time.sleep(delay)
        if alive := process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return _last_step(log) if alive else None

    def exports(self) -> dict[str, bytes]:
        """The files of the exports, without the times of records and of training."""
        found = {}
        for path in (path for name in EXPORTS for path in (self.student / name).rglob("*") if path.is_file()):
            content = path.read_bytes()
            if path.name == "records.json":
                records = json.loads(content)["data"]
                content = json.dumps([{k: v for k, v in each.items() if k not in TIMES} for each in records]).encode()
            elif path.name == "README.md":
                content = re.sub(rb"Training took [^\n]*", b"", content)
            found[path.relative_to(self.student).as_posix()] = content
        return found


def _last_step(log: Path) -> int:
    return max(map(int, STEP.findall(log.read_text("utf-8", errors="replace"))), default=0)


def main(folder: Path, kills: int) -> int:
    """Make the road three times. Returns 0 if all exports are equal."""
    folder = folder.absolute()
    (folder / "pairs").mkdir(parents=True)
    for part, count, seed in (("train", 500, 1), ("dev", 20, 2), ("test", 20, 3)):
        rows = "".join(f"{source}\t{target}\n" for source, target in lines(count, seed))
        (folder / "pairs" / f"{part}.tsv").write_text(rows, encoding="utf-8")
    (folder / "teacher.py").write_text(TEACHER, encoding="utf-8")
    engine_files()
    road = Road(folder, folder / "cache")
    code, expected = road.start(folder / "whole.log").wait(), road.exports()
    seconds = [
        step["seconds"] for step in json.loads((road.student / "steps.json").read_text("utf-8"))["done"].values()
    ]
    road.student.rename(folder / "whole")
    road, draw, steps = Road(folder, folder / "other-cache"), random.Random(1), range(len(seconds))
    longest = sorted(steps, key=lambda step: -seconds[step])
    drawn = draw.sample(steps, min(kills, len(steps)))
    drawn += [longest[place % 5] for place in range(kills - len(drawn))]  # the others are in the longest steps
    for number, step in enumerate(sorted(drawn), start=1):
        found = road.killed(step + 1, draw.random() * seconds[step], folder / f"kill-{number}.log")
        print(f"kill {number}: in step {found}" if found else f"kill {number}: the road had ended", flush=True)
    right = road.start(folder / "killed.log").wait() == code and road.exports() == expected
    print(f"after kills: {'equal' if right else 'other files, or another exit code'}", flush=True)
    stamps = road.student / "steps.json"
    stamps.write_text(json.dumps(json.loads(stamps.read_text("utf-8")) | {"done": {}}), encoding="utf-8")
    again = road.start(folder / "unstamped.log").wait() == code and road.exports() == expected
    print(f"without stamps: {'equal' if again else 'other files, or another exit code'}", flush=True)
    return int(not (right and again))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 20))
