"""What `headway doctor` finds."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import torch

import headway
from headway.core.log import logger
from headway.experiments import doctor
from headway.experiments.doctor import missing_by_extra, run_doctor, self_test

REQUIRES = [
    "torch>=2.6",
    "torch>=1.0; extra == 'whole'",
    "no-such-thing>=1.2; extra == 'lacking'",
    "torch>=1.0; extra == 'lacking'",
    "torch>=1000; extra == 'old'",
    "headway[lacking,whole]; extra == 'together'",
    "no-such-thing; extra == 'elsewhere' and python_version < '3'",
]


@pytest.fixture
def fake_requirements(monkeypatch: pytest.MonkeyPatch) -> None:
    class Metadata:
        def get_all(self, name: str) -> list[str]:
            assert name == "Provides-Extra"
            return ["whole", "lacking", "old", "together", "elsewhere"]

    monkeypatch.setattr(doctor, "metadata", lambda name: Metadata())
    monkeypatch.setattr(doctor, "requires", lambda name: REQUIRES)


@pytest.mark.usefixtures("fake_requirements")
def test_what_is_missing_is_named_for_each_extra() -> None:
    lacking = ["no-such-thing"]
    assert missing_by_extra() == {
        "whole": [], "lacking": lacking, "old": ["torch"], "together": lacking, "elsewhere": []
    }  # fmt: skip


def test_every_extra_has_code_behind_it() -> None:
    """At least one package of each extra is imported somewhere, by its name or by that of its distribution."""
    root = Path(headway.__file__).parent
    declared = tomllib.loads((root.parents[1] / "pyproject.toml").read_text(encoding="utf-8"))
    extras = declared["project"]["optional-dependencies"]
    code = "\n".join(path.read_text(encoding="utf-8") for path in root.rglob("*.py"))
    for extra, requirements in extras.items():
        names = [re.split(r"[\[<>=]", requirement)[0].replace("-", "_") for requirement in requirements]
        used = [name for name in names if re.search(rf"""(import |from |["']){name}\b""", code)]
        assert used or extra in ("test", "lint", "docs", "release"), extra


@pytest.mark.usefixtures("fake_requirements")
def test_the_findings_and_the_commands_that_help(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, "self_test", lambda: "all well")
    assert run_doctor(print) == 0
    out = capsys.readouterr().out
    lines = {line.split()[0]: line for line in out.splitlines()}
    facts = {"headway", "python", "torch", "processor", "threads", "precision", "products", "memory"}
    assert set(lines) == facts | {"[whole]", "[lacking]", "[old]", "[together]", "[elsewhere]", "self-test"}
    assert "lacks no-such-thing: pip install 'headway[lacking]'" in lines["[lacking]"]
    assert lines["[whole]"].endswith("complete")
    assert re.search(r"threads +\d+ would be used now \(.+\)", lines["threads"])
    assert re.search(
        r"precision +(bf16|float32) suits training a transformer-small \(bf16 .+ float32\)", lines["precision"]
    )
    assert torch.backends.cpu.get_cpu_capability() in lines["processor"]
    assert "GiB free of" in lines["memory"]
    assert lines["self-test"].endswith("passed: all well")


def test_a_failed_self_test_exits_1(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> str:
        raise RuntimeError("3 of 64 words reversed")

    monkeypatch.setattr(doctor, "self_test", fail)
    assert run_doctor(print) == 1
    assert capsys.readouterr().out.splitlines()[-1].split(maxsplit=1) == ["self-test", "FAILED: 3 of 64 words reversed"]


def test_the_self_test_trains_and_decodes_quietly(capsys: pytest.CaptureFixture[str]) -> None:
    level = logger.level
    message = self_test()
    assert message.split(" of 64 words reversed after 200 updates, ")[0] in {str(right) for right in range(58, 65)}
    assert capsys.readouterr() == ("", "")
    assert logger.level == level


def test_the_self_test_fails_where_nothing_is_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "SELF_TEST_UPDATES", 2)
    with pytest.raises(RuntimeError, match="of 64 words reversed after 2 updates"):
        self_test()


def test_doctor_is_not_needed_to_import_the_package() -> None:
    script = "import sys, headway; assert 'headway.experiments' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True)
