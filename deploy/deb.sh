#!/bin/bash
# Makes the Debian packages, for the release of Debian that this runs on.
#
#   deploy/deb.sh [--bin=BAZEL_BIN] [FOLDER]    default: dist
#
#   libagg-client1     libagg_client.so.1, libagg.so.1
#   libagg-client-dev  headers, pkg-config, CMake, the static library
#   agg-server         agg_server and its service, agg_server@SHARD;
#                      /etc/agg_server/job.textproto is the job
#   agg-tools          aggctl, agg_pull, agg_report, agg_combine
#
# Prints the packages' paths. They depend on Debian's libraries, as
# dpkg-shlibdeps says, and have no CUDA backend. The version is that of the tree.
# --bin: what is built already, with --config=nocuda. DEBFULLNAME and DEBEMAIL
# name the maintainer.
# Needs dpkg-dev and the packages of deploy/setup.sh. AGG_OUTPUT_BASE names a
# Bazel output base of one's own.
set -euo pipefail

fail() {
  echo "deploy/deb.sh: $1" >&2
  exit 1
}

bin='' output=dist
for argument in "$@"; do
  case $argument in
    --bin=*) bin=$(realpath -e "${argument#--bin=}") ;;
    -*)
      sed -n '2,/^set /{/^set /!s/^# \{0,1\}//p}' "$0" >&2
      exit 2
      ;;
    *) output=$argument ;;
  esac
done
command -v dpkg-shlibdeps >/dev/null ||
  fail "dpkg-shlibdeps is missing: install dpkg-dev on a Debian system"
mkdir -p "$output" || fail "FOLDER is '$output'; allowed: a folder to write to"
output=$(realpath "$output")
cd "$(dirname "$0")/.."

if [[ -z $bin ]]; then
  bazel=/usr/bin/bazel
  [[ -x $bazel ]] || bazel=bazel
  startup=() options=(--config=gcc --config=nocuda -c opt --noshow_progress)
  if [[ -n ${AGG_OUTPUT_BASE:-} ]]; then
    startup=("--output_base=$AGG_OUTPUT_BASE")
    options+=("--symlink_prefix=$AGG_OUTPUT_BASE.links/")
  fi
  "$bazel" "${startup[@]}" build "${options[@]}" //deploy/deb:deb >&2
  bin=$("$bazel" "${startup[@]}" info "${options[@]}" bazel-bin 2>/dev/null)
fi

# The same contents make the same bytes.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null ||
  stat -c %Y CHANGELOG.md)}
export SOURCE_DATE_EPOCH
umask 022
version=$(sed -n 's/.*kVersion\[\] = "\(.*\)";/\1/p' server/base/version.h)
architecture=$(dpkg --print-architecture)
libdir=lib/$(dpkg-architecture -qDEB_HOST_MULTIARCH)
maintainer="${DEBFULLNAME:-agg_server} <${DEBEMAIL:-agg-server@example.org}>"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
readonly packages="libagg-client1 libagg-client-dev agg-server agg-tools"
mkdir -p "$scratch/debian"
sed "s,@MAINTAINER@,$maintainer,; s,@ARCH@,$architecture,; s,@VERSION@,$version," \
  deploy/deb/control.in >"$scratch/debian/control"

# The libraries: what sdk.sh installs, in two parts.
runtime=$scratch/libagg-client1 dev=$scratch/libagg-client-dev
deploy/sdk.sh --bin="$bin" --libdir="$libdir" "$dev/usr" >/dev/null
mkdir -p "$runtime/usr/$libdir" "$runtime/DEBIAN"
mv "$dev/usr/$libdir"/*.so.1 "$runtime/usr/$libdir/"
rm -r "${dev:?}/usr/share"
for name in libagg_client libagg; do
  echo "$name 1 libagg-client1 (>= $version)" >>"$runtime/DEBIAN/shlibs"
done
echo "activate-noawait ldconfig" >"$runtime/DEBIAN/triggers"

# put PACKAGE FOLDER FILE: a program, stripped.
put() {
  mkdir -p "$scratch/$1/$2"
  strip -o "$scratch/$1/$2/$(basename "$3")" "$bin/$3"
  chmod 755 "$scratch/$1/$2/$(basename "$3")"
}
put agg-server usr/bin server/agg_server
for file in server/tools/agg_combine server/tools/agg_report \
  worker_client/tools/agg_pull worker_client/tools/aggctl; do
  put agg-tools usr/bin "$file"
done
server=$scratch/agg-server tools=$scratch/agg-tools
install -D -m 644 -t "$server/lib/systemd/system" deploy/deb/agg_server@.service
install -D -m 644 -t "$server/etc/agg_server" deploy/deb/job.textproto \
  deploy/deb/options
install -d -m 700 "$server/etc/agg_server/secrets"
mkdir -p "$server/DEBIAN" "$tools/usr/share/bash-completion/completions"
printf '/etc/agg_server/%s\n' job.textproto options >"$server/DEBIAN/conffiles"
"$bin/worker_client/tools/aggctl" completion bash \
  >"$tools/usr/share/bash-completion/completions/aggctl"

# Of libraries that are headers, or static.
deploy/bundle/notices.sh --package=libcli11-dev --package=nlohmann-json3-dev \
  --package=libabsl-dev --package=libgrpc++-dev --package=libprotobuf-dev \
  --package=libhwy-dev "$(g++ -print-libgcc-file-name)" |
  gzip -9n >"$scratch/NOTICES.gz"
{
  echo "agg-server ($version) bookworm; urgency=medium"
  printf '\n  * CHANGELOG.md of the project has what is new.\n\n'
  echo " -- $maintainer  $(date -u -R -d "@$SOURCE_DATE_EPOCH")"
} | gzip -9n >"$scratch/changelog.gz"

# control PACKAGE: what of the template is its paragraph, and its dependencies.
control() {
  local package=$1 files=() depends=''
  mapfile -t files < <(find "$scratch/$package" -type f \
    \( -name '*.so.1' -o -path '*/usr/bin/*' \))
  if ((${#files[@]} > 0)); then
    depends=$(cd "$scratch" && dpkg-shlibdeps -O "${files[@]/#/-e}" |
      sed 's/^shlibs:Depends=//')
  fi
  awk -v package="$package" -v version="$version" -v maintainer="$maintainer" \
    -v depends="$depends" -v size="$(du -sk "$scratch/$package" | cut -f1)" '
    BEGIN { RS = ""; FS = "\n" }
    $1 == "Package: " package {
      print $1
      print "Source: agg-server\nVersion: " version
      print "Maintainer: " maintainer
      print "Installed-Size: " size
      if ($0 !~ /\nSection:/) print "Section: science"
      print "Priority: optional"
      for (i = 2; i <= NF; ++i) {
        gsub(/[$][{]shlibs:Depends[}]/, depends, $i)
        print $i
      }
    }' "$scratch/debian/control" >"$scratch/$package/DEBIAN/control"
}

for package in $packages; do
  root=$scratch/$package
  doc=$root/usr/share/doc/$package
  mkdir -p "$root/DEBIAN" "$doc"
  install -m 644 deploy/deb/copyright "$scratch/NOTICES.gz" \
    "$scratch/changelog.gz" "$doc/"
  control "$package"
  (cd "$root" && find . -path ./DEBIAN -prune -o -type f -printf '%P\0' |
    sort -z | xargs -0 md5sum) >"$root/DEBIAN/md5sums"
  chmod 644 "$root"/DEBIAN/*
  file=$output/${package}_${version}_$architecture.deb
  dpkg-deb --root-owner-group --build "$root" "$file" >/dev/null
  echo "$file"
done
