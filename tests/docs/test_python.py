"""The examples of the page on Python run in their order."""

import subprocess
from pathlib import Path

from tests.command_server import commands
from tests.conftest import write_reversal
from tests.docs.pages import BLOCK, ROOT


def test_the_examples_run(tmp_path: Path) -> None:
    write_reversal(tmp_path)
    page = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    blocks = [block["text"] for block in BLOCK.finditer(page) if block["language"] == "python"]
    assert len(blocks) >= 10
    script = "\n".join(blocks).replace('"updates": 100', '"updates": 10').replace('every": 50', 'every": 5')
    script = script.replace('"warmup": 20', '"warmup": 2')
    (tmp_path / "page.py").write_text(script, encoding="utf-8")
    command = [commands() / "python", "page.py"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr[-3000:]
    said = ended.stdout
    assert "complete, exact_match" in said
    assert "torch.Size([2, 10, 64])" in said
    assert "Comparison(2 variants, seeds: 1;" in said
    assert "training.update" in said.splitlines()[-1]
    assert (tmp_path / "cross.png").stat().st_size > 1000
