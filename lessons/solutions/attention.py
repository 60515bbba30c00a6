import math

import torch


def attention(queries, keys, values, mask):
    scores = queries @ keys.T / math.sqrt(queries.shape[1])
    weights = scores.masked_fill(~mask, -torch.inf).softmax(1)
    return weights @ values, weights
