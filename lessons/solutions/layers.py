def layers(hidden, value, key, score):
    keys = (hidden @ key).relu()
    scores = (keys * score[:, None]).sum(2)  # (layers, tokens)
    weights = scores.softmax(0)
    return (weights[:, :, None] * (hidden @ value)).sum(0), weights
