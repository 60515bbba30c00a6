#!/bin/sh
# LibriSpeech: the archives of openslr.org/12, checked and unpacked.
#   recipes/speech/prepare-librispeech.sh ARCHIVES OUTPUT [SHA256SUMS]
# ARCHIVES is a folder for the archives; curl brings those that are missing, 60 GB of them. Each has to have its checksum
# of librispeech.sha256, or of SHA256SUMS for other parts. OUTPUT/LibriSpeech is what recipes call FOLDER.
set -eu
archives=$1 output=$2
sums=${3:-$(dirname "$0")/librispeech.sha256}

mkdir -p "$archives" "$output"
while read -r sum name; do
    if [ ! -f "$archives/$name" ]; then
        curl --fail --location --output "$archives/$name.part" "https://www.openslr.org/resources/12/$name"
        mv "$archives/$name.part" "$archives/$name"
    fi
    echo "$sum  $archives/$name" | sha256sum --check --quiet || {
        echo "prepare-librispeech.sh: $archives/$name is not whole: remove it, and it is fetched again" >&2
        exit 2
    }
done < "$sums"
while read -r _ name; do
    part=${name%.tar.gz}
    tar --extract --file "$archives/$name" --directory "$output"
    count=$(find "$output/LibriSpeech/$part" -name '*.trans.txt' -exec cat {} + | wc -l)
    echo "$part: $((count)) utterances"
done < "$sums"
