#!/bin/bash
# Tests the Python package with torch, and once more what needs numpy alone; the
# last line is `N passed, N failed[, N skipped]`.
#
#   tests/python/run.sh BAZEL_BIN [TEST...]
#
# BAZEL_BIN has agg_server, libagg.so and the tools; TEST is
# tests.python.torch.worker_test, say. Needs python3-venv and, once, PyPI (some
# 6 GB): the environment is the one of deploy/bench.sh.
set -uo pipefail

root=$(cd "$(dirname "$0")/../.." && pwd) || exit 1

fail() {
  echo "FAILED  $1"
  echo "0 passed, 1 failed"
  exit 1
}

[[ $# -ge 1 ]] || fail "usage: tests/python/run.sh BAZEL_BIN [TEST...]"
AGG_BIN=$(realpath "$1")
AGG_SERVER=$AGG_BIN/server/agg_server
AGG_LIBRARY=$AGG_BIN/worker_client/c/libagg.so
export AGG_BIN AGG_SERVER AGG_LIBRARY
[[ -x $AGG_SERVER && -e $AGG_LIBRARY ]] ||
  fail "$AGG_SERVER and $AGG_LIBRARY are not both there; build them"

cache=${XDG_CACHE_HOME:-$HOME/.cache}/agg_server_bench
venv=$cache/venv
if [[ ! -e $venv/complete ]]; then
  # Another run may make it at the same time.
  mkdir -p "$cache" && exec 9>"$cache/lock" && flock 9
  if [[ ! -e $venv/complete ]]; then
    /usr/bin/python3 -m venv "$venv" &&
      "$venv/bin/pip" install --quiet --disable-pip-version-check \
        torch numpy >&2 && "$venv/bin/python" -c 'import torch' >&2 &&
      touch "$venv/complete"
  fi
  exec 9>&-
fi
[[ -e $venv/complete ]] || fail "no environment with torch in $cache"

cd "$root" || exit 1
tests=("${@:2}")
if [[ ${#tests[@]} == 0 ]]; then
  for path in tests/python/*_test.py tests/python/torch/*_test.py; do
    path=${path%.py}
    tests+=("${path//\//.}")
  done
fi
# One thread each: the processes of a test share the processors.
export OMP_NUM_THREADS=1 PYTHONPATH=$root
exec "$venv/bin/python" -B tests/foreign/runner.py "${tests[@]}"
