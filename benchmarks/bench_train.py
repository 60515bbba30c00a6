"""`bench.py train`: headway's training step beside plain loops around torch.nn.Transformer and torch.nn.LSTM.

Shapes: B batch, S source, T target, D model, V vocabulary.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from rounds import (
    CPU,
    PRECISIONS,
    SIZES,
    BenchReport,
    Contender,
    Measurement,
    Play,
    Size,
    SyntheticCorpus,
    check_choices,
    check_output,
    compete,
    compute_in,
    matrix_peak,
    measured_on,
)
from shapes import padding, sizes_of
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from headway.core.device import keep_freed_memory, peak_memory, pick_device, processor
from headway.losses import Objective, ObjectiveConfig
from headway.mixers.positions import sinusoids
from headway.models import Seq2Seq, TransformerConfig, build_model, model_section
from headway.models.recurrent import RecurrentConfig
from headway.optimizers.optimizers import OptimizerConfig, build_optimizer, build_schedule
from headway.optimizers.schedules import TrainingProgress
from headway.recipe import TrainingConfig, parse_recipe
from headway.tensors.batch import PAD, Indices
from headway.tensors.checkpointing import recompute_activations
from headway.tensors.linear import suited_backend, use_backend
from headway.tensors.precision import compared, fitting_precision, wait_for
from headway.training.arithmetic import measured_speed
from headway.training.capture import CapturedUpdate
from headway.training.parallel import Parallel
from headway.training.updates import (
    PlannedUpdate,
    TrainingStep,
    compute_gradients,
    in_time,
    make_update,
    prepare_update,
)
from headway.training.updates import sizes_of as sizes_of_batches

NOTES = (
    "times the baseline: median over the rounds of tokens/s beside those of the plain loop in the same round",
    "memory: the most that an update takes: weights, gradients, the optimizer's state and activations",
    "padding: positions without a token, of all positions of the batches; they are computed like the others",
    "of the peak: FLOPs of the matrix products, forward and backward, a second, beside the peak of the precision",
    "plain: torch.nn.Transformer, or for recurrent sizes torch.nn.LSTM without attention; CrossEntropyLoss, Adam and"
    " clip_grad_norm_, as the tutorials put them together;"
    " torch.nn.Transformer also drops attention weights and inner activations of the feed-forward networks",
)


PLAIN = ObjectiveConfig()


def _recurrent(dim: int) -> RecurrentConfig:
    """Luong's attention without input feeding, over LSTMs of two layers."""
    layers = {"layers": 2, "hidden": dim}
    config = model_section({"kind": "recurrent", "dim": dim, "encoder": layers, "decoder": layers, "tied": "all"})
    assert isinstance(config, RecurrentConfig)
    return config


RECURRENT_SIZES = {
    "recurrent": Size(_recurrent(512), 10_000, 4096, 1, 30),
    "recurrent-small": Size(_recurrent(256), 8_000, 4096, 2, 30),
    "recurrent-tiny": Size(_recurrent(24), 101, 256, 1, 7),
}
ALL_SIZES: dict[str, Size[Any]] = {**SIZES, **RECURRENT_SIZES}


