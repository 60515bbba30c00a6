#!/bin/sh
# The data of Kaneko and Komachi (2019): FCE for training, and three tests.
#   recipes/error_detection/fce/prepare.sh DATA OUTPUT [SENTENCES]
# DATA holds fce-public.{train,dev,test}.original.tsv of the FCE error detection data (ilexir.co.uk/datasets),
# official-2014.combined.m2 of the CoNLL-14 shared task (www.comp.nus.edu.sg/~nlp/conll14st.html), and test/test.src with
# test/test.ref0 to test/test.ref3 of github.com/keisks/jfleg. The sentences of every part are counted and compared with
# sentences.tsv, or with the file SENTENCES.
set -eu
data=$1 output=$2
expected=${3:-$(dirname "$0")/sentences.tsv}

mkdir -p "$output"
work=$(mktemp -d "$output/.prepare.XXXXXX")
trap 'rm -rf "$work"' EXIT

cp "$data"/fce-public.train.original.tsv "$data"/fce-public.dev.original.tsv "$data"/fce-public.test.original.tsv "$work"
for annotator in 0 1; do
    headway data make labels m2="$data/official-2014.combined.m2" annotator="$annotator" \
        > "$work/conll14-$((annotator + 1)).tsv"
done
headway data make labels source="$data/test/test.src" references=["$data/test/test.ref0","$data/test/test.ref1"] \
    "$data/test/test.ref2" "$data/test/test.ref3" > "$work/jfleg.tsv"
while read -r name wanted; do
    count=$(awk 'NF && !inside {count++} {inside = NF} END {print count + 0}' "$work/$name")
    if [ "$count" != "$wanted" ]; then
        echo "prepare.sh: $name has $count sentences, and should have $wanted" >&2
        exit 2
    fi
done < "$expected"
mv "$work"/*.tsv "$output"
