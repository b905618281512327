#!/bin/sh
# Runs a libFuzzer target: new inputs go to a scratch folder, which libFuzzer
# wants first; the committed corpus, among the arguments, is only read.
set -eu
target=$1
shift
mkdir -p "$TEST_TMPDIR/new_inputs"
exec "$target" "$TEST_TMPDIR/new_inputs" "$@"
