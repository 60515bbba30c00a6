"""Training speed beside fairseq, in turns in one run: the same model, batches, smoothing, clipping and optimizer.

python benchmarks/fairseq_training.py --size small --size base --output results/speed/training-fairseq.json

fairseq is not one of headway's dependencies: it has to be importable. Its update is `Trainer.train_step`, collation
included, as `fairseq-train --cpu` makes it.
"""

import argparse
from pathlib import Path
from typing import Any

import torch
from bench_train import ALL_SIZES, NOTES, PLAIN, in_round, plan, setup_headway, setup_plain
from rounds import (
    CPU,
    BenchReport,
    Contender,
    Play,
    Size,
    SyntheticCorpus,
    compete,
    matrix_peak,
)
from shapes import padding

from headway.claims.reproduce import ResultRecord, measured_now, write_record
from headway.core.device import keep_freed_memory, peak_memory


def fairseq_config(size: Size[Any]) -> Any:
    """What fairseq-train makes of its options for a model of this size."""
    from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterionConfig
    from fairseq.dataclass.configs import FairseqConfig
    from fairseq.models.transformer import TransformerConfig
    from fairseq.optim.adam import FairseqAdamConfig
    from fairseq.optim.lr_scheduler.inverse_square_root_schedule import InverseSquareRootLRScheduleConfig
    from omegaconf import OmegaConf

    config = FairseqConfig()
    config.common.cpu = True
    config.optimization.clip_norm = 1.0
    config.optimization.lr = [7e-4]
    parts = {
        "model": TransformerConfig(dropout=size.model.dropout, share_all_embeddings=True),
        "criterion": LabelSmoothedCrossEntropyCriterionConfig(label_smoothing=PLAIN.label_smoothing),
        "optimizer": FairseqAdamConfig(adam_betas=[0.9, 0.98], adam_eps=1e-9, lr=[7e-4]),
        "lr_scheduler": InverseSquareRootLRScheduleConfig(warmup_updates=4000, lr=[7e-4]),
    }
    names = {
        "model": "transformer", "criterion": "label_smoothed_cross_entropy", "optimizer": "adam",
        "lr_scheduler": "inverse_sqrt",
    }  # fmt: skip
    made = OmegaConf.structured(config)
    OmegaConf.set_struct(made, False)
    for part, value in parts.items():
        made[part] = OmegaConf.create({**OmegaConf.to_container(OmegaConf.structured(value)), "_name": names[part]})
    for side in ("encoder", "decoder"):
        made.model[side].update(
            {
                "embed_dim": size.model.dim,
                "ffn_embed_dim": size.model.feed_forward,
                "attention_heads": size.model.heads,
                "layers": getattr(size.model, side).layers,
            }
        )
    made.model.decoder.update({"input_dim": size.model.dim, "output_dim": size.model.dim})
    return made


def setup_fairseq(name: str) -> tuple[Play, dict[str, Any]]:
    """fairseq's update."""
    from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
    from fairseq.data import Dictionary
    from fairseq.data.language_pair_dataset import collate
    from fairseq.models.transformer import TransformerModelBase
    from fairseq.tasks.translation import TranslationConfig, TranslationTask
    from fairseq.trainer import Trainer

    keep_freed_memory()
    size = ALL_SIZES[name]
    corpus = SyntheticCorpus(size.vocabulary)
    batches = plan(size, corpus)
    before = peak_memory(torch.device("cpu"))
    words = Dictionary()  # which has four of its own
    for index in range(size.vocabulary - len(words)):
        words.add_symbol(f"w{index}")
    config, task = fairseq_config(size), TranslationTask(TranslationConfig(), words, words)
    end = torch.tensor([words.eos()])
    torch.manual_seed(1)
    model = TransformerModelBase.build_model(config.model, task)
    criterion = LabelSmoothedCrossEntropyCriterion(task, sentence_avg=False, label_smoothing=PLAIN.label_smoothing)
    trainer = Trainer(config, task, model, criterion)
    trainer.lr_step(0)

    def sample(index: int) -> dict[str, Any]:
        sides = {"source": corpus.source(index), "target": corpus.target(index)}
        return {"id": index, **{side: torch.cat([torch.from_numpy(ids), end]) for side, ids in sides.items()}}

    def play(number: int) -> int:
        tokens = 0
        for indices in in_round(size, batches, number):
            batch = collate([sample(int(index)) for index in indices], words.pad(), int(end))
            trainer.train_step([batch])
            tokens += int(batch["ntokens"])
        return tokens

    play(0)
    play(0)
    facts = {
        "precision": "float32",
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "memory": (peak_memory(torch.device("cpu")) - before) / 2**30,
        "padding": padding(corpus, batches),
    }
    return play, facts


def main() -> None:
    """Measure, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", action="append", required=True, choices=ALL_SIZES)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--output", type=Path, required=True, help="the record, as JSON")
    given = parser.parse_args()
    measurements = []
    for size in given.size:
        contenders = [
            Contender("headway float32", setup_headway, (size, "float32"), "fairseq float32"),
            Contender("plain float32", setup_plain, (size,), "fairseq float32"),
            Contender("fairseq float32", setup_fairseq, (size,)),
        ]
        measurements += compete(size, "", contenders, given.rounds)
    notes = [
        "times the baseline: median over the rounds of tokens/s beside those of fairseq in the same round",
        *NOTES[1:],
    ]
    report = BenchReport(
        "training, target tokens a second",
        "",
        measurements,
        {"float32": matrix_peak("float32", CPU)},
        notes,
    )
    print(report.text())
    command = f"python benchmarks/fairseq_training.py {' '.join(f'--size {size}' for size in given.size)}"
    measured = measured_now([f"{command} --rounds {given.rounds}"], [1])
    write_record(
        given.output,
        ResultRecord(title="Training beside fairseq", measured=measured, tables=(report.table().to_json(),)),
    )


if __name__ == "__main__":
    main()
