#!/bin/sh
# Every variant of a folder of recipes on the same data, then BLEU or exact match by length of the source, in one figure.
#   recipes/recurrent.sh RECIPES DATA OUTPUT TEST.source TEST.target METRIC UNIT [KEY.PATH=VALUE ...]
# as in
#   recipes/recurrent.sh recipes/tanaka/recurrent tanaka runs/tanaka tanaka/dev.ja tanaka/dev.en bleu words
set -eu
recipes=$1 data=$2 output=$3 source=$4 target=$5 metric=$6 unit=$7
shift 7
mkdir -p "$output"
outputs=""
for name in no-attention bahdanau luong-dot luong-general luong-concat luong-location luong-local-p luong-fed hard \
    hard-straight-through; do
    headway train "$recipes/$name.yaml" "data.folder=$data" "$@" --output "$output/$name" --resume
    headway predict "$output/$name" < "$source" > "$output/$name.txt"
    outputs="$outputs $output/$name.txt"
done
set --
[ "$metric" != bleu ] || set -- --tokenize none
# shellcheck disable=SC2086  (the names are ours and have no spaces)
headway score --metric "$metric" --hypotheses $outputs --references "$target" "$@" \
    --source "$source" --by-length "$output/$metric-by-length.png" --length-unit "$unit"
