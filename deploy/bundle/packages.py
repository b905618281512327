#!/usr/bin/python3
"""Prints which Debian packages a bundle is made of, a line each: the file in the
bundle ("-": compiled into programs), package, version, architecture, source and
its version, with tabs between them. deploy/image/sbom.py reads it.

    deploy/bundle/packages.py [--package=NAME]... [FILE=PATH]...

PATH is a library of this machine, FILE its name in the bundle.
"""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "..", "image"))
import sbom  # noqa: E402


def main(arguments):
    compiled = sorted({word.partition("=")[2] for word in arguments
                       if word.startswith("--package=")})
    files = dict(word.split("=", 1) for word in arguments
                 if not word.startswith("-"))
    owner = sbom.owners(list(files.values()))
    missing = [path for path in files.values() if path not in owner]
    if missing:
        sys.exit("deploy/bundle/packages.py: of no package: "
                 + ", ".join(missing))
    lines = [("-", name) for name in compiled]
    lines += [(file, owner[path]) for file, path in sorted(files.items())]
    packages = sbom.about({name for _, name in lines})
    for file, name in lines:
        print(file, *packages[name].values(), sep="\t")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except sbom.SbomError as problem:
        sys.exit(f"deploy/bundle/packages.py: {problem}")
