"""Claims in miniature: data prepared by commands, cells made, the inequality decided, the record kept."""

import json
import logging
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from types import SimpleNamespace

import pytest
import yaml

import headway
from headway.claims import reproduce
from headway.claims.claims import ClaimData, ClaimPath, read_claims
from headway.claims.reproduce import prepare, read_record, record_of
from headway.cli.console import confirmed
from headway.comparison.cells import CurvePoint
from headway.comparison.options import GridOptions, ReproduceOptions
from headway.core.errors import RunError, UserError
from headway.core.log import Progress, progress_shown
from headway.grids.compare import GridComparison
from headway.grids.grid import Grid
from headway.grids.grid_run import GridResult
from headway.metrics import build_metric
from tests.claims.conftest import CLAIMS
from tests.command_server import commands
from tests.comparison.toys import cell
from tests.conftest import Command
from tests.grids.grids import write_grid


def test_a_cell_is_decided_and_recorded(place: Path, run_headway: Command) -> None:
    asked = ["reproduce", "nobody2024/words/narrow", "--claims", place / "claims", "--data", place / "data", "--yes"]
    ended = run_headway(*asked, "--output", place / "out")
    assert ended.code == 0, ended.err
    row = next(line for line in ended.out.splitlines() if line.startswith("Wide is better."))
    assert row.split()[3:7] == ["wide", ">", "narrow", "+1.00"]
    assert row.endswith("open")
    folder = place / "out" / "nobody2024-words"
    assert {path.name for path in (folder / "cells").iterdir() if path.is_dir()} == {"wide-1", "narrow-1"}
    assert (folder / "data" / "version").read_text().endswith("headway\n")
    assert not (folder / "record.json").exists(), "that of the whole table"
    assert (folder / "only-narrow" / "compare.html").is_file()
    record = read_record(folder / "only-narrow" / "record.json")
    assert record.measured.commands[0].startswith("headway")
    assert record.comparison is not None
    assert set(record.comparison["variants"]) == {"wide", "narrow"}
    assert record.claims[0]["finding"] == "open"
    assert record.claims[0]["regime"] == "unknown", "no metric of dev has a margin"
    assert record.tables[-1]["title"] == "exact_match on dev, means over seeds"
    assert {row[0] for row in record.tables[-1]["rows"]} == {"wide", "narrow"}
    again = run_headway(*asked, "--output", place / "out")
    assert (again.code, again.out) == (0, ended.out)


def test_claims_are_decided_by_the_cells_that_are_finished(place: Path, run_headway: Command) -> None:
    both = ("--claims", place / "claims", "--data", place / "data", "--output", place / "part", "--yes")
    nothing = run_headway("reproduce", "nobody2024/words", *both, "--only-finished")
    assert (nothing.code, nothing.out) == (1, "")
    assert run_headway("reproduce", "nobody2024/words/narrow", *both).code == 0
    ended = run_headway("reproduce", "nobody2024/words", "seeds=[1,2]", *both, "--only-finished")
    assert ended.code == 0, ended.err
    assert "wide > narrow" in ended.out
    assert not (place / "part" / "nobody2024-words" / "cells" / "ngram-1").exists()
    record = read_record(place / "part" / "nobody2024-words" / "record.json")
    assert "only-finished" not in record.measured.commands[0], "the command that makes what was compared"
    missing = "narrow, seed 2; ngram, seed 1; ngram, seed 2; wide, seed 2"
    assert record.text == ("Budget: small.", f"Not finished: {missing}.")
    assert record.measured.seeds == (1,)
    assert record.claims[0]["finding"] == "open"


def test_what_is_out_of_reach_is_said_before_any_work(place: Path, tmp_path: Path, run_headway: Command) -> None:
    asked = ["reproduce", "nobody2024/words", "seeds=[1,2]", "--claims", place / "claims", "--data", place / "data"]
    ended = run_headway(*asked, "--output", tmp_path, "--dry-run")
    said = "wide > narrow, the published difference: 1 chrF2 on test is out of reach of 2 seeds"
    assert f"{said}, whatever the test set" in ended.err
    assert not (tmp_path / "nobody2024-words" / "data").exists()
    prepare(ClaimData(**CLAIMS["data"]), tmp_path / "nobody2024-words", place / "data", place / "claims")
    assert f"{said} and 8 segments" in run_headway(*asked, "--output", tmp_path, "--dry-run").err
    (tmp_path / "grid").mkdir()
    grid = write_grid(tmp_path / "grid", margin={"chrf": 1.0})
    ended = run_headway("compare", grid, "--output", tmp_path / "compared", "--dry-run")
    assert "the margin: 1 chrF2 on test is out of reach of 2 seeds and 8 segments" in ended.err


