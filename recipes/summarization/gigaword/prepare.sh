#!/bin/sh
# Headlines of the annotated Gigaword corpus, as Rush et al. (2015) distribute them.
#   recipes/summarization/gigaword/prepare.sh SUMDATA OUTPUT [LINES]
# SUMDATA is the unpacked folder of github.com/harvardnlp/sent-summary, whose files may be compressed. The lines of every
# file are compared with lines.tsv, or with the file LINES. Pairs with an empty side are left out of the training corpus,
# and counted.
set -eu
data=$1 output=$2
expected=${3:-$(dirname "$0")/lines.tsv}

mkdir -p "$output/train" "$output/Giga"
work=$(mktemp -d "$output/.prepare.XXXXXX")
trap 'rm -rf "$work"' EXIT

while read -r name wanted; do
    mkdir -p "$work/${name%/*}"
    if [ -f "$data/$name" ]; then
        cp "$data/$name" "$work/$name"
    elif [ -f "$data/$name.gz" ]; then
        gunzip --stdout "$data/$name.gz" > "$work/$name"
    else
        echo "prepare.sh: $data has no $name" >&2
        exit 2
    fi
    count=$(wc -l < "$work/$name")
    if [ "$((count))" != "$wanted" ]; then
        echo "prepare.sh: $name has $((count)) lines, and should have $wanted" >&2
        exit 2
    fi
done < "$expected"

for side in article title; do
    tr '\t' ' ' < "$work/train/train.$side.txt" > "$work/$side"
done
paste "$work/article" "$work/title" > "$work/pairs"
awk -F'\t' '$1 !~ /^ *$/ && $2 !~ /^ *$/' "$work/pairs" > "$work/kept"
echo "train: $(($(wc -l < "$work/kept"))) of $(($(wc -l < "$work/pairs"))) pairs have two sides"
cut -f 1 "$work/kept" > "$work/train/train.article.txt"
cut -f 2 "$work/kept" > "$work/train/train.title.txt"
while read -r name _; do
    mv "$work/$name" "$output/$name"
done < "$expected"
