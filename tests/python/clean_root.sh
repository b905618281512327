#!/bin/bash
# Installs a wheel of deploy/wheel.sh where nothing else is, trains there, and runs
# the tests of the package that need numpy alone; the last line is
# `N passed, N failed[, N skipped]`.
#
#   tests/python/clean_root.sh [--torch] WHEEL [SUITE | --python=PATH]...
#                                              default: bookworm trixie
#
# SUITE: debootstrap makes the smallest Debian with its Python (kept in
# ${XDG_CACHE_HOME:-~/.cache}/agg_server_roots), and all runs in a chroot. Needs root,
# debootstrap and Debian's archive.
# --python=PATH: an interpreter of this machine, which gets a new virtual environment.
# Both need PyPI.
# The first program of the package's README and its quickstart run where torch is to
# be had: from the environment of deploy/bench.sh if that has the same Python. --torch:
# with other Pythons, too; each takes 1 GB more from PyPI.
set -uo pipefail

root=$(cd "$(dirname "$0")/../.." && pwd) || exit 1
usage() {
  sed -n '2,/^set /{/^set /!s/^# \{0,1\}//p}' "$0" >&2
  exit 2
}
with_torch='' wheel='' targets=()
for argument in "$@"; do
  case $argument in
    --torch) with_torch=1 ;;
    --python=*)
      targets+=("$(realpath --no-symlinks "${argument#--python=}")")
      [[ -x ${targets[-1]} ]] || usage
      ;;
    -*) usage ;;
    *) if [[ -z $wheel ]]; then wheel=$argument; else targets+=("$argument"); fi ;;
  esac
