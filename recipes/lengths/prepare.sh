#!/bin/sh
# A length task for claims, whose test is cut into lengths that training has (seen.tsv) and longer ones (longer.tsv).
#   recipes/lengths/prepare.sh OUTPUT TASK [KEY=VALUE ...]      # the keys of `headway data make lengths`
set -eu
output=$1
shift
case " $* " in *" --test-size "*) ;; *) set -- "$@" --test-size 50 ;; esac
headway data make lengths "$@" --output "$output"
longest=$(python -c "import json, sys; print(json.load(open(sys.argv[1]))['trained'])" "$output/lengths.json")
paste "$output/test.lengths" "$output/test.tsv" > "$output/all.tsv"
awk -F'\t' -v OFS='\t' -v n="$longest" '$1 > n {print $2, $3}' "$output/all.tsv" > "$output/longer.tsv"
awk -F'\t' -v OFS='\t' -v n="$longest" '$1 <= n {print $2, $3}' "$output/all.tsv" > "$output/seen.tsv"
rm "$output/all.tsv"
