#!/bin/sh
# Runs a libFuzzer target: new inputs go to a scratch folder, which libFuzzer
# wants first; the committed corpus, among the arguments, is only read. An input
# that makes one allocation of 512 MiB, or takes four minutes, is a finding (after
# five Bazel would end the target, without the input). Short stacks of
# allocations: ASan would take a tenth of the time for them.
set -eu
target=$1
shift
mkdir -p "$TEST_TMPDIR/new_inputs"
export ASAN_OPTIONS="malloc_context_size=8:${ASAN_OPTIONS:-}"
export UBSAN_OPTIONS="print_stacktrace=1:${UBSAN_OPTIONS:-}"
exec "$target" "$TEST_TMPDIR/new_inputs" -timeout=240 -malloc_limit_mb=512 \
  -artifact_prefix="${TEST_UNDECLARED_OUTPUTS_DIR:-$TEST_TMPDIR}/" "$@"
