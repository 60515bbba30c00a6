"""What enters the layers equals its equation."""

import torch

from tests import reference
from tests.models import toys


def test_a_norm_is_on_the_sum_of_token_and_position():
    model, batch = toys.drawn(toys.model(embedding_norm=True, position="learned")), toys.batch()
    for embedding, ids in (
        (model.source_embedding, batch.source),
        (model.target_embedding, batch.target_input),
    ):
        vectors = embedding(ids)
        for row, t in ((0, 0), (1, 2)):
            total = embedding.tokens.weight[ids[row, t]] * embedding.scale + embedding.position.table[t]
            expected = reference.layer_norm(embedding.norm, total)
            assert torch.allclose(vectors[row, t], expected, atol=1e-6)
            assert torch.allclose(embedding.at(ids[row, t].view(1, 1), torch.tensor([[t]]))[0, 0], expected, atol=1e-6)
    assert model.source_embedding.norm is not model.target_embedding.norm
