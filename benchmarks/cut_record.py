"""A record of claims on what is left of a variant without its parts, where the other variants of the file have no runs.

python benchmarks/cut_record.py headway/cut results/headway-cut.json --data runs/headway-cut/data --variant ngram \
    runs/headway-cut/cells/ngram-1 runs/headway-cut/cells/ngram-2 runs/headway-cut/cells/ngram-3

`headway reproduce` makes the record where all variants have runs.
"""

from argparse import ArgumentParser, RawDescriptionHelpFormatter
from pathlib import Path

from headway.comparison.claims import ClaimPath, chosen_files, claims_folder, claims_table, read_claims
from headway.comparison.reproduce import ResultRecord, cut_variants, decide_cut, measured_now, write_record
from headway.runs.run import open_run


def main() -> None:
    """Cut the runs, decide the claims, and write the record."""
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("claims", help="as in headway reproduce")
    parser.add_argument("output", type=Path, help="the record, as JSON")
    parser.add_argument("runs", nargs="+", type=Path, help="the run folders of the variant, a seed each")
    parser.add_argument("--data", required=True, type=Path, help="the folder of the data")
    parser.add_argument("--variant", required=True)
    parser.add_argument("--regime", default="unknown", choices=["early", "plateau", "unknown"], help="of the training")
    parser.add_argument("--text", action="append", default=[], help="a sentence above the table; several times")
    parser.add_argument("--command", action="append", default=[], help="what was run before; several times")
    given = parser.parse_args()
    ((_, path),) = chosen_files(claims_folder(), ClaimPath.parse(given.claims)).items()
    claims = read_claims(path)
    cuts, tables = cut_variants(claims, {given.variant: given.runs}, given.data)
    found = {claim.says: decide_cut(claim, claims, cuts, {given.variant: given.regime}) for claim in claims.claims}
    print(claims_table(found, claims, as_printed=False).text(), *(table.text() for table in tables), sep="\n\n")
    command = f"python benchmarks/cut_record.py {given.claims} {given.output} --data FOLDER --variant {given.variant}"
    seeds = sorted(open_run(run).recipe.training.seed for run in given.runs)
    record = ResultRecord(
        title=claims.title,
        measured=measured_now([*given.command, f"{command} runs/{given.variant}-*"], seeds),
        text=tuple(given.text),
        tables=tuple(table.to_json() for table in tables),
        claims=tuple(one.to_json() for one in found.values() if one is not None),
        looks=claims.looks,
    )
    write_record(given.output, record)


if __name__ == "__main__":
    main()
