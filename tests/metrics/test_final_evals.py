"""Final evaluations: the files of a pipeline that others read, with sacrebleu's own values."""

import json
from pathlib import Path

import pytest
import sacrebleu
import sentencepiece

from headway.core.errors import UserError
from headway.metrics import as_metrics, build_metric
from headway.metrics.final_evals import Evaluated, write_final_evals
from tests.conftest import Command

SOURCES = ["the cat is here", "two dogs sleep in the house", "a bird"]
SAID = ["die Katze ist da", "zwei Hunde schlafen im Haus", "ein Vogel fliegt"]
WANTED = ["die Katze ist hier", "zwei Hunde schlafen in dem Haus", "ein Vogel"]
TEST = Evaluated("en-de", "animals", "headway", "tiny", SOURCES, SAID, WANTED)


def read(folder: Path, name: str):
    return json.loads((folder / "en-de/animals/headway/tiny/latest" / name).read_text("utf-8"))


def test_the_files_have_the_values_of_sacrebleu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tmp_path / "sacrebleu" / "models" / "flores200sacrebleuspm"
    model.parent.mkdir(parents=True)
    with model.open("wb") as file:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(SAID + WANTED), model_writer=file, vocab_size=30, minloglevel=3
        )
    for place in ("sacrebleu.utils", "sacrebleu.tokenizers.tokenizer_spm"):
        monkeypatch.setattr(f"{place}.SACREBLEU_DIR", str(tmp_path / "sacrebleu"))
    table = write_final_evals(tmp_path, TEST)
    expected = {
        "chrf": (sacrebleu.corpus_chrf(SAID, [WANTED]), sacrebleu.sentence_chrf),
        "chrfpp": (
            sacrebleu.corpus_chrf(SAID, [WANTED], word_order=2),
            lambda said, wanted: sacrebleu.sentence_chrf(said, wanted, word_order=2),
        ),
        "bleu": (sacrebleu.corpus_bleu(SAID, [WANTED]), sacrebleu.sentence_bleu),
        "spbleu": (
            sacrebleu.corpus_bleu(SAID, [WANTED], tokenize="flores200"),
            lambda said, wanted: sacrebleu.sentence_bleu(said, wanted, tokenize="flores200"),
        ),
    }
    for name, (corpus, sentence) in expected.items():
        assert read(tmp_path, f"{name}.metrics.json")["score"] == pytest.approx(corpus.score)
        assert read(tmp_path, f"{name}.metrics.json")["details"]["name"]
        scores = [sentence(said, [wanted]).score for said, wanted in zip(SAID, WANTED, strict=True)]
        assert read(tmp_path, f"{name}.scores.json") == pytest.approx(scores)
    first = {"src": SOURCES[0], "trg": SAID[0], "ref": WANTED[0]}
    assert read(tmp_path, "translations.json")[0] == first
    times = sorted(path.name for path in (tmp_path / "en-de/animals/headway/tiny").iterdir())
    assert times[-1] == "latest"
    assert len(times) == 2
    missing = {row[0] for row in table.rows if row[1] is None}
    assert missing == {"comet22", "metricx24", "metricx24-qe"}


def test_comet_is_a_share_of_one(tmp_path: Path) -> None:
    test = TEST._replace(translations=[WANTED[0], *SAID[1:]])
    write_final_evals(tmp_path, test, build_metric("exact_match"))
    assert read(tmp_path, "comet22.metrics.json")["score"] == pytest.approx(1 / 3)
    assert read(tmp_path, "comet22.scores.json") == [1, 0, 0]


def test_what_cannot_be_measured_has_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sacrebleu.utils.SACREBLEU_DIR", str(tmp_path / "nothing"))
    table = write_final_evals(tmp_path, TEST._replace(pair="en-ja"))
    reasons = {row[0]: row[2] for row in table.rows}
    assert reasons["chrf"] == ""
    assert "ja" in str(reasons["bleu"])
    assert "flores200" in str(reasons["spbleu"])
    assert {path.name for path in (tmp_path / "en-ja/animals/headway/tiny/latest").iterdir()} == {
        "translations.json", "chrf.metrics.json", "chrf.scores.json", "chrfpp.metrics.json", "chrfpp.scores.json",
    }  # fmt: skip


@pytest.mark.parametrize("changes", [{"translations": SAID[:2]}, {"dataset": "../there"}, {"model": ""}])
def test_lines_that_do_not_match_and_names_that_leave_the_folder(tmp_path: Path, changes: dict) -> None:
    with pytest.raises(UserError):
        write_final_evals(tmp_path, TEST._replace(**changes))
    assert not [*tmp_path.iterdir()]


def test_the_command_writes_the_scores_of_one_system(tmp_path: Path, run_headway: Command) -> None:
    for name, lines in (("source", SOURCES), ("said", SAID), ("wanted", WANTED)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    given = ["--hypotheses", f"tiny={tmp_path / 'said'}", "--references", tmp_path / "wanted"]
    whole = [*given, "--source", tmp_path / "source", "--pair", "en-de", "--dataset", "animals"]
    ended = run_headway("score", "--final-evals", tmp_path / "evals", *whole)
    assert ended.code == 0, ended.err
    assert "no metric of headway" in ended.out
    assert read(tmp_path / "evals", "chrf.metrics.json")["score"] > 50
    evals = ["--final-evals", tmp_path / "evals"]
    for wrong in (["--pair", "en-de", *given], [*evals, *given], [*evals, *whole, "--metric", "ter"]):
        ended = run_headway("score", *wrong)
        assert ended.code == 2
    assert as_metrics("chrf")[0].score(SAID, [WANTED]).value == pytest.approx(
        read(tmp_path / "evals", "chrf.metrics.json")["score"]
    )
