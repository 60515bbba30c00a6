import math
from statistics import mean, stdev

from scipy import stats


def verdict(a, b):
    gains = [after - before for before, after in zip(a, b, strict=True)]
    if len(gains) < 2:
        return -math.inf, math.inf, "no verdict"
    half = stats.t.ppf(0.975, len(gains) - 1) * stdev(gains) / math.sqrt(len(gains))
    low, high = mean(gains) - half, mean(gains) + half
    return low, high, "better" if low > 0 else "worse" if high < 0 else "no verdict"
