"""Links of a recipe's pairs, and what guided alignment makes of them: sentences whose links are known."""

import json
import random
import re
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

from headway.augment.link_annotation import annotate_links
from headway.core.errors import UserError
from headway.metrics import build_metric
from headway.parses.links import LinkStore
from headway.recipe import load_recipe
from headway.tasks import build_task
from tests.conftest import Command
from tests.shared_runs import shared_run

RECIPE = {
    "data": {"train": {"tsv": "train.tsv"}, "dev": {"tsv": "dev.tsv"}},
    "vocabulary": {"kind": "char", "shared": False},
    "model": {
        "dim": 32, "feed_forward": 64, "heads": 2, "dropout": 0.0, "encoder": {"layers": 1}, "decoder": {"layers": 2},
    },
    "objective": {"label_smoothing": 0.0},
    "optimizer": {"learning_rate": 1e-2, "schedule": "linear", "warmup": 20},
    "training": {"updates": 250, "batch_tokens": 512, "checkpoint_every": 250, "dev_metrics": []},
}  # fmt: skip
GUIDED = {"kind": "guided_alignment", "layer": "decoder.2.cross", "head": 2, "weight": 0.5}
WORDS = {"ba": "xyx", "ce": "y", "d": "zx", "eda": "zz", "ab": "yx"}  # of other lengths, so that links are no positions


def write(folder: Path) -> Path:
    """A corpus of sentences of three words whose translations stand in the opposite order, and its links."""
    draw, rows = random.Random(1), list[tuple[str, str, str]]()
    for _ in range(230):
        source = draw.choices(list(WORDS), k=3)
        rows.append((" ".join(source), " ".join(WORDS[word] for word in reversed(source)), "0-2 1-1 2-0"))
    for name, part in (("dev", rows[:30]), ("train", rows[30:])):
        (folder / f"{name}.tsv").write_text("".join(f"{source}\t{target}\n" for source, target, _ in part))
        (folder / f"{name}.links").write_text("".join(f"{links}\n" for *_, links in part))
    recipe = folder / "recipe.yaml"
    recipe.write_text(yaml.safe_dump(RECIPE))
    return recipe


def write_guided(folder: Path) -> Path:
    recipe = write(folder)
    tree = RECIPE | {"objective": {"label_smoothing": 0.0, "losses": [GUIDED]}}
    recipe.write_text(
        yaml.safe_dump(tree | {"data": RECIPE["data"] | {"links": {"kind": "pharaoh", "file": "train.links"}}})
    )
    annotate_links(load_recipe(recipe))
    return recipe


@pytest.fixture(scope="module")
def guided(pytestconfig: pytest.Config) -> Path:
    return shared_run(pytestconfig.cache.mkdir("runs"), "guided", write_guided)


@pytest.mark.slow
def test_a_taught_head_aligns_as_it_was_taught(run_headway: Command, guided: Path, tmp_path: Path) -> None:
    rows = [line.split("\t") for line in (guided / "dev.tsv").read_text().splitlines()]
    for side, column in (("source", 0), ("target", 1)):
        (tmp_path / side).write_text("".join(f"{row[column]}\n" for row in rows))

    def rate(*flags: str) -> float:
        files = ("--source", tmp_path / "source", "--target", tmp_path / "target", "--alignments", tmp_path / "found")
        assert run_headway("score", guided / "run", *files, *flags).code == 0
        found = (tmp_path / "found").read_text().splitlines()
        return build_metric("aer").score(found, [(guided / "dev.links").read_text().splitlines()]).value

    assert rate() < 1  # the taught head, without being named
    assert rate("--alignment-layer", "2", "--alignment-heads", "1") > 20
    metrics = [json.loads(line) for line in (guided / "run" / "metrics.jsonl").read_text().splitlines()]
    assert min(line["dev_loss"] for line in metrics if "dev_loss" in line) < 0.1  # the task is learned, too


