"""How long a sentence pretrained encoders of several families read."""

import pytest
import torch
import transformers

from headway.tasks.pretrained_encoder import longest_read

SMALL = {"vocab_size": 20, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}


@pytest.mark.parametrize(
    ("config", "longest"),
    [
        (transformers.BertConfig(**SMALL, max_position_embeddings=12), 12),
        (transformers.RobertaConfig(**SMALL, max_position_embeddings=12, pad_token_id=1), 10),
        (transformers.CamembertConfig(**SMALL, max_position_embeddings=12, pad_token_id=3), 8),
        (transformers.MPNetConfig(**SMALL, max_position_embeddings=12), 10),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_encoder_reads_so_many_tokens_and_no_more(config, longest):
    assert longest_read(config) == longest
    encoder = transformers.AutoModel.from_config(config).eval()
    tokens = torch.full((1, longest + 1), 7)
    with torch.no_grad():
        encoder(input_ids=tokens[:, :-1], attention_mask=torch.ones(1, longest))
        with pytest.raises((RuntimeError, IndexError)):
            encoder(input_ids=tokens, attention_mask=torch.ones(1, longest + 1))


def test_relative_positions_have_no_bound():
    config = transformers.XLNetConfig(vocab_size=20, d_model=8, n_layer=1, n_head=2, d_inner=8)
    assert longest_read(config) is None