def run_bench_train(
    sizes: Sequence[str],
    precisions: Sequence[str],
    rounds: int,
    output: Path | None = None,
    *,
    activation_checkpointing: bool = False,
    device: torch.device = CPU,
) -> BenchReport:
    """Measure training at each of `sizes`: headway in each of `precisions`, and the plain loop.

    On a CPU the plain loop computes in float32, since there autocast makes many processors slower. Elsewhere it takes
    part in each of `precisions`, and headway is compared with it in its own.

    Args:
        sizes: names in `ALL_SIZES`.
        precisions: float32, bf16, tf32.
        rounds: turns of each contender.
        output: where to write the report as JSON.
        activation_checkpointing: whether headway takes part a second time, with blocks that are computed again.
        device: where.

    Raises:
        UserError: an unknown size or precision, or an output that cannot be written.
        RunError: a contender failed.
    """
    check_choices("size", sizes, ALL_SIZES)
    check_choices("precision", precisions, PRECISIONS)
    check_output(output)
    ground = list(dict.fromkeys(["float32"] if device.type == "cpu" else precisions))
    peaks = {precision: matrix_peak(precision, device) for precision in dict.fromkeys([*precisions, *ground])}
    measurements: list[Measurement] = []
    for size in sizes:
        ours = [
            Contender(
                f"headway {precision}{', recomputed' * again}",
                setup_headway,
                (size, precision, PLAIN, again, str(device)),
                f"plain {precision if precision in ground else ground[0]}",
            )
            for precision in precisions
            for again in ([False, True] if activation_checkpointing and size in SIZES else [False])
        ]
        plain = [Contender(f"plain {each}", setup_plain, (size, each, str(device)), f"plain {each}") for each in ground]
        measurements += compete(size, "", [*ours, *plain], rounds)
    notes = [*NOTES, *(_chosen(size, device) for size in sizes)]
    return BenchReport(
        f"training{measured_on(device)}, target tokens a second", "", with_flops(measurements), peaks, notes
    ).write(output)


def _chosen(name: str, device: torch.device) -> str:
    """The library, and the precision, that a recipe which leaves it open gets at this size."""
    size, backend = ALL_SIZES[name], suited_backend(device, processor())
    recipe = parse_recipe(
        {
            "data": {"train": {"tsv": "-"}},
            "vocabulary": {"size": size.vocabulary, "shared": True},
            "model": size.model.model_dump(),
            "training": {"updates": 1, "batch_tokens": size.batch_tokens},
        }
    )
    speed = measured_speed(recipe, device, backend)
    return (
        f"{name}: headway multiplies in float32 by {backend}; training.precision auto takes {fitting_precision(speed)}:"
        f" in the trial bf16 {compared(speed.median)}"
    )


def with_flops(measurements: list[Measurement]) -> list[Measurement]:
    """All contenders of a size are asked for the same matrix products; the first of headway's counted them."""
    counted: dict[str, float] = {}
    for measurement in measurements:
        if "flops_per_token" in measurement.facts:
            counted.setdefault(measurement.size, measurement.facts["flops_per_token"])
    for measurement in measurements:
        measurement.facts["flops_per_token"] = counted.get(measurement.size, 0)
    return measurements


def plan(size: Size[Any], corpus: SyntheticCorpus) -> list[Indices]:
    """The batches, one an update; round n takes the n-th group of `size.updates`."""
    training = TrainingConfig(updates=1, batch_tokens=size.batch_tokens)
    return corpus.plan(seed=1, epoch=0, **training.batch_sizes())


def in_round(size: Size[Any], batches: Sequence[Indices], number: int) -> list[Indices]:
    """The batches of a round; more rounds than there are batches begin again."""
    return [batches[(number * size.updates + update) % len(batches)] for update in range(size.updates)]


