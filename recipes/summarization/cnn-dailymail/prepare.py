"""CNN/DailyMail, not anonymised: an article and its highlights a line, as train, val and test .source and .target.

    python recipes/summarization/cnn-dailymail/prepare.py DATA OUTPUT [COUNTS]

DATA holds cnn_stories.tgz and dailymail_stories.tgz (cs.nyu.edu/~kcho/DMQA), and all_train.txt, all_val.txt and
all_test.txt (github.com/abisee/cnn-dailymail, url_lists). A story is named by the SHA-1 of its address. Stories without
an article or without highlights are left out, and counted. The pairs of each set are compared with counts.tsv, or with
the file COUNTS.
"""

import hashlib
import sys
import tarfile
from pathlib import Path

ARCHIVES = ("cnn_stories.tgz", "dailymail_stories.tgz")
HIGHLIGHT = "@highlight"
SETS = ("train", "val", "test")
ENDS = tuple(".!?'`\")\u2019\u201d")  # of sentences; highlights have none


def stories(data: Path) -> dict[str, str]:
    """The text of each story, by the name of its file."""
    found = {}
    for name in ARCHIVES:
        with tarfile.open(data / name) as archive:
            for member in archive:
                content = archive.extractfile(member) if member.name.endswith(".story") else None
                if content is not None:
                    found[Path(member.name).stem] = content.read().decode("utf-8")
    return found


def pair(story: str) -> tuple[str, str]:
    """The article and the highlights, one line each; a highlight is a sentence, and ends as one."""
    article: list[str] = []
    highlights: list[str] = []
    lines = article
    for line in (" ".join(line.split()) for line in story.split("\n")):
        if line == HIGHLIGHT:
            lines = highlights
        elif line:
            lines.append(line if line.endswith(ENDS) else f"{line}.")
    return " ".join(article), " ".join(highlights)


def main(data: Path, output: Path, counts: Path) -> None:
    """Write the sets, and say how many stories are left out. A wrong count, or a missing story, ends with an error."""
    expected = dict(line.split("\t") for line in counts.read_text(encoding="utf-8").splitlines())
    found = stories(data)
    output.mkdir(parents=True, exist_ok=True)
    for name in SETS:
        lines = (data / f"all_{name}.txt").read_text(encoding="utf-8").split("\n")
        addresses = [line.strip() for line in lines if line.strip()]
        names = [hashlib.sha1(address.encode("utf-8"), usedforsecurity=False).hexdigest() for address in addresses]
        missing = [story for story in names if story not in found]
        if missing:
            sys.exit(f"prepare.py: {len(missing):,} stories of {name} are in no archive, such as {missing[0]}")
        kept = [texts for texts in (pair(found[story]) for story in names) if all(texts)]
        if len(kept) != int(expected[name]):
            sys.exit(f"prepare.py: {name} has {len(kept):,} pairs, and should have {int(expected[name]):,}")
        for side, texts in zip(("source", "target"), zip(*kept, strict=True), strict=True):
            (output / f"{name}.{side}").write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
        print(f"{name}: {len(kept):,} pairs, {len(names) - len(kept):,} stories without an article or highlights")


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit("prepare.py: two or three arguments are needed: DATA OUTPUT [COUNTS]")
    main(Path(sys.argv[1]), Path(sys.argv[2]), Path(*sys.argv[3:] or [Path(__file__).with_name("counts.tsv")]))
