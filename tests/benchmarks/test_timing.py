"""Both benches at a size of seconds; the contenders compute the same."""

import json
import re
import time
from dataclasses import replace
from functools import partial

import bench_constraints
import bench_decode
import bench_lengths
import bench_mixers
import bench_train
import pytest
import torch
from rounds import SIZES, BenchReport, Contender, Measurement, SyntheticCorpus, compete, matrix_peak

from headway.core.errors import RunError, UserError
from headway.core.forks import forks, may_fork
from tests.rounding import rounding

pytestmark = pytest.mark.slow  # a process for each contender
TINY = SIZES["tiny"]
SENTENCES_OF_A_ROUND = 3


@pytest.fixture(autouse=True)
def one_thread(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # for the contenders' processes
    monkeypatch.setattr("rounds.PEAK_SHAPES", ((512, 128, 512), (256, 256, 256)))


def counter(step):
    return lambda number: step * (number + 1), {"precision": "float32"}


def failing():
    raise ValueError("no such luck")


def vanishing():
    raise SystemExit


def spin():
    end = time.process_time() + 0.1
    while time.process_time() < end:
        pass


def forking():
    with forks(1) as begin:
        (wait,) = begin([spin])
        wait()


def setup_forking():
    return lambda number: forking() or 1, {"may_fork": may_fork()}


def test_processes_of_a_contender_count():
    (measured,) = compete("tiny", "", [Contender("forking", setup_forking, ())], 1)
    assert measured.facts == {"may_fork": True}
    assert measured.cpu_seconds[0] > 0.09


def test_all_contenders_play_all_rounds():
    contenders = [Contender("two", counter, (2,)), Contender("three", counter, (3,))]
    measurements = compete("tiny", "", contenders, 3)
    assert [(each.contender, each.baseline, each.tokens) for each in measurements] == [
        ("two", "three", [2, 4, 6]),
        ("three", "three", [3, 6, 9]),
    ]
    assert all(second > 0 for each in measurements for second in each.seconds)


def test_a_contender_that_fails_is_named_with_its_traceback():
    with pytest.raises(RunError, match=r"(?s)broken: .*failing.*no such luck"):
        compete("tiny", "", [Contender("broken", failing, ()), Contender("two", counter, (2,))], 1)


def test_a_contender_whose_process_ends_is_named():
    with pytest.raises(RunError, match="gone: its process ended"):
        compete("tiny", "", [Contender("gone", vanishing, ())], 1)


def test_report_takes_the_median_of_the_ratios_of_each_round():
    ours = Measurement(
        "small", "16", "ours", {"precision": "bf16", "flops_per_token": 10}, "theirs", [60, 90, 20], [1, 1, 1]
    )
    theirs = Measurement(
        "small", "16", "theirs", {"precision": "float32", "flops_per_token": 10}, "theirs", [20, 90, 40], [1, 2, 1]
    )
    elsewhere = replace(theirs, setting="1", tokens=[1, 1, 1])
    report = BenchReport("title", "batch", [ours, elsewhere, theirs], {"bf16": 1200, "float32": 1000}, ["a note"])
    assert ours.ratios(report.baseline_of(ours)) == [3, 2, 0.5]
    lines = report.text().splitlines()
    (row,) = (line.split() for line in lines if "ours" in line)
    assert row == ["small", "16", "ours", "60", "2.00", "0.50", "-", "3.00", "50%"]
    assert lines[-1] == "a note"
    content = json.loads(report.to_json())
    assert content["measurements"][0]["tokens_per_second"] == 60
    assert content["measurements"][0]["times_baseline"] == 2
    assert content["measurements"][0]["seconds"] == [1, 1, 1]


def test_a_report_is_read_as_it_was_written(tmp_path):
    ours = Measurement("small", "16, 4", "ours", {"memory": 0.5}, "ours", [60, 90], [1, 1], [1, 1])
    report = BenchReport("title", "batch", [ours], {"float32": 1000}, ["a note"]).write(tmp_path / "report.json")
    assert BenchReport.read(tmp_path / "report.json").text() == report.text()
    (tmp_path / "other.json").write_text('{"title": "title"}')
    with pytest.raises(UserError, match=r"other\.json: this is no report of a benchmark"):
        BenchReport.read(tmp_path / "other.json")


def test_synthetic_lengths_are_those_of_sentences():
    corpus = SyntheticCorpus(50, 20_000)
    assert corpus.target_lengths.min() == 5
    assert corpus.target_lengths.max() == 100
    assert 25 < corpus.target_lengths.mean() < 30
    for index in (0, 19_999):
        assert len(corpus.source(index)) == corpus.source_lengths[index]
        assert len(corpus.target(index)) == corpus.target_lengths[index]
    long = (corpus.target_lengths >= 50) & (corpus.target_lengths < 80)  # where whole numbers and limits matter little
    ratio = corpus.source_lengths[long] / corpus.target_lengths[long]
    assert 0.75 < ratio.min() < 0.85
    assert 1.2 < ratio.max() < 1.3


def test_matrix_peak_is_at_most_what_a_processor_can_do():
    assert 1e8 < matrix_peak("float32", torch.device("cpu")) < 1e16


def test_rounds_take_their_own_batches_and_begin_again():
    size = replace(TINY, updates=2)
    batches = ["a", "b", "c"]
    assert [bench_train.in_round(size, batches, number) for number in range(3)] == [["a", "b"], ["c", "a"], ["b", "c"]]


def test_plain_loop_computes_the_same_as_headway():
    """The plain model with headway's weights gives headway's logits, so that both do the same work."""
    torch.manual_seed(1)
    plain = bench_train.PlainTransformer(TINY).eval()
    model = bench_decode.random_model(TINY)
    ours = model.state_dict()
    names = {
        "mixer.in_projection.": "self_attn.in_proj_", "mixer.out_projection": "self_attn.out_proj",
        "cross.out_projection": "multihead_attn.out_proj", "feed_forward.inner": "linear1",
        "feed_forward.outer": "linear2", "mixer_residual.norm": "norm1",
    }  # fmt: skip
    carried = {"embedding.weight": ours["source_embedding.tokens.weight"], "positions": plain.positions}
    for name, value in ours.items():
        side, _, rest = name.partition(".")
        if name == "projection.weight":
            carried[name] = value
        if side not in ("encoder", "decoder") or "cross.query" in name or "cross.memory" in name:
            continue
        last = "norm2" if side == "encoder" else "norm3"
        for old, new in (names | {"cross_residual.norm": "norm2", "feed_forward_residual.norm": last}).items():
            rest = rest.replace(old, new)
        carried[f"transformer.{side}.layers.{rest}"] = value
    for layer in range(len(model.decoder)):
        for kind in ("weight", "bias"):
            parts = [ours[f"decoder.{layer}.cross.{part}_projection.{kind}"] for part in ("query", "memory")]
            carried[f"transformer.decoder.layers.{layer}.multihead_attn.in_proj_{kind}"] = torch.cat(parts)
    missing, unexpected = plain.load_state_dict(carried, strict=False)
    assert not unexpected
    assert {name.rpartition(".")[0] for name in missing} == {"transformer.encoder.norm", "transformer.decoder.norm"}
    plain.transformer.encoder.norm = plain.transformer.decoder.norm = None

    corpus = SyntheticCorpus(TINY.vocabulary, 100)
    batch = corpus.collate(corpus.plan(1, 0, batch_tokens=256)[0])
    expected, received = model(batch).logits, plain(batch.source, batch.target_input)
    torch.testing.assert_close(received[batch.target_mask], expected[batch.target_mask], rtol=1e-4, atol=1e-4)


def test_train_command(tmp_path):
    report = bench_train.run_bench_train(["tiny"], ["float32"], 2, tmp_path / "train.json")
    ours, plain = report.measurements
    assert ours.tokens == plain.tokens
    assert all(200 < tokens <= 256 for tokens in ours.tokens)
    norms = 2 * 2 * TINY.model.dim  # torch.nn.Transformer has one more at the top of each stack
    assert plain.facts["parameters"] == ours.facts["parameters"] + norms
    content = json.loads((tmp_path / "train.json").read_text())
    assert [each["contender"] for each in content["measurements"]] == ["headway float32", "plain float32"]
    # A pass forward and backward is about 6 FLOPs a weight and token, here mostly the output's.
    assert 2 < ours.facts["flops_per_token"] / ours.facts["parameters"] < 12
    assert all(0 <= each.facts["memory"] < 1 for each in report.measurements)
    lines = report.text().splitlines()
    assert any("memory (GiB)" in line and "padding" in line for line in lines)
    assert torch.backends.cpu.get_cpu_capability() in report.text()
    assert re.search("training.precision auto takes (float32|bf16): in the trial", report.text())


@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_the_plain_loop_computes_in_its_precision(monkeypatch, precision):
    forward, seen = bench_train.PlainTransformer.forward, set()

    def noted(self, source, target):
        logits = forward(self, source, target)
        seen.add(logits.dtype)
        return logits

    monkeypatch.setattr(bench_train.PlainTransformer, "forward", noted)
    play, facts = bench_train.setup_plain("tiny", precision)
    assert play(0) > 0
    assert facts["precision"] == precision
    assert seen == {bench_train.PRECISIONS[precision]}


def test_padding_is_counted_on_both_sides():
    corpus = SyntheticCorpus(TINY.vocabulary, 60)
    batches = corpus.plan(1, 0, batch_tokens=256)
    made = [corpus.collate(indices) for indices in batches]
    masks = [mask for batch in made for mask in (batch.source_mask, batch.target_mask)]
    places, tokens = sum(mask.numel() for mask in masks), sum(int(mask.sum()) for mask in masks)
    assert bench_train.padding(corpus, batches) == pytest.approx(1 - tokens / places)
    assert 0 < bench_train.padding(corpus, batches) < 1


def test_recomputed_blocks_do_the_same_work():
    plain, again = (bench_train.setup_headway("tiny", "float32", activation_checkpointing=each) for each in (0, 1))
    assert again[1]["parameters"] == plain[1]["parameters"]
    assert again[1]["flops_per_token"] > plain[1]["flops_per_token"]
    assert again[0](0) == plain[0](0)


def test_recomputed_blocks_need_less_memory():
    setup = partial(bench_train.setup_headway, length=600)
    contenders = [
        Contender(str(again), setup, ("tiny", "float32", bench_train.PLAIN, again)) for again in (True, False)
    ]
    recomputed, kept = (each.facts["memory"] for each in compete("tiny", "", contenders, 1))
    assert recomputed < kept


def test_lengths_command(tmp_path):
    report = bench_lengths.run_bench_lengths("tiny", [9], "float32", 1, tmp_path / "lengths.json")
    mixers = ["ngram", "local", "attention"]
    contenders = [f"{mixer}, recomputed" for mixer in mixers] + mixers
    assert [(each.setting, each.contender) for each in report.measurements] == [("9", name) for name in contenders]
    for measurement in report.measurements:
        assert measurement.tokens == [256 // 10 * 10]  # of whole sentences with their ends
        assert measurement.facts["padding"] == 0
        assert measurement.baseline == "attention"
    parameters = {each.contender: each.facts["parameters"] for each in report.measurements}
    assert parameters["ngram"] == parameters["ngram, recomputed"] != parameters["attention"]


def test_decode_command(tmp_path):
    pytest.importorskip("transformers", reason="bench decode measures beside it: pip install 'headway[pretrained]'")
    pytest.importorskip("ctranslate2", reason="bench decode measures beside it: pip install 'headway[export]'")
    report = bench_decode.run_bench_decode(
        ["tiny"], [3], 2, tmp_path / "decode.json", beams=[3], lengths=[5], precisions=["float32"]
    )
    assert [(each.contender, each.baseline) for each in report.measurements] == [
        ("headway float32", "CTranslate2 float32"),
        ("CTranslate2 float32", "CTranslate2 float32"),
        ("Hugging Face float32", "CTranslate2 float32"),
    ]
    for measurement in report.measurements:
        assert measurement.tokens == [SENTENCES_OF_A_ROUND * 5] * 2
        assert measurement.facts["equal_outputs"] == 1
        assert measurement.facts["by_processor_time"] > 0
    assert "the fastest of each, headway float32 beside CTranslate2 float32: " in report.text()
    assert json.loads((tmp_path / "decode.json").read_text())["measurements"][0]["setting"] == "3, 3, 5"


@pytest.mark.parametrize(
    ("installed", "expected"),
    [
        ({"ctranslate2"}, ["CTranslate2 int8", "CTranslate2 float32", "CTranslate2 float32", "CTranslate2 float32"]),
        ({"transformers"}, ["Hugging Face float32"] * 3),
    ],
)
def test_a_contender_that_is_not_installed_is_left_out_and_told(monkeypatch, installed, expected):
    pytest.importorskip("ctranslate2")
    monkeypatch.setattr(bench_decode, "find_spec", lambda name: name in installed or None)
    monkeypatch.setattr(bench_decode, "_has", lambda precision, device: precision != "bf16")
    monkeypatch.setattr("ctranslate2.get_supported_compute_types", lambda device: {"float32", "int8"})
    builds, missing = bench_decode._contenders(None, torch.device("cpu"))
    assert sorted(baseline for _, baseline, _ in builds) == sorted(expected)
    (told,) = missing
    assert "is left out, since it is not installed: pip install 'headway[" in told
    monkeypatch.setattr(bench_decode, "find_spec", lambda name: None)
    with pytest.raises(UserError, match="not installed"):
        bench_decode._contenders(None, torch.device("cpu"))


def test_contenders_on_an_accelerator(monkeypatch):
    pytest.importorskip("ctranslate2")
    monkeypatch.setattr(bench_decode, "find_spec", lambda name: name)
    monkeypatch.setattr("ctranslate2.get_cuda_device_count", lambda: 0)
    builds, missing = bench_decode._contenders(None, torch.device("cuda"))
    assert [(name, baseline) for name, baseline, _ in builds] == [
        ("headway float32", "Hugging Face float32"),
        ("headway float32, recorded", "Hugging Face float32"),
        ("headway bf16", "Hugging Face float32"),
        ("headway bf16, recorded", "Hugging Face float32"),
        ("Hugging Face float32", "Hugging Face float32"),
    ]
    assert missing == ["CTranslate2 is left out, since it has nothing for cuda here"]
    monkeypatch.setattr("ctranslate2.get_cuda_device_count", lambda: 1)
    monkeypatch.setattr("ctranslate2.get_supported_compute_types", lambda device: {"float32", "int8", "bfloat16"})
    builds, missing = bench_decode._contenders(["bf16"], torch.device("cuda"))
    assert [(name, baseline) for name, baseline, _ in builds] == [
        ("headway bf16", "CTranslate2 bf16"),
        ("headway bf16, recorded", "CTranslate2 bf16"),
        ("CTranslate2 bf16", "CTranslate2 bf16"),
        ("Hugging Face float32", "CTranslate2 bf16"),
    ]
    assert not missing


def test_marian_with_our_weights_gives_our_log_probabilities():
    pytest.importorskip(
        "transformers", reason="bench decode measures beside transformers: pip install 'headway[pretrained]'"
    )
    model = bench_decode.random_model(TINY)
    marian = bench_decode.marian_model(TINY, model)
    corpus = SyntheticCorpus(TINY.vocabulary, 100)
    batch = corpus.collate(torch.arange(3).numpy())
    with torch.no_grad():
        theirs = marian(batch.source, batch.source_mask.long(), decoder_input_ids=batch.target_input).logits
        ours = model(batch).logits
    torch.testing.assert_close(theirs[batch.target_mask], ours[batch.target_mask], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (lambda: bench_train.run_bench_train(["huge"], ["float32"], 1), "size: .*'huge'.*base, .*small, tiny"),
        (lambda: bench_train.run_bench_train(["tiny"], ["int8"], 1), "precision: .*'int8'.*float32, bf16"),
        (lambda: bench_decode.run_bench_decode(["huge"], [1], 1), "size: .*'huge'"),
        (
            lambda: bench_decode.run_bench_decode(["tiny"], [1], 1, precisions=["int4"]),
            "precision: .*'int4'.*bf16, int8",
        ),
    ],
)
def test_unknown_choices_are_errors(run, message):
    with pytest.raises(UserError, match=message):
        run()


def test_an_output_that_cannot_be_written_is_an_error_before_work_is_lost(tmp_path):
    with pytest.raises(UserError, match="output: this folder does not exist"):
        bench_train.run_bench_train(["tiny"], ["float32"], 1, tmp_path / "missing" / "train.json")


def test_mixers_are_measured_by_length(tmp_path, monkeypatch):
    monkeypatch.setattr(
        bench_mixers, "MIXERS", {name: bench_mixers.MIXERS[name] for name in ("ngram", "fused attention")}
    )
    monkeypatch.setattr(bench_mixers, "FITTED_FROM", 16)
    report = bench_mixers.run_bench_mixers(
        [16, 32, 64], "float32", 1, torch.device("cpu"), tmp_path / "mixers.json", tmp_path / "mixers.svg"
    )
    settings = ["L 16", "L 32", "L 64"]
    assert [each.setting for each in report.measurements] == [setting for setting in settings for _ in range(2)]
    assert {each.baseline for each in report.measurements} == {"fused attention"}
    assert all(each.facts["bytes_per_sequence"] >= 0 for each in report.measurements)
    assert "ngram: from 16 on, time grows as L^" in report.text()
    content = json.loads((tmp_path / "mixers.json").read_text())
    assert len(content["measurements"]) == 6
    assert "fused attention" in (tmp_path / "mixers.svg").read_text()


def test_the_state_of_attention_grows_by_keys_and_values_and_that_of_a_delta_rule_does_not(monkeypatch):
    names = ("delta, none", "attention")
    monkeypatch.setattr(bench_mixers, "MIXERS", {name: bench_mixers.MIXERS[name] for name in names})
    monkeypatch.setattr(bench_mixers, "POSITIONS", (2, 5))
    report = bench_mixers.run_bench_steps("float32", 1, torch.device("cpu"))
    dim, heads = bench_mixers.DIM, bench_mixers.HEADS
    state = {(each.contender, each.setting): 2**10 * each.facts["state"] for each in report.measurements}
    assert state["attention", "5"] - state["attention", "2"] == 3 * 2 * dim * 4
    assert state["delta, none", "5"] == state["delta, none", "2"] == dim * dim // heads * 4
    assert "state (KiB)" in report.text()


def test_fused_attention_is_attention():
    torch.manual_seed(1)
    fused, own = bench_mixers.FusedAttention(8, True, heads=2), bench_mixers.Attention(8, True, heads=2)
    own.load_state_dict(fused.state_dict())
    x = torch.randn(2, 5, 8)
    assert torch.allclose(fused(x, None).values, own(x, None).values, atol=rounding())


def test_constraints_are_measured_beside_the_plain_transformer():
    report = bench_constraints.run_bench_constraints(["tiny"], ["float32"], 1)
    names = ["both constraints", "dependency", "synchronous", "plain Transformer"]
    assert [each.contender for each in report.measurements] == names
    assert len({tuple(each.tokens) for each in report.measurements}) == 1  # the same batches
    more = [each.facts["parameters"] - report.measurements[-1].facts["parameters"] for each in report.measurements]
    assert more[0] == more[1] > more[2] == more[3] == 0  # U of either side
