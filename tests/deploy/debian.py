"""What tests of the Debian packages share: the packages, and a fresh Debian.

AGG_BIN is the folder of what //deploy/deb:deb built.
"""

import atexit
import functools
import os
import pathlib
import shutil
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or
                     pathlib.Path.home() / ".cache") / "agg_server_sdk"
BIN = pathlib.Path(os.environ.get("AGG_BIN", "bazel-bin")).resolve()
LONG = 3600  # seconds to compile the client, or to fetch a Debian, on any machine


def fenced(text, language):
    """The text's fenced blocks of a language."""
    blocks = text.split(f"```{language}\n")[1:]
    return [block.split("```")[0] for block in blocks]


def succeed(test, command, **options):
    result = subprocess.run(
        [str(word) for word in command], stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        timeout=LONG, check=False, **options)
    test.assertEqual(result.returncode, 0, result.stdout)
    return result.stdout


def why_no_packages():
    if not shutil.which("dpkg-shlibdeps"):
        return "dpkg-dev is not installed"
    return None


def why_no_debian():
    if os.geteuid() != 0 or not shutil.which("debootstrap"):
        return "needs root and debootstrap"
    return why_no_packages()


@functools.lru_cache(maxsize=None)
def made_packages():
    """The folder of the packages, which goes at exit, and their paths."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="agg_deb_"))
    atexit.register(shutil.rmtree, folder)
    made = subprocess.run(
        [str(ROOT / "deploy/deb.sh"), f"--bin={BIN}", str(folder)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        timeout=LONG, check=False)
    if made.returncode != 0:
        raise AssertionError(made.stderr)
    return folder, [pathlib.Path(line) for line in made.stdout.splitlines()]


class Debian:
    """A Debian that has nothing else, in a folder that is not there yet."""

    def __init__(self, test, folder):
        self.test = test
        self.folder = pathlib.Path(folder)
        self.inside = ["chroot", self.folder]
        self.environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
                            "LC_ALL": "C",
                            "DEBIAN_FRONTEND": "noninteractive"}
        packed = CACHE / "bookworm.tar"
        if not packed.exists():
            CACHE.mkdir(parents=True, exist_ok=True)
            new = self.folder.parent / "new"
            succeed(test, ["debootstrap", "--variant=minbase", "bookworm", new])
            partial = CACHE / f"bookworm.{os.getpid()}"
            succeed(test, ["tar", "-C", new, "-cf", partial, "."])
            partial.rename(packed)
            shutil.rmtree(new)
        self.folder.mkdir()
        succeed(test, ["tar", "-C", self.folder, "-xf", packed])

    def run(self, *command):
        """Its output; it has to succeed."""
        return succeed(self.test, [*self.inside, *command],
                       env=self.environment)

    def install(self, *packages):
        """Names of Debian's packages, and paths of packages of this host."""
        words = []
        for package in packages:
            if isinstance(package, pathlib.Path):
                shutil.copy(package, self.folder / "tmp")
                package = "/tmp/" + package.name
            words.append(package)
        self.run("apt-get", "update", "-q")
        self.run("apt-get", "install", "-q", "-y", "--no-install-recommends",
                 *words)
