#!/bin/sh
# IWSLT 2014, TED talks in German and English: train, dev and test, as plain text.
#   recipes/iwslt14/prepare.sh ARCHIVE OUTPUT
# ARCHIVE is texts/de/en/de-en.tgz of the release 2014-01 of WIT3 (wit3.fbk.eu). Titles and descriptions are sentences
# of the corpus, other lines with tags are left out. As in work on this corpus since Ranzato et al. (2016), every 23rd
# pair of the training corpus is in dev, and the test is dev2010, dev2012 and tst2010 to tst2012, one after the other.
# Pairs with an empty side are left out, and counted.
set -eu
archive=$1 output=$2
tests="TED.dev2010 TEDX.dev2012 TED.tst2010 TED.tst2011 TED.tst2012"

mkdir -p "$output"
work=$(mktemp -d "$output/.prepare.XXXXXX")
trap 'rm -rf "$work"' EXIT

member() { # NAME: a file of the archive, whatever folder it lies in there
    found=$(tar --list --file "$archive" | grep -E "(^|/)$1\$" | head -n 1) || true
    if [ -z "$found" ]; then
        echo "prepare.sh: $archive has no $1" >&2
        exit 2
    fi
    tar --extract --to-stdout --file "$archive" "$found"
}

plain() { # texts with the characters that the files write as entities
    sed 's/&lt;/</g; s/&gt;/>/g; s/&quot;/"/g; s/&amp;/\&/g' | tr '\t\r' '  '
}

for side in de en; do
    member "train\\.tags\\.de-en\\.$side" > "$work/tags.$side"
    sed 's/^ *<title>\(.*\)<\/title> *$/\1/; s/^ *<description>\(.*\)<\/description> *$/\1/' "$work/tags.$side" |
        grep -v '^ *<[a-z/]' | plain > "$work/all.$side"
    : > "$work/test.$side"
    for name in $tests; do
        member "IWSLT14\\.$name\\.de-en\\.$side\\.xml" > "$work/xml"
        sed -n 's/.*<seg id="[0-9]*"> *\(.*[^ ]\) *<\/seg>.*/\1/p' "$work/xml" | plain >> "$work/test.$side"
    done
done
for name in all test; do
    if [ "$(wc -l < "$work/$name.de")" != "$(wc -l < "$work/$name.en")" ]; then
        echo "prepare.sh: the sides of $name have different numbers of lines" >&2
        exit 2
    fi
done
paste "$work/all.de" "$work/all.en" > "$work/pairs"
awk -F'\t' '$1 !~ /^ *$/ && $2 !~ /^ *$/' "$work/pairs" > "$work/kept"
echo "train and dev: $(wc -l < "$work/kept" | tr -d ' ') of $(wc -l < "$work/pairs" | tr -d ' ') pairs have two sides"
awk 'NR % 23' "$work/kept" > "$work/train"
awk 'NR % 23 == 0' "$work/kept" > "$work/dev"
paste "$work/test.de" "$work/test.en" > "$work/test"
for name in train dev test; do
    cut -f 1 "$work/$name" > "$output/$name.de"
    cut -f 2 "$work/$name" > "$output/$name.en"
done
