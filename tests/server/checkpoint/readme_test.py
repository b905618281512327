"""The lines that server/checkpoint/README.md shows read a checkpoint."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import numpy

AGG_PULL = "worker_client/tools/agg_pull"
WRITER = "tests/server/checkpoint/write_checkpoint"
SHAPES = [(3, 2), (), (0, 4), (2, (1 << 20) + 5), (1,), (2, 2, 2), (7,), (4,)]


def shown_lines():
    text = pathlib.Path("server/checkpoint/README.md").read_text()
    return re.search(r"```python\n(.*?)```", text, re.S).group(1)


class ReadmeTest(unittest.TestCase):

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.checkpoint = subprocess.run(
            [WRITER, self.folder.name], check=True, stdin=subprocess.DEVNULL,
            capture_output=True, text=True).stdout.strip()

    def run_lines(self):
        output = os.path.join(self.folder.name, "model.npz")
        return output, subprocess.run(
            [sys.executable, "-c", shown_lines(), self.checkpoint, output],
            check=False, stdin=subprocess.DEVNULL, capture_output=True,
            text=True)

    def test_ten_lines_read_complete_tensors(self):
        self.assertLessEqual(len(shown_lines().splitlines()), 12)
        output, process = self.run_lines()
        self.assertEqual(process.stderr, "")
        with numpy.load(output) as model:
            self.assertEqual(len(model.files), len(SHAPES))
            for i, shape in enumerate(SHAPES):
                size = int(numpy.prod(shape))
                expected = (numpy.arange(size) + 1000 * i).astype(
                    numpy.float32).reshape(shape)
                tensor = model["layer/%d" % i]
                self.assertEqual(tensor.dtype, numpy.float32)
                self.assertEqual(tensor.shape, shape)
                self.assertTrue((tensor == expected).all(), i)

    def pull(self, *flags):
        output = os.path.join(self.folder.name, "pulled.npz")
        return output, subprocess.run(
            [AGG_PULL, "--output=" + output, *flags], check=False,
            stdin=subprocess.DEVNULL, capture_output=True, text=True)

    def test_agg_pull_writes_the_same_model(self):
        shown, _ = self.run_lines()
        kept = os.path.join(self.folder.name, "best")
        os.rename(self.checkpoint, kept)
        output, process = self.pull("--checkpoint=" + kept)
        self.assertEqual(process.returncode, 0, process)
        self.assertIn("version 20: 8 tensors", process.stdout)
        with numpy.load(shown) as first, numpy.load(output) as second:
            self.assertEqual(first.files, second.files)
            for name in first.files:
                self.assertEqual(first[name].shape, second[name].shape)
                self.assertEqual(first[name].tobytes(), second[name].tobytes())

    def test_agg_pull_names_what_is_damaged(self):
        part = os.path.join(self.checkpoint, "part-00002-of-00003.npz")
        os.truncate(part, 1000)
        output, process = self.pull("--checkpoint=" + self.checkpoint)
        self.assertEqual(process.returncode, 1, process)
        self.assertIn(part + " is damaged: it has 1000 bytes", process.stderr)
        self.assertFalse(os.path.exists(output))
        _, process = self.pull("--checkpoint=/missing")
        self.assertEqual(process.returncode, 1, process)
        self.assertIn("/missing/manifest.json", process.stderr)

    def test_agg_pull_takes_no_version_of_a_checkpoint(self):
        _, process = self.pull("--checkpoint=x", "--version=3")
        self.assertEqual(process.returncode, 2, process)
        self.assertIn("--version is 3; allowed: without --checkpoint",
                      process.stderr)

    def test_they_notice_a_flipped_bit(self):
        part = pathlib.Path(self.checkpoint, "part-00001-of-00003.npz")
        damaged = bytearray(part.read_bytes())
        damaged[len(damaged) // 2] ^= 1
        part.write_bytes(damaged)
        _, process = self.run_lines()
        self.assertIn("CRC", process.stderr)


if __name__ == "__main__":
    unittest.main()
