#!/bin/sh
# Runs a benchmark on tiny arrays: that it works, not how fast.
program=$1
shift
exec "$program" --smoke "$@"
