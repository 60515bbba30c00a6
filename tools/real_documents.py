"""`python -m tools.real_documents FOLDER`: documents of Debian packages, for the campaign `documents`.

The packages are downloaded by apt-get and unpacked by dpkg, but not installed. A few files of each are copied, always
the same ones.
"""

import argparse
import hashlib
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

SUFFIXES = (".html", ".htm", ".xhtml", ".md", ".markdown", ".srt", ".vtt", ".txt")
SMALLEST, LARGEST, MOST = 300, 80_000, 12  # bytes of a file; files of a package with one suffix
PACKAGES = """
apache2-doc bash-doc bind9-doc borgbackup-doc bundler debian-faq debian-handbook debian-policy debian-reference-en
developers-reference dnsmasq-base docbook-xsl-doc-html exim4-doc-html fetchmail gettext-doc gimp-help-en git-doc
gnucash-docs gnuplot-doc golang-github-docker-docker-dev golang-github-russross-blackfriday-dev
golang-github-urfave-cli-dev graphviz-doc jekyll libcairo2-doc libreoffice-help-en-us libxml2-doc lilypond-doc-html
maint-guide mksh mutt node-d3 node-express node-lodash node-marked node-minimist node-terser node-undici node-uuid
node-ws node-yargs ntpsec-doc postgresql-doc-15 privoxy python3.11-doc restic ruby-faraday ruby-haml ruby-httparty
ruby-i18n ruby-kramdown sqlite3-doc stunnel4 sudo vim-doc xfig-doc zsh-doc
"""


def main() -> None:
    """Copy the documents, and print how many there are of each kind."""
    parser = argparse.ArgumentParser(prog="python -m tools.real_documents", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("packages", nargs="*", default=PACKAGES.split())
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    for package in options.packages:
        count = sum(1 for _ in copied(package, options.folder))
        print(f"{package}: {count} documents" if count else f"{package}: none")


def copied(package: str, folder: Path) -> Iterator[Path]:
    """Copy documents of a package into a folder. None if the package cannot be downloaded."""
    with tempfile.TemporaryDirectory() as workspace:
        if subprocess.run(["apt-get", "download", "-q", package], cwd=workspace, capture_output=True).returncode:
            return
        for archive in Path(workspace).glob("*.deb"):
            subprocess.run(["dpkg", "-x", archive, "files"], cwd=workspace, check=True)
        files = [file for file in Path(workspace, "files").rglob("*") if file.is_file() and not file.is_symlink()]
        for suffix in SUFFIXES:
            own = [file for file in files if file.suffix.lower() == suffix]
            own = [file for file in own if SMALLEST < file.stat().st_size < LARGEST]
            for file in sorted(own, key=lambda file: hashlib.sha256(file.name.encode()).digest())[:MOST]:
                name = re.sub(r"[^\w.-]+", "_", f"{package}-{file.parent.name}-{file.name}")
                yield Path(shutil.copyfile(file, folder / name))


if __name__ == "__main__":
    main()
