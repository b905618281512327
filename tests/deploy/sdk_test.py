"""What deploy/sdk.sh installs: files, headers, symbols; and what it refuses."""

import os
import pathlib
import re
import shutil
import tempfile
import unittest

from tests.deploy.sdk_job import run

BIN = pathlib.Path.cwd()
SCRIPT = BIN / "deploy/sdk.sh"
CLASSES = ("AggClient", "Operation", "PullOperation", "RoundOperation")


def install(prefix, *options):
    return run(SCRIPT, f"--bin={BIN}", *options, prefix)


class SdkTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory(prefix="agg_sdk_")
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = pathlib.Path(scratch.name)
        cls.prefix = cls.folder / "sdk"
        result = install(cls.prefix)
        if result.returncode != 0:
            raise AssertionError(result.stdout)

    def contents(self, prefix):
        return {path.relative_to(prefix): path.read_bytes()
                for path in sorted(prefix.rglob("*")) if path.is_file()}

    def test_a_second_time_makes_the_same_and_removes_old_headers(self):
        twice = self.folder / "twice"
        self.assertEqual(install(twice).returncode, 0)
        (twice / "include/agg_client/of_the_past.h").write_text("")
        (twice / "include/not_ours.h").write_text("")
        self.assertEqual(install(twice).returncode, 0)
        (twice / "include/not_ours.h").unlink()
        self.assertEqual(self.contents(twice), self.contents(self.prefix))

    def test_a_bad_prefix_is_named(self):
        file = self.folder / "file"
        file.write_text("")
        for bad in ["", file, file / "below", self.folder / "two words"]:
            with self.subTest(bad=bad):
                result = install(bad)
                self.assertEqual(result.returncode, 1, result.stdout)
                self.assertIn(f"PREFIX is '{bad}'; allowed: ", result.stdout)
                self.assertEqual(result.stdout.count("\n"), 1, result.stdout)
        self.assertEqual(run(SCRIPT).returncode, 2)
        result = install(self.folder / "x", "--libdir=../lib")
        self.assertEqual(result.returncode, 1)
        self.assertIn("--libdir is '../lib'; allowed: ", result.stdout)
        result = run(SCRIPT, f"--bin={self.folder}", self.folder / "x")
        self.assertEqual(result.returncode, 1)
        self.assertIn("build //deploy/sdk:sdk first", result.stdout)

    def test_each_header_compiles_alone(self):
        headers = sorted((self.prefix / "include/agg_client").glob("*.h"))
        self.assertGreaterEqual(len(headers), 11)
        compilers = [name for name in ("g++", "clang++") if shutil.which(name)]
        for compiler in compilers:
            for header in headers:
                with self.subTest(compiler=compiler, header=header.name):
                    self.compile_alone(compiler, header)
        if "clang++" not in compilers:
            self.skipTest("clang++ is not installed: headers saw g++ alone")

    def compile_alone(self, compiler, header):
        source = self.folder / f"{header.stem}.cc"
        # Twice: the guard is good.
        source.write_text(f'#include "agg_client/{header.name}"\n' * 2)
        made = self.folder / "made"
        result = run(compiler, "-std=c++17", "-Wall", "-Wextra", "-Werror",
                     "-fsyntax-only", "-MD", "-MF", made, "-I",
                     self.prefix / "include", source)
        self.assertEqual(result.returncode, 0, result.stdout)
        used = re.findall(r"/\S+", made.read_text())
        self.assertIn(str(header), used)
        self.assertFalse([path for path in used if re.search(
            r"/(grpc|grpcpp|google|server|worker_client)/", path)])

    def test_the_c_headers_are_c(self):
        source = self.folder / "abi.c"
        source.write_text(
            '#include "agg_client/agg.h"\n#include <stdio.h>\n'
            "int main(void) {\n"
            "  puts(agg_version());\n"
            "  return agg_abi_version() == AGG_ABI_VERSION ? 0 : 1;\n}\n")
        program = self.folder / "abi"
        library = self.prefix / "lib"
        built = run("gcc", "-std=c99", "-pedantic", "-Wall", "-Wextra",
                    "-Werror", "-I", self.prefix / "include", source, "-o",
                    program, "-L", library, "-lagg", f"-Wl,-rpath,{library}")
        self.assertEqual(built.returncode, 0, built.stdout)
        result = run(program)
        version = re.search(r'"([\d.]+)"', (
            BIN / "server/base/version.h").read_text()).group(1)
        self.assertEqual((result.returncode, result.stdout),
                         (0, version + "\n"))

    def exported(self, library):
        listed = run("nm", "-DC", "--defined-only", self.prefix / "lib" /
                     library)
        self.assertEqual(listed.returncode, 0, listed.stdout)
        return [line.split(" ", 2) for line in listed.stdout.splitlines()]

    def test_only_what_the_headers_declare_is_exported(self):
        declared = "\n".join(
            path.read_text() for path in
            (self.prefix / "include/agg_client").glob("*.h"))
        public = re.sub(r"^ private:.*?^};", "", declared, flags=re.M | re.S)
        symbols = self.exported("libagg_client.so.1")
        self.assertGreater(len(symbols), 40)
        for _, kind, name in symbols:
            with self.subTest(name=name):
                match = re.fullmatch(
                    r"agg::(?:(\w+)::)?(~?\w+)(?:\[abi:cxx11\])?"
                    r"\(.*\)(?: const)?", name)
                self.assertTrue(match and kind == "T", name)
                scope, call = match.groups()
                self.assertIn(scope, CLASSES + (None,))
                self.assertTrue(
                    re.search(rf"(?<![\w~]){call}\(", public), name)

    def test_every_declared_method_is_exported(self):
        exported = {name.split("(")[0] for _, _, name in
                    self.exported("libagg_client.so.1")}
        text = "".join(
            (self.prefix / f"include/agg_client/{name}.h").read_text()
            for name in ("agg_client", "operation"))
        text = re.sub(r"//.*", "", text)
        declared = set()
        for name in CLASSES:
            body = re.search(
                rf"^class {name}\b[^;{{]*{{(.*?)^(?: private| protected|}})",
                text, re.M | re.S).group(1)
            for statement in body.split(";"):
                call = re.search(r"(~?\w+)\(", statement)
                if call:
                    declared.add(f"agg::{name}::{call.group(1)}")
        self.assertGreater(len(declared), 30)
        self.assertEqual(declared - exported, set())

    def test_the_c_library_exports_c_alone(self):
        symbols = self.exported("libagg.so.1")
        self.assertGreater(len(symbols), 15)
        for _, kind, name in symbols:
            self.assertTrue(kind == "T" and re.fullmatch(r"agg_\w+", name),
                            name)

    def test_every_public_call_links(self):
        program = self.folder / "every_call"
        library = self.prefix / "lib"
        built = run("g++", "-std=c++17", "-Wall", "-Wextra", "-Werror", "-I",
                    self.prefix / "include",
                    BIN / "tests/deploy/sdk_every_call.cc", "-o", program,
                    "-L", library, "-lagg_client", f"-Wl,-rpath,{library}",
                    "-labsl_status", "-labsl_time", "-labsl_strings")
        self.assertEqual(built.returncode, 0, built.stdout)
        result = run(program)
        self.assertEqual(result.returncode, 0, result.stdout)
        self.assertRegex(result.stdout, r"^46 FAILED_PRECONDITION")

    def test_libraries_have_sonames_and_links(self):
        for name in ("libagg_client", "libagg"):
            library = self.prefix / "lib" / f"{name}.so"
            self.assertEqual(os.readlink(library), f"{name}.so.1")
            shown = run("readelf", "-d", library).stdout
            self.assertIn(f"soname: [{name}.so.1]", shown)
            self.assertNotIn("RUNPATH", shown)
            self.assertNotIn("RPATH", shown)


if __name__ == "__main__":
    unittest.main()
