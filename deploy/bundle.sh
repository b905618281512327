#!/bin/bash
# Builds a folder that runs on a GPU host without Bazel or this tree, and
# packs it: OUT/agg_server_bundle/ and OUT/agg_server_bundle.tar.zst.
#
#   deploy/bundle.sh [--cpu | --visit] OUT
#
# --cpu leaves out the CUDA backend and the GPU's checks, and so needs no nvcc:
# for hosts and images without a GPU.
#
# --visit makes OUT/visit/ in place of the archive, for a few minutes on a host with a card:
# the programs as .tar.gz, the wheel, card_*.py, and run_gpu_checks.sh by the name
# of visit.sh, which runs parts of all that. Fails if that exceeds 40 MiB;
# AGG_CUDA_ARCHS=sm_90 builds for one kind of card alone, smaller and faster.
#
# In it: stripped binaries (server, tools, examples, tests and benchmarks), the
# shared libraries that they need beyond glibc, the driver and cuBLAS,
# which is opened at run time where the host has one, run_gpu_checks.sh, and
# NOTICES: the notices and licenses of whoever wrote what is shipped.
# Binaries find their libraries by an RPATH relative to themselves. The host
# needs x86-64 Linux and a glibc that is new enough: the bundle's README says
# which, its checks look.
#
# Needs nvcc (see deploy/bazel/cuda_configure.bzl) and the packages of
# `deploy/setup.sh --dev`. AGG_OUTPUT_BASE names a Bazel output base of one's
# own, AGG_BAZEL another Bazel. Fails if the archive exceeds 60 MiB.
set -euo pipefail

readonly max_bytes=$((60 << 20)) max_visit_bytes=$((40 << 20))
config=cuda
visit=
case ${1:-} in
  --cpu) config=nocuda && shift ;;
  --visit) visit=1 && shift ;;
