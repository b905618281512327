"""The benchmarks of the GPU on the emulated device, and the report that
gpu_report makes of what they write. The device has no clock: everything takes a
millisecond, so that shares of a copy follow from the bytes alone.
"""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).absolute().parent.parent.parent.parent
BENCH = ROOT / "tests/bench"
BYTES = {"f32": 4, "bf16": 2}
ARRAYS = {None: 0, "sgd": 1, "adamw": 3, "lamb": 3}  # read and written


def run(folder, *command):
    libraries = folder / "lib"
    libraries.mkdir(exist_ok=True)
    cublas = ROOT / "tests/kernels/cuda/emulator/libfake_cublas.so"
    for name, fake in {"libcublas.so.12": cublas, "libcublas.so.13": cublas,
                       "libnvidia-ml.so.1": BENCH / "libfake_nvml.so"}.items():
        if not (libraries / name).exists():
            (libraries / name).symlink_to(fake)
    subprocess.run([str(word) for word in command], check=True,
                   env={**os.environ, "LD_LIBRARY_PATH": str(libraries),
                        "AGG_CUDA_DRIVER": str(
                            ROOT / "tests/kernels/device_memory"
                            / "libfake_cuda_driver.so")})


class EmulatedReportTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory(prefix="agg_report_")
        cls.addClassCleanup(scratch.cleanup)
        folder = pathlib.Path(scratch.name)
        for name in ("cuda_kernels", "round_gpu", "round_device"):
            run(folder, BENCH / f"emulated_{name}", "--smoke",
                f"--json={folder / name}.json")
        (folder / "checks.tsv").write_text(
            "cuda_kernels\tpassed\t3\t75\t0\t0\t0\t\n")
        run(folder, BENCH / "report/gpu_report", f"--logs={folder}")
        cls.report = json.loads((folder / "gpu_checks.json").read_text())
        cls.table = (folder / "gpu_checks.markdown").read_text()

    def test_a_row_has_the_bytes_that_its_kernel_must_move(self):
        for row in self.report["rows"]:
            with self.subTest(row=row):
                per_element = (row["P"] * BYTES[row["dtype"]]
                               + 8 * ARRAYS[row["optimizer"]])
                self.assertEqual(row["bytes"], row["elements"] * per_element)
                self.assertAlmostEqual(row["gb_per_s"]["median"],
                                       row["bytes"] * 1e-6, places=5)
                self.assertGreaterEqual(row["repetitions"], 3)

    def test_shares_are_of_the_bytes_that_a_copy_reads_and_writes(self):
        copied = self.report["copy"]["bytes"]
        for row in self.report["rows"]:
            for value in row["share_of_copy"].values():
                self.assertAlmostEqual(value, row["bytes"] / copied, places=4)

    def test_a_yardstick_moves_the_same_bytes(self):
        for row in self.report["rows"]:
            with self.subTest(row=row):
                shares = [row["share_of_read"], row["share_of_mix"]]
                if row["kernel"] == "update":
                    shares.reverse()
                self.assertEqual(shares,
                                 [{"median": 1, "min": 1, "max": 1}, None])

    def test_what_explains_a_rate_is_there_or_null(self):
        clock = 0
        for row in self.report["rows"]:
            with self.subTest(row=row):
                # The fake one rises by 1 MHz with each question.
                before, after = row["sm_mhz"]["before"], row["sm_mhz"]["after"]
                self.assertGreater(before, clock)
                self.assertEqual(after, before + 1)
                clock = after
                if row["route"] == "cublas":
                    self.assertIsNone(row["blocks_per_sm"])
                    self.assertIsNone(row["launches"])
                    continue
                # As the emulated device has it of every kernel, by sm_90's
                # limits.
                self.assertEqual(row["blocks_per_sm"],
                                 {"driver": 4, "expected": 4})
                # A slice and less: one wave.
                self.assertEqual(row["launches"],
                                 2 if row["kernel"] == "gram" else 1)

    def test_every_kernel_is_there_by_each_way(self):
        rows = {(row["kernel"], row["route"], row["P"], row["dtype"],
                 row["optimizer"]) for row in self.report["rows"]}
        self.assertEqual(len(rows), len(self.report["rows"]))
        expected = set()
        for dtype in BYTES:
            for num_rows in (2, 8, 32, 64):
                for route in ("hand", "double-float", "cublas"):
                    if route != "cublas" or num_rows >= 32:
                        expected.add(("gram", route, num_rows, dtype, None))
                if num_rows in (8, 32):
                    expected.add(("gram", "one launch", num_rows, dtype, None))
                for optimizer in ("sgd", "adamw", "lamb"):
                    if num_rows <= 32:
                        expected.add(("update", "hand", num_rows, dtype,
                                      optimizer))
        self.assertEqual(rows, expected)

    def test_limits_and_calls_are_measured(self):
        self.assertEqual(set(self.report["fp64"]),
                         {"m8n8k4_tflop_per_s", "m16n8k4_tflop_per_s"})
        self.assertEqual(set(self.report["bus"]),
                         {"host_to_device_gb_per_s", "device_to_host_gb_per_s"})
        self.assertGreater(self.report["calls"]["gram_us"], 0)
        self.assertGreater(self.report["calls"]["update_us"], 0)
        self.assertIn("libcublas.so", self.report["cublas"])

    def test_rounds_are_measured(self):
        self.assertEqual([round_["P"] for round_ in self.report["rounds"]],
                         [2, 8, 32])
        for round_ in self.report["rounds"]:
            for name in ("upload_s", "gram_s", "update_s", "round_s",
                         "round_over_slower"):
                spread = round_[name]
                self.assertGreater(spread["min"], 0)
                self.assertLessEqual(spread["min"], spread["median"])
                self.assertLessEqual(spread["median"], spread["max"])

    def test_rounds_of_workers_on_the_card_stay_there(self):
        rounds = self.report["device_rounds"]
        self.assertEqual([(round_["P"], round_["workers"])
                          for round_ in rounds],
                         [(2, "threads"), (2, "processes"), (3, "threads"),
                          (3, "processes")])
        for round_ in rounds:
            self.assertGreater(round_["on_device"], 0.99)
            # One worker has seeded, the others have pulled that, too.
            self.assertLess(round_["on_device"], 1.2)
            self.assertGreater(round_["round_over_traffic"]["min"], 0)
            if round_["workers"] == "threads":
                self.assertEqual(set(round_["client_s"]),
                                 {"push", "commit", "pull"})
            # What took no time is not there.
            self.assertLessEqual({"gram", "outside"}, set(round_["server_s"]))
            self.assertLessEqual(set(round_["server_s"]),
                                 {"gram", "decide", "update", "outside"})
        target = self.report["targets"][-1]
        self.assertEqual(target["name"], "device_rows_round_over_traffic")
        self.assertEqual(target["value"],
                         max(round_["round_over_traffic"]["median"]
                             for round_ in rounds
                             if round_["workers"] == "threads"))

    def test_a_worker_of_a_shard_on_the_host_is_measured(self):
        way = self.report["host_way"]
        self.assertEqual(way["transport"], "shm")
        for name in ("push_s", "push_over_copy", "copy_to_host_s", "pull_s",
                     "pull_over_copy", "copy_to_device_s"):
            self.assertGreater(way[name]["min"], 0)

    def test_targets_are_judged(self):
        verdicts = {target["name"]: target["verdict"]
                    for target in self.report["targets"]}
        # A Gram's rows are as many bytes as a copy moves; --smoke leaves out
        # 4 and 16 rows.
        self.assertEqual(verdicts["gram_f32_32"], "met")
        self.assertEqual(verdicts["gram_f32_to_16"], "not measured")
        self.assertIn("this is emulated", self.report["notes"][0])
        self.assertEqual(len(self.report["notes"]), 1)

    def test_the_table_has_every_row(self):
        self.assertEqual(self.table.count("| gram, ")
                         + self.table.count("| update, "),
                         len(self.report["rows"]))
        self.assertIn("emulated, CUDA ", self.table)
        self.assertIn("| round | 32 | f32 | adamw |", self.table)
        self.assertRegex(self.table, r"\| its phases on the server \| 3 \| f32 "
                         r"\| sgd \| (decide|gram) ")
        self.assertIn("| its parts in the slowest worker | 3 | f32 | sgd | "
                      "commit ", self.table)
        self.assertRegex(self.table, r"\| 100% \(100 \.\. 100\) of the read, "
                         r"4 of 4 blocks per SM, SM at 1\d+ \.\. 1\d+ MHz \|")


if __name__ == "__main__":
    unittest.main()
