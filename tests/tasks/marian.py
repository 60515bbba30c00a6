"""A small random Marian model with a real SentencePiece tokenizer, in a folder as OPUS-MT models are stored."""

import io
import json
from pathlib import Path
from typing import Any

import sentencepiece
import torch
from transformers import MarianConfig, MarianMTModel, MarianTokenizer

SOURCES = ["the cat sees a dog", "a dog sees the bird", "birds, cats and dogs!", "Where is the cat?", "ein Hund 12 34"]
TARGETS = ["le chat voit un chien", "un chien voit l'oiseau", "des oiseaux !", "Où est le chat ?", "un chien 12 34"]


def sentencepiece_model(lines: list[str], size: int, **ids: int) -> bytes:
    """A unigram model with SentencePiece's own normalisation, as OPUS-MT has it."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines * 3), model_writer=model, model_type="unigram", vocab_size=size,
        hard_vocab_limit=False, minloglevel=3, num_threads=1, **ids,
    )  # fmt: skip
    return model.getvalue()


def write_marian(folder: Path, *, separate: bool = False, **changes: Any) -> Path:
    """A folder with configuration, tokenizer and weights; `changes` are those of its MarianConfig."""
    folder.mkdir(parents=True, exist_ok=True)
    tables = []
    for name, lines in (("source", SOURCES), ("target", TARGETS)):
        model = sentencepiece_model(lines, 45)
        (folder / f"{name}.spm").write_bytes(model)
        processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        tables.append([processor.id_to_piece(id) for id in range(3, len(processor))])
    codes = [">>fra<<", ">>deu<<"]
    joint = list(dict.fromkeys([*codes, *tables[0], *tables[1]]))
    sides = [[*codes, *tables[0]], tables[1]] if separate else [joint]
    for file, pieces in zip(("vocab.json", "target_vocab.json"), sides, strict=False):
        table = ["</s>", "<unk>", *pieces, "<pad>"]
        (folder / file).write_text(json.dumps({piece: id for id, piece in enumerate(table)}), encoding="utf-8")
    sizes = [len(pieces) + 3 for pieces in sides]
    if separate:  # one padding id serves both
        sizes = [max(sizes)] * 2
        pad_tables(folder, sizes[0])
    config = MarianConfig(
        **{
            "vocab_size": sizes[0], "decoder_vocab_size": sizes[-1], "share_encoder_decoder_embeddings": not separate,
            "d_model": 8, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2,
            "decoder_attention_heads": 2, "encoder_ffn_dim": 12, "decoder_ffn_dim": 12, "activation_function": "swish",
            "scale_embedding": True, "max_position_embeddings": 32, "eos_token_id": 0, "pad_token_id": sizes[0] - 1,
            "decoder_start_token_id": sizes[0] - 1, "forced_eos_token_id": 0, "bos_token_id": 0,
        }
        | changes
    )  # fmt: skip
    torch.manual_seed(1)
    model = MarianMTModel(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.normal_(std=0.3)
        model.final_logits_bias.normal_()
    model.save_pretrained(str(folder))
    return folder


def pad_tables(folder: Path, size: int) -> None:
    """Tables of one size, whose last piece is the padding."""
    for file in ("vocab.json", "target_vocab.json"):
        table = json.loads((folder / file).read_text(encoding="utf-8"))
        del table["<pad>"]
        table |= {f"unused{id}": id for id in range(len(table), size - 1)}
        (folder / file).write_text(json.dumps(table | {"<pad>": size - 1}), encoding="utf-8")


def tokenizer_of(folder: Path, *, separate: bool = False) -> MarianTokenizer:
    """The library's own tokenizer of such a folder."""
    files = [str(folder / name) for name in ("source.spm", "target.spm", "vocab.json")]
    other = str(folder / "target_vocab.json") if separate else None
    return MarianTokenizer(*files, target_vocab_file=other, separate_vocabs=separate)
