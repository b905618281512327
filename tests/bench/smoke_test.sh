#!/bin/sh
# Runs a benchmark on tiny arrays: that it works, not how fast.
exec "$1" --smoke
