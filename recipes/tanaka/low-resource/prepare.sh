#!/bin/sh
# Tanaka with few pairs, and what can be made of the rest: back-translations and the outputs of a teacher.
#   recipes/tanaka/low-resource/prepare.sh DATA PAIRS OUTPUT [KEY.PATH=VALUE ...]
# DATA is https://github.com/odashi/small_parallel_enja. The first PAIRS pairs of its training corpus train, and its last
# 2,000 pairs are the test. The English sides of the 23,000 pairs before the test are text of one language, so PAIRS is
# 25,000 at most. OUTPUT/backtranslated has translations of that text by a model of the same pairs. OUTPUT/distilled has
# what two models of other seeds write together for the training sources. Changes are made to all recipes.
set -eu
data=$1 pairs=$2 output=$3
shift 3
here=$(dirname "$0")
if [ "$pairs" -gt 25000 ]; then
    echo "prepare.sh: $pairs pairs; at most 25000, since the others are the text of one language" >&2
    exit 2
fi
mkdir -p "$output"
for side in ja en; do
    cp "$data/dev.$side" "$output"
    head -n "$pairs" "$data/train.$side" > "$output/train.$side"
    tail -n 2000 "$data/train.$side" > "$output/test.$side"
done
tail -n 25000 "$data/train.en" | head -n 23000 > "$output/mono.en"

train() { # RECIPE RUN [KEY.PATH=VALUE ...]
    recipe=$1 run=$2
    shift 2
    headway train "$recipe" "data.folder=$output" "$@" --output "$output/runs/$run"
}

train "$here/backwards.yaml" backwards "$@"
headway augment backtranslate "$output/runs/backwards" --input "$output/mono.en" --output "$output/backtranslated" beam=1 \
    --max-ratio 2.5
train "$here/plain.yaml" teacher-1 "$@" training.seed=101
train "$here/plain.yaml" teacher-2 "$@" training.seed=102
headway augment distill "$output/runs/teacher-1" "$output/runs/teacher-2" --input "$output/train.ja" --output "$output/distilled"
