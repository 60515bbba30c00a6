"""Outputs of about fifty commands, so that a change of the house can show that it changes nothing else.

    python tools/golden.py before.json          # at one commit
    python tools/golden.py after.json           # at the other, on the same machine
    diff before.json after.json

Every verb runs with its usual options and with a mistake, on toys that the script makes, in a temporary folder. Kept
are the exit code, both streams, and a hash of each file that was written. Times, speeds, versions and paths of the
machine are left out. Commands run with the `headway` that this Python imports.
"""

import hashlib
import json
import os
import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
MODEL = "{dim: 32, feed_forward: 64, heads: 2, dropout: 0.0, norm: pre, encoder: {layers: 1}, decoder: {layers: 1}}"
TRAINING = "{updates: 60, batch_tokens: 512, checkpoint_every: 20, evaluate_every: 20, precision: float32}"
RECIPE = f"""
data: {{train: {{tsv: train.tsv}}, dev: {{tsv: dev.tsv}}}}
vocabulary: {{kind: word}}
model: {MODEL}
optimizer: {{learning_rate: 1.0e-2, schedule: linear, warmup: 10}}
training: {TRAINING}
"""
WORDS = {"one": "eins", "two": "zwei", "three": "drei", "four": "vier", "five": "fünf", "six": "sechs"}
TREES = (
    "(S (NP (DT the) (NN dog)) (VP (VBD saw) (NP (DT a) (NN cat))) (. .))\n(S (NP (NN cat)) (VP (VBD slept)) (. .))\n"
)
GRID = """
recipe: r.yaml
variants: {one: {}, two: {model.encoder.mixer: {kind: ngram, n: 2}}}
seeds: [1, 2]
test: {test: {tsv: dev.tsv}}
metrics: [bleu]
"""

# A line a command; what follows `<` is standard input. `!` marks a mistake.
COMMANDS = """
headway --version
headway --help
headway train --help
headway predict --help
headway compare --help
headway list mixers
headway list metrics
!headway list mixer
headway recipes
headway recipes dates/transformer
headway recipes dates/transformer --output copied
!headway recipes nosuch
headway data check r.yaml
headway data check r.yaml --json
!headway data check r.yaml model.dimm=3
headway data split pairs.tsv --columns 1 2 --shuffle --output split
headway data make dates --output dates train_size=20 dev_size=5 test_size=5
headway data make lengths copy --output lengths train_size=20 dev_size=5 test_size=2
headway data make trees toy.trees
headway data make trees toy.trees format=linear
headway data make labels source=src.txt references=gold.txt
headway train r.yaml --output run
headway train r.yaml --output other training.seed=2
headway train r.yaml --output ngram model.encoder.mixer=ngram
headway train parser.yaml --output parser
headway train r.yaml --output recurrent 'model={kind: recurrent, dim: 32, dropout: 0.0}'
!headway train r.yaml --output run
!headway train r.yaml --output never vocabulary.kind=wordd
headway predict run < src.txt
headway predict run --input src.txt --output out.txt --beam 3 --nbest 2
headway predict run --input src.txt --alignments links.txt --attention attention.jsonl
headway predict run other --input src.txt
headway predict ngram --input src.txt --scores
headway predict recurrent --input src.txt
headway predict parser --input words.txt
headway predict parser --input words.txt --format drawing
!headway predict run --input nosuch.txt
!headway predict nosuch --input src.txt
!headway predict run --input src.txt --beam 0
headway score --metric bleu chrf --hypotheses one.txt two.txt --references gold.txt
headway score --metric bleu --hypotheses one.txt --references gold.txt --json
headway score run --source src.txt --target gold.txt
!headway score --metric bleu --hypotheses one.txt --references short.txt
headway inspect page run --input src.txt --output page.html
headway inspect figures run --output figures
headway inspect tables parameters run
headway inspect figures run --text "one two" --output map.svg
!headway inspect page run --text "one" --layer 9 --output never.html
headway compare grid.yaml --output grid --workers 1
headway compare a:1=run b:1=ngram --output existing
headway compare --hypotheses a:1=one.txt b:1=two.txt --references gold.txt --metric bleu
!headway compare grid.yaml --output grid seeds=[one]
headway reproduce
headway export onnx run --output onnx
headway export --list run
!headway export nosuch run --output never
!headway import marian nosuch.npz --output never
headway pack run run.zip
headway predict run.zip --input src.txt
"""

