"""A Bazel workspace of a user's, and the Debian packages in a fresh Debian.

For the cell `sdk` of tests/run.sh: compiles the client once more, and installs
packages into a chroot.
"""

import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

from tests.deploy import debian
from tests.deploy.debian import BIN, CACHE, ROOT, fenced, succeed
from tests.deploy.sdk_job import WAIT, check_worker, run


class WorkspaceTest(unittest.TestCase):

    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="agg_workspace_")
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)

    def test_the_documented_lines(self):
        readme = (ROOT / "worker_client/README.md").read_text()
        workspace, build = [
            block for block in fenced(readme, "python") if "agg_server" in block]
        options = "build --cxxopt=-std=c++17\n"
        self.assertIn(f"```\n{options}```", readme)
        self.assertEqual(len((workspace + build + options).splitlines()), 6)
        project = self.folder / "my_job"
        project.mkdir()
        (project / "WORKSPACE").write_text(
            workspace.replace("/path/to/agg_server", str(ROOT)))
        (project / "BUILD").write_text(build)
        (project / ".bazelrc").write_text(options)
        shutil.copy(ROOT / "worker_client/examples/minimal_worker.cc",
                    project / "worker.cc")
        # Kept for the next time: compiling the client takes minutes.
        base = CACHE / "output_base"
        base.mkdir(parents=True, exist_ok=True)
        bazel = "/usr/bin/bazel" if os.path.exists("/usr/bin/bazel") else "bazel"
        succeed(self, [bazel, f"--output_base={base}", "--max_idle_secs=60",
                       "build", "-c", "opt", "--noshow_progress",
                       f"--disk_cache={CACHE / 'actions'}",
                       f"--symlink_prefix={project}/bazel-", "//:worker"],
                cwd=project)
        check_worker(self, BIN / "server/agg_server", self.folder / "job",
                     project / "bazel-bin/worker")


class PackagesTest(unittest.TestCase):
    NAMES = {"libagg-client1", "libagg-client-dev", "agg-server", "agg-tools"}

    @classmethod
    def setUpClass(cls):
        if debian.why_no_packages():
            raise unittest.SkipTest(debian.why_no_packages())
        cls.folder, cls.packages = debian.made_packages()

    def test_what_is_in_them(self):
        contents = {}
        for path in self.packages:
            listed = succeed(self, ["dpkg-deb", "--fsys-tarfile", path],
                             errors="replace")
            self.assertTrue(listed)
            contents[path.name.split("_")[0]] = succeed(
                self, ["dpkg-deb", "--contents", path])
        self.assertEqual(set(contents), self.NAMES)
        for package, file in (
                ("libagg-client1", "/libagg_client.so.1"),
                ("libagg-client-dev", "/include/agg_client/agg_client.h"),
                ("libagg-client-dev", "/cmake/agg_client/"),
                ("agg-server", "./lib/systemd/system/agg_server@.service"),
                ("agg-server", "./etc/agg_server/job.textproto"),
                ("agg-server", "./etc/agg_server/secrets/"),
                ("agg-tools", "./usr/bin/aggctl")):
            self.assertIn(file, contents[package])
        for package in self.NAMES:
            self.assertIn(f"./usr/share/doc/{package}/copyright",
                          contents[package])

    def test_lintian_has_no_errors(self):
        if not shutil.which("lintian"):
            self.skipTest("lintian is not installed")
        succeed(self, ["lintian", "--allow-root", "--fail-on=error",
                       *self.packages])

    def test_the_unit_is_good(self):
        if not shutil.which("systemd-analyze"):
            self.skipTest("systemd-analyze is not installed")
        unit = self.folder / "agg_server@.service"
        text = (ROOT / "deploy/deb/agg_server@.service").read_text()
        # The program that is there, since this host need not have the package.
        unit.write_text(text.replace("/usr/bin/agg_server",
                                     str(BIN / "server/agg_server")))
        said = run("systemd-analyze", "verify", "--man=no",
                   str(unit).replace("@", "@0"))
        self.assertNotIn("agg_server@", said.stdout)
        self.assertEqual(said.returncode, 0, said.stdout)

    def test_a_fresh_debian(self):
        if debian.why_no_debian():
            self.skipTest(debian.why_no_debian())
        scratch = tempfile.TemporaryDirectory(prefix="agg_debian_")
        self.addCleanup(scratch.cleanup)
        fresh = debian.Debian(self, pathlib.Path(scratch.name) / "debian")
        fresh.install("g++", "cmake", "make", *self.packages)
        self.train_inside(fresh)

    def train_inside(self, fresh):
        """Compiles the worker there, and runs server, worker and aggctl."""
        folder = fresh.folder
        project = folder / "tmp/my_job"
        project.mkdir()
        shutil.copy(ROOT / "worker_client/examples/minimal_worker.cc",
                    project / "worker.cc")
        readme = (ROOT / "worker_client/README.md").read_text()
        (project / "CMakeLists.txt").write_text(fenced(readme, "cmake")[0])
        for command in (["cmake", "-S", "/tmp/my_job", "-B", "/tmp/my_job/out"],
                        ["cmake", "--build", "/tmp/my_job/out"]):
            fresh.run(*command)
        config = folder / "etc/agg_server/job.textproto"
        self.assertIn("workers: 2", config.read_text())
        fresh.run("agg_server", "--validate",
                  "--config=/etc/agg_server/job.textproto")
        config.write_text('workers: 1 shards: "127.0.0.1:1"\n'
                          "learning_rate { rate: 0.5 }\n")
        with open(folder / "tmp/log", "wb") as log:
            server = subprocess.Popen(
                [*fresh.inside, "agg_server", "--port=0",
                 "--port_file=/tmp/port",
                 "--config=/etc/agg_server/job.textproto"],
                env=fresh.environment,
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.addCleanup(server.wait)
        self.addCleanup(server.kill)
        port, deadline = folder / "tmp/port", time.monotonic() + WAIT
        while not (port.exists() and port.read_text().strip()):
            self.assertIsNone(server.poll(), (folder / "tmp/log").read_text())
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)
        address = "127.0.0.1:" + port.read_text().strip()
        said = fresh.run("/tmp/my_job/out/worker", address)
        self.assertIn("OK, x[0] = 0.9375\n", said)
        status = fresh.run("aggctl", f"--coordinator={address}", "status")
        self.assertIn("round 4", status)
        server.send_signal(signal.SIGTERM)
        self.assertEqual(server.wait(WAIT), 0,
                         (folder / "tmp/log").read_text())


if __name__ == "__main__":
    unittest.main()
