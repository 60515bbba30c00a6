"""Damage to a run folder: files that are cut, changed, swapped, missing or of the wrong kind; values of wrong types."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import torch
import yaml
from hypothesis.strategies import SearchStrategy
from safetensors import SafetensorError
from safetensors.torch import load_file, save

from tools.campaigns.mutations import Change, changed, changes, expanded

DTYPES = ("float16", "bfloat16", "float64", "int64", "int8", "bool", "complex64", "float8_e4m3fn")
VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 3, 7, 0.5, 1e308, float("nan"), 10**6, 65536, 2**31, 2**63, 10**30, "", "a", "x:y",
    "os:system", "\x1b]0;x\x07", "a\nb", "\ud800", "a" * 5000, [], {}, [[]], [1, 2], {"a": 1}, "../..", "/dev/zero",
    "attention", "char", "none", "word", "bpe", ["a", "a"], [None], {"kind": "attention"},
)  # fmt: skip
KINDS = (
    "bytes", "bytes", "value", "value", "value", "key", "delete", "swap", "other", "tensor", "folder", "link", "twice",
    "empty", "device",
)  # fmt: skip


@dataclass(frozen=True)
class Damage:
    """One change to a run folder, at a share of its files (`at`), and in it at a share of its values (`deep`)."""

    kind: str
    at: int  # thousandths
    deep: int  # thousandths
    value: Any = None
    change: tuple[Change, ...] = ()

    def apply(self, run: Path, other: Path) -> list[str]:
        """Change the folder, and give the names of the files that this could matter to."""
        files = files_of(run)
        if not files:
            return []
        path = files[self.at * len(files) // 1000]
        further = files[self.deep * len(files) // 1000]
        touched = [path]
        match self.kind:
            case "bytes":
                content = path.read_bytes()
                path.write_bytes(expanded(changed(((content, 1),) if content else (), self.change)))
            case "value" | "key":
                self._edit(path)
            case "delete":
                path.unlink()
            case "swap":
                contents = path.read_bytes(), further.read_bytes()
                path.write_bytes(contents[1])
                further.write_bytes(contents[0])
                touched.append(further)
            case "other":
                same = other / path.relative_to(run)
                path.write_bytes(same.read_bytes() if same.is_file() else b"")
            case "tensor":
                touched = [path for path in files if path.suffix == ".safetensors"]
                touched = touched[self.at * len(touched) // 1000 :][:1]
                for path in touched:
                    self._change_tensor(path)
            case "folder":
                path.unlink()
                path.mkdir()
            case "link":
                path.unlink()
                path.symlink_to(further.name if self.deep % 2 else path.name)
                touched.append(further)
            case "twice":
                _copy(path if path.parent == run else path.parent)
                touched = []
            case "empty":
                path.write_bytes(b"")
            case "device":
                path.unlink()
                path.symlink_to(("/dev/zero", "/dev/null", "/proc/self/environ", "/nosuch")[self.deep % 4])
        return [each.relative_to(run).as_posix() for each in touched]

    def _edit(self, path: Path) -> None:
        """Put a value where another is, in JSON, lines of JSON, or YAML; elsewhere, in the place of all."""
        text = path.read_bytes().decode("utf-8", "replace") if path.is_file() else ""
        try:
            if path.suffix == ".jsonl":
                lines = text.splitlines()
                index = self.deep * len(lines) // 1000
                lines[index] = self._edited(json.loads(lines[index]))
                text = "".join(f"{line}\n" for line in lines)
            elif path.suffix == ".json":
                text = self._edited(json.loads(text))
            elif path.suffix == ".yaml":
                text = self._edited(yaml.load(text, yaml.CSafeLoader))  # which JSON is, too
            else:
                text = json.dumps(self.value)
        except (ValueError, IndexError, yaml.YAMLError):
            text = json.dumps(self.value)
        path.write_bytes(text.encode("utf-8", "surrogatepass"))

    def _edited(self, tree: Any) -> str:
        places = list(places_of(tree))
        if not places or self.deep == 999:
            return json.dumps(self.value)
        holder, key = places[self.deep * len(places) // 1000]
        if self.kind == "key" and isinstance(holder, dict):
            holder[str(self.value)] = holder.pop(key)
        else:
            holder[key] = self.value
        return json.dumps(tree)

    def _change_tensor(self, path: Path) -> None:
        try:
            tensors = {name: tensor.clone() for name, tensor in load_file(path).items()}  # no map of the file
        except (SafetensorError, OSError):
            return
        names = sorted(tensors)
        name = names[self.deep * len(names) // 1000]
        tensor = tensors[name]
        kind = self.deep % (len(DTYPES) + 6)
        if kind < len(DTYPES):
            tensors[name] = tensor.to(getattr(torch, DTYPES[kind]))
            path.write_bytes(save(tensors))
            return
        match kind - len(DTYPES):
            case 0:
                tensors[name] = torch.full_like(tensor, float("nan") if tensor.is_floating_point() else 9)
            case 1:
                tensors[name] = tensor.reshape(-1)[:0].clone()
            case 2:
                tensors[name] = tensor.reshape(-1).clone()
            case 3:
                del tensors[name]
            case 4:
                tensors["x\x1b[31m"] = tensor.clone()
            case 5:
                tensors[name] = torch.full_like(tensor, 1e38 if tensor.is_floating_point() else 9)
        path.write_bytes(save(tensors))


def places_of(tree: Any) -> Any:
    """Every place in a tree that holds a value, as what holds it and the key there."""
    if isinstance(tree, dict | list):
        for key, value in list(tree.items() if isinstance(tree, dict) else enumerate(tree)):
            yield tree, key
            yield from places_of(value)


def files_of(run: Path) -> list[Path]:
    """The regular files of a run folder."""
    found = [Path(above) / name for above, _, names in os.walk(run) for name in names]
    return sorted(path for path in found if path.is_file() and not path.is_symlink())


def share(index: int, count: int) -> int:
    """The thousandths at which the file or value of this index stands among so many."""
    return -(-1000 * index // count)


def damages(least: int = 1, most: int = 3) -> SearchStrategy[tuple[Damage, ...]]:
    """Some damage, the least of it first."""
    one = st.builds(
        Damage, st.sampled_from(KINDS), st.integers(0, 999), st.integers(0, 999), st.sampled_from(VALUES),
        changes().filter(bool),
    )  # fmt: skip
    return st.lists(one, min_size=least, max_size=most).map(tuple)


def forge(run: Path, touched: Sequence[str]) -> None:
    """Bring the hashes in the manifest and in checkpoints up to date, as one would who wants damage to be believed."""
    manifest = run / "manifest.json"
    try:
        content = json.loads(_read(manifest))
        content["model_sha256"] = _hash(run / "model.safetensors")
        vocabulary = run / "vocabulary"
        known = {path.relative_to(vocabulary).as_posix(): _hash(path) for path in files_of(vocabulary)}
        content["vocabulary"] = known
        if "recipe.yaml" in touched:
            content.pop("trained", None)
        manifest.write_text(json.dumps(content), encoding="utf-8")
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        pass
    for state in (run / "checkpoints").glob("*/state.json"):
        try:
            content = json.loads(_read(state))
            content["sha256"] = {name: _hash(state.parent / name) for name in content["sha256"]}
            content.pop("own_sha256", None)
            from headway.runs.run_folder import hash_of

            state.write_text(json.dumps(content | {"own_sha256": hash_of(content)}), encoding="utf-8")
        except (OSError, ValueError, TypeError, AttributeError, KeyError, RecursionError):
            continue


def _hash(path: Path) -> str:
    return hashlib.sha256(_read(path)).hexdigest()


def _read(path: Path) -> bytes:
    """The content of a regular file; OSError for any other."""
    if path.is_symlink():
        raise OSError("no regular file")
    return path.read_bytes()


def _copy(path: Path) -> None:
    """Copy a file or a folder to a name beside it, in the place of an earlier copy."""
    copied = path.with_name(f"{path.name}-copy")
    if copied.is_dir() and not copied.is_symlink():
        shutil.rmtree(copied)
    copied.unlink(missing_ok=True)
    if path.is_dir():
        shutil.copytree(path, copied, symlinks=True)
    else:
        shutil.copy2(path, copied, follow_symlinks=False)
