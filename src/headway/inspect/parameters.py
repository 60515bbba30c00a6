"""Parameters and floating-point operations of a model by its parts."""

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from headway.core.errors import UserError, option
from headway.core.registry import foreign_code
from headway.core.tables import Cell, Column, Table
from headway.inspect.inspect_options import ParameterOptions
from headway.models import ModelConfig, Seq2Seq, build_model
from headway.recipe import load_recipe
from headway.runs.packing import unpacked
from headway.runs.run import open_run
from headway.tensors.batch import collate
from headway.tensors.names import counted_from_1


@dataclass(frozen=True)
class ModelPart:
    """A part of a model: its parameters (without those shared with an earlier part), and its forward FLOPs a token."""

    name: str
    parameters: int
    flops_per_token: float

    @property
    def title(self) -> str:
        """The name for people, such as `encoder layer 1, feed_forward`; layers count from 1."""
        stack, *rest = self.name.split(".", 2)
        return f"{stack} layer {rest[0]}, {rest[1]}" if len(rest) == 2 else self.name


@dataclass(frozen=True)
class Parameters:
    """The parts of a model. FLOPs are those of one pair of `length` source and `length` target tokens.

    If the model `reads_frames`, `source_vocabulary` is the number of values in a frame.
    """

    parts: list[ModelPart]
    source_vocabulary: int
    target_vocabulary: int
    length: int
    reads_frames: bool = False

    @property
    def total(self) -> int:
        return sum(part.parameters for part in self.parts)

    @property
    def flops_per_token(self) -> float:
        """Forward operations per target token; a multiply-add counts as two."""
        return sum(part.flops_per_token for part in self.parts)

    def to_json(self) -> str:
        return json.dumps(asdict(self) | {"parameters": self.total, "flops_per_token": self.flops_per_token}, indent=1)

    def table(self) -> Table:
        """A table with a row per part, and the sum."""
        rows: list[list[Cell]] = [
            [part.title, part.parameters, 100 * part.parameters / self.total, part.flops_per_token]
            for part in self.parts
        ]
        rows.append(["all", self.total, None, self.flops_per_token])
        sizes = f"vocabularies of {self.source_vocabulary:,} and {self.target_vocabulary:,} tokens"
        if self.reads_frames:
            sizes = f"{self.source_vocabulary} bins a frame, a vocabulary of {self.target_vocabulary:,} tokens"
        note = f"{sizes}; FLOPs: forward, a pair of {self.length} + {self.length} tokens, a target token"
        columns = [
            Column("part"), Column("parameters", format=","), Column("share", "%", ".1f"),
            Column("FLOPs a token", format=",.0f"),
        ]  # fmt: skip
        return Table(columns, rows, notes=[note])


def count_parts(model: Seq2Seq, vocabularies: tuple[int, int], length: int) -> Parameters:
    """Count parameters and FLOPs of the parts of `model`, which may be on the meta device: nothing is computed.

    A part is a child of the model or, in stacks of layers, a child of a layer.

    Raises:
        UserError: the model cannot read a pair of `length` tokens each.
    """
    if (most := model.longest_pair(length - 1) + 1) < length:
        what = "this model cannot read a source and a target of so many tokens"
        raise UserError(what, where=option("length"), received=length, allowed=f"up to {most}")
    ids = np.full(length - 1, 4)  # `length` tokens with the end mark
    device = next(model.parameters()).device
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model.eval().requires_grad_(False)(collate([model.trial_source(length - 1)], [ids]).to(device))
    flops = {name.partition(".")[2]: sum(counts.values()) for name, counts in counter.get_flop_counts().items()}
    sizes: defaultdict[str, int] = defaultdict(int)
    names = []
    for name, child in model.named_children():
        layers = enumerate(child) if isinstance(child, nn.ModuleList) else ()
        in_layers = [f"{name}.{index}.{part}" for index, layer in layers for part, _ in layer.named_children()]
        names += in_layers if isinstance(child, nn.ModuleList) else [name]
    for name in names:
        # A sublayer runs within its residual, where attention also projects the source before its own call.
        # Canon layers also run there, and are separate parts.
        canons = sum(flops.get(f"{name}{canon}", 0) for canon in ("_canon", "_inner_canon"))
        flops[name] = flops.pop(f"{name}_residual", flops.get(name, 0)) - canons
    for name, parameter in model.named_parameters():
        sizes[next((part for part in names if f"{name}.".startswith(f"{part}.")), name)] += parameter.numel()
    parts = [ModelPart(counted_from_1(name), sizes[name], flops.get(name, 0) / length) for name in names]
    parts = [part for part in parts if part.parameters or part.flops_per_token]
    return Parameters(parts, *vocabularies, length, reads_frames=model.trial_source(1).ndim > 1)


def run_parameters(path: Path, overrides: Sequence[str], options: ParameterOptions) -> str:
    """Count the parameters and FLOPs of a recipe or run, as text or JSON. Raises UserError as `parameters_of`."""
    path = unpacked(path)
    with foreign_code(options.allow_code or not path.is_dir() or None):  # a recipe needs no permission
        counted = parameters_of(path, overrides, options.vocabulary, options.length)
    return counted.to_json() if options.json_output else counted.table().text()


def parameters_of(path: Path, overrides: Sequence[str], vocabulary: int | None, length: int) -> Parameters:
    """Count the parts of the model of a recipe, with `overrides`, or of a run folder.

    `vocabulary` replaces the recipe's `vocabulary.size`; the FLOPs are for `length` tokens on each side.

    Raises:
        UserError: the recipe or run cannot be read, or the model cannot be counted.
    """
    if path.is_dir():
        if overrides:
            raise UserError("a run folder's model cannot be changed", where=str(path), received=list(overrides))
        run = open_run(path)
        recipe, processors = run.recipe, run.processors
        sizes = processors.source.size, processors.target.size
        with torch.device("meta"):
            model = run.without_weights().model
    else:
        recipe = load_recipe(path, list(overrides))
        config, target = recipe.model_as(ModelConfig), recipe.vocabulary.target or recipe.vocabulary
        sizes = vocabulary or recipe.vocabulary.size, vocabulary or target.size
        if config.reads_frames():
            sizes = recipe.data.audio.bins, sizes[1]
        with torch.device("meta"):
            model = build_model(config, *sizes, recipe.vocabulary.shared)
    if not isinstance(model, Seq2Seq):
        raise UserError("only models that write token by token are counted", where=str(path), received=recipe.task)
    return count_parts(model, sizes, length)
