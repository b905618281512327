"""deploy/wheel.sh's wheel: installed, it finds its own library and server."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import zipfile

import torch

from tests.python.job_case import ROOT, WAIT

_TRAIN = """
import agg_server as agg
import numpy as np
x = np.zeros(2, np.float32)
with agg.Client({"x": x}) as client:
    client.step({"x": np.ones(2)})
print(agg.__file__, x[0], flush=True)
"""
# Reads the schema that came with it.
_READ = """
import agg_server as agg
print(len(agg.RoundLog("/dev/null").numbers) > 10)
"""
_MAPS = """
import os
found = {line.split()[-1] for line in open("/proc/self/maps")
         if "/libgrpc" in line}
print(*{os.path.dirname(path) for path in found})
"""


def packages_of(notices):
    """Debian's, with a version each."""
    return re.findall(r"^([a-z0-9.+-]+) \d\S*$", notices, re.MULTILINE)


class WheelCase(unittest.TestCase):

    @staticmethod
    def run_command(*command, **environment):
        environment = {"PATH": "/usr/bin:/bin", "HOME": "/tmp", **environment}
        result = subprocess.run(
            command, capture_output=True, text=True, check=False,
            timeout=12 * WAIT, stdin=subprocess.DEVNULL, env=environment)
        if result.returncode:
            raise AssertionError(f"{command[0]}: {result.stderr[-4000:]}")
        return result.stdout


class WheelTest(WheelCase):

    def test_what_is_installed_trains(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            wheel = self.run_command(
                str(ROOT / "deploy" / "wheel.sh"), "--plain",
                "--bin=" + os.environ["AGG_BIN"], str(folder),
                PYTHON=sys.executable).strip()
            self.assertRegex(wheel, r"agg_server-[\d.]+-py3-none-linux_\w+\.whl$")
            with zipfile.ZipFile(wheel) as archive:
                names = archive.namelist()
                notices = archive.read("agg_server/NOTICES").decode()
            pages = [f"docs/{page.name}" for page in
                     (ROOT / "worker_client" / "python").glob("*.md")]
            self.assertEqual(len(pages), 3)
            for member in ("_lib/libagg.so", "_bin/agg_server",
                           "_bin/agg_combine", "round_log.proto", "py.typed",
                           "docs/examples/quickstart.py", *pages):
                self.assertIn("agg_server/" + member, names)
            # What is compiled in; libraries are the machine's.
            self.assertIn("libgrpc++-dev", packages_of(notices))
            self.assertNotIn("libssl3", packages_of(notices))
            # Beside numpy, which the interpreter has.
            site = folder / "site"
            self.run_command(
                sys.executable, "-m", "pip", "install", "--quiet",
                "--disable-pip-version-check", "--no-index", "--no-deps",
                "--target", str(site), wheel)
            script = folder / "train.py"
            script.write_text(_TRAIN)
            out = self.run_command(
                sys.executable, "-m", "agg_server.launch", "-n", "2",
                "--lr=0.5", str(script), PYTHONPATH=str(site))
            self.assertEqual(out.splitlines(), [
                f"{site}/agg_server/__init__.py -0.5"] * 2)
            for name in ("agg_server", "agg_combine"):
                self.assertIn(f"{name} ", self.run_command(
                    sys.executable, "-c",
                    f"from agg_server import programs; programs.{name}()",
                    "--version", PYTHONPATH=str(site)))
            self.assertEqual(self.run_command(
                sys.executable, "-c", _READ, PYTHONPATH=str(site)), "True\n")



class BundledWheelTest(WheelCase):
    """The wheel for other machines; auditwheel and matplotlib are from PyPI."""

    @classmethod
    def setUpClass(cls):
        name = tempfile.TemporaryDirectory()
        cls.addClassCleanup(name.cleanup)
        cls.folder = pathlib.Path(name.name)
        cls.wheel = cls.run_command(
            str(ROOT / "deploy" / "wheel.sh"),
            "--bin=" + os.environ["AGG_BIN"], str(cls.folder)).strip()

    def test_what_is_bundled_is_pinned_and_noticed(self):
        self.assertRegex(self.wheel,
                         r"-py3-none-manylinux_2_\d\d_x86_64\.whl$")
        with zipfile.ZipFile(self.wheel) as archive:
            names = archive.namelist()
            notices = archive.read("agg_server/NOTICES").decode()
        bundled = {re.sub(r"-[0-9a-f]{8}(\.so(\.\d+)?).*", r"\1",
                          pathlib.Path(member).name)
                   for member in names
                   if member.startswith("agg_server.libs/")}
        pinned = (ROOT / "deploy" / "wheel_libraries.txt").read_text()
        self.assertEqual(sorted(bundled), sorted(pinned.split()))
        for package in ("libgrpc29", "libprotobuf32", "libssl3",
                        "libabsl20220623", "libgrpc++-dev"):
            self.assertIn(package, packages_of(notices))

    def test_the_quickstart_with_what_it_tells_to_install(self):
        venv = self.folder / "venv"
        self.run_command(sys.executable, "-m", "venv", str(venv))
        # torch, which takes gigabytes, and numpy are those of this process.
        site = next((venv / "lib").glob("python3*")) / "site-packages"
        (site / "torch.pth").write_text(
            str(pathlib.Path(torch.__file__).parent.parent) + "\n")
        self.run_command(str(venv / "bin" / "pip"), "install", "--quiet",
                         "--disable-pip-version-check", self.wheel, "tqdm",
                         "matplotlib")
        image = self.folder / "plot.png"
        self.run_command(
            str(venv / "bin" / "python"), str(
                ROOT / "worker_client" / "python" / "examples" /
                "quickstart.py"), "--rounds=30", f"--plot={image}")
        self.assertEqual(image.read_bytes()[:4], b"\x89PNG")
        script = self.folder / "train.py"
        script.write_text(_TRAIN + _MAPS)
        out = self.run_command(str(venv / "bin" / "agg-launch"), "-n", "1",
                               "--lr=0.5", str(script))
        self.assertEqual(out.splitlines()[1], str(site / "agg_server.libs"))


if __name__ == "__main__":
    unittest.main()
