#!/usr/bin/python3
"""Checks a built site: `check_site.py FOLDER`; prints what it finds.

Nothing that a browser loads by itself comes from another host, and each link
within the site leads to a file, and to a place in it, that exist. (Sphinx sees
no links in HTML that is written in a page, nor those of its own theme.)
"""

import html.parser
import os
import posixpath
import re
import sys
import urllib.parse

# Tag and attribute of what is loaded without a click.
_LOADED = {("script", "src"), ("link", "href"), ("img", "src"),
           ("iframe", "src"), ("source", "src"), ("video", "src"),
           ("audio", "src"), ("embed", "src"), ("object", "data"),
           ("image", "href"), ("use", "href"), ("use", "xlink:href")}
_ELSEWHERE = re.compile(r"(?:[a-z][a-z0-9+.-]*:)?//", re.I)
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:|//", re.I)
# A path of the host's root is another host's, too, for a folder of files.
_IN_STYLE = re.compile(r"(?:url\(\s*|@import\s+)[\"']?((?:https?:/)?/[^\"')\s]+)",
                       re.I)


class _Page(html.parser.HTMLParser):
    """What a page loads, where its links lead, and which places it has."""

    def __init__(self, text):
        super().__init__()
        self.loaded, self.links, self.places = [], [], set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        for name, value in attrs:
            if value is None:
                continue
            if (tag, name) in _LOADED:
                self.loaded.append(value)
            elif tag == "a" and name == "href":
                self.links.append(value)
            elif name in ("id", "name"):
                self.places.add(value)
            if name == "style":
                self.loaded += _IN_STYLE.findall(value)


def check(files):
    """Findings in {path: text}; None as the text of what is no text."""
    pages = {path: _Page(text) for path, text in files.items()
             if path.endswith(".html")}
    for path, page in pages.items():
        for target in page.loaded:
            if _ELSEWHERE.match(target):
                yield "%s loads %s" % (path, target)
        for target in [*page.links, *page.loaded]:
            if target in ("", "#") or _SCHEME.match(target):
                continue
            name, _, place = target.partition("#")
            name = urllib.parse.unquote(name.partition("?")[0])
            goal = posixpath.normpath(posixpath.join(
                posixpath.dirname(path), name)) if name else path
            if goal not in files:
                yield "%s: the link to %s leads to no file" % (path, target)
            elif place and goal in pages and urllib.parse.unquote(
                    place) not in pages[goal].places:
                yield "%s: the link to %s leads to no place" % (path, target)
    for path, text in files.items():
        if path.endswith((".css", ".svg")):
            for target in _IN_STYLE.findall(text or ""):
                yield "%s loads %s" % (path, target)


def read(folder):
    """{path: text} of a folder's files."""
    files = {}
    for where, _, names in os.walk(folder):
        for name in names:
            full = os.path.join(where, name)
            path = os.path.relpath(full, folder)
            try:
                with open(full, encoding="utf-8") as file:
                    files[path] = file.read()
            except UnicodeDecodeError:
                files[path] = None
    return files


def main(argv):
    if len(argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    findings = sorted(set(check(read(argv[1]))))
    for finding in findings:
        print("deploy/docs.sh:", finding)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
