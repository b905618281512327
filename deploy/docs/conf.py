"""Sphinx's configuration of the site, which deploy/docs.sh builds.

The pages are the repository's own Markdown files, read where they lie: so a
link holds on a code host and in the site. What Markdown cannot say is done here:

  - index.md is an ordinary page of links; its lists become the navigation.
  - A link to a source file becomes a copy of that file in the site; one to a
    folder leads to the folder's README.md, or is text where there is none.
"""

import os
import posixpath
import re
import subprocess

from docutils import nodes

_ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "../.."))
_INDEX = "deploy/docs/index"


def _read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def _write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def _pages():
    """The tracked pages, or with no git (an archive) all that lie there."""
    listing = subprocess.run(
        ["git", "-c", "safe.directory=*", "ls-files", "--cached", "--others",
         "--exclude-standard", "*.md"],
        cwd=_ROOT, stdin=subprocess.DEVNULL, check=False, capture_output=True,
        text=True)
    pages = listing.stdout.split("\n")[:-1]
    return [page for page in pages
            if os.path.exists(os.path.join(_ROOT, page))] or ["**.md"]


def _version():
    path = os.path.join(_ROOT, "worker_client/python/agg_server/__init__.py")
    return re.search(r'^__version__ = "(.*)"', _read(path), re.M).group(1)


project = "agg_server"
version = release = _version()
html_title = "agg_server " + version
root_doc = _INDEX
include_patterns = _pages()
exclude_patterns = ["bazel-*", "dist"]
extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
myst_heading_anchors = 6
# No code of the pages is worth a failed build: shell sessions and fragments.
suppress_warnings = ["misc.highlighting_failure"]
highlight_language = "text"
# It takes the two hyphens of a flag in a sentence for a dash.
smartquotes = False
html_theme = "furo"
html_static_path = ["site.css"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False
html_show_sphinx = False
html_use_index = False
# One build of the same sources is the bytes of another.
html_last_updated_fmt = None

_SECTION = re.compile(r"## (.+)")
_ENTRY = re.compile(r"- \[([^\]]+)\]\(([^)#]+)[.]md\)")


def _add_navigation(_app, docname, source):
    """Puts a hidden toctree behind each list of the index."""
    if docname != _INDEX:
        return
    text = []
    for section in re.split(r"(?m)^(?=## )", source[0]):
        text.append(section)
        entries = [
            "%s </%s>" % (title, posixpath.normpath(posixpath.join(
                posixpath.dirname(_INDEX), page)))
            for title, page in _ENTRY.findall(section)]
        if entries:
            text.append("\n```{toctree}\n:hidden:\n:caption: %s\n\n%s\n```\n\n" %
                        (_SECTION.match(section).group(1), "\n".join(entries)))
    source[0] = "".join(text)


def _link_folder(app, env, node, content):
    """What a link to a folder becomes; none for what is no folder."""
    folder = posixpath.normpath(posixpath.join(
        posixpath.dirname(node["refdoc"]), node["reftarget"]))
    page = posixpath.join(folder, "README") if folder != "." else "README"
    if page in env.found_docs:
        where = app.builder.get_relative_uri(node["refdoc"], page)
        return nodes.reference("", "", content, internal=True, refuri=where)
    return content if os.path.isdir(os.path.join(_ROOT, folder)) else None


_NORMALIZE = "/javascript/normalize.css/normalize.css"
_DARK = re.compile(r'body\[data-theme="dark"\] \{([^}]*)\}')
_DARK_BY_ITSELF = """
@media not print { @media (prefers-color-scheme: dark) {
  body:not([data-theme="light"]) {%s}
  html body:not([data-theme="light"]) .only-light { display: none !important }
  body:not([data-theme="light"]) .only-dark { display: block !important }
} }
"""


def _mend_theme(app, exception):
    """Gives Debian's furo back what its packaging took.

    Its style begins with that of another package, at a path of the host's root,
    where a folder of files has nothing. It is dark only on request, no longer
    for a reader whose desktop is. And its script was not put together with what
    it imports, which a browser refuses to read: without it no button is there
    that changes the colors.
    """
    if exception:
        return
    path = os.path.join(app.outdir, "_static", "styles/furo.css")
    style = _read(path)
    begin = "@import url(%s);" % _NORMALIZE
    if begin in style:
        style = _read("/usr/share" + _NORMALIZE) + style.replace(begin, "")
    if "prefers-color-scheme" not in style:
        style += _DARK_BY_ITSELF % _DARK.search(style).group(1)
    _write(path, style)
    path = os.path.join(app.outdir, "_static", "scripts/furo.js")
    script = _read(path)
    begin = 'import Gumshoe from "./gumshoe-patched.js";'
    if begin in script:
        beside = os.path.join(os.path.dirname(path), "gumshoe-patched.js")
        _write(path, _read(beside) + script.replace(begin, ""))
        os.remove(beside)


def setup(app):
    app.connect("build-finished", _mend_theme)
    app.connect("source-read", _add_navigation)
    app.connect("missing-reference", _link_folder)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
