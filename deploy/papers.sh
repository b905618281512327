#!/bin/sh
# Runs the experiments of the papers on Adasum, AdaCons and AdaScale through real
# agg_server shards, and makes the tables of tests/papers/README.md from them.
#
#   deploy/papers.sh                 what tests/papers/results lacks, then the page
#   deploy/papers.sh --fresh         everything again: up to 90 minutes of 2 cores
#   deploy/papers.sh --quick         tiny runs into a temporary folder, in some 3
#                                    minutes: that it works; the page stays
#   deploy/papers.sh --jobs=N        N runs at a time, in place of one per core
#   deploy/papers.sh NAME...         of adascale, elastic, adasum, adacons, momentum and
#                                    text, only these
#
# Installs what is missing (deploy/setup.sh --papers; deploy/torch_venv.sh) and
# builds first. AGG_OUTPUT_BASE names another Bazel output base; AGG_SERVER and
# AGG_LIBRARY name built programs, and then nothing is built.
set -eu

root=$(CDPATH='' cd "$(dirname "$0")/.." && pwd)
usage() {
  sed -n '2,/^set /{/^set /!s/^# \{0,1\}//p}' "$0"
}

quick='' fresh='' jobs='' names=''
for argument in "$@"; do
  case $argument in
    --quick) quick=--quick ;;
    --fresh) fresh=--fresh ;;
    --jobs=*[!0-9]* | --jobs= | --jobs=0*)
      echo "deploy/papers.sh: $argument; allowed: --jobs=1 or more" >&2
      exit 2
      ;;
    --jobs=*) jobs=$argument ;;
    adascale | elastic | adasum | adacons | momentum | text) names="$names $argument" ;;
    --help | -h)
      usage
      exit 0
      ;;
    *)
      echo "deploy/papers.sh: $argument is not known; allowed:" >&2
      usage >&2
      exit 2
      ;;
  esac
done

# Bazel and its cache want a home folder.
if [ -z "${HOME:-}" ] || [ ! -w "$HOME" ]; then
  HOME=${TMPDIR:-/tmp}/agg_server_home_$(id -u)
  export HOME
  mkdir -p "$HOME"
fi
"$root/deploy/setup.sh" --papers
python=$("$root/deploy/torch_venv.sh" matplotlib scipy)
# Before an hour of runs, and not after it.
"$python" -c 'import matplotlib, scipy' || {
  echo "deploy/papers.sh: verdicts need scipy, plots matplotlib (output above)" >&2
  exit 1
}

run_bazel() {
  # shellcheck disable=SC2086  # One word, or none.
  (cd "$root" && bazel ${AGG_OUTPUT_BASE:+--output_base=$AGG_OUTPUT_BASE} \
    "$@" --symlink_prefix=/)
}

if [ -z "${AGG_SERVER:-}" ] || [ -z "${AGG_LIBRARY:-}" ]; then
  echo "Building agg_server ..." >&2
  log=$(mktemp)
  trap 'rm -f "$log"' EXIT
  if ! run_bazel build -c opt //server:agg_server \
    //worker_client/c:libagg.so >"$log" 2>&1 </dev/null; then
    cat "$log" >&2
    echo "deploy/papers.sh: the build failed (output above)" >&2
    exit 1
  fi
  rm -f "$log"
  bin=$(run_bazel info -c opt bazel-bin 2>/dev/null </dev/null)
  export AGG_SERVER="$bin/server/agg_server"
  export AGG_LIBRARY="$bin/worker_client/c/libagg.so"
fi

cd "$root"
for name in ${names:-adascale elastic adasum adacons momentum text}; do
  # shellcheck disable=SC2086  # A flag, or none.
  "$python" -B -m "tests.papers.$name" $quick $fresh $jobs </dev/null
done
[ -n "$quick" ] || exec "$python" -B -m tests.papers.report
