"""deploy/image/sbom.py: what is in the image is in its SPDX document, each
library with the Debian package that it is of."""

import hashlib
import json
import pathlib
import re
import subprocess
import tempfile
import unittest

from tests.deploy import k8s_render

ROOT = pathlib.Path(__file__).absolute().parent.parent.parent
SBOM = ROOT / "deploy/image/sbom.py"
PACKAGES = ROOT / "deploy/bundle/packages.py"
LIBSTDCXX = "/usr/lib/x86_64-linux-gnu/libstdc++.so.6"

# SPDX 2.3's required fields, where another program cannot say it.
DOCUMENT = {"spdxVersion", "dataLicense", "SPDXID", "name",
            "documentNamespace", "creationInfo"}
PACKAGE = {"SPDXID", "name", "downloadLocation"}
FILE = {"SPDXID", "fileName", "checksums"}
RELATIONSHIPS = {"DESCRIBES", "CONTAINS", "STATIC_LINK"}

_VALIDATE = """
import sys
from spdx_tools.spdx.parser.parse_anything import parse_file
from spdx_tools.spdx.validation.document_validator import (
    validate_full_spdx_document)
for message in validate_full_spdx_document(parse_file(sys.argv[1])):
    print(message.validation_message)
"""


def run(*command):
    return subprocess.run([str(word) for word in command], check=False,
                          text=True, capture_output=True,
                          stdin=subprocess.DEVNULL)


def why_no_validator():
    python = k8s_render.validator_python()
    if python is None or run(python, "-c", "import spdx_tools").returncode:
        return "needs spdx-tools (tests/deploy/k8s_tools.sh)"
    return None


WHY_NOT = why_no_validator()
if WHY_NOT:
    print("sbom_test skips cases:", WHY_NOT)


class SbomTest(unittest.TestCase):

    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="agg_sbom_")
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        self.context = self.folder / "context"
        programs = self.folder / "programs"
        (programs / "bin").mkdir(parents=True)
        (programs / "lib").mkdir()
        # Any program of C++ that is there: it needs glibc and libstdc++.
        (programs / "bin/agg_server").write_bytes(
            pathlib.Path("/usr/bin/c++filt").read_bytes())
        (programs / "lib/libstdc++.so.6").write_bytes(
            pathlib.Path(LIBSTDCXX).read_bytes())
        listed = run(PACKAGES, "--package=libc6-dev",
                     f"lib/libstdc++.so.6={LIBSTDCXX}")
        self.assertEqual(listed.returncode, 0, listed.stderr)
        (programs / "PACKAGES").write_text(listed.stdout)
        made = run(ROOT / "deploy/image/make_context.sh", programs,
                   self.context)
        self.assertEqual(made.returncode, 0, made.stderr)

    def make(self):
        result = run(SBOM, self.context, "--version=1.2.3",
                     f"--output={self.folder}/sbom.spdx.json")
        self.assertEqual(result.returncode, 0, result.stderr)
        return json.loads((self.folder / "sbom.spdx.json").read_text())

    def related(self, document, kind):
        """[(one, other)] of a kind of relationship."""
        return [(item["spdxElementId"], item["relatedSpdxElement"])
                for item in document["relationships"]
                if item["relationshipType"] == kind]

    def test_the_document_has_what_spdx_requires(self):
        document = self.make()
        self.assertLessEqual(DOCUMENT, set(document))
        self.assertEqual(document["spdxVersion"], "SPDX-2.3")
        self.assertEqual(document["dataLicense"], "CC0-1.0")
        for package in document["packages"]:
            self.assertLessEqual(PACKAGE, set(package))
        for file in document["files"]:
            self.assertLessEqual(FILE, set(file))
        elements = [item["SPDXID"] for item in
                    [document, *document["packages"], *document["files"]]]
        self.assertEqual(len(elements), len(set(elements)))
        for element in elements:
            self.assertRegex(element, r"^SPDXRef-[A-Za-z0-9.-]+$")
        for item in document["relationships"]:
            self.assertIn(item["relationshipType"], RELATIONSHIPS)
            self.assertIn(item["spdxElementId"], elements)
            self.assertIn(item["relatedSpdxElement"], elements)
        self.assertEqual(self.related(document, "DESCRIBES"),
                         [("SPDXRef-DOCUMENT", "SPDXRef-Image")])

    @unittest.skipIf(WHY_NOT, WHY_NOT)
    def test_another_programs_validator_finds_nothing(self):
        self.make()
        result = run(k8s_render.validator_python(), "-c", _VALIDATE,
                     self.folder / "sbom.spdx.json")
        self.assertEqual((result.returncode, result.stdout), (0, ""),
                         result.stdout + result.stderr)

    def test_every_file_is_there_with_its_checksums(self):
        document = self.make()
        files = {file["fileName"]: {
            item["algorithm"]: item["checksumValue"]
            for item in file["checksums"]} for file in document["files"]}
        expected = {
            f"./{path.relative_to(self.context / part)}":
                {"SHA1": hashlib.sha1(path.read_bytes()).hexdigest(),
                 "SHA256": hashlib.sha256(path.read_bytes()).hexdigest()}
            for part in ("app", "system")
            for path in (self.context / part).rglob("*") if path.is_file()}
        self.assertEqual(files, expected)
        self.assertIn("./opt/agg_server/bin/agg_server", files)

    def test_every_library_is_of_a_package_that_is_listed(self):
        document = self.make()
        packages = {package["SPDXID"]: package
                    for package in document["packages"]}
        ids = {file["SPDXID"]: file["fileName"] for file in document["files"]}
        package_of = {}
        for one, other in self.related(document, "CONTAINS"):
            if other in ids and one != "SPDXRef-Image":
                package_of[ids[other]] = packages[one]
        libraries = [name for name in ids.values()
                     if re.search(r"\.so(\.|$)", name)]
        self.assertGreater(len(libraries), 5)
        for name in libraries:
            package = package_of[name]
            version = run("dpkg-query", "-W", "-f", "${Version}",
                          package["name"]).stdout
            self.assertEqual(package["versionInfo"], version)
            (purl,) = package["externalRefs"]
            self.assertTrue(purl["referenceLocator"].startswith(
                f"pkg:deb/debian/{package['name']}@"))
        names = {name: package["name"] for name, package in package_of.items()}
        self.assertEqual(names["./opt/agg_server/lib/libstdc++.so.6"],
                         "libstdc++6")
        self.assertIn("libc6", names.values())

    def test_what_was_compiled_in_is_listed(self):
        document = self.make()
        self.assertEqual(self.related(document, "STATIC_LINK"),
                         [("SPDXRef-Image", "SPDXRef-Debian-libc6-dev")])

    def test_a_library_of_no_package_is_an_error(self):
        (self.context / "app/opt/agg_server/lib/libown.so.1").write_text("x")
        result = run(SBOM, self.context, "--version=1")
        self.assertEqual(result.returncode, 1)
        self.assertIn("of no package: /opt/agg_server/lib/libown.so.1",
                      result.stderr)
        result = run(PACKAGES, f"lib/a={self.context}/app/opt/agg_server/lib/"
                     "libown.so.1")
        self.assertEqual(result.returncode, 1)
        self.assertIn("of no package", result.stderr)

    def test_the_same_context_has_the_same_document(self):
        one, two = self.make(), self.make()
        for document in (one, two):
            del document["creationInfo"]["created"]
        self.assertEqual(one, two)


if __name__ == "__main__":
    unittest.main()
