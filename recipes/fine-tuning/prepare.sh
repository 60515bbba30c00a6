#!/bin/sh
# Two shifts of domain, each with a model that has learned the first kind of text and has never seen the second.
#   recipes/fine-tuning/prepare.sh strings|captions DATA OUTPUT [KEY.PATH=VALUE ...]
# strings: from sentences of Tanaka to messages of programs, Japanese -> English. DATA holds `tanaka`
#   (https://github.com/odashi/small_parallel_enja) and `locale`, such as /usr/share/locale of Debian 12.
# captions: from messages of programs to captions of Multi30k, German -> English. DATA holds `locale` and `multi30k` (task
#   1, raw, of https://github.com/multi30k/dataset).
# OUTPUT gets general.tsv, domain.tsv, a dev and a test set of each, and the run OUTPUT/runs/general. Changes are made to
# the recipe of that run.
set -eu
shift_of=$1 data=$2 output=$3
shift 3
here=$(dirname "$0")
tab=$(printf '\t')

messages() { # LANGUAGE NAME PAIRS: messages for training, 500 for dev and 1,000 as a test
    python "$here/messages.py" "$data/locale" "$1" "$output/messages.tsv"
    head -n 500 "$output/messages.tsv" > "$output/$2-dev.tsv"
    tail -n +501 "$output/messages.tsv" | head -n 1000 > "$output/$2-test.tsv"
    tail -n +1501 "$output/messages.tsv" | head -n "$3" > "$output/$2.tsv"
}

mkdir -p "$output"
case $shift_of in
strings)
    general=$here/strings-general.yaml
    for part in train dev; do # the words of Japanese are put together again
        tr -d ' ' < "$data/tanaka/$part.ja" | paste -d "$tab" - "$data/tanaka/$part.en" > "$output/$part.tsv"
    done
    head -n -1000 "$output/train.tsv" > "$output/general.tsv"
    tail -n 1000 "$output/train.tsv" > "$output/general-test.tsv"
    cp "$output/dev.tsv" "$output/general-dev.tsv"
    messages ja domain 5000
    ;;
captions)
    general=$here/captions-general.yaml
    captions=$data/multi30k
    paste -d "$tab" "$captions/train.de" "$captions/train.en" | head -n 5000 > "$output/domain.tsv"
    paste -d "$tab" "$captions/val.de" "$captions/val.en" | head -n 500 > "$output/domain-dev.tsv"
    paste -d "$tab" "$captions/test_2016_flickr.de" "$captions/test_2016_flickr.en" > "$output/domain-test.tsv"
    messages de general 40000
    ;;
*)
    echo "prepare.sh: no shift '$shift_of'; allowed: strings, captions" >&2
    exit 2
    ;;
esac
headway train "$general" "data.folder=$output" "$@" --output "$output/runs/general"
