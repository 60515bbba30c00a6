#!/bin/sh
# The Wall Street Journal, cut as for parsing: sections 02 to 21 train, 22 is dev, 23 is the test.
#   recipes/parsing/prepare-wsj.sh MRG OUTPUT [SENTENCES]
# MRG is the folder parsed/mrg/wsj of the Penn Treebank (LDC99T42), which has to be bought, with a folder a section. The
# trees of every part are counted and compared with wsj-sentences.tsv, or with the file SENTENCES.
set -eu
data=$1 output=$2
expected=${3:-$(dirname "$0")/wsj-sentences.tsv}

mkdir -p "$output"
work=$(mktemp -d "$output/.prepare.XXXXXX")
trap 'rm -rf "$work"' EXIT

cat "$data"/0[2-9]/*.mrg "$data"/1[0-9]/*.mrg "$data"/2[01]/*.mrg > "$work/train.trees"
cat "$data"/22/*.mrg > "$work/dev.trees"
cat "$data"/23/*.mrg > "$work/test.trees"
while read -r name wanted; do
    headway data make trees "$work/$name" format=words > "$work/words"
    count=$(wc -l < "$work/words")
    if [ "$((count))" != "$wanted" ]; then
        echo "prepare-wsj.sh: $name has $((count)) sentences, and should have $wanted" >&2
        exit 2
    fi
done < "$expected"
mv "$work"/*.trees "$output"