def setup_headway(
    name: str,
    precision: str,
    objective: ObjectiveConfig = PLAIN,
    activation_checkpointing: bool = False,
    device: str = "cpu",
    *,
    mixer: Mapping[str, Any] | None = None,
    length: int | None = None,
    capture: bool = False,
    compiled: bool = False,
) -> tuple[Play, dict[str, Any]]:
    """headway's own update, from collating on, as the training loop makes it.

    With a dependency objective the lowest layers have dependency heads. A `mixer` takes the place of self-attention in
    all layers, a `length` that of the lengths that sentences have. With `capture` batches have few shapes, and the step
    of each is recorded before any is measured. A `compiled` step is compiled before that, too.
    """
    keep_freed_memory()
    size, where, labelled = ALL_SIZES[name], pick_device(device), objective.dependency is not None
    corpus = SyntheticCorpus(size.vocabulary, labelled=labelled, length=length)
    training = TrainingConfig(
        updates=1, batch_tokens=size.batch_tokens, shapes="few" if capture else "any", capture=capture
    )
    sizes = sizes_of_batches(corpus, training)
    batches, shapes = corpus.plan(seed=1, epoch=0, **sizes), sizes.get("shapes", ())
    parallel = Parallel(0, 1, where, training, precision=compute_in(precision, where))
    before = peak_memory(where)
    model = _built(size, objective, mixer, length)
    for block in model.blocks() if activation_checkpointing else ():
        recompute_activations(block)
    step = TrainingStep(model, Objective(objective)).to(where).train()
    schedule = build_schedule(OptimizerConfig(), dim=size.model.dim, updates=None)
    optimizer = build_optimizer(OptimizerConfig(), step)
    captured = CapturedUpdate(step, optimizer, parallel) if capture else None
    done = 0

    def update_all(chosen: Sequence[Indices]) -> int:
        nonlocal done
        plans = (
            PlannedUpdate(update, 0, [indices], ends_epoch=False)
            for update, indices in enumerate(chosen, start=done + 1)
        )
        tokens, finite = 0, torch.tensor(True, device=where)
        for update in in_time((prepare_update(corpus, plan, parallel, shapes) for plan in plans), where):
            update.restore_random_state()
            rate = schedule(TrainingProgress(update.plan.number))
            if captured is None:
                gradients = compute_gradients(step, update.batches, parallel, training.clip_norm, None)
                make_update(optimizer, gradients, rate)
            else:
                gradients = captured(update.batches, None, rate)
            finite &= gradients.finite
            tokens += gradients.tokens
            done = update.plan.number
        wait_for(where)
        assert finite
        return tokens

    def play(number: int) -> int:
        return update_all(in_round(size, batches, number))

    one_of_each = dict(zip(sizes_of(corpus, batches, shapes), batches, strict=True)) if capture else {}
    for _ in range(2):  # the second with the optimizer's state
        update_all([*one_of_each.values()] or in_round(size, batches, 0))
    facts = {
        "precision": precision,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "memory": (peak_memory(where) - before) / 2**30,
        "padding": padding(corpus, batches, shapes),
    }
    if not capture:  # the counter sees nothing of a replay
        facts["flops_per_token"] = _operations(play) if name in SIZES else 0  # the counter knows no fused recurrence
    use_backend(model, suited_backend(where, processor()))  # only now, since the counter knows torch's products alone
    if compiled:
        step.compile(dynamic=True)
    play(0)
    return play, facts


def _built(size: Size[Any], objective: ObjectiveConfig, mixer: Mapping[str, Any] | None, length: int | None) -> Seq2Seq:
    """The model of a size with what `setup_headway` was asked for."""
    config = size.model if objective.dependency is None else with_dependency_heads(size.model)
    config = config if mixer is None else with_mixer(config, mixer)
    config = config if length is None else with_room(config, length)
    torch.manual_seed(1)
    return build_model(config, size.vocabulary, size.vocabulary, shared=True)


def _operations(play: Play) -> float:
    """The floating-point operations of a target token. Counting keeps activations, so memory is measured before."""
    with FlopCounterMode(display=False) as counter:
        tokens = play(0)
    return int(counter.get_total_flops()) / tokens


def with_mixer(model: TransformerConfig, mixer: Mapping[str, Any]) -> TransformerConfig:
    """The same model with another mixer in all layers."""
    stacks = {name: getattr(model, name).model_copy(update={"mixer": mixer}) for name in ("encoder", "decoder")}
    return model.model_copy(update=stacks)


def with_room(model: Any, length: int) -> Any:
    """The same model with positions for sentences of this length and their ends."""
    return model.model_copy(update={"max_position": max(model.max_position, length + 1)})


def with_dependency_heads(model: TransformerConfig) -> TransformerConfig:
    """The same model with a dependency head in the lowest layer of either side."""
    changes = {}
    for name in ("encoder", "decoder"):
        stack = getattr(model, name)
        mixers = [{"kind": "dependency"}, *stack.mixers()[1:]]
        changes[name] = stack.model_copy(update={"mixer": mixers})
    return model.model_copy(update=changes)


