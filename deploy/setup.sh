#!/bin/sh
# Installs the Debian 12 packages that agg_server needs, and only those that
# are missing. This script is the single owner of the package list.
#
#   deploy/setup.sh          what building and testing with gcc needs
#   deploy/setup.sh --dev    also what the cells of `tests/run.sh --all` need
#   deploy/setup.sh --monitoring
#                            also Prometheus and Alertmanager, as programs: no
#                            service of them is started or enabled; and `ip`,
#                            for the tests that make network namespaces
#   deploy/setup.sh --papers also the data of the papers' experiments
#   deploy/setup.sh --list   print the list (with the other flags: theirs, too),
#                            do nothing
#
# Becomes root through sudo only if something is missing and it is not root.
# Silent and quick when nothing is missing.
set -eu

base_packages="
  bazel-bootstrap
  bazel-rules-java
  bazel-rules-proto
  cmake
  g++
  libabsl-dev
  libbenchmark-dev
  libcli11-dev
  libcpp-httplib-dev
  libgmock-dev
  libgrpc++-dev
  libgtest-dev
  libhwy-dev
  libisal-dev
  libprotobuf-dev
  libssl-dev
  libzip-dev
  nlohmann-json3-dev
  openssl
  pkg-config
  prometheus-cpp-dev
  protobuf-compiler
  protobuf-compiler-grpc
  python3
  python3-numpy
  python3-venv
  zlib1g-dev
  zstd
"
dev_packages="
  buildah
  chromium
  clang
  clang-format
  clang-tidy
  debootstrap
  dpkg-dev
  furo
  git
  kubernetes-client
  libclang-rt-14-dev
  libjemalloc2
  libtcmalloc-minimal4
  lintian
  llvm-14
  python3-myst-parser
  python3-sphinx
  python3-yaml
  shellcheck
"
monitoring_packages="
  iproute2
  prometheus
  prometheus-alertmanager
"

papers_packages="
  bible-kjv-text
  dataset-fashion-mnist
"

list_only=0
packages=$base_packages
for argument in "$@"; do
  case $argument in
    --dev) packages="$packages $dev_packages" ;;
    --monitoring) packages="$packages $monitoring_packages" ;;
    --papers) packages="$packages $papers_packages" ;;
    --list) list_only=1 ;;
    *)
      echo "usage: deploy/setup.sh [--dev] [--monitoring] [--papers] [--list]" >&2
      exit 2
      ;;
  esac
done

if [ "$list_only" = 1 ]; then
  # shellcheck disable=SC2086  # One package per word.
  printf '%s\n' $packages
  exit 0
fi

if ! command -v dpkg-query >/dev/null 2>&1; then
  echo "deploy/setup.sh: not a Debian system; install the equivalents of:" >&2
  "$0" "$@" --list >&2
  exit 1
fi

# dpkg-query complains about packages it never heard of; that is not an error.
# shellcheck disable=SC2086
installed=$(dpkg-query -W -f '${Package} ${db:Status-Status}\n' $packages \
  2>/dev/null | sed -n 's/ installed$//p') || true
missing=
for package in $packages; do
  # Another source's kubectl will do, and the two packages would collide.
  [ "$package" != kubernetes-client ] || ! command -v kubectl >/dev/null ||
    continue
  echo "$installed" | grep -qxF "$package" || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

as_root=
if [ "$(id -u)" != 0 ]; then
  if ! command -v sudo >/dev/null 2>&1; then
    echo "deploy/setup.sh: neither root nor sudo; as root, install:$missing" >&2
    exit 1
  fi
  as_root=sudo
fi

echo "deploy/setup.sh: installing$missing" >&2
log=$(mktemp)
no_services=
clean() {
  rm -f "$log"
  [ -z "$no_services" ] || $as_root rm -f "$no_services"
}
trap clean EXIT
# dash runs no EXIT trap for a signal.
trap 'exit 130' INT
trap 'exit 143' TERM HUP
# They are wanted as programs that the quickstart and tests start and stop: while
# they are installed, this file keeps their packages from starting a service.
case " $missing " in
  *" prometheus "* | *" prometheus-alertmanager "*)
    if [ ! -e /usr/sbin/policy-rc.d ]; then
      no_services=/usr/sbin/policy-rc.d
      printf '#!/bin/sh\nexit 101\n' | $as_root tee "$no_services" >/dev/null
      $as_root chmod 755 "$no_services"
    fi
    ;;
esac
# Slim images lack the manual folders that the JDK's alternatives write into.
$as_root mkdir -p /usr/share/man/man1
{
  $as_root env LC_ALL=C apt-get update -q || true  # A stale list may do.
  # shellcheck disable=SC2086
  $as_root env LC_ALL=C DEBIAN_FRONTEND=noninteractive \
    apt-get install -q -y --no-install-recommends $missing
} >"$log" 2>&1 </dev/null || {
  cat "$log" >&2
  echo "deploy/setup.sh: apt-get failed (output above)" >&2
  exit 1
}
# Nor at the next boot: what `systemctl disable` removes, with systemd or not. A
# service that was installed before is somebody's.
for service in prometheus prometheus-alertmanager; do
  case " $missing " in
    *" $service "*)
      $as_root rm -f \
        "/etc/systemd/system/multi-user.target.wants/$service.service"
      ;;
  esac
done
