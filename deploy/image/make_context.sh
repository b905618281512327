#!/bin/sh
# Lays out what the Dockerfile copies.
#
#   deploy/image/make_context.sh PROGRAMS FOLDER
#
# PROGRAMS is a folder with bin/ and perhaps lib/: an unpacked bundle of
# deploy/bundle.sh. FOLDER gets app/ and system/: the first is PROGRAMS under
# /opt/agg_server with the example's data, LICENSE and NOTICES, the second holds
# every library that the programs load from elsewhere on this machine (of a
# bundle: glibc alone), name resolution, a user, and certificates where this
# machine has them.
set -eu

if [ $# != 2 ] || [ ! -d "$1/bin" ] || [ -e "$2/app" ]; then
  echo "usage: deploy/image/make_context.sh PROGRAMS FOLDER" >&2
  echo "  PROGRAMS has bin/, FOLDER has no app/ yet" >&2
  exit 2
fi
root=$(CDPATH='' cd "$(dirname "$0")/../.." && pwd)
programs=$(CDPATH='' cd "$1" && pwd)
mkdir -p "$2/app/opt/agg_server/data" "$2/system"
app=$(CDPATH='' cd "$2/app" && pwd)
system=$(CDPATH='' cd "$2/system" && pwd)

for part in bin lib; do
  [ ! -d "$programs/$part" ] ||
    cp -rL "$programs/$part" "$app/opt/agg_server/$part"
done
cp "$root/deploy/data/digits.csv.gz" "$app/opt/agg_server/data/"
chmod -R u=rwX,go=rX "$app"

cp "$root/LICENSE" "$app/opt/agg_server/"
for part in NOTICES PACKAGES; do
  [ ! -e "$programs/$part" ] || cp "$programs/$part" "$app/opt/agg_server/"
done

# copy FILE: to the same path.
copied=
copy() {
  mkdir -p "$system$(dirname "$1")"
  cp -L "$1" "$system$1"
  copied="$copied $1"
}

# "name => /path (address)" and the loader's "/path (address)".
libraries() {
  find "$programs/bin" "$programs/lib" -type f 2>/dev/null |
    while read -r file; do
      ldd "$file" 2>/dev/null || true
    done | awk '$2 == "=>" && $3 ~ /^\// { print $3 } $1 ~ /^\// { print $1 }'
}
for library in $(libraries | sort -u); do
  case $library in
    "$programs"/*) ;;  # its own
    *) copy "$library" ;;
  esac
done
# glibc loads these by name: name services, and threads' ends.
for name in libnss_dns.so.2 libnss_files.so.2 libresolv.so.2 libgcc_s.so.1; do
  path=$(ldconfig -p | awk -v name="$name" '$1 == name { print $NF; exit }')
  [ -z "$path" ] || [ -e "$system$path" ] || copy "$path"
done
[ ! -e /etc/ssl/certs/ca-certificates.crt ] ||
  copy /etc/ssl/certs/ca-certificates.crt

# The certificates are made by their package, and so belong to none.
certificates=
case $copied in
  *ca-certificates.crt*) certificates=--package=ca-certificates ;;
esac
# shellcheck disable=SC2086  # Paths of libraries hold no spaces.
"$root/deploy/bundle/notices.sh" $certificates \
  ${copied%% /etc/ssl/certs/ca-certificates.crt} \
  >>"$app/opt/agg_server/NOTICES"

mkdir -p "$system/etc" "$system/tmp" "$system/proc" "$system/sys" \
  "$system/dev"
chmod 1777 "$system/tmp"
echo 'agg:x:65532:65532::/tmp:/nonexistent' >"$system/etc/passwd"
echo 'agg:x:65532:' >"$system/etc/group"
echo 'hosts: files dns' >"$system/etc/nsswitch.conf"
