#!/usr/bin/python3
"""Makes the pages of deploy/docs/reference from the sources and the programs.

    deploy/docs/generate.py BAZEL_BIN            writes them
    deploy/docs/generate.py --check BAZEL_BIN    says which ones are another

BAZEL_BIN is the folder of the built programs, `bazel-bin`. Run it from the
repository's root. A test compares: //tests/deploy:reference_test.
"""

import difflib
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import config_reference  # Its neighbours.
import flags_reference
import python_reference

FOLDER = "deploy/docs/reference"


def pages(binaries, root="."):
    """({name: text}, what is wrong with the sources)."""
    with open(os.path.join(root, "proto/config.proto"),
              encoding="utf-8") as file:
        config, findings = config_reference.page(
            file.read().splitlines(),
            os.path.join(binaries, "server/agg_server"))
    return {"config": config,
            "flags": flags_reference.page(binaries, root),
            "python": python_reference.page(root)}, findings


def differences(made, root="."):
    """What the committed pages have otherwise, as lines of a diff."""
    for name, text in made.items():
        path = os.path.join(root, FOLDER, name + ".md")
        try:
            with open(path, encoding="utf-8") as file:
                committed = file.read()
        except FileNotFoundError:
            committed = ""
        yield from difflib.unified_diff(
            committed.splitlines(), text.splitlines(), path, "as it is now",
            lineterm="", n=0)


def main(argv):
    check = argv[1:2] == ["--check"]
    if len(argv) != 2 + check or argv[-1].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 2
    made, findings = pages(argv[-1])
    if check:
        findings += differences(made)
    else:
        os.makedirs(FOLDER, exist_ok=True)
        for name, text in made.items():
            with open(os.path.join(FOLDER, name + ".md"), "w",
                      encoding="utf-8") as file:
                file.write(text)
    for finding in findings:
        print(finding)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