@pytest.mark.parametrize("evaluations", [1, 2])
def test_the_record_has_scores_on_dev_where_these_tell_sooner_from_better(place: Path, evaluations: int) -> None:
    path = place / "claims" / "nobody2024-words.yaml"
    claims, metric = read_claims(path), build_metric("chrf")
    curve = tuple(CurvePoint(update, update, {metric.label: update}) for update in range(1, evaluations + 1))
    cells = [replace(cell(name, 1, 0.8), curve=curve) for name in ("wide", "narrow")]
    comparison = headway.compare(cells, [metric])
    record = record_of(claims, ReproduceOptions(), GridResult(tuple(cells), ()), comparison, {}, "headway reproduce")
    on_dev = [table["title"] for table in record.tables if "on dev" in table["title"]]
    assert on_dev == [f"{metric.label} on dev, means over seeds"] * (evaluations - 1)


def test_the_list_names_all_claims(place: Path, run_headway: Command) -> None:
    ended = run_headway("reproduce", "--claims", place / "claims")
    assert ended.code == 2
    assert "base.yaml" in ended.err, "a recipe among the claims is no claim file"
    (place / "only").mkdir()
    (place / "only" / "nobody2024-words.yaml").write_text(yaml.safe_dump(CLAIMS))
    ended = run_headway("reproduce", "--claims", place / "only")
    assert ended.code == 0, ended.err
    assert ended.out.splitlines()[1].split()[0] == "nobody2024/words"


