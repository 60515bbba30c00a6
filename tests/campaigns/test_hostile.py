"""What the campaigns of commands and strangers look for is found where it happens."""

import importlib
import pickle
import sys
from pathlib import Path

import pytest

from headway.core.errors import UserError
from tools.campaigns.command_line import Ended
from tools.campaigns.hostile import BOMB, HostileCampaign, HostileCase
from tools.campaigns.isolation import try_case


class Executing(HostileCampaign):
    """Executes what must not be executed, and leaves what must not be left."""

    def _pickle(self, case: HostileCase, run: Path, use: Path) -> None:
        pickle.loads(BOMB)

    def _source(self, case: HostileCase, run: Path, use: Path) -> None:
        sys.addaudithook(self._heard)
        importlib.import_module("evil")  # which leaves the file, too

    def _zip(self, case: HostileCase, run: Path, use: Path) -> None:
        (use.parent / "stray").touch()

    def _text(self, case: HostileCase, run: Path, use: Path) -> None:
        (self.shared / "file").write_text("other", encoding="utf-8")

    def _name(self, case: HostileCase, run: Path, use: Path) -> None:
        pass


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("pickle", "code was executed"),
        ("source", "code was executed"),
        ("zip", "stray"),
        ("text", "files lost or changed"),
        ("name", ""),
    ],
)
def test_code_and_files_of_a_stranger_are_seen(tmp_path: Path, kind: str, message: str) -> None:
    campaign = Executing()
    campaign.shared, campaign.paths, campaign.executed = tmp_path / "shared", {"run": tmp_path / "run"}, []
    (tmp_path / "run" / "vocabulary").mkdir(parents=True)
    campaign.shared.mkdir()
    (campaign.shared / "file").write_text("one", encoding="utf-8")
    (tmp_path / "cases").mkdir()
    outcome = try_case(campaign, HostileCase(kind, "run", 0, 0), tmp_path / "cases")
    assert outcome.kind == ("wrong" if message else "right"), outcome
    assert message in outcome.message


@pytest.mark.parametrize(
    ("ended", "error"),
    [
        (Ended(0, "a\n", ""), None),
        (Ended(1, "a\n", "warning"), None),
        (Ended(2, "a\n", "error: no"), UserError),
        (Ended(1, "", "error: no"), UserError),
        (Ended(1, "", "", heard=False), None),
        (Ended(3, "", ""), AssertionError),
        (Ended(1, "", "Traceback (most recent call last)\n"), AssertionError),
        (Ended(0, "", "\x1b[31m"), AssertionError),
    ],
)
def test_the_end_of_a_command_is_judged(ended: Ended, error: type[Exception] | None) -> None:
    if error is None:
        ended.check()
    else:
        with pytest.raises(error):
            ended.check()
