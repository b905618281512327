#!/bin/sh
# Runs a benchmark on tiny arrays: that it works, not how fast. A flag of
# --checkpoint alone gets a folder, which a target's args cannot name.
set -eu

program=$1
shift
if [ "${1:-}" = --checkpoint ]; then
  shift
  set -- "--checkpoint=$TEST_TMPDIR" "$@"
fi
exec "$program" --smoke "$@"