class PlainTransformer(nn.Module):
    """The tutorials' model of torch.nn.Transformer, with one embedding for both sides and the output."""

    def __init__(self, size: Size[TransformerConfig]) -> None:
        super().__init__()
        config = size.model
        self.embedding = nn.Embedding(size.vocabulary, config.dim, padding_idx=PAD)
        nn.init.normal_(self.embedding.weight, std=config.dim**-0.5)
        self.register_buffer("positions", sinusoids(config.max_position, config.dim))
        self.positions: Tensor
        assert isinstance(config.feed_forward, int)
        self.dropout = nn.Dropout(config.dropout)
        self.transformer = nn.Transformer(
            config.dim,
            config.heads,
            config.encoder.layers,
            config.decoder.layers,
            config.feed_forward_options()["hidden"],
            config.dropout,
            batch_first=True,
        )
        self.projection = nn.Linear(config.dim, size.vocabulary, bias=False)
        self.projection.weight = self.embedding.weight

    def embed(self, ids: Tensor) -> Tensor:
        """(B, L) ids to (B, L, D)."""
        scaled = self.embedding(ids) * self.embedding.embedding_dim**0.5
        return self.dropout(scaled + self.positions[: ids.shape[1]])  # type: ignore[no-any-return]

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Logits (B, T, V) for ids (B, S) and (B, T)."""
        length = target.shape[1]
        causal = torch.ones(length, length, dtype=torch.bool, device=target.device).triu(1)  # True = may not attend
        output = self.transformer(
            self.embed(source),
            self.embed(target),
            tgt_mask=causal,
            src_key_padding_mask=source == PAD,
            tgt_key_padding_mask=target == PAD,
            memory_key_padding_mask=source == PAD,
            tgt_is_causal=True,
        )
        return self.projection(output)  # type: ignore[no-any-return]


class PlainRecurrent(nn.Module):
    """The tutorials' model of torch.nn.LSTM: an encoder whose last state begins the decoder, without attention."""

    def __init__(self, size: Size[RecurrentConfig]) -> None:
        super().__init__()
        config = size.model
        self.embedding = nn.Embedding(size.vocabulary, config.dim, padding_idx=PAD)
        self.dropout = nn.Dropout(config.dropout)
        self.encoder, self.decoder = (
            nn.LSTM(config.dim, side.hidden, side.layers, batch_first=True, dropout=config.dropout)
            for side in (config.encoder, config.decoder)
        )
        self.projection = nn.Linear(config.decoder.hidden, size.vocabulary, bias=False)
        self.projection.weight = self.embedding.weight

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Logits (B, T, V) for ids (B, S) and (B, T)."""
        _, state = self.encoder(self.dropout(self.embedding(source)))
        output, _ = self.decoder(self.dropout(self.embedding(target)), state)
        return self.projection(self.dropout(output))  # type: ignore[no-any-return]


def setup_plain(name: str, precision: str = "float32", device: str = "cpu") -> tuple[Play, dict[str, Any]]:
    """The plain loop, which collates its batches too; bf16 is by autocast, as in the tutorials."""
    size, where = ALL_SIZES[name], torch.device(device)
    compute_in(precision, where)
    corpus = SyntheticCorpus(size.vocabulary)
    batches = plan(size, corpus)
    before = peak_memory(where)
    torch.manual_seed(1)
    model = (PlainTransformer(size) if name in SIZES else PlainRecurrent(size)).to(where).train()
    criterion = nn.CrossEntropyLoss(label_smoothing=ObjectiveConfig().label_smoothing, ignore_index=PAD)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)

    def play(number: int) -> int:
        tokens = 0
        for indices in in_round(size, batches, number):
            on_cpu = corpus.collate(indices)
            batch = on_cpu.to(where)
            with torch.autocast(where.type, torch.bfloat16, enabled=precision == "bf16"):
                logits = model(batch.source, batch.target_input)
                loss = criterion(logits.flatten(0, 1), batch.target_output.flatten())
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            tokens += int(on_cpu.target_mask.sum())
        assert loss.isfinite()  # which waits for the device
        return tokens

    play(0)
    facts = {
        "precision": precision,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "memory": (peak_memory(where) - before) / 2**30,
        "padding": padding(corpus, batches),
    }
    return play, facts
