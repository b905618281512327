#!/bin/sh
# Makes the Python environment with PyTorch that the benchmark, the Python
# package's tests and the papers' experiments share, and prints the path of its
# python.
#
#   deploy/torch_venv.sh [PACKAGE...]   makes what is missing, from PyPI: torch
#                                       and numpy (once, some 6 GB), and PACKAGE,
#                                       mypy==2.4.1 say
#   deploy/torch_venv.sh --there        makes nothing; prints nothing if there is
#                                       none
#
# It lies in ${XDG_CACHE_HOME:-~/.cache}/agg_server_bench/venv. Fails if torch
# cannot be installed; a PACKAGE that cannot is said, and whoever needs it finds
# it missing. Needs Debian's python3-venv.
set -eu

cache=${XDG_CACHE_HOME:-$HOME/.cache}/agg_server_bench
venv=$cache/venv
if [ "${1:-}" = --there ]; then
  [ ! -e "$venv/complete" ] || echo "$venv/bin/python"
  exit 0
fi

install() {
  "$venv/bin/pip" install --quiet --disable-pip-version-check "$@" >&2 </dev/null
}

# has PACKAGE[==VERSION]
has() {
  "$venv/bin/python" - "$1" <<'END'
import importlib.metadata
import sys
name, _, version = sys.argv[1].partition("==")
try:
    found = importlib.metadata.version(name)
except importlib.metadata.PackageNotFoundError:
    sys.exit(1)
sys.exit(0 if version in ("", found) else 1)
END
}

# Another run may make it at the same time.
mkdir -p "$cache"
exec 9>"$cache/lock"
flock 9
if [ ! -e "$venv/complete" ]; then
  echo "Installing PyTorch into $venv (some 6 GB) ..." >&2
  if ! /usr/bin/python3 -m venv "$venv" >&2 || ! install torch numpy ||
    ! "$venv/bin/python" -c 'import torch' >&2; then
    echo "deploy/torch_venv.sh: PyTorch cannot be installed (output above)" >&2
    exit 1
  fi
  touch "$venv/complete"
fi
for package in "$@"; do
  has "$package" || install "$package" ||
    echo "deploy/torch_venv.sh: $package cannot be installed" >&2
done
echo "$venv/bin/python"
