#!/bin/bash
# Drives agg_server with a client that shares no code with it; the last line is
# `N passed, N failed[, N skipped]`.
#
#   tests/foreign/run.sh [SERVER_BINARY [TEST...]]
#
# The binary is bazel-bin/server/agg_server if none is named; TEST is
# status_codes_test or data_test.PullTest, say. Needs protoc, python3-venv and,
# once for each version of requirements.txt, PyPI.
set -uo pipefail

folder=$(cd "$(dirname "$0")" && pwd) || exit 1
AGG_SERVER=$(realpath "${1:-$folder/../../bazel-bin/server/agg_server}")
export AGG_SERVER
if [[ ! -x $AGG_SERVER ]]; then
  echo "FAILED  $AGG_SERVER is not there: bazel build //server:agg_server"
  echo "0 passed, 1 failed"
  exit 1
fi

key=$(sha256sum <"$folder/requirements.txt" | cut -c1-16)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/agg_server_foreign
venv=$cache/$key
if [[ ! -x $venv/complete ]]; then
  # Another run may make it at the same time.
  mkdir -p "$cache" && exec 9>"$cache/lock" && flock 9
  if [[ ! -x $venv/complete ]]; then
    rm -rf "$venv"
    /usr/bin/python3 -m venv "$venv" &&
      "$venv/bin/pip" install --quiet --disable-pip-version-check \
        --requirement "$folder/requirements.txt" >&2 &&
      ln -s bin/python "$venv/complete"
  fi
  exec 9>&-
fi
if [[ ! -x $venv/complete ]]; then
  echo "FAILED  no environment of tests/foreign/requirements.txt in $cache"
  echo "0 passed, 1 failed"
  exit 1
fi

cd "$folder" || exit 1
exec "$venv/bin/python" -B runner.py "${@:2}"
