#!/bin/bash
# Prints the notices of third parties that go with copies of their software.
#
#   deploy/bundle/notices.sh [--package=NAME]... FILE...
#
# FILE is a library, as the loader found it; NAME a Debian package whose code is
# compiled into the programs. For the package of each: its name and version, and
# /usr/share/doc/NAME/copyright, a text once for all packages that share it. Then
# the licenses that those texts name by a path of Debian's. Fails if a file
# belongs to no package, or a package has no such text: a notice must not be
# missing without a word.
set -euo pipefail

doc=${AGG_DOC:-/usr/share/doc}  # another one in tests
fail() {
  echo "deploy/bundle/notices.sh: $*" >&2
  exit 1
}
command -v dpkg-query >/dev/null || fail "needs dpkg-query, which Debian has"

packages=()
files=()
for argument in "$@"; do
  case $argument in
    --package=*) packages+=("${argument#*=}") ;;
    -*)
      sed -n '2,/^set /{/^set /!s/^# \{0,1\}//p}' "$0" >&2
      exit 2
      ;;
    *) files+=("$(realpath -- "$argument")") ;;
  esac
done

# One question for all files, since each takes dpkg-query a second on a slow
# machine. Libraries lie in /usr/lib, also where the loader says /lib, and
# packages may list either: both are asked for, and one is not found.
if ((${#files[@]} > 0)); then
  owners=$(dpkg-query -S "${files[@]}" "${files[@]#/usr}" 2>/dev/null || true)
  for file in "${files[@]}"; do
    owner=$(awk -v long=": $file" -v short=": ${file#/usr}" '
      substr($0, length($0) - length(long) + 1) == long ||
      substr($0, length($0) - length(short) + 1) == short {
        sub(/[:,].*/, ""); print; exit }' <<<"$owners")
    [[ -n $owner ]] || fail "$file belongs to no Debian package"
    packages+=("$owner")
  done
fi
mapfile -t packages < <(printf '%s\n' "${packages[@]}" | sort -u | sed '/^$/d')

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
# shellcheck disable=SC2016  # The fields are dpkg-query's.
versions=$(dpkg-query -W -f '${Package} ${Version}\n' "${packages[@]}" \
  2>/dev/null || true)
# One file for each different text, with the packages that have it beside it.
for package in "${packages[@]}"; do
  text=$doc/$package/copyright
  [[ -r $text ]] || fail "package $package has no $text"
  sum=$(sha256sum <"$text")
  cp -L "$text" "$scratch/${sum%% *}.text"
  awk -v package="$package" '$1 == package { version = $2; exit }
    END { print package, version }' <<<"$versions" \
    >>"$scratch/${sum%% *}.packages"
done

line="================================================================"
cat <<END
Notices of third parties

These programs contain software of others: libraries that lie beside them, and
code that is compiled into them. It was taken from the packages of Debian that
are named below. Their authors' notices and licenses follow.
END
# In the order of the first package's name, so that equal builds are equal.
grep -m 1 -H . "$scratch"/*.packages | sort -t: -k2 | while IFS=: read -r list _; do
  printf '\n%s\n' "$line"
  cat "$list"
  printf '%s\n\n' "$line"
  cat "${list%.packages}.text"
done
{ grep -ohE '/usr/share/common-licenses/[A-Za-z0-9.-]*[A-Za-z0-9]' \
  "$scratch"/*.text || true; } | sort -u | while read -r license; do
  # A text may speak of "GPL-1+", or of a license that this Debian lacks.
  [[ -r $license ]] || continue
  printf '\n%s\n%s\n%s\n\n' "$line" "$license" "$line"
  cat "$license"
done
