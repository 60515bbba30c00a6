"""Every exercise takes its solution, and tells five usual mistakes apart in words."""

import json
import os
from pathlib import Path

import pytest

from headway.lessons import Checked, check_file
from tests.conftest import Command
from tests.docs.pages import ROOT
from tests.tiers import thinned

SOLUTIONS = ["attention", "heads", "ngram", "rotate", "align", "layers", "verdict", "own"]
GREEDY = """def align(weights):
    path = [0]
    for row in weights:
        path.append(path[-1] + int(row[path[-1] :].argmax()))
    return path[1:]
"""

# By lesson: what is planted, as texts of the solution and what stands there instead, and what the message must say.
MISTAKES: dict[int, list[tuple[dict[str, str], str]]] = {
    1: [
        ({"scores.masked_fill(~mask, -torch.inf)": "scores"}, "no mask is used"),
        (
            {"scores.masked_fill(~mask, -torch.inf).softmax(1)": "scores.softmax(1) * mask"},
            "to 1 over the positions that may be seen; row 0 sums to 0.41: the mask is used after the softmax",
        ),
        ({"softmax(1)": "softmax(0)"}, "here each column does: the softmax runs over the queries"),
        ({" / math.sqrt(queries.shape[1])": ""}, "here they are not divided"),
        ({"weights @ values": "weights @ keys"}, "must have the shape (4, 3); it has (4, 6)"),
    ],
    2: [
        ({"view(len(x), count, -1).transpose(0, 1)": "view(count, len(x), -1)"}, "here the heads mix positions"),
        ({"view(len(x), count, -1)": "view(len(x), 1, -1)"}, "the number of heads must matter"),
        ({"math.sqrt(queries.shape[2])": "math.sqrt(x.shape[1])"}, "here by the root of D"),
        ({"softmax(2)": "softmax(0)"}, "here the softmax runs over the heads"),
        ({" @ out\n": "\n"}, "here heads are not mapped by it"),
    ],
    3: [
        ({"[n - 1 - i : n - 1 - i + length]": "[i : i + length]"}, "here the order is reversed"),
        ({"padded[n - 1 - i : n - 1 - i + length]": "x.roll(i, 0)"}, "here roll makes a ring of them"),
        (
            {"[torch.zeros(n - 1, x.shape[1]), x]": "[x, torch.zeros(n - 1, x.shape[1])]", "n - 1 - i ": "i "},
            "here the window reaches into the future",
        ),
        ({"[torch.zeros(n - 1, x.shape[1]), x]": "[x]", "len(weight), len(x)": "len(weight), len(x) - 2"},
         "here 9 give 7"),
        ({"hidden.relu()": "hidden"}, "relu is missing"),
    ],
    4: [
        ({"torch.arange(length)[": "torch.arange(1, length + 1)["}, "positions count from 0"),
        ({"left * cos - right": "left * cos + right"}, "must keep the length of a vector"),
        ({"torch.arange(0, size, 2)": "torch.zeros(size // 2)"}, "here all turn alike"),
        ({"sin = angles.cos(), angles.sin()": "sin = angles.cos(), -angles.sin()"}, "here it turns the other way"),
        (
            {
                "x.chunk(2, 1)": "x[:, ::2], x[:, 1::2]",
                "torch.cat([left * cos - right * sin, left * sin + right * cos], 1)":
                    "torch.stack([left * cos - right * sin, left * sin + right * cos], 2).flatten(1)",
            },
            "here it turns with its neighbour",
        ),
    ],
    5: [
        ({"return path[::-1]": "return weights.argmax(1).tolist()"}, "must not go back"),
        ({"def align(weights):": GREEDY + "\ndef other(weights):"}, "takes the best that is left"),
        ({"weights.log()": "weights"}, "here their sum is"),
        (
            {"best.cummax(0)": "torch.cat([best[:1] - torch.inf, best[:-1]]).cummax(0)",
             "came_from.append(index)": "came_from.append((index - 1).clamp(min=0))"},
            "here each has its own",
        ),
        (
            {"scores[0], []": "scores[0] + torch.tensor([0, 0] + [-torch.inf] * 3), []",
             "before, index = best.cummax(0)":
                "before, back = torch.stack([best, torch.cat([best[:1] - torch.inf, best[:-1]])]).max(0)\n"
                "        index = torch.arange(len(best)) - back"},
            "here a step goes on by one at most",
        ),
    ],
    6: [
        ({"scores.softmax(0)": "scores.softmax(1)"}, "here each layer's sum to 1 over the tokens"),
        ({"scores.softmax(0)": "scores.sigmoid()"}, "over the layers; here those of token 0 sum to "),
        ({"scores.softmax(0)": "(0 * scores).softmax(0)"}, "here all layers have the same"),
        ({".relu()": ""}, "keys must go through relu"),
        ({"(weights[:, :, None] * (hidden @ value)).sum(0)": "(hidden @ value).mean(0)"}, "here their mean is taken"),
    ],
    7: [
        ({"stats.t.ppf(0.975, len(gains) - 1)": "1.96"}, "here the quantile is 1.96"),
        ({"import mean, stdev": "import mean, pstdev as stdev"}, "here it is one over n"),
        ({" / math.sqrt(len(gains))\n": "\n"}, "here the deviation is not divided by the root of n"),
        (
            {"stats.t.ppf(0.975, len(gains) - 1) * stdev(gains)":
                "stats.t.ppf(0.975, 2 * len(gains) - 2) * math.hypot(stdev(a), stdev(b))"},
            "here two groups are compared",
        ),
        ({'low > 0 else "worse" if high < 0': 'mean(gains) > 0 else "worse" if mean(gains) < 0'},
         "must be 'no verdict'; here it is 'better'"),
    ],
    8: [
        ({"if not self.causal": "if True"}, "position 0 of a causal mixer sees the future"),
        ({") * real, None)": "), None)"}, "values at padding are not zero"),
        ({"count.clamp(min=1))": "count.clamp(min=1) + torch.randn_like(x))"}, "drawn at random"),
        ({"lengths_after(x.shape[1], lengths)": "lengths_after(0, lengths)"}, "Lengths on both sides of 16"),
        ({"count[:, -1:]": "count[:, -1:] * 0 + x.shape[1]"}, "padding changed a real position"),
    ],
}  # fmt: skip


