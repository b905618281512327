#!/bin/sh
# Runs clang-tidy over the given sources; the working directory is the root and
# BAZEL_BIN holds the generated headers.
exec clang-tidy --quiet "$@" -- -std=c++17 -Wall -Wextra -Wthread-safety \
  -I . -I "$BAZEL_BIN"
