#!/bin/bash
# Builds the site: all documents, with navigation and a search, as files that a
# browser opens without a server and without a network.
#
#   deploy/docs.sh [FOLDER]    default: dist/docs
#
# Prints the path of its first page. A warning of Sphinx's is an error: a link to
# nowhere, or a page that is not in deploy/docs/index.md. Fails, too, if a page
# would load something from another host. FOLDER is replaced.
#
# Needs three Debian packages of `deploy/setup.sh --dev`.
set -euo pipefail

output=dist/docs
case ${1:-} in
  -*)
    sed -n '2,/^set /{/^set /!s/^# \{0,1\}//p}' "$0" >&2
    exit 2
    ;;
  ?*) output=$1 ;;
esac
output=$(realpath -m "$output")
cd "$(dirname "$0")/.."
if [[ -e $output && ! -e $output/.buildinfo && -n $(ls -A "$output") ]]; then
  echo "deploy/docs.sh: $output is no site and not empty; name another folder" >&2
  exit 2
fi

missing=
for pair in sphinx:python3-sphinx myst_parser:python3-myst-parser furo:furo; do
  /usr/bin/python3 -c "import ${pair%%:*}" 2>/dev/null || missing+=" ${pair#*:}"
done
if [[ -n $missing ]]; then
  echo "deploy/docs.sh: missing:$missing; install with deploy/setup.sh --dev," \
    "or apt-get install$missing" >&2
  exit 1
fi

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
/usr/bin/python3 -m sphinx -q -W --keep-going -b html -c deploy/docs \
  -d "$scratch/doctrees" . "$scratch/site" >&2
# The first page lies where its source does.
cat >"$scratch/site/index.html" <<'PAGE'
<!DOCTYPE html>
<meta charset="utf-8">
<meta http-equiv="refresh" content="0; url=deploy/docs/index.html">
<title>agg_server</title>
<a href="deploy/docs/index.html">agg_server</a>
PAGE
/usr/bin/python3 -B deploy/docs/check_site.py "$scratch/site" >&2
rm -rf "$output"
mkdir -p "$(dirname "$output")"
cp -r "$scratch/site" "$output"
echo "$output/index.html"
