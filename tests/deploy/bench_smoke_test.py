"""The benchmark itself, with real servers and workers, on tiny gradients."""

import contextlib
import io
import pathlib
import subprocess
import tempfile
import unittest

from deploy import bench
from deploy import bench_numbers as numbers


def run(*flags):
    """(exit code, what it said, the JSON)."""
    out = io.StringIO()
    with tempfile.TemporaryDirectory() as folder, \
            contextlib.redirect_stdout(out):
        path = pathlib.Path(folder) / "results.json"
        code = bench.main(["--quick", "--bin=.", f"--json={path}", *flags])
        entries = (numbers.of_json(path.read_text())["results"]
                   if path.exists() else None)
    return code, out.getvalue(), entries


class QuickTest(unittest.TestCase):

    def test_one_table_for_each_size(self):
        code, text, entries = run("--transports=tcp", "--rounds=2")
        self.assertEqual(code, 0)
        self.assertIn("gloo: left out", text)
        for part in ("raw sockets", "gRPC echo", "memcpy", "P = 2, 64 KB",
                     "P = 2, 4 KB"):
            self.assertIn(part, text)
        self.assertEqual(
            [(entry["bytes_per_worker"], entry["rule"]) for entry in entries],
            [(64000, "mean"), (64000, "adasum"),
             (4000, "mean"), (4000, "adasum")])
        for entry in entries:
            self.assertEqual(tuple(entry), numbers.KEYS)
            self.assertEqual((entry["system"], entry["transport"],
                              entry["dtype"], entry["workers"],
                              entry["shards"]), ("agg", "tcp", "f32", 2, 1))
            self.assertGreater(entry["min_ms"], 0)
            self.assertLessEqual(entry["min_ms"], entry["median_ms"])
            self.assertLessEqual(entry["median_ms"], entry["max_ms"])
            self.assertIsNone(entry["ratio_to_gloo"])

    def test_two_shards_and_narrow_floats(self):
        code, text, entries = run(
            "--transports=tcp", "--rounds=1", "--sizes=4KB", "--shards=2",
            "--dtypes=bf16,f128", "--rules=adasum")
        self.assertEqual(code, 0)
        self.assertIn("agg, 2 shards", text)
        self.assertRegex(text, "f128.*left out, the server refuses it")
        self.assertEqual([entry["dtype"] for entry in entries], ["bf16"])

    def test_a_peer_that_speaks_the_same_lines_gives_ratios(self):
        # In gloo's place: the real one needs PyTorch.
        with tempfile.TemporaryDirectory() as folder:
            peer = pathlib.Path(folder) / "peer"
            peer.write_text(
                "#!/usr/bin/python3\n"
                "print('{\"ready\": true}', flush=True)\n"
                "while True:\n"
                "  for _ in range(int(input())):\n"
                "    print('{\"begin\": 0, \"end\": 2000000}', flush=True)\n")
            peer.chmod(0o755)
            code, _, entries = run(
                "--transports=tcp", "--rounds=1", "--sizes=4KB",
                "--rules=mean", f"--torch_python={peer}")
        self.assertEqual(code, 0)
        self.assertEqual(
            [(entry["system"], entry["rule"], entry["shards"])
             for entry in entries], [("gloo", "sum", 0), ("agg", "mean", 1)])
        self.assertEqual(entries[0]["median_ms"], 2.0)
        self.assertEqual(entries[0]["ratio_to_gloo"], 1.0)
        self.assertAlmostEqual(entries[1]["ratio_to_gloo"],
                               entries[1]["median_ms"] / 2.0, places=3)

    def test_a_transport_that_is_not_built_is_said(self):
        code, text, entries = run("--rounds=1", "--sizes=4KB", "--rules=mean")
        self.assertEqual(code, 0)
        measured = {entry["transport"] for entry in entries}
        for name in ("tcp", "unix", "shm_copy", "shm"):
            left_out = f"transport {name}: left out" in text
            self.assertNotEqual(left_out, name in measured, name)

    def test_the_worker_names_the_transports_that_it_has(self):
        with tempfile.NamedTemporaryFile() as barrier:
            barrier.write(bytes(64))
            barrier.flush()
            result = subprocess.run(
                ["tests/bench/transport_worker", "--transport=carrier_pigeon",
                 f"--barrier={barrier.name}"], capture_output=True, text=True,
                check=False)
        self.assertEqual(result.returncode, 1)
        self.assertIn("--transport is carrier_pigeon; allowed: tcp, unix",
                      result.stderr)


if __name__ == "__main__":
    unittest.main()
