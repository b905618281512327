"""The benchmark of the Python package: its rows and tables, and that each
contender is asked in turns; with a peer in place of PyTorch's processes."""

import contextlib
import io
import pathlib
import tempfile
import unittest

from deploy import bench
from deploy import bench_numbers as numbers
from deploy import bench_options
from deploy import bench_python as python

PEER = """#!/usr/bin/python3
import json, sys
print('{"ready": true}', flush=True)
system = [a for a in sys.argv if a.startswith("--system=")][0][9:]
overlap = any("overlap" in a for a in sys.argv)
time = 0
for line in sys.stdin:
    for _ in range(int(line)):
        step = {"begin": time, "end": time + 4_000_000}
        if system != "rounds":
            step.update(backward=2_000_000,
                        sync=500_000 if overlap else 2_000_000)
        time = step["end"]
        print(json.dumps(step))
    sys.stdout.flush()
"""


def measured(kind, variant, transport, milliseconds, sync=()):
    found = python.contender(kind, variant, transport, 4, 1000)
    found.milliseconds = list(milliseconds)
    found.sync = list(sync)
    return found


class RowsTest(unittest.TestCase):

    def test_steps_that_follow_each_other_share_their_time(self):
        found = python.contender("train", "", "tcp", 2, 1000)
        step = {"backward": 3_000_000, "sync": 1_000_000}
        found.add([[{"begin": 2_000_000, "end": 4_000_000, **step},
                    {"begin": 4_000_000, "end": 8_000_000, **step}],
                   [{"begin": 1_000_000, "end": 3_000_000, **step},
                    {"begin": 3_000_000, "end": 7_000_000, **step}]])
        self.assertEqual(found.milliseconds, [3.5])
        self.assertEqual((found.backward, found.sync), ([3.0] * 4, [1.0] * 4))

    def test_ratios_and_what_is_hidden(self):
        entries = python.entries_of([
            measured("ddp", "", "tcp", [10, 20, 30]),
            measured("train", "", "tcp", [30], [8]),
            measured("train", "overlap", "tcp", [20], [2]),
            measured("train", "overlap", "shm_copy", [10], [3])])
        self.assertEqual([e["ratio"] for e in entries], [1, 1.5, 1, 0.5])
        self.assertEqual([e["hidden"] for e in entries],
                         [None, None, 0.75, None])
        for entry in entries:
            self.assertEqual(tuple(entry), python.KEYS)
        self.assertIn("75%", python.steps_table(entries))
        entries = python.entries_of([
            measured("c++", "", "tcp", [0.2]),
            measured("rounds", "", "tcp", [0.25])])
        self.assertEqual([e["ratio"] for e in entries], [1.0, 1.25])
        self.assertRegex(python.rounds_table(entries), r"1\.250 +50\b")

    def test_options(self):
        self.assertEqual(bench_options.parse(["--python"]).workers, (4,))
        self.assertEqual(
            bench_options.parse(["--python", "--workers=2"]).workers, (2,))
        self.assertFalse(bench_options.parse([]).python)


class RunTest(unittest.TestCase):

    def run_bench(self, *flags):
        out, err = io.StringIO(), io.StringIO()
        with tempfile.TemporaryDirectory() as name, \
                contextlib.redirect_stdout(out), \
                contextlib.redirect_stderr(err):
            folder = pathlib.Path(name)
            peer = folder / "peer"
            peer.write_text(PEER)
            peer.chmod(0o755)
            code = bench.main([
                "--python", "--quick", "--bin=.", "--rounds=2",
                f"--json={folder / 'out.json'}",
                *(flag.format(peer=peer) for flag in flags)])
            entries = (numbers.of_json((folder / "out.json").read_text())[
                "results"] if code == 0 else None)
        return code, out.getvalue() + err.getvalue(), entries

    def test_real_servers_and_a_peer(self):
        code, text, entries = self.run_bench("--torch_python={peer}")
        self.assertEqual(code, 0, text)
        for part in ("4 KB together", "P = 4, bare rounds", "4 MB together",
                     "P = 2, steps of a model"):
            self.assertIn(part, text)
        self.assertEqual(
            {(e["system"], e["variant"]) for e in entries},
            {("c++", ""), ("ddp", ""), ("python", ""), ("python", "overlap"),
             ("python", "zero_copy"), ("python", "zero_copy,overlap")})
        found = [e for e in entries if "overlap" in e["variant"]]
        self.assertEqual({e["hidden"] for e in found}, {0.75})
        self.assertTrue(all(e["median_ms"] > 0 for e in entries))

    def test_it_needs_torch(self):
        code, text, _ = self.run_bench()
        self.assertEqual(code, 1)
        self.assertIn("needs PyTorch", text)


if __name__ == "__main__":
    unittest.main()
