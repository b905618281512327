"""Whether the documents' links hold, and how long their sentences are.

Reads Markdown as a code host shows it: a heading's anchor is its text in small
letters, without punctuation, with "-" for spaces, and "-1", "-2" behind it where
a page has the text again.
"""

import posixpath
import re
import urllib.parse

# Words of a page, and of a sentence of it. The generated pages quote comments
# of sources, which have no such limit.
_MAX_SENTENCE = 35
_MAX_PAGE = 2000
_MAX_FRONT_PAGE = 1200
_FRONT_PAGE = "README.md"
_PAGES = "deploy/docs/"
_GENERATED = "deploy/docs/reference/"

_FENCE = re.compile(r" {0,3}(?:> ?)*\s*(```+|~~~+)")
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_CODE = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.DOTALL)
# [text](target) and ![text](target "title"); the text may hold an image.
_LINK = re.compile(r"\]\(\s*<?([^()\s<>]*(?:\([^()\s]*\)[^()\s<>]*)*)>?"
                   r"(?:\s+(?:\"[^\"]*\"|'[^']*'))?\s*\)")
_DEFINED = re.compile(r"^ {0,3}\[[^\]]+\]:\s*<?(\S+?)>?\s*$", re.MULTILINE)
_HTML = re.compile(r"<[a-z][^>]*?\b(?:href|src)=\"([^\"]*)\"")
_NAMED = re.compile(r"<[a-z][^>]*?\b(?:id|name)=\"([^\"]*)\"")
_HEADING = re.compile(r" {0,3}#{1,6}\s+(.*?)\s*#*\s*$")
_UNDERLINE = re.compile(r" {0,3}(=+|-{2,})\s*$")
_DEFAULT = re.compile(r"\bdefaults?(?: is| to|:)? [`\"]*\d|\(default", re.I)
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:|//")
_LINE = re.compile(r"L(\d+)(?:-L(\d+))?$")


def _blank(match):
    """As many lines as the match had, without its words."""
    return "\n" * match.group(0).count("\n")


def without_fences(lines):
    """The lines, those of fenced code and of comments empty."""
    kept, fence = [], None
    for line in lines:
        match = _FENCE.match(line)
        if fence:
            if match and match.group(1).startswith(fence) and \
                    not line[match.end():].strip():
                fence = None
            kept.append("")
        elif match:
            fence = match.group(1)
            kept.append("")
        else:
            kept.append(line)
    return _COMMENT.sub(_blank, "\n".join(kept)).split("\n")


def plain(text):
    """What a reader sees of a heading or a sentence: no links, no emphasis."""
    text = re.sub(r"!\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"\[([^\]]*)\](?:\([^)]*\)|\[[^\]]*\])", r"\1", text)
    text = re.sub(r"<[^>]+>", "", text)
    text = re.sub(r"[*]+|(?<!\w)_|_(?!\w)", "", text)
    return text


def anchor(heading):
    """The anchor of the first heading of a page with this text."""
    parts, end = [], 0
    for match in _CODE.finditer(heading):
        parts += [plain(heading[end:match.start()]), match.group(2)]
        end = match.end()
    text = "".join(parts + [plain(heading[end:])])
    return re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", "-")


def anchors(lines):
    """All anchors of a page."""
    found, times = set(), {}
    lines = without_fences(lines)
    for line, after in zip(lines, lines[1:] + [""]):
        match = _HEADING.match(line)
        heading = match.group(1) if match else \
            line if _UNDERLINE.match(after) and line.strip() and \
            not line.startswith(("|", ">", "-", "    ")) else None
        if heading is not None:
            name = anchor(heading)
            count = times.get(name, 0)
            times[name] = count + 1
            found.add("%s-%d" % (name, count) if count else name)
        found.update(_NAMED.findall(_CODE.sub("", line)))
    return found


def links(lines):
    """(number of the line, target) of each link, in order."""
    text = "\n".join(without_fences(lines))
    # Code shows brackets and parentheses that are no link.
    text = _CODE.sub(lambda match: "`%s`" % _blank(match), text)
    found = []
    for pattern in (_LINK, _DEFINED, _HTML):
        for match in pattern.finditer(text):
            found.append((text.count("\n", 0, match.start(1)) + 1,
                          match.group(1)))
    return sorted(found)


