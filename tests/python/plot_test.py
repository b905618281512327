"""Pictures of a log show its arrays."""

import importlib.util
import math
import unittest
from unittest import mock

import numpy as np

from tests.python.job_case import JobCase, agg
from tests.python.log_records import RUN, of_gram
from agg_server import plot

GRAM = np.eye(3) * 3 + 1


def a_log(path, rounds=12):
    """Rounds of three ranks, with all that pictures are made of."""
    records = []
    for i in range(rounds):
        records.append(of_gram(i + 1, (GRAM + i).tolist(), f"""
            {RUN if i == 0 else ""} rule: "mean" scope: "global" gain: 2
            sigma2: {2 + i % 2} mu2: 0.5 sigma2_mean: 2 mu2_mean: 0.5
            gradient_noise_scale: {16 + i} loss: {1 / (i + 1)}
            orthogonality: 0.75 tensor_orthogonality: 0.5
            tensor_orthogonality: 1 tensor_norms: 1 tensor_norms: 1
            shadows {{ rule: "adasum" scope: "global" norm: 1
                      cosine: {1 - i / 100} }}"""))
    path.write_bytes(b"".join(records))
    return agg.RoundLog(path)


@unittest.skipUnless(importlib.util.find_spec("matplotlib"),
                     "matplotlib is not installed")
class PlotTest(JobCase):

    @classmethod
    def setUpClass(cls):
        import matplotlib
        matplotlib.use("Agg")

    def setUp(self):
        import matplotlib.pyplot
        self.addCleanup(matplotlib.pyplot.close, "all")
        self.log = a_log(self.temporary_folder() / "rounds.binlog")

    def lines(self, ax):
        return {line.get_label(): line.get_xydata() for line in ax.lines}

    def test_lines_are_the_logs(self):
        log = self.log
        for ax, label, values in (
                (plot.critical_batch(log), "critical batch",
                 log.gradient_noise_scale),
                (plot.critical_batch(log), "batch of the round",
                 np.full(12, 12.0)),
                (plot.layer_orthogonality(log), "a", np.full(12, 0.75)),
                (plot.layer_orthogonality(log), "model", np.full(12, 0.75)),
                (plot.rule_cosines(log), "adasum/global",
                 1 - np.arange(12) / 100)):
            np.testing.assert_allclose(self.lines(ax)[label],
                                       np.column_stack([log.version, values]))
            self.assertTrue(ax.get_xlabel() and ax.get_ylabel())

    def test_gain(self):
        lines = self.lines(plot.gain_by_workers(self.log))
        np.testing.assert_array_equal(lines["mean of the rounds"], [[3, 2]])
        curve = lines["by the noise of the last rounds"]
        self.assertEqual(len(curve), 12)
        # sigma^2 / mu^2 = 2.5 / .5; blocks of 1 and 2 rounds weigh alike.
        np.testing.assert_allclose(curve[:, 1], 6 / (5 / curve[:, 0] + 1),
                                   rtol=0.02)

    def test_workers(self):
        ax = plot.worker_cosines(self.log, index=0)
        np.testing.assert_allclose(ax.images[0].get_array(),
                                   np.full((3, 3), 0.25) + 0.75 * np.eye(3))
        self.assertIn("version 1", ax.get_title())
        ax = plot.worker_cosines(self.log, tensor="a/w")
        self.assertIn("no Gram matrix", ax.texts[0].get_text())

    def test_all_in_one_file(self):
        path = self.temporary_folder() / "run.png"
        plot.overview(self.log).savefig(path)
        self.assertEqual(path.read_bytes()[:4], b"\x89PNG")

    def test_a_log_of_nothing_but_nan(self):
        """An old server's, or a job of one worker."""
        path = self.temporary_folder() / "rounds.binlog"
        path.write_bytes(of_gram(1, [[math.nan]], RUN + "sigma2: nan mu2: nan "
                                 "gradient_noise_scale: nan"))
        plot.overview(agg.RoundLog(path)).savefig(path.with_suffix(".png"))
        path.write_bytes(b"")
        with self.assertRaisesRegex(agg.ManifestError, "has no round yet"):
            plot.critical_batch(agg.RoundLog(path))

    def test_without_matplotlib(self):
        with mock.patch.dict("sys.modules", {"matplotlib.pyplot": None}), \
                self.assertRaisesRegex(agg.Error, r"agg_server\[plot\]"):
            plot.critical_batch(self.log)


if __name__ == "__main__":
    unittest.main()
