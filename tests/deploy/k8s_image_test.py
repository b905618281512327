"""The container image: builds from the programs of this build, and holds all
that they need: they run in it as its user, without anything of the machine.

Needs root (to chroot) and is skipped without; the builder is buildah.
"""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).absolute().parent.parent.parent
USER = 65532
CHROOT = "/usr/sbin/chroot"

REASON = None if os.geteuid() == 0 else "needs root"
if not REASON and shutil.which("buildah") is None:
    REASON = "needs buildah (deploy/setup.sh --dev)"
if REASON:
    print("k8s_image_test is skipped:", REASON)

STORAGE = """[storage]
driver = "vfs"
graphroot = "{0}/graph"
runroot = "{0}/run"
"""


def run(*command, **options):
    result = subprocess.run([str(word) for word in command], check=False,
                            stdin=subprocess.DEVNULL, capture_output=True,
                            text=True, **options)
    if result.returncode != 0:
        raise AssertionError(f"{command}: {result.returncode}\n"
                             f"{result.stdout}{result.stderr}")
    return result.stdout


@unittest.skipIf(REASON, REASON)
class ImageTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory(prefix="agg_image_")
        cls.addClassCleanup(scratch.cleanup)
        folder = pathlib.Path(scratch.name)
        (folder / "bundle/bin").mkdir(parents=True)
        binaries = pathlib.Path(os.environ.get("AGG_BIN", ".")).absolute()
        for program in ("server/agg_server",
                        "worker_client/examples/digits_worker"):
            shutil.copy(binaries / program, folder / "bundle/bin")
        # A store of its own: the user's images stay as they are.
        (folder / "storage.conf").write_text(STORAGE.format(folder))
        cls.environment = {**os.environ, "TMPDIR": scratch.name,
                           "CONTAINERS_STORAGE_CONF":
                               str(folder / "storage.conf")}
        try:
            run(ROOT / "deploy/image/build.sh", "--tool=buildah",
                f"--bundle={folder / 'bundle'}", "--tag=agg-server:test",
                env=cls.environment)
            cls.container = run("buildah", "from", "--pull-never",
                                "agg-server:test", env=cls.environment).strip()
            cls.addClassCleanup(run, "buildah", "rm", cls.container,
                                env=cls.environment)
            cls.files = pathlib.Path(run("buildah", "mount", cls.container,
                                         env=cls.environment).strip())
        except AssertionError as error:
            raise AssertionError(f"no image: {error}") from error

    def inside(self, *command, **options):
        """As in the container: its files, its user, no capabilities."""
        return run(CHROOT, f"--userspec={USER}:{USER}", "--groups=",
                   self.files, *command, env={}, **options)

    def test_programs_find_all_libraries(self):
        self.assertIn("agg_server ", self.inside(
            "/opt/agg_server/bin/agg_server", "--version"))
        for program in (self.files / "opt/agg_server/bin").iterdir():
            listed = self.inside("/lib64/ld-linux-x86-64.so.2", "--list",
                                 f"/opt/agg_server/bin/{program.name}")
            self.assertIn("libc.so.6", listed)
            self.assertNotIn("not found", listed)

    def test_every_library_is_in_the_list_of_what_is_in_it(self):
        listed = json.loads(
            (self.files / "opt/agg_server/sbom.spdx.json").read_text())
        names = {item["SPDXID"]: item["fileName"] for item in listed["files"]}
        of_packages = {
            names.get(item["relatedSpdxElement"])
            for item in listed["relationships"]
            if item["spdxElementId"].startswith("SPDXRef-Debian-")}
        libraries = {f"./{path.relative_to(self.files)}"
                     for path in self.files.rglob("*.so*")}
        self.assertGreater(len(libraries), 20)
        self.assertLessEqual(libraries, of_packages)
        self.assertIn("./opt/agg_server/bin/agg_server", names.values())

    def test_it_says_how_it_is_started(self):
        config = run("buildah", "inspect", "--type", "image", "--format",
                     "{{.OCIv1.Config.Entrypoint}} {{.OCIv1.Config.User}} "
                     "{{.OCIv1.Config.StopSignal}}", "agg-server:test",
                     env=self.environment).strip()
        self.assertEqual(config, "[/opt/agg_server/bin/agg_server] "
                         f"{USER}:{USER} SIGTERM")

    def test_there_is_no_shell_and_nothing_writable(self):
        programs = {path.name for path in self.files.rglob("*")
                    if path.is_file() and "bin" in path.parent.name}
        self.assertEqual(programs, {"agg_server", "digits_worker"})
        for path in self.files.rglob("*"):
            if path.is_symlink() or path == self.files / "tmp":
                continue
            self.assertEqual(path.stat().st_mode & 0o7022, 0, path)

    def test_a_job_trains_in_it(self):
        """With name resolution, too: the coordinator is "localhost"."""
        config = self.files / "tmp/job.textproto"
        ports = self.files / "tmp/port"
        (self.files / "etc/hosts").write_text("127.0.0.1 localhost\n")
        config.write_text('workers: 1\nmax_rounds: 20\n'
                          'learning_rate { rate: 0.05 }\n')
        server = subprocess.Popen(
            [CHROOT, f"--userspec={USER}:{USER}", "--groups=",
             str(self.files), "/opt/agg_server/bin/agg_server",
             "--config=/tmp/job.textproto", "--port=0",
             "--port_file=/tmp/port"], env={}, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        try:
            for line in server.stderr:
                if "listens on" in line:
                    break
            port = line.rsplit(":", 1)[1].strip()
            out = self.inside(
                "/opt/agg_server/bin/digits_worker",
                f"--coordinator=localhost:{port}", "--epochs=100",
                "--data=/opt/agg_server/data/digits.csv.gz", timeout=120)
            self.assertIn('"rounds": 20', out)
            server.terminate()
            self.assertEqual(server.wait(60), 0)
            self.assertEqual(ports.stat().st_uid, USER)
        finally:
            if server.poll() is None:
                server.kill()
                server.wait()
            server.stderr.close()


if __name__ == "__main__":
    unittest.main()
