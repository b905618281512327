#!/bin/sh
# Builds the container image.
#
#   deploy/image/build.sh                  of a bundle made by deploy/bundle.sh
#   deploy/image/build.sh --cpu            the same without CUDA: needs no nvcc
#   deploy/image/build.sh --bundle=FOLDER  of an unpacked one
#   deploy/image/build.sh --tag=NAME       default agg-server:latest
#   deploy/image/build.sh --sbom=FILE      a copy of the list of what is in it,
#                                          /opt/agg_server/sbom.spdx.json there
#   deploy/image/build.sh --tool=PROGRAM   buildah, podman or docker; default:
#                                          the first that is installed
#
# Needs no registry: the image is FROM scratch.
set -eu

root=$(CDPATH='' cd "$(dirname "$0")/../.." && pwd)
bundle=
cpu=
tag=agg-server:latest
tool=
sbom=
for argument in "$@"; do
  case $argument in
    --cpu) cpu=--cpu ;;
    --bundle=*) bundle=${argument#*=} ;;
    --tag=*) tag=${argument#*=} ;;
    --tool=*) tool=${argument#*=} ;;
    --sbom=*) sbom=${argument#*=} ;;
    *)
      sed -n '2,/^set /{/^set /!s/^# \{0,1\}//p}' "$0" >&2
      exit 2
      ;;
  esac
done
for name in buildah podman docker; do
  [ -n "$tool" ] || ! command -v "$name" >/dev/null 2>&1 || tool=$name
done
if [ -z "$tool" ]; then
  echo "deploy/image/build.sh: needs buildah, podman or docker" >&2
  exit 1
fi

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
if [ -z "$bundle" ]; then
  "$root/deploy/bundle.sh" ${cpu:+"$cpu"} "$scratch/out"
  bundle=$scratch/out/agg_server_bundle
fi
"$root/deploy/image/make_context.sh" "$bundle" "$scratch/context"
version=$("$scratch/context/app/opt/agg_server/bin/agg_server" --version)
list=$scratch/context/app/opt/agg_server/sbom.spdx.json
/usr/bin/python3 -B "$root/deploy/image/sbom.py" "$scratch/context" \
  --version="${version#* }" --output="$scratch/sbom"
mv "$scratch/sbom" "$list"
chmod 644 "$list"
[ -z "$sbom" ] || cp "$list" "$sbom"
case $tool in
  buildah) set -- bud --isolation chroot ;;
  *) set -- build ;;
esac
"$tool" "$@" --label "org.opencontainers.image.version=${version#* }" \
  --tag "$tag" --file "$root/deploy/image/Dockerfile" "$scratch/context"
