"""The model card that training leaves in a run folder."""

import json
import shutil
from pathlib import Path

import yaml

from headway.runs.model_card import write_card
from headway.runs.run import open_run
from headway.runs.run_folder import RunFolder
from tests.conftest import Reversal


def test_training_leaves_a_card(reversal: Reversal) -> None:
    """It has the task, the data with counts and hashes, scores with signatures, the speed, and a licence to fill in."""
    folder = RunFolder(reversal.run)
    card, manifest = folder.card.read_text(encoding="utf-8"), folder.read_manifest()
    head = yaml.safe_load(card.split("---\n")[1])
    assert (head["license"], head["tags"]) == ("other", ["headway", "translation"])
    for section in ("Use", "Task and data", "Scores", "Speed", "Licence", "Recipe", "Provenance"):
        assert f"\n## {section}\n" in card
    assert "headway predict run < input > output" in card
    assert manifest["examples"] == {"train": 320, "dev": 16}
    assert f"data.train, what was used of it: {manifest['examples']['train']:,} examples" in card
    assert f"data.dev, hash of its content: `{manifest['data']['dev']}`" in card
    assert "| exact_match |" in card
    assert "target tokens a second" in card
    assert "To be filled in." in card
    assert str(reversal.run.parent) not in card
    assert "language" not in head, "the recipe names none"


def test_a_card_that_somebody_filled_in_is_kept_until_the_weights_are_others(
    reversal: Reversal, tmp_path: Path
) -> None:
    folder = RunFolder(tmp_path / "run")
    shutil.copytree(reversal.run, folder.path)
    filled = folder.card.read_text(encoding="utf-8").replace("To be filled in.", "CC BY 4.0.")
    folder.card.write_text(filled, encoding="utf-8")
    write_card(open_run(folder.path))
    assert folder.card.read_text(encoding="utf-8") == filled
    manifest = json.loads(folder.manifest_file.read_text(encoding="utf-8"))
    folder.manifest_file.write_text(json.dumps(manifest | {"model_sha256": "0" * 64}), encoding="utf-8")
    write_card(open_run(folder.path))
    assert "To be filled in." in folder.card.read_text(encoding="utf-8")
