"""libagg.so exports the calls of the headers, and nothing else."""

import pathlib
import re
import subprocess
import unittest

FOLDER = pathlib.Path("worker_client", "c")


class SymbolsTest(unittest.TestCase):

    def test_exports_the_calls_of_the_headers_alone(self):
        headers = [(FOLDER / name).read_text()
                   for name in ("agg.h", "agg_operation.h", "agg_rule.h")]
        calls = set(re.findall(r"^[\w *]*\b(agg_\w+)\(", "".join(headers),
                               re.MULTILINE))
        self.assertGreater(len(calls), 30)
        listing = subprocess.run(
            ["nm", "--dynamic", "--defined-only", FOLDER / "libagg.so"],
            check=True, capture_output=True, text=True).stdout
        exported = {line.split()[-1] for line in listing.splitlines()}
        self.assertEqual(exported, calls)


if __name__ == "__main__":
    unittest.main()
