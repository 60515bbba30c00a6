"""A tagger whose frozen encoder reads each sentence once: its layers are cached for later epochs and other runs.

Shapes: B batch, P tokens, L layers that are read, D encoder.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor, nn

from headway.core.device import machine
from headway.core.files import write_bytes
from headway.core.storage import cache_folder, cache_named, fingerprint
from headway.mixers.points import Points
from headway.models import Tagger, TaggerConfig
from headway.models.model import wanted
from headway.tensors.batch import TokenBatch

NAME = "layers"  # of the tensor in a file
SUFFIX = ".safetensors"


class LayerCache:
    """Tensors by the token ids that they were computed from, in a folder of files of `most` bytes or a little more.

    A file that is missing or damaged is written again. Several processes may share the folder.
    """

    def __init__(self, folder: Path, most: int) -> None:
        with cache_named(folder):
            folder.mkdir(parents=True, exist_ok=True)
            self.folder, self.most, self.used = (
                folder,
                most,
                sum(path.stat().st_size for path in folder.glob(f"*{SUFFIX}")),
            )

    def __call__(self, ids: Tensor, compute: Callable[[Tensor], Tensor]) -> Tensor:
        """The tensor for token ids (P,), from its file or computed."""
        path = self.folder / f"{hashlib.sha256(ids.cpu().numpy().tobytes()).hexdigest()}{SUFFIX}"
        with suppress(OSError, SafetensorError, KeyError):
            return load_file(path, device=str(ids.device))[NAME]
        computed = compute(ids)
        content = save({NAME: computed})
        if self.used + len(content) <= self.most:
            with cache_named(self.folder):
                write_bytes(path, content)
            self.used += len(content)
        return computed


class CachingTagger(Tagger):
    """A tagger over a frozen encoder, whose layers of each sentence are cached.

    Each sentence is encoded alone, without padding, whether it is cached or not. So its layers are the same bits in all
    batches, and a resumed run ends with the same weights as an uninterrupted one.
    """

    def __init__(self, config: TaggerConfig, encoder: nn.Module, labels: int) -> None:
        super().__init__(config, encoder, labels)
        self._most, self._is_cached, self._caches = config.cache_bytes, True, dict[Any, LayerCache]()

    def points(self) -> Points:
        """See `Tagger.points`. The cache is not used from now on, because interventions change the encoder's values."""
        self._is_cached = False
        return super().points()

    def _encode(self, batch: TokenBatch, capture: Sequence[str]) -> tuple[Sequence[Tensor], dict[str, Tensor]]:
        encoder: Any = self.encoder
        names = (f"encoder.{layer}.self" for layer in range(1, encoder.config.num_hidden_layers + 1))
        if not self._is_cached or any(wanted(name, capture) for name in names):
            return super()._encode(batch, capture)
        return self._layers(batch).unbind(2), {}

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    @torch.no_grad()
    def _layers(self, batch: TokenBatch) -> Tensor:
        """The layers (B, P, L, D) of all sentences, zero at padding."""
        cache = self._cache(batch.tokens.device.type)
        sentences = (row[real] for row, real in zip(batch.tokens, batch.token_mask, strict=True))
        layers = [cache(sentence, self._layers_alone) for sentence in sentences]
        padded = layers[0].new_zeros(*batch.tokens.shape, *layers[0].shape[1:])
        for row, each in zip(padded, layers, strict=True):
            row[: len(each)] = each
        return padded

    def _layers_alone(self, sentence: Tensor) -> Tensor:
        """The layers (P, L, D) of a sentence (P,), computed."""
        inputs = {"input_ids": sentence[None], "attention_mask": torch.ones_like(sentence)[None]}
        hidden = self.encoder(**inputs, output_hidden_states=True).hidden_states[-self.mix.depth :]
        return torch.stack([layer[0] for layer in hidden], dim=1)

    def _cache(self, device: str) -> LayerCache:
        """The cache of this encoder for all that the bits of its layers depend on."""
        precision = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else torch.float32
        arithmetic = device, precision, torch.get_num_threads()
        if arithmetic not in self._caches:
            encoder: Any = self.encoder
            weights = hashlib.sha256(encoder.config.to_json_string().encode())
            for name, values in sorted(encoder.state_dict().items()):
                weights.update(name.encode() + values.cpu().numpy().tobytes())
            key = fingerprint([weights.hexdigest(), self.mix.depth, *arithmetic, machine(), version("transformers")])
            self._caches[arithmetic] = LayerCache(cache_folder() / "layers" / key, self._most)
        return self._caches[arithmetic]
