"""Small random encoder-decoders with real tokenizers, made and stored by the library itself."""

import atexit
import io
import json
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import sentencepiece
import torch
import transformers
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

LINES = [
    "the cat sees a dog", "a dog sees the bird", "birds, cats and dogs!", "Where is the cat?", "ein Hund 12 34",
    "le chat voit un chien", "un chien voit l'oiseau", "des oiseaux !", "Où est le chat ?", "Der Hund sieht die Katze.",
]  # fmt: skip
SIZES: dict[str, Any] = {
    "d_model": 16, "encoder_layers": 2, "decoder_layers": 3, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
    "encoder_ffn_dim": 24, "decoder_ffn_dim": 24, "max_position_embeddings": 40, "dropout": 0.1,
}  # fmt: skip
FAIRSEQ = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2}
CASES: dict[str, dict[str, Any]] = {
    "t5": {},
    "t5-gated": {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
    "t5-silu": {"feed_forward_proj": "gated-silu", "d_kv": 6},
    "bart": {},
    "bart-relu": {"activation_function": "relu", "scale_embedding": True},
    "mbart50": {"scale_embedding": True},
    "mbart": {"scale_embedding": True, "activation_function": "relu"},
    "nllb": {"scale_embedding": True, "activation_function": "relu"},
    "m2m": {"scale_embedding": True, "activation_function": "relu"},
}


def sentencepiece_model(kind: str, size: int) -> bytes:
    """A SentencePiece model of the lines."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES * 3), model_writer=model, model_type=kind, vocab_size=size,
        hard_vocab_limit=False, minloglevel=3, num_threads=1,
    )  # fmt: skip
    return model.getvalue()


def unigram(special: list[str]) -> list[tuple[str, float]]:
    """Special tokens, then pieces with their scores."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=sentencepiece_model("unigram", 70))
    pieces = [(processor.id_to_piece(id), processor.get_score(id)) for id in range(3, len(processor))]
    return [*((token, 0.0) for token in special), *pieces]


def byte_pairs(special: list[str], *, bytes_: bool) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Pieces with their ids, and merges."""
    tokenizer = Tokenizer(models.BPE(unk_token=None if bytes_ else "<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False) if bytes_ else pre_tokenizers.Metaspace()
    alphabet = pre_tokenizers.ByteLevel.alphabet() if bytes_ else []
    trainer = trainers.BpeTrainer(
        vocab_size=330 if bytes_ else 100, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(LINES * 3, trainer)
    model = json.loads(tokenizer.to_str())["model"]
    return model["vocab"], [tuple(pair) for pair in model["merges"]]


def tokenizer_of(case: str, folder: Path) -> Any:
    """The tokenizer of a case."""
    kind, fairseq = case.partition("-")[0], ["<s>", "<pad>", "</s>", "<unk>"]
    if kind == "t5":
        extra = [(f"<extra_id_{id}>", 0.0) for id in reversed(range(8))]
        vocabulary = unigram(["<pad>", "</s>", "<unk>"])
        return transformers.T5Tokenizer(vocab=[*vocabulary, *extra], extra_ids=8)
    if kind == "bart":
        pieces, merges = byte_pairs([*fairseq, "<mask>"], bytes_=True)
        return transformers.BartTokenizer(vocab=pieces, merges=merges)
    if kind == "mbart50":
        special = ["<unk>", "<s>", "</s>"]
        return transformers.MBart50Tokenizer(vocab=unigram(special), src_lang="en_XX", tgt_lang="fr_XX")
    if kind == "mbart":
        codes = [(code, 0.0) for code in ("en_XX", "fr_XX", "de_DE")]
        return transformers.MBartTokenizer(vocab=[*unigram(fairseq), *codes], src_lang="en_XX", tgt_lang="fr_XX")
    if kind == "nllb":
        pieces, merges = byte_pairs(fairseq, bytes_=False)
        return transformers.NllbTokenizer(vocab=pieces, merges=merges, src_lang="eng_Latn", tgt_lang="fra_Latn")
    model = sentencepiece_model("bpe", 80)
    (folder / "sentencepiece.bpe.model").write_bytes(model)
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    known = [processor.id_to_piece(id) for id in range(3, len(processor) - 5)]  # the table lacks some
    (folder / "vocab.json").write_text(json.dumps({piece: id for id, piece in enumerate([*fairseq, *known])}))
    files = [str(folder / name) for name in ("vocab.json", "sentencepiece.bpe.model")]
    return transformers.M2M100Tokenizer(*files, src_lang="en", tgt_lang="fr")


def write_model(folder: Path, case: str, **changes: Any) -> Path:
    """A folder with configuration, tokenizer and weights; `changes` are those of the configuration."""
    return Path(shutil.copytree(_made(case, json.dumps(changes)), folder, dirs_exist_ok=True))


@cache
def _made(case: str, changes: str) -> Path:
    """Such a folder, which is made once, and not to be changed."""
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder)
    tokenizer = tokenizer_of(case, folder)
    kind = case.partition("-")[0]
    size = len(tokenizer) + (108 if kind == "m2m" else 3)  # rows that no piece has; M2M-100 does not count its codes
    options = CASES[case] | json.loads(changes)
    if kind == "t5":
        given = {
            "d_model": 16, "d_kv": 4, "d_ff": 24, "num_layers": 2, "num_decoder_layers": 3, "num_heads": 4,
            "relative_attention_num_buckets": 8, "relative_attention_max_distance": 20, "decoder_start_token_id": 0,
        }  # fmt: skip
        config: Any = transformers.T5Config(vocab_size=size, **(given | options))
        made: Any = transformers.T5ForConditionalGeneration
    else:
        code = {"nllb": "fra_Latn", "m2m": "__fr__", "bart": "<s>"}.get(kind, "fr_XX")
        start, forced = 2, tokenizer.convert_tokens_to_ids(code)
        if kind == "mbart":
            start, forced = forced, None
        name = {"bart": "Bart", "mbart": "MBart", "mbart50": "MBart"}.get(kind, "M2M100")
        made = getattr(transformers, f"{name}ForConditionalGeneration")
        kept = {"vocab_size": size, **SIZES, **FAIRSEQ, "decoder_start_token_id": start}
        config = getattr(transformers, f"{name}Config")(**(kept | options))
    torch.manual_seed(1)
    model = made(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.3 * torch.randn_like(parameter) + (parameter if parameter.dim() == 1 else 0))
        if "final_logits_bias" in dict(model.named_buffers()):
            model.final_logits_bias.normal_()
    _learn(model, tokenizer)
    model.generation_config.max_length = 30
    if kind != "t5":
        model.generation_config.forced_bos_token_id = forced
    model.save_pretrained(str(folder))
    tokenizer.save_pretrained(str(folder))
    if options.get("tie_word_embeddings") is False:  # as T5 1.1 is stored; the library ties what it stores itself
        weights = load_file(folder / "model.safetensors")
        projection = weights["shared.weight"]
        weights["lm_head.weight"] = projection + 0.05 * torch.randn_like(projection)
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def _learn(model: Any, tokenizer: Any) -> None:
    """Some updates on a few pairs, so that outputs are no repetitions, and end."""
    pairs = tokenizer(LINES, text_target=[*LINES[5:], *LINES[:5]], padding=True, return_tensors="pt")
    pairs["labels"] = pairs["labels"].masked_fill(pairs["labels"] == tokenizer.pad_token_id, -100)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(50):
        optimizer.zero_grad()
        model(**pairs).loss.backward()
        optimizer.step()
    model.requires_grad_(False)
