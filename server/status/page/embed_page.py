#!/usr/bin/python3
"""Makes one HTML file, and C++ that holds it, of the status page's parts.

embed_page.py TEMPLATE OUTPUT.html OUTPUT.cc PART...

@name@ in the template stands for the part with that name. The page's content
security policy, which stands for @CSP@, allows exactly the one style sheet and
the one script that are in it, by their hashes, and no requests but its own.
"""

import base64
import hashlib
import os
import re
import sys


def digest(text):
    sha = hashlib.sha256(text.encode()).digest()
    return "'sha256-%s'" % base64.b64encode(sha).decode()


def build(template, parts):
    """The page and its policy."""
    page = re.sub(
        r"@([a-z_]+[.](?:css|js))@", lambda match: parts[match.group(1)],
        template)
    (style,) = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    policy = "; ".join([
        "default-src 'none'",
        "script-src " + digest(script),
        "style-src " + digest(style),
        "connect-src 'self'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
    ])
    return page.replace("@CSP@", policy), policy


def literal(text):
    """C++ string literals, a line of the text each."""
    lines = []
    for line in text.encode().splitlines(keepends=True):
        body = "".join(
            chr(byte) if 32 <= byte < 127 and chr(byte) not in '"\\?' else
            "\\%03o" % byte for byte in line)
        lines.append('    "%s"' % body)
    return "\n".join(lines)


def main(arguments):
    template, html, source, *part_files = arguments
    parts = {}
    for name in part_files:
        with open(name, encoding="utf-8") as file:
            parts[os.path.basename(name)] = file.read()
    with open(template, encoding="utf-8") as file:
        page, policy = build(file.read(), parts)
    with open(html, "w", encoding="utf-8") as file:
        file.write(page)
    with open(source, "w", encoding="utf-8") as file:
        file.write('''#include "server/status/status_page_html.h"

namespace agg {
namespace {

constexpr char kPage[] =
%s;
constexpr char kPolicy[] =
%s;

}  // namespace

absl::string_view StatusPageHtml() { return {kPage, sizeof(kPage) - 1}; }
absl::string_view StatusPagePolicy() { return {kPolicy, sizeof(kPolicy) - 1}; }

}  // namespace agg
''' % (literal(page), literal(policy)))


if __name__ == "__main__":
    main(sys.argv[1:])