# What differs from run to run, or from machine to machine.
VOLATILE = (
    (r"\d\d\d\d-\d\d-\d\d[T ]\d\d:\d\d:\d\d", "TIME"),
    (r"\b\d+(\.\d+)? (s|ms|GB|MB|GiB|minutes?|seconds?)\b", "N UNIT"),
    (r"\d[\d,]*(\.\d+)?( tokens)?/s\b", "SPEED"),
    (r"TIME \d+ updates, .* evaluations", "TIME ESTIMATE"),
    (r"\b\d+:\d\d(:\d\d)?\b", "CLOCK"),
    (r"(\s+\d[\d,.]*){4}(?=\s+[\d,]+\s+0\.01)", " COSTS"),  # time, two speeds and memory, in the table of variants
)
KEPT = (
    ".txt",
    ".tsv",
    ".safetensors",
    ".jsonl",
    ".csv",
    ".svg",
    ".trees",
    ".lengths",
)  # files whose bytes are compared
TIMED = ("metrics.jsonl", "compare.csv")  # among these, those that have times


def make_toys(folder: Path) -> None:
    """Write the inputs of the commands."""
    source = random.Random(1)
    pairs = [[source.choice(list(WORDS)) for _ in range(source.randint(1, 6))] for _ in range(420)]
    rows = [(" ".join(words), " ".join(WORDS[word] for word in reversed(words))) for words in pairs]

    def write(name: str, lines: list[str]) -> None:
        (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")

    write("pairs.tsv", ["\t".join(row) for row in rows])
    write("train.tsv", ["\t".join(row) for row in rows[:400]])
    write("dev.tsv", ["\t".join(row) for row in rows[400:]])
    write("src.txt", [row[0] for row in rows[400:]])
    write("gold.txt", [row[1] for row in rows[400:]])
    write("one.txt", [row[1] for row in rows[400:]])
    write("two.txt", [row[1].replace("drei", "vier") for row in rows[400:]])
    write("short.txt", [row[1] for row in rows[400:410]])
    (folder / "r.yaml").write_text(f"task: translation\n{RECIPE}", encoding="utf-8")
    (folder / "toy.trees").write_text(TREES * 20, encoding="utf-8")
    write("words.txt", ["the dog saw a cat .", "cat slept ."])
    trees = "data: {train: {trees: toy.trees, leaves: tags}, dev: {trees: toy.trees}}"
    parser = re.sub(r"data: .*", trees, RECIPE).replace("{kind: word}", "{kind: char, target: {kind: whitespace}}")
    (folder / "parser.yaml").write_text(f"task: parsing\n{parser}", encoding="utf-8")
    (folder / "grid.yaml").write_text(GRID, encoding="utf-8")


def steady(text: str, folder: Path) -> list[str]:
    """The lines of a text without what differs from run to run."""
    text = text.replace(str(folder), "FOLDER")
    for pattern, name in VOLATILE:
        text = re.sub(pattern, name, text)
    return text.splitlines()


def files_of(folder: Path) -> dict[str, str]:
    """A hash of each file whose bytes are compared; only the name of any other."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and ".cache" not in path.parts and "engines" not in path.parts:
            comparable = path.suffix in KEPT and path.name not in TIMED and "logs" not in path.parts
            content = hashlib.sha256(path.read_bytes()).hexdigest()[:12] if comparable else "there"
            found[path.relative_to(folder).as_posix()] = content
    return found


def run_all(folder: Path) -> dict[str, object]:
    """Run all commands, and give what each answered."""
    environment = os.environ | {"HEADWAY_CACHE": str(folder / ".cache"), "OMP_NUM_THREADS": "1", "COLUMNS": "100"}
    answers: dict[str, object] = {}
    before = files_of(folder)
    for line in COMMANDS.strip().splitlines():
        print(line, file=sys.stderr)
        command = line.removeprefix("!").replace("headway", f"{sys.executable} -m headway", 1)
        ended = subprocess.run(["bash", "-c", command], cwd=folder, env=environment, capture_output=True, text=True)
        after = files_of(folder)
        answers[line] = {
            "code": ended.returncode,
            "output": steady(ended.stdout, folder),
            "errors": steady(ended.stderr, folder),
            "files": {name: content for name, content in after.items() if before.get(name) != content},
        }
        if (ended.returncode == 0) == line.startswith("!"):
            print(f"  exit code {ended.returncode}: {ended.stderr[-500:]}", file=sys.stderr)
        before = after
    return answers


def main() -> None:
    """Write the outputs of all commands."""
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        make_toys(folder)
        answers = run_all(folder)
    Path(sys.argv[1]).write_text(json.dumps(answers, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
