#!/bin/sh
# ASPEC, Japanese and English: train, dev and test of its own files, as plain text.
#   recipes/aspec/prepare.sh ASPEC OUTPUT [PAIRS [COMMAND]]
# ASPEC is the folder ASPEC-JE of the corpus. The first PAIRS of train-1, which is sorted by how well the sides match, are
# the training corpus: 1.5 million where nothing else is said. Pairs with an empty side are left out, and counted. COMMAND
# puts spaces between the Japanese words; it is `kytea -notags` where nothing else is said.
set -eu
corpus=$1 output=$2 pairs=${3:-1500000} segment=${4:-kytea -notags}

if [ ! -f "$corpus/train/train-1.txt" ]; then
    echo "prepare.sh: $corpus has no train/train-1.txt" >&2
    exit 2
fi
mkdir -p "$output"
work=$(mktemp -d "$output/.prepare.XXXXXX")
trap 'rm -rf "$work"' EXIT

sides() { # NAME FILE COLUMN: the Japanese stands in this column, the English in the next
    awk -F' [|][|][|] ' -v name="$1" -v fields="$(($3 + 1))" 'NF != fields {
        printf "prepare.sh: %s, line %d: %d fields in the place of %d\n", name, NR, NF, fields > "/dev/stderr"
        exit 2
    }' "$2"
    awk -F' [|][|][|] ' -v column="$3" -v OFS='\t' '{
        gsub(/\t/, " ")
        if ($column !~ /^ *$/ && $(column + 1) !~ /^ *$/) print $column, $(column + 1)
    }' "$2" > "$work/$1"
    echo "$1: $(wc -l < "$work/$1" | tr -d ' ') of $(wc -l < "$2" | tr -d ' ') pairs have two sides"
}

head -n "$pairs" "$corpus/train/train-1.txt" > "$work/first"
sides train "$work/first" 4
sides dev "$corpus/dev/dev.txt" 3
sides test "$corpus/test/test.txt" 3
for name in train dev test; do
    cut -f 1 "$work/$name" | sh -c "$segment" > "$work/$name.ja"
    if [ "$(wc -l < "$work/$name.ja")" != "$(wc -l < "$work/$name")" ]; then
        echo "prepare.sh: $segment does not give a line for each line of $name" >&2
        exit 2
    fi
    cut -f 2 "$work/$name" > "$work/$name.en"
done
for name in train dev test; do
    mv "$work/$name.ja" "$work/$name.en" "$output"
done
