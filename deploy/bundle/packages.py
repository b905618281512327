#!/usr/bin/python3
"""Prints which Debian packages a bundle is made of, a line each: the file in the
bundle ("-": compiled into programs), package, version, architecture, source and
its version, with tabs between them. deploy/image/sbom.py reads it.

    deploy/bundle/packages.py [--package=NAME]... [FILE=PATH | PATH]...

PATH is a library of this machine, FILE its name in the bundle; without FILE it
is compiled into programs.
"""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "..", "image"))
import sbom  # noqa: E402


def main(arguments):
    compiled = {word.partition("=")[2] for word in arguments
                if word.startswith("--package=")}
    words = [word for word in arguments if not word.startswith("-")]
    files = dict(word.split("=", 1) for word in words if "=" in word)
    added = [os.path.realpath(word) for word in words if "=" not in word]
    paths = [*files.values(), *added]
    owner = sbom.owners(paths)
    missing = [path for path in paths if path not in owner]
    if missing:
        sys.exit("deploy/bundle/packages.py: of no package: "
                 + ", ".join(missing))
    compiled |= {owner[path] for path in added}
    lines = [("-", name) for name in sorted(compiled)]
    lines += [(file, owner[path]) for file, path in sorted(files.items())]
    packages = sbom.about({name for _, name in lines})
    for file, name in lines:
        print(file, *packages[name].values(), sep="\t")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except sbom.SbomError as problem:
        sys.exit(f"deploy/bundle/packages.py: {problem}")
