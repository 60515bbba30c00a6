#!/usr/bin/env bash
# What the tests need of the system, where it is Debian's or Ubuntu's: a browser, and a font with Japanese letters.
# Without them the tests of pages are skipped, or fail where CI is set.
set -euo pipefail

browser() { for name in chromium chromium-browser google-chrome google-chrome-stable; do command -v "$name" && return; done; return 1; }
japanese() { [ -n "$(fc-list :lang=ja 2>/dev/null)" ]; }
give_up() { echo "$1: the tests of pages in a browser will be skipped; install chromium and fonts-noto-cjk for them" >&2; exit 0; }

packages=()
browser >/dev/null || packages+=(chromium)
japanese || packages+=(fonts-noto-cjk fontconfig)
[ ${#packages[@]} -gt 0 ] || exit 0

command -v apt-get >/dev/null || give_up "there is no apt-get"
as_root=()
if [ "$(id -u)" -ne 0 ]; then
  sudo -n true 2>/dev/null || give_up "not root, and sudo asks for a password"
  as_root=(sudo -n)
fi
echo "installing ${packages[*]}" >&2
export DEBIAN_FRONTEND=noninteractive
"${as_root[@]}" apt-get update -qq || give_up "apt-get update failed"
"${as_root[@]}" apt-get install -qq --yes --no-install-recommends "${packages[@]}" >/dev/null || give_up "apt-get install failed"
