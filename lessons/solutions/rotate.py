import torch


def rotate(x, base):
    length, size = x.shape
    speeds = base ** (-torch.arange(0, size, 2) / size)
    angles = torch.arange(length)[:, None] * speeds
    left, right = x.chunk(2, 1)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([left * cos - right * sin, left * sin + right * cos], 1)
