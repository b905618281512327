"""The page of the Python package's public names.

Reads the sources and imports nothing, so that it needs neither torch nor numpy: what
`agg_server.__all__` names, with signatures and docstrings. A docstring is plain text
in Google's style (Args:, Attributes:, Raises:, ..), whose lists become lists here.
"""

import ast
import os
import re
import textwrap

_PACKAGE = "worker_client/python/agg_server"
_GUIDE = os.path.relpath("worker_client/python/README.md",
                         "deploy/docs/reference")
_INTRODUCTION = """# Python package

The public names of `agg_server`; `import agg_server as agg` gives all of them. What
they are for, with complete programs, is in
[agg_server for Python](%s).

This page is made of the package's docstrings by `deploy/docs/generate.py`.
""" % _GUIDE
_OPTIONS = "ClientOptions"
# Of their own: importing or using them imports matplotlib, Ray and torchft.
_MODULES = ("plot", "ray", "torchft")
_SECTION = re.compile(r"(Args|Attributes|Examples?|Modes|Raises|Returns|Yields):$")
# A line of a list without a heading: what goes on with it is indented.
_ENTRY = re.compile(r"[a-z]\w*(, [a-z]\w*)*: |  +\S")
_WIDTH = 80


class Package:
    """The sources of the package, read when they are asked for."""

    def __init__(self, root):
        self._folder = os.path.join(root, _PACKAGE)
        self._modules = {}

    def module(self, name):
        """The module's tree, and {imported name: module} of this package's."""
        if name not in self._modules:
            path = os.path.join(self._folder, name + ".py")
            with open(path, encoding="utf-8") as file:
                tree = ast.parse(file.read())
            imports = {
                alias.asname or alias.name: node.module.partition(".")[2]
                for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)
                and (node.module or "").startswith("agg_server.")
                for alias in node.names}
            self._modules[name] = tree, imports
        return self._modules[name]

    def public_names(self, module):
        """[(name, its module)] of a module's __all__, in its order."""
        tree, imports = self.module(module)
        (names,) = [ast.literal_eval(node.value) for node in tree.body
                    if isinstance(node, ast.Assign)
                    and node.targets[0].id == "__all__"]
        return [(name, imports.get(name, module)) for name in names]

    def find(self, name, module):
        """(node, module) of a class or function, through imports."""
        tree, imports = self.module(module)
        for node in tree.body:
            if getattr(node, "name", None) == name:
                return node, module
        return self.find(name, imports[name]) if name in imports else (None, "")

    def members(self, node, module):
        """{name: function} of a class and its bases in the package."""
        found = {}
        for base in reversed(node.bases):
            if isinstance(base, ast.Name):
                above, where = self.find(base.id, module)
                if isinstance(above, ast.ClassDef):
                    found.update(self.members(above, where))
        found.update({
            child.name: child for child in node.body
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef))})
        return found


def _decorators(node):
    return {ast.unparse(decorator).partition("(")[0]
            for decorator in node.decorator_list}


def _is_dataclass(node):
    return any(name.endswith("dataclass") for name in _decorators(node))


def _fields(node):
    """A dataclass's fields as they would stand in a signature."""
    return [ast.unparse(child.target) + ": " + ast.unparse(child.annotation) +
            (" = " + ast.unparse(child.value) if child.value else "")
            for child in node.body if isinstance(child, ast.AnnAssign)
            and not child.target.id.startswith("_")]


def _arguments(function, has_self):
    """Arguments as they stand in a signature, one each."""
    arguments = function.args
    names = arguments.posonlyargs + arguments.args
    defaults = [None] * (len(names) - len(arguments.defaults)) + \
        arguments.defaults

    def shown(argument, default=None):
        text = ast.unparse(argument)
        if default is None:
            return text
        return text + (" = " if argument.annotation else "=") + \
            ast.unparse(default)

    found = [shown(*pair) for pair in zip(names, defaults)][has_self:]
    if arguments.vararg:
        found.append("*" + shown(arguments.vararg))
    elif arguments.kwonlyargs:
        found.append("*")
    found += [shown(*pair) for pair in
              zip(arguments.kwonlyargs, arguments.kw_defaults)]
    if arguments.kwarg:
        found.append("**" + shown(arguments.kwarg))
    return found


def _signature(name, arguments, returns=None):
    behind = ")" + (" -> " + ast.unparse(returns) if returns else "")
    line = name + "(" + ", ".join(arguments) + behind
    if len(line) > _WIDTH:
        line = "%s(\n    %s\n%s" % (name, ",\n    ".join(arguments), behind)
    return "```python\n%s\n```\n" % line


def _text(text):
    """A line of prose: characters that mean something in Markdown are quoted.

    Only outside of code, which docstrings put between backticks.
    """
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else
                   re.sub(r"([*<\[])", r"\\\1", part) for part in parts)


def _entries(lines):
    """A list of `name: what it is`; lines that go on are indented deeper."""
    entries = []
    for line in textwrap.dedent("\n".join(lines)).splitlines():
        if line.startswith(" ") and entries:
            entries[-1] += " " + line.strip()
        elif line.strip():
            entries.append(line.strip())
    shown = []
    for entry in entries:
        name, colon, text = entry.partition(": ")
        shown.append("- `%s`: %s" % (name, _text(text))
                     if colon and re.fullmatch(r"[*\w\"., ()/-]+", name)
                     else "- " + _text(entry))
    return "\n".join(shown)


