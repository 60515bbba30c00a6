"""User-facing names of modules: PyTorch counts layers from 0, headway from 1."""

import re


def counted_from_1(name: str) -> str:
    """The name of a module, such as `encoder.0.mixer`, with its layer counted from 1: `encoder.1.mixer`."""
    layer = r"((?:encoder|decoder)(?:\.layers)?\.)(\d+)(?=\.|$)"
    return re.sub(rf"^{layer}", lambda found: f"{found[1]}{int(found[2]) + 1}", name)