def test_the_command_adds_what_is_missing(run_headway: Command, tmp_path: Path) -> None:
    recipe = write(tmp_path)
    command = ("data", "annotate", recipe, "--links", "data.links.kind=pharaoh", "data.links.file=train.links")
    done = run_headway(*command)
    assert done.code == 0
    distinct = len(set((tmp_path / "train.tsv").read_text().splitlines()))
    assert f"{distinct} pairs newly aligned; " in done.err
    store = tmp_path / "train.tsv.source-train.tsv.target.pharaoh.links"
    source, target = (tmp_path / "train.tsv").read_text().splitlines()[0].split("\t")
    assert LinkStore(store).get(source, target) == {(0, 2): None, (1, 1): None, (2, 0): None}
    assert "0 pairs newly aligned" in run_headway(*command).err
    from_1 = re.sub(r"\d+", lambda number: str(int(number[0]) + 1), (tmp_path / "train.links").read_text())
    (tmp_path / "from-1.links").write_text(from_1)
    command_1 = (*command[:-1], "data.links.file=from-1.links", f"data.links.folder={tmp_path / 'from-1'}")
    assert "so that these links count from 1; allowed: data.links.links_from 1" in run_headway(*command_1).err
    assert run_headway(*command_1, "data.links.links_from=1").code == 0
    assert LinkStore(tmp_path / "from-1" / store.name).get(source, target) == {(0, 2): None, (1, 1): None, (2, 0): None}
    (tmp_path / "train.links").write_text("0-0\n" * 200)
    assert "another aligner, or version of it, made these links" in run_headway(*command).err
    refused = run_headway("data", "annotate", recipe, "--links", "--sample", "3")
    assert (refused.code, "--sample: this is an option of parses" in refused.err) == (2, True)
    assert "data.links: the recipe names no links" in run_headway("data", "annotate", recipe, "--links").err


@pytest.mark.slow
def test_a_teacher_has_no_words_of_text_without_spaces(tmp_path: Path) -> None:
    changes = ["data.links={kind: teacher, run: unread}", "text.target.language=ja"]
    with pytest.raises(UserError, match=r"data\.links\.kind: a teacher links words, and this text has no spaces"):
        annotate_links(load_recipe(write(tmp_path), changes))


def test_a_teacher_gives_shares(guided: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = write(tmp_path)
    teacher = ["data.links.kind=teacher", f"data.links.run={guided / 'run'}"]
    annotate_links(load_recipe(recipe, teacher))
    store = LinkStore(tmp_path / "train.tsv.source-train.tsv.target.teacher.links")
    for name in ("train", "dev"):
        for row in (tmp_path / f"{name}.tsv").read_text().splitlines():
            links = store.get(*row.split("\t"))
            assert links is not None
            best = {
                target: max((share or 0, source) for (source, other), share in links.items() if other == target)[1]
                for _, target in links
            }
            assert best == {0: 2, 1: 1, 2: 0}
    share = links[2, 0]
    assert share is not None
    assert 0.5 < share <= 1
    # Another preparation of the text has other words; a second layer makes other links.
    with pytest.raises(UserError, match="text: the words of the teacher are those of another preparation"):
        annotate_links(
            load_recipe(recipe, [*teacher, "text.source.segment=moses", f"data.links.folder={tmp_path / 'x'}"])
        )
    with pytest.raises(UserError, match="another aligner"):
        annotate_links(load_recipe(recipe, [*teacher, "data.links.layer=1"]))


@pytest.mark.slow
@pytest.mark.skipif(find_spec("eflomal") is None, reason="eflomal is of the extra align, and needs a C compiler")
def test_eflomal_aligns_train_and_dev(tmp_path: Path) -> None:
    recipe = load_recipe(write(tmp_path), ["data.links=eflomal"])
    annotate_links(recipe)
    store = LinkStore(tmp_path / "train.tsv.source-train.tsv.target.eflomal.links")
    rows = [row.split("\t") for name in ("train", "dev") for row in (tmp_path / f"{name}.tsv").read_text().splitlines()]
    links = [store.get(source, target) for source, target in rows]
    assert sum(each == {(0, 2): None, (1, 1): None, (2, 0): None} for each in links) > 0.9 * len(rows)
    before = store.path.read_bytes()
    annotate_links(recipe)
    assert store.path.read_bytes() == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["training.subword_sampling={}", "vocabulary.kind=bpe"], r"subword_sampling: the objective learns links"),
        (["data.train.tag=<2x>"], r"data\.train: the objective learns links"),
        (["objective.losses=[{kind: guided_alignment, layer: decoder.3.cross}]"], "the model has no such attention"),
        (["objective.losses=[{kind: guided_alignment, layer: decoder.2.cross, head: 3}]"], "has no such head"),
        (["objective.losses=[{kind: guided_alignment, layer: encoder.1.self}]"], r"objective\.losses\[0\]\.layer"),
    ],
)  # fmt: skip
def test_what_cannot_be_taught_is_refused(tmp_path: Path, options: list[str], message: str) -> None:
    recipe = write(tmp_path)
    recipe.write_text(yaml.safe_dump(RECIPE | {"objective": {"losses": [GUIDED]}}))
    with pytest.raises(UserError, match=message):
        build_task("translation").check(load_recipe(recipe, options))
