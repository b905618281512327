#!/bin/bash
# Does what README.md tells a newcomer, on a Debian 12 that has nothing else, and
# says how long each step took. The commands, the program and its output are those
# of README.md; only deploy/wheel.sh is left out, which builds for minutes.
#
#   tests/python/front_page.sh WHEEL       of deploy/wheel.sh
#
# Needs root, debootstrap, Debian's archive and PyPI (6 GB of disk for a while). The
# Debian is kept packed in ${XDG_CACHE_HOME:-~/.cache}/agg_server_sdk, as that of the
# cell `sdk` is. PIP_CERT in the environment counts in there, too.
set -euo pipefail

if [[ $# != 1 || ! -f $1 ]]; then
  sed -n '2,/^set /{/^set /!s/^# \{0,1\}//p}' "$0" >&2
  exit 2
fi
wheel=$(realpath "$1")
cd "$(dirname "$0")/../.."
packed=${XDG_CACHE_HOME:-$HOME/.cache}/agg_server_sdk/bookworm.tar
scratch=$(mktemp -d)
# What was mounted went with its namespace.
trap 'rm -rf --one-file-system "$scratch"' EXIT
if [[ ! -e $packed ]]; then
  debootstrap --variant=minbase bookworm "$scratch/new" >&2
  mkdir -p "$(dirname "$packed")"
  tar -C "$scratch/new" -cf "$packed.$$" . && mv "$packed.$$" "$packed"
  rm -rf "$scratch/new"
fi
debian=$scratch/debian
mkdir "$debian"
tar -C "$debian" -xf "$packed"
mkdir "$debian/agg_server" "$debian/wheel"
git archive HEAD | tar -C "$debian/agg_server" -xf -
cp "$wheel" "$debian/wheel/"
cp /etc/resolv.conf "$debian/etc/"
[[ -z ${PIP_CERT:-} ]] || cp "$PIP_CERT" "$debian/wheel/ca.pem"

# Cuts README.md into build.sh, install.sh, train.py, launch.sh and expected.
python3 - README.md "$debian/agg_server" <<'END'
import pathlib
import re
import sys

text = pathlib.Path(sys.argv[1]).read_text(encoding="utf-8")
folder = pathlib.Path(sys.argv[2])
blocks = re.findall(r"```(\w*)\n(.*?)```", text, re.S)
build, install = next(block for language, block in blocks
                      if "deploy/wheel.sh" in block).split("\n", 1)
launch = next(index for index, (language, block) in enumerate(blocks)
              if block.startswith("agg-launch"))
for name, content in (
        ("build.sh", build.replace(
            "deploy/wheel.sh", "mkdir dist && cp /wheel/*.whl dist/") + "\n"),
        ("install.sh", install),
        ("launch.sh", ". venv/bin/activate\n" + blocks[launch][1]),
        ("train.py", next(block for language, block in blocks
                          if language == "python")),
        ("expected", blocks[launch + 1][1])):
    (folder / name).write_text(content, encoding="utf-8")
END

# inside SCRIPT: in the tree, in the Debian.
inside() {
  # shellcheck disable=SC2016  # Arguments of the inner shell.
  unshare --mount bash -c '
    mount -t proc proc "$1/proc" && mount --rbind /dev "$1/dev" || exit 1
    mount -t tmpfs tmpfs "$1/dev/shm" || exit 1
    exec chroot "$@"' - "$debian" env -i HOME=/root LC_ALL=C.UTF-8 \
    PATH=/usr/sbin:/usr/bin:/sbin:/bin ${PIP_CERT:+PIP_CERT=/wheel/ca.pem} \
    bash -euc "cd /agg_server && $1" </dev/null
}

total=0
# step WHAT SCRIPT
step() {
  local began=$SECONDS took
  inside "$2" >"$scratch/output" 2>"$scratch/errors" || {
    tail -n 30 "$scratch/output" "$scratch/errors" >&2
    echo "FAILED  $1"
    exit 1
  }
  took=$((SECONDS - began)) total=$((total + SECONDS - began))
  printf '%4d s  %s\n' "$took" "$1"
}

step "deploy/setup.sh" ". ./build.sh"
step "pip install" ". ./install.sh"
step "agg-launch" ". ./launch.sh"
diff "$debian/agg_server/expected" "$scratch/output" || {
  echo "FAILED  the output is not README.md's"
  exit 1
}
printf '%4d s  in all, the build apart; the output is as README.md says\n' "$total"
