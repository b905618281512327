"""The scripts around the bundle: bundle.sh and the image's build.sh understand
each other.

Compiling and the container tool are stand-ins, and so are the bundle's
programs; the scripts are the real ones.
"""

import json
import pathlib
import re
import subprocess
import unittest

from tests.deploy.stand_ins import Folder, script

ROOT = pathlib.Path(__file__).absolute().parent.parent.parent

# Puts a program in the place of every label that it is asked to build.
BAZEL = """#!/bin/bash
echo "$@" >"{folder}/bazel_arguments"
for argument in "$@"; do
  case $argument in
    --symlink_prefix=*) links=${{argument#*=}} ;;
    //*)
      path=${{argument#//}}
      mkdir -p "$links/bin/${{path%:*}}"
      cp /bin/true "$links/bin/${{path/://}}"
      ;;
  esac
done
"""

# Keeps its arguments and the build's context, the last of them.
TOOL = """#!/bin/bash
echo "$@" >"{folder}/tool_arguments"
cp -r "${{@: -1}}" "{folder}/context"
"""


class BundleTest(Folder):

    def setUp(self):
        super().setUp()
        script(self.folder / "bazel", BAZEL.format(folder=self.folder))
        script(self.folder / "tool", TOOL.format(folder=self.folder))

    def run_real(self, name, *arguments):
        status, output = self.run_script(
            ROOT / "deploy" / name, *arguments,
            AGG_BAZEL=str(self.folder / "bazel"))
        self.assertEqual(status, 0, output)

    def bazel_arguments(self):
        return (self.folder / "bazel_arguments").read_text().split()

    def names(self, path):
        return {item.name for item in (self.folder / path).iterdir()}

    def test_a_bundle_has_the_gpu_checks(self):
        self.run_real("bundle.sh", self.folder / "out")
        self.assertIn("--config=cuda", self.bazel_arguments())
        self.assertLessEqual(
            {"cuda_conformance_test", "cuda_jobs_test", "cuda_kernels",
             "round_device", "round_gpu", "round_loopback",
             "cpu_conformance_test", "gpu_report"},
            self.names("out/agg_server_bundle/checks"))
        self.assertIn("agg_server_bundle.tar.zst", self.names("out"))
        readme = (self.folder / "out/agg_server_bundle/README").read_text()
        self.assertIn("CPU and CUDA", readme)
        self.assertNotIn("@", readme)

    def test_a_cpu_bundle_has_no_cuda(self):
        self.run_real("bundle.sh", "--cpu", self.folder / "out")
        self.assertIn("--config=nocuda", self.bazel_arguments())
        self.assertEqual([label for label in self.bazel_arguments()
                          if "cuda_" in label or "gpu" in label],
                         ["//tests/bench/report:gpu_report"])
        status, output = self.run_script(
            self.folder / "out/agg_server_bundle/run_gpu_checks.sh")
        self.assertEqual(status, 0, output)
        self.assertIn("skipped  gpu: this bundle was built without CUDA",
                      output)
        status, output = self.run_script(
            self.folder / "out/agg_server_bundle/run_gpu_checks.sh", "--gpu")
        self.assertEqual(status, 1)
        status, output = self.run_script(
            self.folder / "out/agg_server_bundle/run_gpu_checks.sh", "--cpu")
        self.assertEqual(status, 0, output)

    def test_a_bundle_has_the_notices_of_what_is_in_it(self):
        self.run_real("bundle.sh", "--cpu", self.folder / "out")
        folder = self.folder / "out/agg_server_bundle"
        notices = (folder / "NOTICES").read_text()
        # Compiled in: headers alone, and a static library; each with its text.
        for package in ("libcli11-dev", "libhwy-dev", "nlohmann-json3-dev",
                        "libstdc++-12-dev"):
            self.assertRegex(notices, rf"(?m)^{re.escape(package)} [0-9]")
            text = pathlib.Path("/usr/share/doc", package, "copyright")
            self.assertIn(text.read_text(), notices, package)
        # A license that the texts name by a path on Debian.
        self.assertIn("/usr/share/common-licenses/Apache-2.0\n=====", notices)
        self.assertIn("TERMS AND CONDITIONS FOR USE, REPRODUCTION", notices)
        self.assertIn("NOTICES", (folder / "README").read_text())
        self.assertNotIn("CUDA runtime", notices)

    def test_a_cuda_bundle_names_the_runtime_in_it(self):
        self.run_real("bundle.sh", self.folder / "out")
        self.assertIn("NVIDIA CUDA runtime", (
            self.folder / "out/agg_server_bundle/NOTICES").read_text())

    def test_no_notice_is_missing_without_a_word(self):
        notices = ROOT / "deploy/bundle/notices.sh"
        own = self.folder / "libown.so"
        own.write_text("")
        status, output = self.run_script(notices, own)
        self.assertEqual(status, 1)
        self.assertIn(f"{own} belongs to no Debian package", output)
        status, output = self.run_script(notices, "--package=libno-such")
        self.assertEqual(status, 1)
        self.assertIn("package libno-such has no", output)
        status, output = self.run_script(notices, "--package=libhwy-dev",
                                         "/lib/x86_64-linux-gnu/libc.so.6")
        self.assertEqual(status, 0, output)
        self.assertRegex(output, r"(?m)^libc6 2\.")
        self.assertRegex(output, r"(?m)^libhwy-dev 1\.")

    def test_a_text_of_several_packages_is_there_once(self):
        documents = self.folder / "doc"
        for name in ("libone", "libtwo"):
            (documents / name).mkdir(parents=True)
            (documents / name / "copyright").write_text("Copyright A. Author\n")
        status, output = self.run_script(
            ROOT / "deploy/bundle/notices.sh", "--package=libtwo",
            "--package=libone", AGG_DOC=str(documents))
        self.assertEqual(status, 0, output)
        self.assertEqual(output.count("A. Author"), 1)
        self.assertRegex(output, r"libone ?\nlibtwo ?\n")

    def test_an_image_is_made_of_a_bundle(self):
        for options, config in (([], "cuda"), (["--cpu"], "nocuda")):
            with self.subTest(config):
                self.run_real("image/build.sh", *options, "--tag=some:tag",
                              f"--sbom={self.folder / 'list'}",
                              f"--tool={self.folder / 'tool'}")
                self.assertIn(f"--config={config}", self.bazel_arguments())
                tool = (self.folder / "tool_arguments").read_text().split()
                self.assertIn("some:tag", tool)
                self.assertEqual(self.names("context"), {"app", "system"})
                self.assertIn("agg_server",
                              self.names("context/app/opt/agg_server/bin"))
                # The image adds glibc to what the bundle has.
                notices = (self.folder / "context/app/opt/agg_server/NOTICES"
                           ).read_text()
                for package in ("libcli11-dev", "libc6"):
                    self.assertRegex(notices, rf"(?m)^{package} [0-9]")
                self.assertLessEqual(
                    {"LICENSE", "PACKAGES", "sbom.spdx.json"},
                    self.names("context/app/opt/agg_server"))
                listed = json.loads((self.folder / "list").read_text())
                compiled = {item["relatedSpdxElement"]
                            for item in listed["relationships"]
                            if item["relationshipType"] == "STATIC_LINK"}
                self.assertIn("SPDXRef-Debian-libcli11-dev", compiled)
                subprocess.run(["rm", "-r", self.folder / "context"],
                               check=True)

    def test_what_is_not_understood_is_refused(self):
        for name in ("bundle.sh", "image/build.sh"):
            status, output = self.run_script(ROOT / "deploy" / name,
                                             "--directory=/tmp/out")
            self.assertEqual(status, 2)
            self.assertIn(name, output)


if __name__ == "__main__":
    unittest.main()
