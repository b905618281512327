"""Network namespaces of tests and benchmarks that were killed: each has the
process id of its maker in its name, and who makes new ones removes those whose
maker is gone.
"""

import pathlib
import re
import shutil
import subprocess

_NETNS = pathlib.Path("/run/netns")
# `ip netns exec` mounts a namespace's files of that folder on /etc.
_ETC = pathlib.Path("/etc/netns")
# "agg<pid>n7", "agg<pid>nbr", "agg<pid>try"; "aggs<pid>", "aggw<pid>".
_NAME = re.compile(r"agg(?:(\d+)(?:n\w+|try)|[sw](\d+))")


def maker(name):
    """The process id in a namespace's name; None: it is not ours."""
    match = _NAME.fullmatch(name)
    return int(match[1] or match[2]) if match else None


def leftovers(names, alive):
    """Those of `names` whose maker is not `alive`."""
    return sorted(name for name in names
                  if maker(name) is not None and not alive(maker(name)))


def remove():
    """Needs root. Another one may remove the same: that is no error."""
    names = {entry.name for folder in (_NETNS, _ETC) if folder.is_dir()
             for entry in folder.iterdir()}
    for name in leftovers(
            names, lambda pid: pathlib.Path("/proc", str(pid)).exists()):
        subprocess.run(["ip", "netns", "del", name], check=False,
                       stdin=subprocess.DEVNULL, capture_output=True)
        shutil.rmtree(_ETC / name, ignore_errors=True)