def _fault(path, target, files, paths):
    """What is wrong with a link of the page `path`, or None."""
    if target in ("", "#"):
        return "names nothing"
    name, _, fragment = target.partition("#")
    name, fragment = urllib.parse.unquote(name), urllib.parse.unquote(fragment)
    if name.startswith("/"):
        return "begins at the root, which is another one on each host"
    goal = posixpath.normpath(posixpath.join(posixpath.dirname(path), name)) \
        if name else path
    if goal.startswith("../"):
        return "leaves the tree"
    folder = goal in ("", ".") or any(p.startswith(goal + "/") for p in paths)
    if goal not in paths and not folder:
        return "is no tracked file or folder"
    if not fragment:
        return None
    if folder or goal not in files:
        return "has an anchor, but %s is no page" % goal
    line = _LINE.match(fragment)
    if line and not goal.endswith(".md"):
        last = max(int(number) for number in line.groups() if number)
        return None if last <= len(files[goal]) else "has a line behind the last"
    if not goal.endswith(".md"):
        return "has an anchor, but %s is no page" % goal
    if fragment not in anchors(files[goal]):
        return "has an anchor that %s has no heading for" % goal
    return None


def check_links(files, paths):
    """Each relative link names a tracked file or folder, and its anchor exists.

    `files` is {path: lines} of the text files, `paths` all tracked paths.
    """
    paths = set(paths)
    for path, lines in files.items():
        if not path.endswith(".md"):
            continue
        for number, target in links(lines):
            if _SCHEME.match(target):
                continue
            fault = _fault(path, target, files, paths)
            if fault:
                yield "%s:%d: the link to %s %s" % (path, number, target, fault)


_ITEM = re.compile(r"\s*(?:>\s?)*\s*(?:[-*+]|\d+[.)])\s+")
_TABLE = re.compile(r"\s*[|]")
# A full stop, but not that of "e.g. this" and of "2.5".
_END = re.compile(r"(?<=[.!?])[)\"'*_]*\s+(?=[^a-z\s])")


def _blocks(lines):
    """(number of the first line, text): paragraphs, items, cells, headings."""
    block, begin = [], 0
    for number, line in enumerate(without_fences(lines) + [""], 1):
        apart = not line.strip() or line.lstrip().startswith("#") or \
            _TABLE.match(line) or _ITEM.match(line)
        if apart and block:
            yield begin, " ".join(block)
            block = []
        if _TABLE.match(line):
            for cell in re.split(r"(?<!\\)[|]", line):
                yield number, cell
        elif line.lstrip().startswith("#"):
            yield number, line.lstrip("# ")
        elif line.strip():
            if not block:
                begin = number
            block.append(_ITEM.sub("", line).strip("> "))


def num_words(text):
    return sum(1 for word in text.split() if re.search(r"\w", word))


def sentences(lines):
    """(number of its block's first line, sentence), code as one word."""
    for number, block in _blocks(lines):
        # "C" is what begins a sentence, as code may.
        text = plain(_CODE.sub("Code", block))
        for sentence in _END.split(text):
            if sentence.strip():
                yield number, sentence.strip()


def check_words(files):
    """Sentences and pages that are too long to be read at once.

    And defaults: each stands in the generated reference alone, where it cannot be
    another than the program's.
    """
    for path, lines in files.items():
        if path != _FRONT_PAGE and (not path.startswith(_PAGES) or
                                    path.startswith(_GENERATED) or
                                    not path.endswith(".md")):
            continue
        limit = _MAX_FRONT_PAGE if path == _FRONT_PAGE else _MAX_PAGE
        words = num_words("\n".join(lines))
        if words > limit:
            yield "%s has %d words (at most %d)" % (path, words, limit)
        for number, line in enumerate(without_fences(lines), 1):
            if _DEFAULT.search(line):
                yield "%s:%d: a default stands in %s alone" % (path, number,
                                                               _GENERATED)
        for number, sentence in sentences(lines):
            words = num_words(sentence)
            if words > _MAX_SENTENCE:
                yield "%s:%d: a sentence of %d words (at most %d): %s ..." % (
                    path, number, words, _MAX_SENTENCE,
                    " ".join(sentence.split()[:8]))
