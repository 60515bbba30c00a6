import math


def heads(x, query, key, value, out, count):
    def cut(vectors):
        return vectors.view(len(x), count, -1).transpose(0, 1)  # (heads, length, size of a head)

    queries, keys, values = cut(x @ query), cut(x @ key), cut(x @ value)
    scores = queries @ keys.transpose(1, 2) / math.sqrt(queries.shape[2])
    mixed = scores.softmax(2) @ values
    return mixed.transpose(0, 1).reshape(len(x), -1) @ out
