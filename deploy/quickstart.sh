#!/bin/sh
# Trains a network on handwritten digits with real agg_server shards and real
# worker processes on this machine, and compares the combination rules.
#
#   deploy/quickstart.sh             the comparison at 32 workers
#   deploy/quickstart.sh --rule R    one run
#   deploy/quickstart.sh --rule R --monitoring
#                                    the same, watched by Prometheus
#   deploy/quickstart.sh --chaos     one run undisturbed, and one whose shards
#                                    are killed: the same result
#   deploy/quickstart.sh --help      all options
#
# Installs what is missing (deploy/setup.sh) and builds first.
# AGG_OUTPUT_BASE names another Bazel output base.
set -eu

root=$(CDPATH='' cd "$(dirname "$0")/.." && pwd)
monitoring=
for argument in "$@"; do
  [ "$argument" != --monitoring ] || monitoring=--monitoring
done
# shellcheck disable=SC2086  # One word, or none.
"$root/deploy/setup.sh" $monitoring

quickstart() {
  exec /usr/bin/python3 "$root/deploy/quickstart.py" "$@"
}

for argument in "$@"; do
  case $argument in
    --help | -h) quickstart --help ;;
  esac
done
# A bad flag should not cost a build.
(quickstart --check "$@")

# Bazel and its cache want a home folder.
if [ -z "${HOME:-}" ] || [ ! -w "$HOME" ]; then
  HOME=${TMPDIR:-/tmp}/agg_server_home_$(id -u)
  export HOME
  mkdir -p "$HOME"
fi

run_bazel() {
  # shellcheck disable=SC2086  # One word, or none.
  (cd "$root" && bazel ${AGG_OUTPUT_BASE:+--output_base=$AGG_OUTPUT_BASE} \
    "$@" --symlink_prefix=/)
}

echo "Building agg_server and its workers ..." >&2
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! run_bazel build -c opt //server:agg_server //worker_client/tools:agg_pull \
  //worker_client/tools:aggctl \
  //worker_client/examples:digits_worker >"$log" 2>&1 </dev/null; then
  cat "$log" >&2
  echo "deploy/quickstart.sh: the build failed (output above)" >&2
  exit 1
fi
rm -f "$log"
bin=$(run_bazel info -c opt bazel-bin 2>/dev/null </dev/null)
quickstart --bin "$bin" "$@"