esac
if [[ $# != 1 || $1 == -* ]]; then
  sed -n '2,/^set /{/^set /!s/^# \{0,1\}//p}' "$0" >&2
  exit 2
fi
mkdir -p "$1"
out=$(cd "$1" && pwd)
cd "$(dirname "$0")/.."

readonly binaries="
  //server:agg_server
  //server/tools:agg_combine
  //worker_client/tools:agg_pull
  //server/tools:agg_report
  //worker_client/tools:aggctl
  //worker_client/examples:digits_worker
  //worker_client/examples:minimal_worker
"
checks="
  //tests/bench:kernels_bench
  //tests/bench:round_loopback
  //tests/bench/report:gpu_report
  //tests/conformance:cpu_conformance_test
"
[[ $config == nocuda ]] || checks+="
  //tests/bench:cuda_kernels
  //tests/bench:round_device
  //tests/bench:round_gpu
  //tests/conformance:cuda_conformance_test
  //tests/e2e:cuda_jobs_test
"

# What the wheel has beside the programs.
wheel=
[[ -z $visit ]] || wheel=//worker_client/c:libagg.so

bazel=/usr/bin/bazel
[[ -x $bazel ]] || bazel=bazel
bazel=${AGG_BAZEL:-$bazel}
startup=()
links=$out/.links
[[ -z ${AGG_OUTPUT_BASE:-} ]] || startup=("--output_base=$AGG_OUTPUT_BASE")
# RPATH, not RUNPATH: it also holds for the libraries' own libraries.
# shellcheck disable=SC2016,SC2086  # $ORIGIN is the loader's; labels are words.
"$bazel" "${startup[@]}" build -c opt --config=$config --noshow_progress \
  --symlink_prefix="$links/" --linkopt='-Wl,-rpath,$ORIGIN/../lib' \
  --linkopt=-Wl,--disable-new-dtags $binaries $checks $wheel

bundle=$out/agg_server_bundle
rm -rf "$bundle"
mkdir -p "$bundle/bin" "$bundle/checks" "$bundle/lib"

# install_all FOLDER LABEL...: stripped.
install_all() {
  local folder=$1 label path
  shift
  for label in "$@"; do
    path=${label#//}
    strip -o "$bundle/$folder/${path#*:}" "$links/bin/${path/://}"
  done
}
# shellcheck disable=SC2086
install_all bin $binaries
# shellcheck disable=SC2086
install_all checks $checks

# The libraries by their sonames. glibc's own stay the host's: they belong to
# its loader.
glibc='^(ld-linux.*|lib(c|m|dl|pthread|rt|resolv|util|anl|nss_.*|mvec))\.so'
shipped=()
named=()
while read -r name path; do
  [[ $name =~ $glibc ]] && continue
  shipped+=("$path")
  named+=("lib/$name=$path")
  strip -o "$bundle/lib/$name" "$path" 2>/dev/null ||
    cp -L "$path" "$bundle/lib/$name"
done < <(ldd "$bundle"/bin/* "$bundle"/checks/* |
  awk '$2 == "=>" && $3 ~ /^\// { print $1, $3 }' | sort -u)
if ldd "$bundle"/bin/* "$bundle"/checks/* | grep -E 'not found|libcu(da|blas|rt)'; then
  echo "deploy/bundle.sh: unexpected libraries (above)" >&2
  exit 1
fi

# The newest glibc that any of it asks for.
needed=$(find "$bundle" -type f -exec objdump -T {} + |
  grep -oE 'GLIBC_2\.[0-9]+' | sort -t. -k2 -nu | tail -n 1)
cp deploy/bundle/run_gpu_checks.sh "$bundle/"
cp LICENSE "$bundle/"
# Of headers and static libraries, too: the packages that compiling needs, and
# what the compiler adds to every program.
compiled=$(deploy/setup.sh --list | sed -n 's/.*-dev$/--package=&/p')
# shellcheck disable=SC2086  # One package per word.
deploy/bundle/notices.sh $compiled "${shipped[@]}" \
  "$(g++ -print-libgcc-file-name)" "$(g++ -print-file-name=libstdc++.a)" \
  "$(g++ -print-file-name=crt1.o)" >"$bundle/NOTICES"
# shellcheck disable=SC2086
/usr/bin/python3 -B deploy/bundle/packages.py $compiled "${named[@]}" \
  "$(g++ -print-libgcc-file-name)" "$(g++ -print-file-name=libstdc++.a)" \
  "$(g++ -print-file-name=crt1.o)" >"$bundle/PACKAGES"
if [[ $config == cuda ]]; then
  cuda=${CUDA_HOME:-/usr/local/cuda}
  printf '\n%s\n%s\n\n' "NVIDIA CUDA runtime, compiled into the programs" \
    "(c) NVIDIA Corporation, under the CUDA Toolkit's license agreement" \
    >>"$bundle/NOTICES"
  [[ ! -r $cuda/EULA.txt ]] || cat "$cuda/EULA.txt" >>"$bundle/NOTICES"
fi
backends="CPU and CUDA"
[[ $config == cuda ]] || backends="CPU alone (bundle.sh --cpu)"
revision=$(git rev-parse --short HEAD 2>/dev/null || echo unknown)
sed "s/@BACKENDS@/$backends/; s/@GLIBC@/${needed#GLIBC_}/
  s/@REVISION@/$revision/" deploy/bundle/README.in >"$bundle/README"
echo "${needed#GLIBC_}" >"$bundle/lib/glibc_needed"
echo "$revision" >"$bundle/lib/revision"

if [[ -n $visit ]]; then
  rm -rf "$out/visit" "$bundle.tar.zst"
  mkdir "$out/visit"
  deploy/wheel.sh --bin="$links/bin" "$out/visit"
  rm -rf "$links"
  # Without what visit.sh does not run, or the wheel has.
  tar -C "$out" --sort=name --owner=0 --group=0 --numeric-owner \
    --exclude=agg_server_bundle/bin --exclude=cpu_conformance_test \
    --exclude=kernels_bench --exclude=gpu_report --exclude=round_loopback \
    -czf "$out/visit/agg_server_bundle.tar.gz" agg_server_bundle
  cp deploy/bundle/card_*.py "$out/visit/"
  cp deploy/bundle/run_gpu_checks.sh "$out/visit/visit.sh"
  size=$(du -sb "$out/visit" | cut -f 1)
  echo "$out/visit: $((size >> 10)) KiB"
  if ((size > max_visit_bytes)); then
    echo "deploy/bundle.sh: more than $((max_visit_bytes >> 20)) MiB" >&2
    exit 1
  fi
  exit 0
fi

rm -rf "$links"
tar -C "$out" --sort=name --owner=0 --group=0 --numeric-owner -cf - \
  agg_server_bundle | zstd -q -19 -T0 -f -o "$bundle.tar.zst"
size=$(stat -c %s "$bundle.tar.zst")
echo "$bundle.tar.zst: $((size >> 10)) KiB, glibc ${needed#GLIBC_} or newer"
if ((size > max_bytes)); then
  echo "deploy/bundle.sh: more than $((max_bytes >> 20)) MiB" >&2
  exit 1
fi