def test_a_signal_ends_the_tables_of_a_document(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(place / "claims", tmp_path / "claims")
    for name in ("words", "more"):
        (tmp_path / "claims" / f"nobody2024-{name}.yaml").write_text(yaml.safe_dump(CLAIMS))
    made = list[Path]()

    def stopped(grid: Grid, output: Path, options: GridOptions, sought: object) -> GridComparison:
        made.append(output)
        return GridComparison(None, GridResult((), (), {}, stopped=2), 130)

    monkeypatch.setattr(reproduce, "compare_grid", stopped)
    options = ReproduceOptions(output=tmp_path / "out", data=place / "data", claims=tmp_path / "claims", yes=True)
    assert reproduce.reproduce(ClaimPath("nobody2024"), options) == ([], 130)
    assert made == [tmp_path / "out" / "nobody2024-more"]


def test_nothing_is_prepared_for_claims_that_cannot_be_decided(
    place: Path, tmp_path: Path, run_headway: Command
) -> None:
    shutil.copytree(place / "claims", tmp_path / "claims")
    wrong = {"says": "Blue.", "claim": "wide > narrow", "metric": "bleu"}
    (tmp_path / "claims" / "nobody2024-wrong.yaml").write_text(yaml.safe_dump(CLAIMS | {"claims": [wrong]}))
    both = ("--claims", tmp_path / "claims", "--data", place / "data", "--output", tmp_path / "out")
    for arguments, message in {
        ("nobody2024",): "wide > narrow: there is no such measure; received 'bleu on any test set'",
        ("nobody2024/words/wid",): "wid: no such variant; did you mean 'wide'",
        ("nobody2024/words", "trainig.updates=3"): "trainig.updates=3: unknown key",
        ("nobody2024/words", "baseline=ngram"): "wide > narrow: this pair is not compared",
        ("nobody2024/words", "--budget", "full"): "budget: these claims have no such budget",
    }.items():
        ended = run_headway("reproduce", *arguments, *both)
        assert (ended.code, message in ended.err) == (2, True), ended.err
        assert not (tmp_path / "out").exists()


def test_mistakes_are_named_by_their_flags(place: Path, run_headway: Command) -> None:
    for arguments, error in {
        ("nobody2024/words", "--data", place / "data"): "--output: data and runs need a folder",
        ("nobody2024/words", "--output", place / "none"): "--data: these claims need words",
        ("nobody2024/word", "--output", place / "none"): "no such claims; did you mean 'nobody2024/words'",
    }.items():
        ended = run_headway("reproduce", *arguments, "--claims", place / "claims")
        assert (ended.code, error in ended.err) == (2, True), ended.err


def test_the_plan_of_claims(place: Path, run_headway: Command) -> None:
    asked = ["reproduce", "nobody2024", "--claims", place / "claims", "--data", place / "data"]
    asked += ["--output", place / "planned"]
    for arguments in (("--dry-run",), ("--dry-run", "--yes")):
        ended = run_headway(*asked, *arguments)
        assert ended.code == 0, ended.err
        assert "cp $DATA/*.tsv $OUTPUT" in ended.out
        assert not (place / "planned").exists(), "no command was run"
    data, options = place / "planned" / "nobody2024-words", ReproduceOptions(data=place / "data")
    claims = read_claims(place / "claims" / "nobody2024-words.yaml")
    data.mkdir(parents=True)
    prepare(claims.data_of(options.budget), data, options.data, place / "claims")
    ended = run_headway(*asked, "--dry-run")
    assert (ended.code, "ngram-1" in ended.out) == (0, True), ended.err
    assert not (data / "cells").exists()


def test_commands_of_claims_are_shown_and_data_on_standard_input_allow_none(
    place: Path, tmp_path: Path, run_headway: Command
) -> None:
    shutil.copytree(place / "claims", tmp_path / "claims")
    hidden = CLAIMS["data"] | {"prepare": "touch evil \x1b[2K\necho done"}  # type: ignore[operator]
    (tmp_path / "claims" / "nobody2024-words.yaml").write_text(yaml.safe_dump(CLAIMS | {"data": hidden}))
    asked = ("--claims", tmp_path / "claims", "--data", place / "data", "--output", tmp_path / "out")
    ended = run_headway("reproduce", "nobody2024/words", *asked, stdin="y\ny\n")
    assert ended.code == 2
    assert "error: --yes: the commands that prepare the data were not allowed" in ended.err
    assert "touch evil \\x1b[2K" in ended.err
    assert "echo done" in ended.err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("allowed", [True, False])
def test_someone_at_a_terminal_is_asked(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, allowed: bool
) -> None:
    monkeypatch.setattr("rich.prompt.Confirm.ask", lambda *given, **named: allowed)
    monkeypatch.setattr("headway.cli.console.sys.stdin", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr(reproduce, "compare_grid", lambda *given: GridComparison(None, GridResult((), (), {}), 0))
    options = ReproduceOptions(output=tmp_path / "out", data=place / "data", claims=place / "claims")
    with nullcontext() if allowed else pytest.raises(UserError, match=r"the commands .* were not allowed"):
        reproduce.reproduce(ClaimPath("nobody2024", "words"), options, confirmed=confirmed)
    assert (tmp_path / "out" / "nobody2024-words" / "data").exists() == allowed


def test_of_a_document_those_claims_are_decided_that_have_the_budget(
    place: Path, tmp_path: Path, run_headway: Command
) -> None:
    shutil.copytree(place / "claims", tmp_path / "claims")
    (tmp_path / "claims" / "nobody2024-large.yaml").write_text(yaml.safe_dump(CLAIMS | {"budgets": {"full": {}}}))
    both = ("--claims", tmp_path / "claims", "--data", place / "data", "--output", tmp_path / "out", "--dry-run")
    ended = run_headway("reproduce", "nobody2024", *both)
    assert ended.code == 0, ended.err
    assert "without a budget small, and left out: nobody2024/large\n" in ended.err
    assert [line for line in ended.out.splitlines() if line.startswith("nobody2024")] == ["nobody2024/words: Words"]
    ended = run_headway("reproduce", "nobody2024/large", *both)
    assert ended.code == 2
    assert "budget: these claims have no such budget; received 'small'; allowed: full" in ended.err


def test_data_are_prepared_whole_and_once(tmp_path: Path) -> None:
    made = tmp_path / "times"
    data = ClaimData(about="lines", prepare=f"echo x >> {made}\necho data > $OUTPUT/lines.txt")
    for _ in range(2):
        folder = prepare(data, tmp_path / "out", None, tmp_path)
        assert (folder / "lines.txt").read_text() == "data\n"
    assert made.read_text() == "x\n"
    failing = ClaimData(about="lines", prepare="echo half > $OUTPUT/lines.txt\necho no such thing >&2\nexit 3")
    with pytest.raises(RunError, match=r"could not be prepared \(exit code 3\): no such thing"):
        prepare(failing, tmp_path / "out", None, tmp_path)
    assert (folder / "lines.txt").read_text() == "data\n", "what was there stays"


KILLED = """
from pathlib import Path
from headway.cli.interruption import ended_by_signals
from headway.claims.reproduce import prepare
from headway.claims.claims import ClaimData
with ended_by_signals(last=True):
    prepare(ClaimData(about="lines", prepare="echo $$ > begun; sleep 100 & wait"), Path("out"), None, Path("."))
"""


@pytest.mark.slow
def test_a_signal_ends_the_commands_too(tmp_path: Path) -> None:
    (tmp_path / "killed.py").write_text(KILLED)
    process = subprocess.Popen([commands() / "python", "killed.py"], cwd=tmp_path)
    while not (tmp_path / "begun").is_file() or not (shell := (tmp_path / "begun").read_text()).strip():
        assert process.poll() is None
        time.sleep(0.05)
    process.terminate()
    assert process.wait() == 128 + signal.SIGTERM
    while _group_lives(int(shell)):  # with what the shell began
        time.sleep(0.05)


def _group_lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_data_that_cells_were_made_of_are_not_replaced(tmp_path: Path) -> None:
    def made(commands: str) -> Path:
        return prepare(ClaimData(about="lines", prepare=commands), tmp_path / "out", None, tmp_path)

    made("echo one > $OUTPUT/lines.txt")
    lines = made("echo two > $OUTPUT/lines.txt") / "lines.txt"
    assert lines.read_text() == "two\n", "there are no cells yet"
    (tmp_path / "out" / "cells" / "a-1").mkdir(parents=True)
    made("printf 'two\\n' > $OUTPUT/lines.txt")
    with pytest.raises(UserError, match=r"output: the cells in .*cells were made of other data"):
        made("echo three > $OUTPUT/lines.txt")
    assert lines.read_text() == "two\n"


def test_data_are_made_again_of_another_folder(tmp_path: Path) -> None:
    data = ClaimData(about="lines", prepare="cp $DATA/lines.txt $OUTPUT", needs=("lines.txt",))
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    (tmp_path / "one" / "lines.txt").write_text("one\n")
    (tmp_path / "two" / "lines.txt").write_text("other\n")

    def made(given: Path | None) -> str:
        return (prepare(data, tmp_path / "out", given, tmp_path) / "lines.txt").read_text()

    assert made(tmp_path / "one") == made(None) == "one\n"
    assert made(tmp_path / "two") == made(None) == "other\n"
    (tmp_path / "two" / "lines.txt").write_text("other, and more\n")
    assert made(tmp_path / "two") == "other, and more\n"
    (tmp_path / "out" / "cells" / "a-1").mkdir(parents=True)
    with pytest.raises(UserError, match=r"output: the cells in .*cells were made of other data"):
        made(tmp_path / "one")
    with pytest.raises(UserError, match=r"without lines\.txt"):
        made(tmp_path)


def test_missing_data_are_named(tmp_path: Path) -> None:
    data = ClaimData(about="the words of https://example.org", prepare="true", needs=("words.txt",))
    with pytest.raises(UserError, match=r"these claims need the words of https://example\.org; received 'no folder'"):
        prepare(data, tmp_path / "out", None, tmp_path)
    with pytest.raises(UserError, match=r"without words\.txt"):
        prepare(data, tmp_path / "out", tmp_path, tmp_path)
    for command in ("touch $DATA/archive", 'touch "${DATA}/archive"'):
        fetched = ClaimData(about="a folder for archives", prepare=command)
        with pytest.raises(UserError, match="these claims need a folder for archives; received 'no folder'"):
            prepare(fetched, tmp_path / "out", None, tmp_path)
    made = ClaimData(about="nothing", prepare="DATABASE=made; echo $DATABASE > $OUTPUT/lines.txt")
    assert (prepare(made, tmp_path / "out", None, tmp_path) / "lines.txt").read_text() == "made\n"


def test_what_commands_say_is_shown_and_kept_as_they_say_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    works = list[Progress]()

    @contextmanager
    def view(work: Progress) -> Iterator[Callable[[], None]]:
        works.append(work)
        yield lambda: None

    # The second line comes only when the first one is in the file.
    commands = "echo first; timeout 60 bash -c 'until grep first prepare.txt >&2; do sleep 0.05; done'; echo second >&2"
    with progress_shown(view), caplog.at_level(logging.INFO, "headway"):
        prepare(ClaimData(about="lines", prepare=commands), tmp_path, None, tmp_path)
    assert (tmp_path / "prepare.txt").read_text() == "first\nfirst\nsecond\n"
    (work,) = works
    assert work.text.endswith(" · second")


def test_the_error_is_the_last_line_of_errors_whole(tmp_path: Path) -> None:
    commands = "printf 'no such ' >&2; sleep 0.2; printf 'thing\\n\\n' >&2; echo bye; exit 3"
    with pytest.raises(RunError, match=r"\(exit code 3\): no such thing; .*prepare\.txt$"):
        prepare(ClaimData(about="lines", prepare=commands), tmp_path, None, tmp_path)
    with pytest.raises(RunError, match=r"\(exit code 1\): no message;"):
        prepare(ClaimData(about="lines", prepare="false"), tmp_path, None, tmp_path)


def test_variants_are_cut_of_parts(place: Path, tmp_path: Path, run_headway: Command) -> None:
    parts = {"ngram/near": "encoder.1.self:offset=[-+]1", "ngram/head": "decoder.1.cross:head=1"}
    claims = [
        {"says": "Neighbours matter.", "claim": "ngram > ngram/near"},
        {"says": "Neighbours matter by TER.", "claim": "ngram > ngram/near", "metric": "ter"},
        {"says": "Less than a head.", "claim": "ngram/near >= ngram/head", "metric": "logprob", "margin": 99},
        {"says": "Wide is better.", "claim": "wide > narrow"},
    ]
    options = {"how": ["zero"], "metric": ["logprob", "ter"], "input": "sources", "reference": "targets"}
    data, files = CLAIMS["data"], "cut -f1 $DATA/test.tsv > $OUTPUT/sources\ncut -f2 $DATA/test.tsv > $OUTPUT/targets"
    data = data | {"prepare": f"{data['prepare']}\n{files}"}
    tree = CLAIMS | {"data": data, "claims": claims, "cut": {"parts": parts, "options": options}}
    shutil.copytree(place / "claims", tmp_path / "claims")
    (tmp_path / "claims" / "nobody2024-words.yaml").write_text(yaml.safe_dump(tree))
    asked = ["reproduce", "nobody2024/words", "seeds=[1,2]", "--claims", tmp_path / "claims", "--data", place / "data"]
    ended = run_headway(*asked, "--yes", "--output", tmp_path / "out")
    assert ended.code == 0, ended.err
    folder = tmp_path / "out" / "nobody2024-words"
    record = read_record(folder / "record.json")
    assert [claim["finding"] for claim in record.claims][2] == "holds"
    assert [table["title"] for table in record.tables][2:4] == ["ngram: logprob, zero", "ngram: TER, zero"]
    cut = run_headway(
        "inspect", "ablate", *(folder / "cells" / f"ngram-{seed}" for seed in (1, 2)), "--together", "--json",
        "--what", ",".join(parts.values()), "--metric", "logprob,ter", "--input", folder / "data" / "sources",
        "--reference", folder / "data" / "targets",
    )  # fmt: skip
    found = {(each["metric"], row["part"]): row for each in json.loads(cut.out)["ablations"] for row in each["parts"]}
    by_logprob, by_ter = (found[metric, parts["ngram/near"]] for metric in ("logprob", "ter"))
    first, second, third, _ = record.claims
    assert (first["difference"], first["low"]) == pytest.approx((-by_logprob["difference"], -by_logprob["high"]))
    assert (second["difference"], second["low"]) == pytest.approx((by_ter["difference"], by_ter["low"]))
    head = found["logprob", parts["ngram/head"]]["difference"]
    assert third["difference"] == pytest.approx(by_logprob["difference"] - head)
    assert first["values"][0] == pytest.approx(fmean(json.loads(cut.out)["whole"]["logprob"]))
