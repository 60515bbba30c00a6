#!/bin/sh
# Pairs of sentences of LibreOffice's help (MPL-2.0), English and another language, from packages of Debian or Ubuntu.
#   recipes/firefox/prepare.sh OUTPUT LANGUAGE ...
# LANGUAGE is the end of the name of a package libreoffice-help-LANGUAGE, such as es, ja, el or zh-tw. OUTPUT gets the folders
# en-LANGUAGE with train.tsv, dev.tsv and test.tsv: English, a tab, the other language. Packages are fetched once.
set -eu
if [ $# -lt 2 ]; then
    echo "prepare.sh: give a folder and languages, such as: prepare.sh help es ja" >&2
    exit 2
fi
mkdir -p "$1"
here=$(cd "$(dirname "$0")" && pwd) output=$(cd "$1" && pwd)
shift

unpacked() { # LANGUAGE: its package in $output/packages/LANGUAGE
    folder=$output/packages/$1
    [ -d "$folder" ] && return
    work=$(mktemp -d "$output/.prepare.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    (cd "$work" && apt-get download "libreoffice-help-$1")
    dpkg-deb -x "$work"/*.deb "$work/unpacked"
    mkdir -p "$output/packages"
    mv "$work/unpacked" "$folder"
    rm -rf "$work"
}

unpacked en-us
for language in "$@"; do
    unpacked "$language"
    python3 "$here/pairs.py" "$output/packages/en-us" "$output/packages/$language" "$output/en-$language"
done