done
[[ -f $wheel ]] || usage
wheel=$(realpath "$wheel")
[[ ${#targets[@]} -gt 0 ]] || targets=(bookworm trixie)
cache=${XDG_CACHE_HOME:-$HOME/.cache}
bench=$cache/agg_server_bench/venv
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
passed=0 failed=0 skipped=0
# Of the target: its name; the root of its Debian, or "" for this machine; as seen
# in it: a folder of its own, the environment, the bench's packages, this tree.
name='' system='' own='' venv='' shared='' tree='' version=''

# report CASE COMMAND...: a case of the target.
report() {
  if "${@:2}" >"$scratch/log" 2>&1; then
    echo "ok      $name: $1: $(tail -n 1 "$scratch/log" | sed 's/.*\r//')"
    passed=$((passed + 1))
  else
    tail -n 20 "$scratch/log"
    echo "FAILED  $name: $1"
    failed=$((failed + 1))
    return 1
  fi
}

skip() {
  echo "SKIPPED $name: $1"
  skipped=$((skipped + 1))
}

make_root() {
  local kept=$cache/agg_server_roots/$1
  if [[ ! -e $kept/complete ]]; then
    rm -rf "$kept"
    mkdir -p "$(dirname "$kept")"
    debootstrap --variant=minbase --include=python3-venv,ca-certificates \
      "$1" "$kept" >&2 && touch "$kept/complete" || return 1
  fi
}

# inside COMMAND...: in the target, with nothing of this machine's but the bench's
# packages and this tree.
inside() {
  local clean=(env -i "PATH=$venv/bin:/usr/bin:/bin" "HOME=$own"
    "TMPDIR=$own" OMP_NUM_THREADS=1 timeout 600)
  if [[ -z $system ]]; then
    (cd "$own" && exec "${clean[@]}" "$@") </dev/null
    return
  fi
  mkdir -p "$system$shared" "$system$tree"
  # shellcheck disable=SC2016  # Arguments of the inner shell.
  unshare --mount bash -c '
    mount -t proc proc "$1/proc" && mount -t tmpfs tmpfs "$1/dev/shm" || exit 1
    mount --bind "$2" "$1$3" && mount --bind "$4" "$1$5" || exit 1
    exec chroot "$1" "${@:6}"' - "$system" \
    "$host_packages" "$shared" "$root" "$tree" "${clean[@]}" "$@" </dev/null
}

# fetch PACKAGE...: for the target's Python, which needs no network then.
fetch() {
  python3 -m pip download --quiet --disable-pip-version-check \
    --only-binary=:all: --python-version="$version" \
    --dest="$system$own/wheels" "$@"
}

install() {
  inside "$venv/bin/pip" install --quiet --disable-pip-version-check --no-index \
    --find-links="$own/wheels" "$@"
}

install_wheel() {
  local interpreter=${1:-python3}
  rm -rf "$system${own:?}"
  mkdir -p "$system$own/wheels" && cp "$wheel" "$system$own/wheels" &&
    inside "$interpreter" -m venv "$venv" &&
    version=$(inside "$venv/bin/python" -c \
      'import sys; print("%d.%d" % sys.version_info[:2])') &&
    fetch numpy && install agg-server &&
    inside "$venv/bin/python" -c \
      'import platform; print(platform.python_version(), platform.libc_ver()[1])'
}

train_with_numpy() {
  cat >"$system$own/train.py" <<'END'
import agg_server as agg
import numpy as np
x = np.zeros(2, np.float32)
with agg.Client({"x": x}) as client:
    for _ in range(3):
        client.step({"x": x - np.array([1.0, 2.0])}, loss=1.0)
    assert client.version == 3 and 0.8 < x[0] < 1, x
    libraries = open("/proc/self/maps").read()
    assert "agg_server.libs/libgrpc" in libraries, "not the bundled gRPC"
    print("x =", x.tolist())
END
  inside agg-launch -n 2 --shards 2 --rule adasum --lr 0.5 "$own/train.py"
}

package_tests() {
  inside env "PYTHONPATH=$tree" \
    "AGG_PACKAGE=$venv/lib/python$version/site-packages" \
    python -B "$tree/tests/foreign/runner.py" tests.python.client_test \
    tests.python.launch_test tests.python.package_test \
    tests.python.process_test
}

# torch is the target's own; what it takes from other packages is the bench's.
install_torch() {
  local site=$venv/lib/python$version/site-packages own_torch
  own_torch=$("$bench/bin/python" -c \
    'from importlib.metadata import version; print(version("torch"))')
  fetch tqdm matplotlib && install tqdm matplotlib || return 1
  if [[ $version != "$bench_version" ]]; then
    # The same release, or the newest before it that this Python has.
    fetch --no-deps "torch<=${own_torch%+*}" && install --no-deps torch || return 1
    rm -f "$system$own"/wheels/torch-*
  fi
  echo "$shared" >"$system$site/bench.pth"
  inside python -c 'import torch; print("torch", torch.__version__)'
}

readme_program() {
  local readme=worker_client/python/README.md
  awk '/^```python$/ { inside = 1; next } inside && /^```$/ { exit } inside' \
    "$root/$readme" >"$system$own/train.py"
  inside agg-launch -n 4 --shards 2 --rule adasum --lr 0.05 "$own/train.py"
}

quickstart() {
  inside python "$tree/worker_client/python/examples/quickstart.py" \
    --rounds=30 "--plot=$own/plot.png" && [[ -s $system$own/plot.png ]]
}

bench_version=
host_packages=
if [[ -e $bench/complete ]]; then
  bench_version=$("$bench/bin/python" -c \
    'import sys; print("%d.%d" % sys.version_info[:2])')
  host_packages=$bench/lib/python$bench_version/site-packages
fi
for target in "${targets[@]}"; do
  interpreter=''
  if [[ $target == /* ]]; then
    name=$target interpreter=$target system='' tree=$root shared=$host_packages
    own=$scratch/own venv=$scratch/own/venv
  else
    name=$target system=$cache/agg_server_roots/$target
    own=/opt/agg venv=/opt/agg/venv tree=/opt/tree shared=/opt/bench
    if [[ $(id -u) != 0 ]] || ! command -v debootstrap >/dev/null; then
      skip "needs root and debootstrap"
      continue
    fi
    report "debootstrap" make_root "$target" || continue
    [[ -n $host_packages ]] || mkdir -p "${host_packages:=$scratch/none}"
  fi
  report "pip install" install_wheel "$interpreter" || continue
  report "two workers with numpy" train_with_numpy
  report "the tests with numpy" package_tests
  if [[ -z $bench_version || ( -z $with_torch && $version != "$bench_version" ) ]]; then
    skip "no torch (--torch; deploy/bench.sh makes its environment)"
    continue
  fi
  report "torch" install_torch || continue
  report "the README's program" readme_program
  report "the quickstart" quickstart
done
summary="$passed passed, $failed failed"
[[ $skipped == 0 ]] || summary="$summary, $skipped skipped"
echo "$summary"
[[ $failed == 0 && $passed -gt 0 ]]
