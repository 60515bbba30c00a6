"""The commit that a record is of, and how far headway has moved since."""

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
ATTACKED = ("src", "recipes")  # whose state a record is of
FAR = 0.1  # the share of the lines of src after whose change a record says nothing of headway any more


def git(*arguments: str) -> str:
    """The answer of git. Raises CalledProcessError where it has none."""
    command = ["git", "-C", str(ROOT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def commit() -> str:
    """The commit of the working tree, with a plus where what campaigns attack, or attack with, was changed."""
    changed = git("status", "--porcelain", "--", *ATTACKED, "tools", "tests")
    return git("rev-parse", "--short=10", "HEAD") + ("+" if changed else "")


def moved_too_far(since: str) -> str:
    """The reason why a record of a commit is none of today's headway; empty where it is one."""
    try:
        told = git("diff", "--shortstat", since, "--", "src")
    except subprocess.CalledProcessError:
        return f"no commit of this repository is {since}"
    changed = max((int(count) for count in re.findall(r"(\d+) (?:insertion|deletion)", told)), default=0)
    lines = sum(path.read_bytes().count(b"\n") for path in (ROOT / "src").rglob("*.py"))
    if changed <= FAR * lines:
        return ""
    return f"{changed / lines:.0%} of the lines of src were written or removed since {since}: run the campaign again"
