#!/bin/bash
# Installs a wheel of deploy/wheel.sh in a Debian that has nothing else, and trains
# there; the last line is `N passed, N failed[, N skipped]`.
#
#   tests/python/clean_root.sh WHEEL [SUITE...]        default: bookworm trixie
#
# For each suite: debootstrap makes the smallest system with its Python (kept in
# ${XDG_CACHE_HOME:-~/.cache}/agg_server_roots), the wheel goes in by pip, and in a
# chroot two workers train with numpy alone; where the Python is that of the
# environment of deploy/bench.sh, the first program of the package's README runs, too.
# Needs root, debootstrap, Debian's archive and PyPI.
set -uo pipefail

root=$(cd "$(dirname "$0")/../.." && pwd) || exit 1
[[ $# -ge 1 && -f $1 ]] || {
  sed -n '2,/^set /{/^set /!s/^# \{0,1\}//p}' "$0" >&2
  exit 2
}
wheel=$(realpath "$1")
shift
cd "$root" || exit 1
suites=("$@")
[[ ${#suites[@]} -gt 0 ]] || suites=(bookworm trixie)
if [[ $(id -u) != 0 ]] || ! command -v debootstrap >/dev/null; then
  echo "SKIPPED  needs root and debootstrap"
  echo "0 passed, 0 failed, ${#suites[@]} skipped"
  exit 0
fi
cache=${XDG_CACHE_HOME:-$HOME/.cache}
torch=$cache/agg_server_bench/venv/lib/python3.11/site-packages
passed=0 failed=0

# report NAME COMMAND...: a case.
report() {
  if "${@:2}" >"$scratch/log" 2>&1; then
    echo "ok      $1: $(tail -n 1 "$scratch/log")"
    passed=$((passed + 1))
  else
    tail -n 20 "$scratch/log"
    echo "FAILED  $1"
    failed=$((failed + 1))
    return 1
  fi
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

# The host fetches numpy, for the system's Python: the system needs no network.
install_wheel() {
  local version
  version=$(chroot "$1" python3 -c \
    'import sys; print("%d.%d" % sys.version_info[:2])') &&
    rm -rf "$1/tmp/wheels" "$1/opt/agg" && mkdir "$1/tmp/wheels" &&
    cp "$wheel" "$1/tmp/wheels" &&
    python3 -m pip download --quiet --disable-pip-version-check \
      --only-binary=:all: --python-version="$version" \
      --dest="$1/tmp/wheels" numpy &&
    chroot "$1" python3 -m venv /opt/agg &&
    chroot "$1" /opt/agg/bin/pip install --quiet --no-index \
      --find-links=/tmp/wheels agg-server
}

# in_root ROOT COMMAND...: with the host's torch at /torch, if it is there, and
# nothing else of the host's.
in_root() {
  mkdir -p "$1/torch"
  # shellcheck disable=SC2016  # Arguments of the inner shell.
  unshare --mount bash -c '
    mount -t proc proc "$1/proc" && mount -t tmpfs tmpfs "$1/dev/shm" || exit 1
    [[ ! -d $2 ]] || mount --bind "$2" "$1/torch" || exit 1
    exec chroot "$1" env -i PATH=/opt/agg/bin:/usr/bin:/bin HOME=/tmp \
      OMP_NUM_THREADS=1 timeout 300 "${@:3}"' - "$1" "$torch" "${@:2}"
}

train_with_numpy() {
  cat >"$1/tmp/train.py" <<'END'
import platform
import agg_server as agg
import numpy as np
x = np.zeros(2, np.float32)
with agg.Client({"x": x}) as client:
    for _ in range(3):
        client.step({"x": x - np.array([1.0, 2.0])}, loss=1.0)
    assert client.version == 3 and 0.8 < x[0] < 1, x
    libraries = open("/proc/self/maps").read()
    assert "agg_server.libs/libgrpc" in libraries, "not the bundled gRPC"
    print("Python", platform.python_version(), "glibc",
          platform.libc_ver()[1], "x =", x.tolist())
END
  in_root "$1" agg-launch -n 2 --shards 2 --rule adasum --lr 0.5 /tmp/train.py
}

readme_program() {
  # shellcheck disable=SC2016  # Backticks of Markdown.
  sed -n '/^```python$/,/^```$/{//!p}; /^```sh$/q' \
    worker_client/python/README.md >"$1/tmp/readme.py"
  # Beside the wheel's numpy comes torch of the environment.
  in_root "$1" env PYTHONPATH=/torch agg-launch -n 4 --shards 2 --rule adasum \
    --lr 0.05 /tmp/readme.py
}

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
for suite in "${suites[@]}"; do
  system=$cache/agg_server_roots/$suite
  report "$suite: debootstrap" make_root "$suite" || continue
  report "$suite: pip install" install_wheel "$system" || continue
  report "$suite: two workers with numpy" train_with_numpy "$system"
  if [[ -d $torch && -x $system/usr/bin/python3.11 ]]; then
    report "$suite: the README's program" readme_program "$system"
  fi
done
echo "$passed passed, $failed failed"
[[ $failed == 0 ]]
