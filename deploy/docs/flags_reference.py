"""The page of the programs' flags: what each says to --help.

A program of server/base/flags.h prints a heading and lines `  FLAG  what it is`,
or what it is on the next line: those become tables. A Python program's help stays
as it is.
"""

import os
import re
import subprocess

_INTRODUCTION = """# Programs and their flags

What each program says to `--help`. `--name=value` and `--name value` are the same.

This page is made by `deploy/docs/generate.py`, which runs the programs.
"""

# Those that are shipped, by their targets.
PROGRAMS = ("server/agg_server", "worker_client/tools/aggctl",
            "worker_client/tools/agg_pull", "server/tools/agg_report",
            "server/tools/agg_combine")
_COMMANDS_OF = "worker_client/tools/aggctl"
_SETUP = "worker_client/python/setup.py"
# What the wheel calls by the name of a program.
_PYTHON_PROGRAM = re.compile(r'"([\w-]+) = (agg_server[.]\w+):main"')

# What the package's aggctl does itself.
_ADVISE = "aggctl advise"
_CALL_ADVISE = "from agg_server import advice; advice.main()"

_LINE = re.compile(r"  (\S.*?)(?:  +(.*))?")
_COLUMN = 31  # as wide as a name is at most that stands beside its meaning
_CONTINUED = re.compile(r" {10,}(.*)")


def _run(command, **variables):
    process = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        check=False, env={**os.environ, "COLUMNS": "80", **variables})
    if process.returncode:
        raise RuntimeError("%s: %s" % (" ".join(command), process.stderr))
    return process.stdout


def _halves(name, meaning):
    """A row whose name fills its column has one space behind it."""
    if not meaning and name[_COLUMN:_COLUMN + 1] == " ":
        return name[:_COLUMN], name[_COLUMN + 1:]
    return name, meaning


def tables(text):
    """(what stands before, [(heading, [(name, meaning)])]) of a help text."""
    before, found = [], []
    for line in text.splitlines():
        if line.endswith(":") and not line.startswith(" ") and \
                not line.startswith("Rules"):
            found.append((line[:-1], []))
            continue
        if not found:
            before.append(line)
            continue
        rows = found[-1][1]
        continued, row = _CONTINUED.fullmatch(line), _LINE.fullmatch(line)
        if continued and rows and not rows[-1][1]:
            rows[-1] = (rows[-1][0], continued.group(1))
        elif row:
            rows.append((row.group(1), row.group(2) or ""))
        elif line.strip():
            raise ValueError("no line of a table: " + line)
    for _, rows in found:
        rows[:] = [_halves(*row) for row in rows]
    return "\n".join(before).strip(), found


def _cell(text):
    return re.sub(r"([|*<\[])", r"\\\1", text)


def _code_cell(text):
    return "`%s`" % text.replace("|", r"\|")


def _program(title, level, text, without=()):
    before, found = tables(text)
    parts = ["%s %s\n" % (level, title), "```text\n%s\n```\n" % before]
    for heading, rows in found:
        rows = [(name, meaning) for name, meaning in rows
                if name not in without]
        if not rows:
            continue
        parts.append("| %s | |\n|---|---|\n%s\n" % (
            heading.lower(), "\n".join(
                "| %s | %s |" % (_code_cell(name), _cell(meaning))
                for name, meaning in rows)))
    return "\n".join(parts)


def _python(root, *how):
    """What a program of the Python package says to --help, in Markdown."""
    text = _run(["/usr/bin/python3", "-B", *how, "--help"],
                PYTHONPATH=os.path.join(root, "worker_client/python"))
    return "```text\n%s\n```\n" % text.strip()


def page(folder_of_binaries, root="."):
    """The page. `folder_of_binaries`: bazel-bin, or its like in a test."""
    parts = [_INTRODUCTION]
    for target in PROGRAMS:
        path = os.path.join(folder_of_binaries, target)
        text = _run([path, "--help"])
        parts.append(_program(os.path.basename(target), "##", text))
        if target != _COMMANDS_OF:
            continue
        sections = dict(tables(text)[1])
        # Each command has them, too.
        common = {name for name, _ in sections["Flags"]}
        parts += [_program("aggctl " + command, "###",
                           _run([path, "help", command]), common)
                  for command, _ in sections["Commands"]]
        parts.append("### %s\n\nOf the Python package's `aggctl` alone.\n\n%s" % (
            _ADVISE, _python(root, "-c", _CALL_ADVISE)))
    with open(os.path.join(root, _SETUP), encoding="utf-8") as file:
        programs = _PYTHON_PROGRAM.findall(file.read())
    for name, module in programs:
        parts.append("## %s\n\n%s" % (name, _python(root, "-m", module)))
    return "\n".join(parts)
