#!/bin/sh
# Every variant on the same data, then ROUGE of dev beside the first eight words and the first sentences; stopped, it goes on.
#   recipes/summarization/debian/measure.sh DATA OUTPUT [KEY.PATH=VALUE ...]
# DATA holds train.tsv.gz and dev.tsv.gz; VARIANTS names others than all four, as in VARIANTS="attention recurrent".
set -eu
data=$1 output=$2
shift 2
recipes=$(dirname "$0")
mkdir -p "$output"
gzip -dc "$data/dev.tsv.gz" | cut -f 1 > "$output/dev.source"
gzip -dc "$data/dev.tsv.gz" | cut -f 2 > "$output/dev.target"
outputs=""
for name in ${VARIANTS:-attention multinn hybrid recurrent}; do
    headway train "$recipes/$name.yaml" "data.folder=$data" "$@" --output "$output/$name" --resume
    headway predict "$output/$name" < "$output/dev.source" > "$output/$name.txt"
    outputs="$outputs $output/$name.txt"
done
# shellcheck disable=SC2086  (the names are ours and have no spaces)
headway score --metric rouge-1 rouge-2 rouge-l --hypotheses $outputs --references "$output/dev.target" \
    --source "$output/dev.source" --lead 8 1-sentences --significance bootstrap | tee "$output/scores.txt"
