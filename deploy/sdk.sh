#!/bin/bash
# Installs the client for C++ and C projects outside this tree.
#
#   deploy/sdk.sh [--bin=BAZEL_BIN] [--libdir=lib] PREFIX
#
# In PREFIX then:
#   include/agg_client/   the public headers (agg_client.h; agg.h for C). They
#                         need the standard library and Abseil, nothing else
#   lib/                  libagg_client.so, libagg_client.a, libagg.so (C)
#   lib/pkgconfig/        agg_client, agg_client_static, agg
#   lib/cmake/agg_client/ find_package(agg_client): agg::client,
#                         agg::client_static, agg::c
#   share/doc/agg_client/ LICENSE
#
# The folder may be moved. Installing again replaces these files. A program that
# uses it needs libabsl-dev to compile and the shared libraries of the packages
# libgrpc++1.51 libssl3 libprotobuf32 libzip4 libisal2 libhwy1 libabsl20220623 to run;
# with the static library their -dev packages to compile.
#
# --bin: what is built already. --libdir: in PREFIX, as lib/x86_64-linux-gnu.
# Builds with the packages of deploy/setup.sh. AGG_OUTPUT_BASE names a Bazel
# output base of one's own.
set -euo pipefail
shopt -s extglob

usage() {
  sed -n '2,/^set /{/^set /!s/^# \{0,1\}//p}' "$0" >&2
  exit 2
}

fail() {
  echo "deploy/sdk.sh: $1" >&2
  exit 1
}

bin='' libdir=lib prefix=''
for argument in "$@"; do
  case $argument in
    --bin=*) bin=$(realpath -e "${argument#--bin=}") ||
      fail "--bin is '${argument#--bin=}'; allowed: a folder of built targets" ;;
    --libdir=*) libdir=${argument#--libdir=} ;;
    -*) usage ;;
    *)
      [[ -z $prefix ]] || usage
      [[ -n $argument ]] || fail "PREFIX is ''; allowed: the path of a folder"
      prefix=$argument
      ;;
  esac
done
[[ -n $prefix ]] || usage
[[ $libdir =~ ^[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)*$ && ! $libdir =~ \.\. ]] ||
  fail "--libdir is '$libdir'; allowed: a path within PREFIX, as lib64"
# pkg-config and make split paths at spaces.
[[ $prefix != *[[:space:]]* ]] ||
  fail "PREFIX is '$prefix'; allowed: a path without spaces"
reason=$(mkdir -p "$prefix" 2>&1) ||
  fail "PREFIX is '$prefix'; allowed: a folder that can be made: ${reason#mkdir: }"
prefix=$(realpath "$prefix")
[[ -w $prefix ]] ||
  fail "PREFIX is '$prefix'; allowed: a folder that this user may write to"
cd "$(dirname "$0")/.."

if [[ -z $bin ]]; then
  bazel=/usr/bin/bazel
  [[ -x $bazel ]] || bazel=bazel
  startup=() options=(--config=gcc -c opt --noshow_progress)
  if [[ -n ${AGG_OUTPUT_BASE:-} ]]; then
    startup=("--output_base=$AGG_OUTPUT_BASE")
    options+=("--symlink_prefix=$AGG_OUTPUT_BASE.links/")
  fi
  "$bazel" "${startup[@]}" build "${options[@]}" //deploy/sdk:sdk >&2
  bin=$("$bazel" "${startup[@]}" info "${options[@]}" bazel-bin 2>/dev/null)
fi

built=$bin/deploy/sdk
for file in libagg.so libagg_client.a libagg_client.so \
  include/agg_client/agg_client.h; do
  [[ -r $built/$file ]] ||
    fail "$built/$file is missing; build //deploy/sdk:sdk first"
done
version=$(sed -n 's/.*kVersion\[\] = "\(.*\)";/\1/p' server/base/version.h)
# From lib/pkgconfig to PREFIX.
up=../${libdir//+([!\/])/..}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# put FOLDER FILE [NAME]: installs into a folder of PREFIX, over what is there.
put() {
  install -D -m 644 "$2" "$prefix/$1/${3:-$(basename "$2")}"
}

# fill FOLDER FILE: a template.
fill() {
  local name
  name=$(basename "$2" .in)
  sed "s,@VERSION@,$version,; s,@LIBDIR@,$libdir,; s,@UP@,$up," \
    "$2" >"$scratch/$name"
  put "$1" "$scratch/$name"
}

rm -rf "$prefix/include/agg_client"  # A header of the past must not stay.
for header in "$built"/include/agg_client/*.h worker_client/c/agg.h \
  worker_client/c/agg_operation.h worker_client/c/agg_rule.h \
  worker_client/c/agg_types.h; do
  put include/agg_client "$header"
done
for library in libagg_client libagg; do
  strip --strip-unneeded -o "$scratch/library" "$built/$library.so"
  put "$libdir" "$scratch/library" "$library.so.1"
  ln -sfn "$library.so.1" "$prefix/$libdir/$library.so"
done
strip --strip-debug -o "$scratch/archive" "$built/libagg_client.a"
put "$libdir" "$scratch/archive" libagg_client.a
for package in agg agg_client agg_client_static; do
  fill "$libdir/pkgconfig" "deploy/sdk/$package.pc.in"
done
for file in agg_clientConfig agg_clientConfigVersion; do
  fill "$libdir/cmake/agg_client" "deploy/sdk/$file.cmake.in"
done
put share/doc/agg_client LICENSE
echo "$prefix: agg_client $version"
