#!/bin/bash
# Tests the Python package with torch, what needs numpy alone once more, and the
# papers' experiments; the last line is `N passed, N failed[, N skipped]`.
#
#   tests/python/run.sh BAZEL_BIN [TEST...]
#   tests/python/run.sh --frameworks BAZEL_BIN [TEST...]
#
# BAZEL_BIN has agg_server, libagg.so and the tools; TEST is
# tests.python.torch.worker_test, say. Needs python3-venv and, once, PyPI (some
# 6 GB): the environment is the one of deploy/torch_venv.sh.
#
# --frameworks tests the package with frameworks/requirements.txt instead, in an
# environment of its own (once 2.4 GB more) that uses the other one's torch.
set -uo pipefail

root=$(cd "$(dirname "$0")/../.." && pwd) || exit 1

fail() {
  echo "FAILED  $1"
  echo "0 passed, 1 failed"
  exit 1
}

suites="tests/python tests/python/torch tests/papers"
if [[ ${1:-} == --frameworks ]]; then
  suites=tests/python/frameworks
  shift
fi
[[ $# -ge 1 ]] ||
  fail "usage: tests/python/run.sh [--frameworks] BAZEL_BIN [TEST...]"
AGG_BIN=$(realpath "$1")
AGG_SERVER=$AGG_BIN/server/agg_server
AGG_LIBRARY=$AGG_BIN/worker_client/c/libagg.so
export AGG_BIN AGG_SERVER AGG_LIBRARY
[[ -x $AGG_SERVER && -e $AGG_LIBRARY ]] ||
  fail "$AGG_SERVER and $AGG_LIBRARY are not both there; build them"

cache=${XDG_CACHE_HOME:-$HOME/.cache}/agg_server_bench

make_frameworks() {
  [[ -e $frameworks/complete ]] && return
  local requirements=$root/tests/python/frameworks/requirements.txt
  # Its torch is the other environment's.
  /usr/bin/python3 -m venv --clear "$frameworks" &&
    "$python" -c 'import site; print(site.getsitepackages()[0])' \
      >"$("$frameworks/bin/python" -c \
        'import site; print(site.getsitepackages()[0])')/torch.pth" &&
    "$frameworks/bin/pip" install --quiet --disable-pip-version-check \
      -r "$requirements" >&2 && touch "$frameworks/complete"
}

python=$("$root/deploy/torch_venv.sh" mypy==2.4.1 matplotlib pandas \
  jupytext scipy) ||
  fail "no environment with torch in $cache"
if [[ $suites == */frameworks ]]; then
  frameworks=$cache/frameworks_$(
    sha256sum "$root/tests/python/frameworks/requirements.txt" | cut -c 1-12)
  # Another run may make it at the same time.
  exec 9>"$cache/lock" && flock 9
  make_frameworks
  exec 9>&-
  python=$frameworks/bin/python
  [[ -e $frameworks/complete ]] || fail "no environment with the frameworks in $cache"
fi

cd "$root" || exit 1
tests=("${@:2}")
if [[ ${#tests[@]} == 0 ]]; then
  for suite in $suites; do
    for path in "$suite"/*_test.py; do
      path=${path%.py}
      tests+=("${path//\//.}")
    done
  done
fi
# One thread each: the processes of a test share the processors.
export OMP_NUM_THREADS=1 PYTHONPATH=$root MYPY_CACHE_DIR=$cache/mypy
exec "$python" -B tests/foreign/runner.py "${tests[@]}"
