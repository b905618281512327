"""The minimal worker as a project of its own: CMake, pkg-config, a moved SDK."""

import os
import pathlib
import shutil
import tempfile
import unittest

from tests.deploy.sdk_job import check_worker, run

BIN = pathlib.Path.cwd()
SERVER = BIN / "server/agg_server"
MINIMAL = BIN / "worker_client/examples/minimal_worker.cc"

# The five lines of the README, and the static library's.
CMAKE = """cmake_minimum_required(VERSION 3.16)
project(my_job CXX)
find_package(agg_client REQUIRED)
add_executable(worker worker.cc)
target_link_libraries(worker agg::client)
"""
STATIC = """add_executable(static_worker worker.cc)
target_link_libraries(static_worker agg::client_static)
"""


class UseTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory(prefix="agg_sdk_use_")
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = pathlib.Path(scratch.name)
        # All of it has to work from where it was moved to.
        cls.prefix = cls.install("lib")
        cls.lib = cls.prefix / "lib"

    @classmethod
    def install(cls, libdir):
        made, moved = cls.folder / "made", cls.folder / libdir / "moved"
        result = run(BIN / "deploy/sdk.sh", f"--bin={BIN}",
                     f"--libdir={libdir}", made)
        if result.returncode != 0:
            raise AssertionError(result.stdout)
        moved.parent.mkdir(parents=True)
        return made.rename(moved)

    def project(self, name):
        folder = self.folder / name
        folder.mkdir()
        shutil.copy(MINIMAL, folder / "worker.cc")
        return folder

    def succeed(self, *command, **options):
        result = run(*command, **options)
        self.assertEqual(result.returncode, 0, result.stdout)
        return result.stdout

    def trains(self, worker, **options):
        check_worker(self, SERVER, self.folder / f"job_{worker.parent.name}_"
                     f"{worker.name}", worker, **options)

    def configure(self, folder, prefix):
        return run("cmake", "-S", folder, "-B", folder / "build",
                   f"-DCMAKE_PREFIX_PATH={prefix}")

    def test_the_readme_shows_these_lines(self):
        self.assertIn(f"```cmake\n{CMAKE}```",
                      (BIN / "worker_client/README.md").read_text())

    @unittest.skipUnless(shutil.which("cmake"), "cmake is not installed")
    def test_cmake(self):
        folder = self.project("cmake")
        (folder / "CMakeLists.txt").write_text(CMAKE + STATIC)
        configured = self.configure(folder, self.prefix)
        self.assertEqual(configured.returncode, 0, configured.stdout)
        self.succeed("cmake", "--build", folder / "build")
        self.trains(folder / "build/worker")
        self.trains(folder / "build/static_worker")
        needed = run("readelf", "-d", folder / "build/static_worker").stdout
        self.assertNotIn("libagg", needed)

    @unittest.skipUnless(shutil.which("cmake"), "cmake is not installed")
    def test_cmake_knows_the_version_also_where_debian_has_libraries(self):
        architecture = self.succeed("gcc", "-print-multiarch").strip()
        prefix = self.install(f"lib/{architecture}")
        for wanted, found in (("0.1", True), ("0.1.0", True), ("0", True),
                              ("0.0", False), ("0.2", False), ("1", False)):
            with self.subTest(wanted=wanted):
                folder = self.project(f"version_{wanted}")
                (folder / "CMakeLists.txt").write_text(CMAKE.replace(
                    "agg_client REQUIRED", f"agg_client {wanted} REQUIRED"))
                result = self.configure(folder, prefix)
                self.assertEqual(result.returncode == 0, found, result.stdout)
                if not found:
                    self.assertIn("version: 0.1.0", result.stdout)

    def flags(self, package):
        path = f"{self.lib}/pkgconfig"
        return self.succeed("pkg-config", "--cflags", "--libs", package, env={
            **os.environ, "PKG_CONFIG_PATH": path}).split()

    def test_pkg_config(self):
        folder = self.project("pkg_config")
        self.succeed("g++", "-std=c++17", folder / "worker.cc", "-o",
                     folder / "worker", *self.flags("agg_client"))
        self.trains(folder / "worker",
                    env={**os.environ, "LD_LIBRARY_PATH": str(self.lib)})

    def test_pkg_config_static(self):
        folder = self.project("pkg_config_static")
        self.succeed("g++", "-std=c++17", folder / "worker.cc", "-o",
                     folder / "worker", *self.flags("agg_client_static"))
        self.trains(folder / "worker")
        self.assertNotIn("libagg",
                         run("readelf", "-d", folder / "worker").stdout)

    def test_pkg_config_c(self):
        folder = self.project("pkg_config_c")
        (folder / "abi.c").write_text(
            '#include "agg_client/agg.h"\n'
            "int main(void) { return agg_new(0) != 0; }\n")
        self.succeed("gcc", folder / "abi.c", "-o", folder / "abi",
                     *self.flags("agg"), f"-Wl,-rpath,{self.lib}")
        self.succeed(folder / "abi")


if __name__ == "__main__":
    unittest.main()
