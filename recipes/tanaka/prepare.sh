#!/bin/sh
# The Tanaka corpus for claims: train, dev and test.
#   recipes/tanaka/prepare.sh DATA OUTPUT
# DATA is https://github.com/odashi/small_parallel_enja. Without its test set, the last 500 pairs of training are the test.
# Of their targets, 59 (12 %) stand word for word in what is left of training, and of those of dev 76 (15 %); no source does.
# Claims that are new cut 2,000 pairs instead, and leave such targets out of training:
#   headway data split DATA/train.ja DATA/train.en --shuffle --counts 500 2000 --disjoint-sources --disjoint-targets --output OUTPUT
set -eu
data=$1 output=$2
for part in train dev test; do
    [ -f "$data/$part.ja" ] || [ "$part" != test ] || continue
    if [ "$(wc -l < "$data/$part.ja")" != "$(wc -l < "$data/$part.en")" ]; then
        echo "prepare.sh: $data: $part.ja and $part.en have different numbers of lines" >&2
        exit 2
    fi
done
mkdir -p "$output"
for side in ja en; do
    cp "$data/dev.$side" "$output"
    if [ -f "$data/test.ja" ]; then
        cp "$data/train.$side" "$data/test.$side" "$output"
    else
        head -n -500 "$data/train.$side" > "$output/train.$side"
        tail -n 500 "$data/train.$side" > "$output/test.$side"
    fi
done
