"""The table of fuzz runs says what the logs say."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

from tests.fuzz import fuzz_table

_GOOD = """INFO: seed corpus: files: 7
#8      INITED cov: 900 ft: 950 corp: 7/35Kb exec/s: 0 rss: 148Mb
#76543  NEW    cov: 1752 ft: 5015 corp: 57/35Kb lim: 4096 exec/s: 1 rss: 148Mb
#80000  DONE   cov: 1752 ft: 5015 corp: 57/35Kb lim: 4096 exec/s: 1 rss: 148Mb
Done 80000 runs in 601 second(s)
"""
_BAD = """#8      INITED cov: 900 ft: 950 corp: 7/35Kb exec/s: 0 rss: 148Mb
==1== ERROR: libFuzzer: deadly signal
SUMMARY: libFuzzer: deadly signal
"""


class FuzzTableTest(unittest.TestCase):
    def test_a_line_per_target(self) -> None:
        self.assertEqual(
            fuzz_table.row_of("x_fuzz", _GOOD),
            "| `x_fuzz` | 80,000 | 601 | 1752 | 57 | nothing |")

    def test_a_run_that_did_not_end_is_no_good_one(self) -> None:
        self.assertEqual(
            fuzz_table.row_of("x_fuzz", _GOOD.rsplit("Done", maxsplit=1)[0]),
            "| `x_fuzz` | 80,000 | cut | 1752 | 57 | did not end |")

    def test_what_was_found_is_said_and_fails(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            (folder / "a_fuzz.log").write_text(_GOOD)
            (folder / "b_fuzz").mkdir()
            (folder / "b_fuzz" / "test.log").write_text(_BAD)
            (folder / "other_test").mkdir()
            (folder / "other_test" / "test.log").write_text(_GOOD)
            run = subprocess.run(
                [sys.executable, fuzz_table.__file__, name],
                stdout=subprocess.PIPE, text=True, check=False)
        lines = run.stdout.splitlines()
        self.assertEqual(run.returncode, 1)
        self.assertEqual(len(lines), 4)
        self.assertIn("`a_fuzz` | 80,000", lines[2])
        self.assertEqual(
            lines[3],
            "| `b_fuzz` | 8 | cut | 900 | 7 | libFuzzer: deadly signal |")

    def test_a_folder_without_logs_fails(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            run = subprocess.run(
                [sys.executable, fuzz_table.__file__, name],
                stdout=subprocess.PIPE, text=True, check=False)
        self.assertEqual(run.returncode, 1)


if __name__ == "__main__":
    unittest.main()
