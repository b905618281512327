#!/bin/sh
# Runs a module of unittest cases with Debian's Python (Bazel's py_test wants a
# `python`, which Debian does not have). The working directory is the root.
exec env PYTHONDONTWRITEBYTECODE=1 /usr/bin/python3 \
  deploy/bazel/python_cases.py "$1"
