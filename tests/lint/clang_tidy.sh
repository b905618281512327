#!/bin/sh
# Runs clang-tidy over the given sources; the working directory is the root.
exec clang-tidy --quiet "$@" -- -std=c++17 -Wall -Wextra -Wthread-safety \
  -I . -I bazel-bin