def solution(lesson: int) -> str:
    return (ROOT / "lessons" / "solutions" / f"{SOLUTIONS[lesson - 1]}.py").read_text(encoding="utf-8")


def checked(lesson: int, text: str, folder: Path) -> Checked:
    path = folder / "answer.py"
    path.write_text(text, encoding="utf-8")
    return check_file(lesson, path)


@pytest.mark.parametrize("lesson", thinned(MISTAKES, 2))
def test_the_solution_is_right_and_five_mistakes_are_named(lesson: int, tmp_path: Path) -> None:
    assert checked(lesson, solution(lesson), tmp_path) == Checked(True, "right")
    said = []
    for changes, message in MISTAKES[lesson]:
        planted = solution(lesson)
        for old, new in changes.items():
            assert old in planted
            planted = planted.replace(old, new)
        found = checked(lesson, "import torch\n" + planted, tmp_path)
        assert not found.right
        assert message in found.said
        said.append(found.said)
    assert len(set(said)) == 5


def test_a_class_is_checked_by_one_command(run_headway: Command, tmp_path: Path) -> None:
    notebook = json.loads((ROOT / "lessons" / "1-attention.ipynb").read_text(encoding="utf-8"))
    for cell in notebook["cells"]:
        if "exercise" in cell["metadata"].get("tags", ()):
            cell["source"] = solution(1)
    texts = {
        "ada.ipynb": json.dumps(notebook),
        "ben.py": solution(1).replace("softmax(1)", "softmax(0)") + "\nprint('not a result')\n",
        "eve.py": "def attention(queries, keys, values, mask):\n    return queries @ values, None\n",
        "kim.py": "def attention(:\n",
        "lee.py": "def attend():\n    pass\n",
        "max.py": "raise SystemExit(3)\n",
        "joe.py": "raise ValueError('a\\nb')\n",
        "mia.py": "def attention(queries, keys, values, mask):\n    return None\n",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    ended = run_headway("check", "1", *(tmp_path / name for name in [*texts, "zoe.py"]), "--allow-code")
    assert ended.code == 1
    said = dict(line.removeprefix(f"{tmp_path}{os.sep}").split(": ", 1) for line in ended.out.splitlines())
    assert said["ada.ipynb"] == "right"
    assert said["ben.py"].startswith("each row of weights must sum to 1; here each column does")
    assert said["eve.py"].startswith("attention fails in line 2: RuntimeError: ")
    assert said["kim.py"].startswith("the file cannot be run: SyntaxError: ")
    assert said["joe.py"] == r"the file cannot be run: ValueError: a\nb"
    assert said["lee.py"] == "attention is not defined in this file"
    assert "the file cannot be run: " in said["zoe.py"]
    assert "cannot read the file" in said["zoe.py"]
    assert said["max.py"] == "the file cannot be run: SystemExit: 3"
    assert said["mia.py"] == "the answer must return the mixed values, the weights; it returns a NoneType"
    assert run_headway("check", "1", tmp_path / "ada.ipynb", "--allow-code").code == 0


def test_an_answer_that_goes_to_another_folder_leaves_the_others_where_they_are(
    run_headway: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("ada.py").write_text(f"import os\nos.chdir({os.sep!r})\n{solution(1)}", encoding="utf-8")
    Path("ben.py").write_text(solution(1), encoding="utf-8")
    assert run_headway("check", "1", "ada.py", "ben.py", "--allow-code").out == "ada.py: right\nben.py: right\n"


def test_answers_are_run_only_when_that_is_allowed(run_headway: Command, tmp_path: Path) -> None:
    path = tmp_path / "answer.py"
    path.write_text(f"open({str(tmp_path / 'run')!r}, 'w')\n", encoding="utf-8")
    ended = run_headway("check", "1", path)
    assert ended.code == 2
    assert "allowed: --allow-code" in ended.err
    assert not (tmp_path / "run").exists()
    ended = run_headway("check", "9", path, "--allow-code")
    assert ended.code == 2
    assert "there is no such lesson; received 9; allowed: 1 to 8" in ended.err
