"""The commands of README, typed in order in one folder with its recipes, on lines of a small language."""

from itertools import product
from pathlib import Path
from random import Random

import pytest

from headway.core.errors import UserError
from headway.export.page_export import engine_files
from tests.docs.pages import BLOCK, ROOT, run_page
from tests.export.test_page_export import PACKAGE

SUBJECTS = {"私 は": "I", "犬 は": "the dog", "猫 は": "the cat", "先生 は": "the teacher", "兄 は": "my brother"}
TIMES = {"今日": "today", "昨日": "yesterday", "毎朝": "every morning", "夜 に": "at night"}
OBJECTS = {"本 を": "the book", "魚 を": "the fish", "歌 を": "the song", "手紙 を": "the letter"}
VERBS = {"見 た": "saw", "選ん だ": "chose", "探し た": "looked for", "忘れ た": "forgot"}
MODEL = "vocabulary.size=64 model.dim=32 model.feed_forward=64 model.heads=2"
SMALL = f"{MODEL} training.updates=20 training.checkpoint_every=10 training.batch_tokens=512 optimizer.warmup=5"
SKIPPED = {
    "make demo": "tests/experiments/test_demo.py",
    "make test": "this is one of its tests",
    "pip install .": "it is installed",
    "$ printf": "the demo's model trains for minutes",
    "2024-05-03": "its outputs",
    "headway import hf:": "a hub; tests/docs/test_import.py has a made model in its place",
}


def write_corpus(folder: Path) -> None:
    """Lines in `train`, `dev` and `test`, and a file with the outputs of another system."""
    pairs = [
        (f"{subject} {time} {thing} {verb} 。", f"{TIMES[time]} {SUBJECTS[subject]} {VERBS[verb]} {OBJECTS[thing]} .")
        for subject, time, thing, verb in product(SUBJECTS, TIMES, OBJECTS, VERBS)
    ]
    Random(1).shuffle(pairs)
    for name, part in (("train", pairs[:260]), ("dev", pairs[260:290]), ("test", pairs[290:])):
        for side, suffix in enumerate(("ja", "en")):
            (folder / f"{name}.{suffix}").write_text("".join(f"{pair[side]}\n" for pair in part), encoding="utf-8")
    (folder / "theirs.txt").write_text("".join(f"{pair[1]}\n" for pair in pairs[290:][::-1]), encoding="utf-8")


@pytest.mark.slow
def test_the_commands_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("ctranslate2", "onnx", "transformers", "fastapi"):
        pytest.importorskip(package)
    write_corpus(tmp_path)
    (tmp_path / "messages.po").write_text('msgid "<b>犬 は</b> 今日 本 を 見 た 。"\nmsgstr ""\n', encoding="utf-8")
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (script,) = (block["text"] for block in BLOCK.finditer(text) if block["language"] == "python")
    (tmp_path / "block.py").write_text(script, encoding="utf-8")
    monkeypatch.setenv("HEADWAY_CACHE", str(PACKAGE.parent))
    skipped = dict(SKIPPED)
    try:
        engine_files()
    except UserError as error:
        skipped["headway export page"] = str(error)
    export = "headway export ctranslate2 runs/ja-en --output exports/ja-en"
    others = [f"headway export {form} runs/ja-en --output exports/{form}" for form in ("onnx", "huggingface", "argos")]
    ablate, student = "headway inspect ablate", "headway export page"
    changes = {
        **{recipe: f"{recipe} {SMALL}" for recipe in ("ja-en.yaml", "ngrams.yaml", "grid.yaml")},
        export: "\n".join([*others, "headway export --list runs/ngrams", export]),
        student: f"headway export marian runs/student --output exports/marian\n{student}",
        "runs/dates": "runs/ja-en",
        ablate: f"python block.py\n{ablate} --sentences 4",
    }
    printed = run_page(ROOT / "README.md", tmp_path, skipped, **changes)
    assert "data.train: 260 pairs read, 260 kept" in printed
    assert "BLEU" in printed
    assert (tmp_path / "test.out").read_text(encoding="utf-8").count("\n") == 30
    made = {path.name for path in (tmp_path / "exports").iterdir()}
    assert made == {"ja-en", "onnx", "huggingface", "argos", "marian"}
    assert [line.split()[0] for line in printed.splitlines() if line.split()[1:2] == ["yes"]] == ["onnx"]
    assert (tmp_path / "comparison" / "compare.html").is_file()
    assert (tmp_path / "translated.po").is_file()
    assert (tmp_path / "inside.html").is_file()
