#!/bin/sh
# Measures complete rounds of agg_server against gloo's all_reduce and against
# what this machine's memory and sockets give, in one run and in turns.
#
#   deploy/bench.sh                  everything: 10 to 30 minutes
#   deploy/bench.sh --json FILE      also writes the results
#   deploy/bench.sh --python         training steps from Python, against DDP
#   deploy/bench.sh --quick          a smoke test under a minute
#   deploy/bench.sh --help           all options
#
# Installs what is missing (deploy/setup.sh; PyTorch into a folder of its own
# below ~/.cache, unless --quick) and builds first. The chart of the results, and
# their tables:
#
#   /usr/bin/python3 deploy/bench_chart.py FILE deploy/bench.svg
#   /usr/bin/python3 deploy/bench_page.py FILE deploy/docs/performance.md
#
# AGG_OUTPUT_BASE names another Bazel output base.
set -eu

root=$(CDPATH='' cd "$(dirname "$0")/.." && pwd)
"$root/deploy/setup.sh"

bench() {
  exec /usr/bin/python3 "$root/deploy/bench.py" "$@"
}

quick=
for argument in "$@"; do
  case $argument in
    --help | -h) bench --help ;;
    --quick) quick=1 ;;
  esac
done
# A bad flag should not cost a build.
(bench --check "$@")

# Bazel and its cache want a home folder.
if [ -z "${HOME:-}" ] || [ ! -w "$HOME" ]; then
  HOME=${TMPDIR:-/tmp}/agg_server_home_$(id -u)
  export HOME
  mkdir -p "$HOME"
fi

# gloo comes with PyTorch. What PyPI has works without a GPU.
torch_python=$("$root/deploy/torch_venv.sh" ${quick:+--there}) ||
  echo "deploy/bench.sh: without PyTorch there is no gloo" >&2

run_bazel() {
  # shellcheck disable=SC2086  # One word, or none.
  (cd "$root" && bazel ${AGG_OUTPUT_BASE:+--output_base=$AGG_OUTPUT_BASE} \
    "$@" --symlink_prefix=/)
}

echo "Building agg_server and the benchmark's programs ..." >&2
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! run_bazel build -c opt //server:agg_server \
  //tests/bench:transport_worker //tests/bench:raw_limits \
  //tests/bench:grpc_echo //worker_client/c:libagg.so \
  >"$log" 2>&1 </dev/null; then
  cat "$log" >&2
  echo "deploy/bench.sh: the build failed (output above)" >&2
  exit 1
fi
rm -f "$log"
bin=$(run_bazel info -c opt bazel-bin 2>/dev/null </dev/null)
bench --bin="$bin" --torch_python="$torch_python" "$@"