def _paragraphs(lines):
    """Markdown of plain text; what is indented is code."""
    parts = []
    for block in re.split(r"\n\s*\n", "\n".join(lines)):
        if block.startswith("    "):
            if parts and parts[-1].startswith("```"):
                parts[-1] = parts[-1][:-len("\n```")] + "\n"
            else:
                parts.append("```python")
            parts[-1] += "\n" + textwrap.dedent(block).rstrip() + "\n```"
        elif "\n" in block.strip() and all(map(_ENTRY.match, block.splitlines())):
            parts.append(_entries(block.splitlines()))
        elif block.strip():
            parts.append(_text(" ".join(block.split())))
    return parts


def markdown(docstring):
    """A docstring as Markdown."""
    parts, lines = [], docstring.splitlines()
    begin = 0
    while begin < len(lines):
        section = _SECTION.match(lines[begin])
        end = begin + 1
        while end < len(lines) and not _SECTION.match(lines[end]) and not (
                section and lines[end].strip() and
                not lines[end].startswith(" ")):
            end += 1
        if not section:
            parts += _paragraphs(lines[begin:end])
        elif section.group(1) in ("Args", "Attributes", "Modes", "Raises"):
            heading = {"Args": "Arguments"}.get(section.group(1),
                                                section.group(1))
            parts += [heading + ":", _entries(lines[begin + 1:end])]
        else:
            body = textwrap.dedent("\n".join(lines[begin + 1:end]))
            parts += [section.group(1) + ":"] + _paragraphs(body.splitlines())
        begin = end
    return "\n\n".join(part for part in parts if part) + "\n"


def _docstring(node):
    """The docstring without the margin of the code that it stands in.

    (ast.get_docstring takes an example's own margin, too, if nothing else is
    there.)
    """
    if not ast.get_docstring(node):
        return ""
    written = node.body[0].value
    margin = " " * written.col_offset
    return "\n".join(line[len(margin):] if line.startswith(margin) else
                     line.strip() for line in
                     (margin + written.value).splitlines()).strip()


def _documented(node):
    docstring = _docstring(node)
    return markdown(docstring) if docstring else ""


def _is_internal(function, class_name, public):
    """Whether another class of the package is all that calls it: "Of X: .."."""
    caller = re.match(r"Of (\w+)[:,]", _docstring(function))
    return bool(caller) and caller.group(1) in public and \
        caller.group(1) != class_name


def _class(package, name, module, public):
    node, module = package.find(name, module)
    members = package.members(node, module)
    parts = ["## %s\n" % name]
    init = members.get("__init__")
    if _is_dataclass(node):
        parts.append(_signature(name, _fields(node)))
    elif init:
        parts.append(_signature(name, _arguments(init, True)))
    parts.append(_documented(node))
    if init and not _is_dataclass(node):
        parts.append(_documented(init))
    for member, function in members.items():
        if member.startswith("_") or not _docstring(function) or \
                _is_internal(function, name, public):
            continue
        decorators = _decorators(function)
        if any(decorator.endswith(".setter") for decorator in decorators):
            continue
        parts.append("### %s.%s\n" % (name, member))
        if "property" in decorators:
            kind = ast.unparse(function.returns) if function.returns else ""
            parts.append("A property: `%s`.\n" % kind)
        else:
            parts.append(_signature(
                member, _arguments(function, "staticmethod" not in decorators),
                function.returns))
        parts.append(_documented(function))
    return parts


def _function(package, name, module):
    node, _ = package.find(name, module)
    return ["## %s\n" % name,
            _signature(name, _arguments(node, False), node.returns),
            _documented(node)]


def _error(package, name, module):
    node, _ = package.find(name, module)
    return ["### %s\n" % name,
            "Based on %s.\n" % ", ".join("`%s`" % ast.unparse(base)
                                  for base in node.bases),
            _documented(node)]


def _options(package):
    node, _ = package.find(_OPTIONS, "options")
    rows = []
    for child in node.body:
        if isinstance(child, ast.AnnAssign):
            kind, default, text = child.annotation.slice.elts
            rows.append("- `%s: %s = %s`: %s" % (
                child.target.id, ast.unparse(kind), ast.unparse(default),
                _text(ast.literal_eval(text))))
    return ["## Options of clients\n", _documented(node), "\n".join(rows) + "\n"]


def _public(package, names, parents):
    """(parts of classes, of functions, of errors)."""
    classes, functions, errors = [], [], []
    public = {name for name, _ in names} | parents
    for name, module in names:
        node, _ = package.find(name, module)
        if module == "errors":
            errors += _error(package, name, module)
        elif isinstance(node, ast.ClassDef):
            classes += _class(package, name, module, public)
        else:
            functions += _function(package, name, module)
    return classes, functions, errors


def page(root="."):
    """The page."""
    package = Package(root)
    names = package.public_names("__init__")
    classes, functions, errors = _public(package, names, set())
    parts = [_INTRODUCTION, *classes, *_options(package), *functions]
    for module in _MODULES:
        parts += ["## agg_server.%s\n" % module,
                  _documented(package.module(module)[0])]
        for found in _public(package, package.public_names(module),
                             {name for name, _ in names}):
            parts += [re.sub(r"(?m)^##(#?) ", r"###\1 ", part)
                      for part in found]
    parts += ["## Errors\n", *errors]
    return "\n".join(part for part in parts if part)
