#!/bin/sh
# WMT 2014, English with German or French: train, newstest2013 and newstest2014, as plain text.
#   recipes/wmt14/prepare.sh de|fr ARCHIVES OUTPUT
# ARCHIVES is a folder for the archives of statmt.org; curl brings those that are missing, gigabytes of them.
# statmt.org has no checksums, so those of the first download are kept beside the archives, in SHA256SUMS, and later runs
# compare. The lines of every part are compared with lines.tsv. Pairs with an empty side are left out, and counted.
set -eu
language=$1 archives=$2 output=$3
expected=${4:-$(dirname "$0")/lines.tsv} # of another file, for made data
case $language in
de | fr) ;;
*) echo "prepare.sh: the language is de or fr; received $language" >&2 && exit 2 ;;
esac
pair=$language-en
europarl=https://www.statmt.org/wmt13/training-parallel-europarl-v7.tgz
crawl=https://www.statmt.org/wmt13/training-parallel-commoncrawl.tgz
news=https://www.statmt.org/wmt14/training-parallel-nc-v9.tgz
nations=https://www.statmt.org/wmt13/training-parallel-un.tgz
giga=https://www.statmt.org/wmt10/training-giga-fren.tar
dev=https://www.statmt.org/wmt14/dev.tgz
test=https://www.statmt.org/wmt14/test-full.tgz

mkdir -p "$archives" "$output"
work=$(mktemp -d "$output/.prepare.XXXXXX")
trap 'rm -rf "$work"' EXIT

fetch() { # URL: the archive, with the checksum that it had at first
    file=$archives/${1##*/}
    if [ ! -f "$file" ]; then
        curl --fail --location --output "$file.part" "$1"
        mv "$file.part" "$file"
    fi
    touch "$archives/SHA256SUMS"
    if grep -q "  ${1##*/}\$" "$archives/SHA256SUMS"; then
        (cd "$archives" && grep "  ${1##*/}\$" SHA256SUMS | sha256sum --check --quiet) || {
            echo "prepare.sh: $file is not what it was: remove it, and it is fetched again" >&2
            exit 2
        }
    else
        (cd "$archives" && sha256sum "${1##*/}" >> SHA256SUMS)
    fi
}

member() { # URL NAME: a file of an archive, whatever folder it lies in there, unpacked where its name says so
    file=$archives/${1##*/}
    found=$(tar --list --file "$file" | grep -E "(^|/)$2\$" | head -n 1) || true
    if [ -z "$found" ]; then
        echo "prepare.sh: $file has no $2" >&2
        exit 2
    fi
    case $2 in
    *.gz) tar --extract --to-stdout --file "$file" "$found" | gunzip ;;
    *) tar --extract --to-stdout --file "$file" "$found" ;;
    esac
}

check() { # NAME FILE: the lines of a part are those of the corpus
    count=$(wc -l < "$2" | tr -d ' ')
    wanted=$(awk -F'\t' -v name="$1" '$1 == name {print $2}' "$expected")
    if [ "$count" != "$wanted" ]; then
        echo "prepare.sh: $1 has $count lines, and should have ${wanted:-none}" >&2
        exit 2
    fi
}

part() { # URL NAME [SUFFIX]: both sides of a part of the training corpus
    fetch "$1"
    for side in en "$language"; do
        member "$1" "$2\\.$side${3:-}" > "$work/$side"
        check "$2" "$work/$side"
        tr '\t\r' '  ' < "$work/$side" >> "$work/train.$side"
    done
}

segments() { # the texts of an SGML file
    sed -n 's/.*<seg id="[0-9]*"> *\(.*[^ ]\) *<\/seg>.*/\1/p' |
        sed 's/&lt;/</g; s/&gt;/>/g; s/&quot;/"/g; s/&amp;/\&/g'
}

part "$europarl" "europarl-v7.$pair"
part "$crawl" "commoncrawl.$pair"
if [ "$language" = fr ]; then
    part "$nations" "undoc.2000.$pair"
    part "$giga" giga-fren.release2.fixed .gz
fi
part "$news" "news-commentary-v9.$pair"
paste "$work/train.en" "$work/train.$language" > "$work/pairs"
awk -F'\t' '$1 !~ /^ *$/ && $2 !~ /^ *$/' "$work/pairs" > "$work/kept"
echo "train: $(wc -l < "$work/kept" | tr -d ' ') of $(wc -l < "$work/pairs" | tr -d ' ') pairs have two sides"
cut -f 1 "$work/kept" > "$work/train.en"
cut -f 2 "$work/kept" > "$work/train.$language"

fetch "$dev"
fetch "$test"
for side in en "$language"; do
    member "$dev" "newstest2013\\.$side" > "$work/newstest2013.$side"
    check newstest2013 "$work/newstest2013.$side"
done
member "$test" "newstest2014-${language}en-src\\.en\\.sgm" | segments > "$work/newstest2014.en"
member "$test" "newstest2014-${language}en-ref\\.$language\\.sgm" | segments > "$work/newstest2014.$language"
for name in train newstest2013 newstest2014; do
    for side in en "$language"; do
        [ "$name" != newstest2014 ] || check newstest2014 "$work/$name.$side"
        mv "$work/$name.$side" "$output"
    done
done
