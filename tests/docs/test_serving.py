"""The page on the server does what it says, in miniature: two commands, and the answers to both interfaces."""

import json
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from tests.command_server import commands_path
from tests.docs.pages import BLOCK, ROOT
from tests.export.student import write_student
from tests.serving.conftest import Running, wait


@pytest.mark.slow
def test_the_page_runs(tmp_path: Path) -> None:
    write_student(tmp_path).rename(tmp_path / "recipe.yaml")
    blocks = BLOCK.finditer((ROOT / "docs" / "serving.md").read_text(encoding="utf-8"))
    begin, *calls = (block["text"] for block in blocks if block["language"] == "bash")
    train, serve = begin.splitlines()
    environment = os.environ | {"PATH": commands_path(), "OMP_NUM_THREADS": "1"}

    def run(command: str) -> str:
        done = subprocess.run(["bash", "-c", command], cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    run(train)
    command = f"exec {serve} --port 0".split()[1:]
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        port = int(process.stderr.readline().rstrip().rpartition(":")[2])
        server = Running(port, {}, None)  # type: ignore[arg-type]

        def answers() -> bool:
            try:
                return server.ask("/ready").status == 200
            except OSError:
                return False

        wait(answers)
        translated, predicted = (json.loads(run(call.replace(":5000", f":{port}"))) for call in calls)
        page = server.ask("/").content.decode()
        process.send_signal(signal.SIGTERM)
        process.stderr.read()
        assert process.wait(200) == 0
    assert translated["translatedText"] == "eins zwei"
    assert translated["detectedLanguage"]["language"] == "en"
    assert [output["text"] for output in predicted["outputs"]] == ["eins zwei", "drei"]
    assert predicted["outputs"][0]["alignment"]["source_words"] == ["one", "two"]
    assert re.search("<title>Translate</title>", page)


def test_the_limits_are_those_of_the_options() -> None:
    from headway.serving.options import ServeOptions

    text = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8")
    rows = text.split("## Limits")[1].split("##")[0].splitlines()
    for row in (row for row in rows if row.startswith("| `--")):
        names = [name.replace("-", "_") for name in re.findall(r"`--([a-z-]+)`", row.split("|")[1])]
        numbers = [float(number.replace(",", "")) for number in re.findall(r"\d[\d,]*", row.split("|")[2])]
        assert numbers == [ServeOptions.model_fields[name].default for name in names]
