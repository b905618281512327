#!/bin/sh
# Runs a test under ThreadSanitizer with the suppressions.
set -eu
options="suppressions=$TEST_SRCDIR/$TEST_WORKSPACE/deploy/bazel/tsan.supp"
export TSAN_OPTIONS="$options:second_deadlock_stack=1:${TSAN_OPTIONS:-}"
# ThreadSanitizer of gcc 12 gives up on kernels that randomise addresses with
# more than 28 bits. Not every container lets a process turn that off.
if setarch -R true 2>/dev/null; then
  exec setarch -R "$@"
fi
exec "$@"
