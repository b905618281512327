"""agg.RoundLog: what servers write, and files that are written here."""

import importlib.util
import math
import os
import threading
import unittest

import numpy as np

from tests.python.job_case import WAIT, JobCase, agg
from tests.python.log_records import FIRST, RUN, encoded, record

class WrittenTest(JobCase):

    def setUp(self):
        self.path = self.temporary_folder() / "rounds.binlog"

    def log(self, data):
        self.path.write_bytes(data)
        return agg.RoundLog(self.path)

    def test_every_field_is_what_protoc_has_written(self):
        text = RUN + """
            epoch: 3 round: 300 version: 301 finished_at_seconds: 1.5
            applied: true message: "größer" rule: "adasum" scope: "global"
            step_scale: "none" loss: nan orthogonality: 0.25
            tensor_orthogonality: 0.5 tensor_orthogonality: nan
            tensor_norms: 2.5 tensor_norms: 0.5
            gram: 4 gram: -2 gram: 9 coefficients: 0.5 coefficients: 0.25
            rows { rank: 2 examples: 5 accumulation: 1 loss_scale: 2 norm: 2
              mean_cosine: -0.5 coefficient: 0.5 session: 18446744073709551615
              attempt: 1 row_crc32c: 7 row_crc32c: 8 }
            rows { rank: 5 examples: 3 excluded: true norm: inf }
            phases { wait: 1 } shards { gram: 2 } compensated: true
            shadows { rule: "mean" scope: "global" norm: 3 cosine: 0.5 }
            numbers { key: "half_life" value: 12.5 } numbers { key: "nil" }
            history: 3"""
        log = self.log(encoded(text))
        self.assertEqual((len(log), log.job, log.config, log.workers,
                          log.shards, log.server_version, log.tensors),
                         (1, "j", "c", 2, 1, "1", {"a/w": 3, "a/b": 1}))
        for name, expected in (
                ("round", 300), ("version", 301), ("epoch", 3),
                ("finished_at", 1.5), ("applied", True), ("compensated", True),
                ("message", "größer"), ("rule", "adasum"), ("scope", "global"),
                ("step_scale", "none"), ("loss", math.nan),
                ("orthogonality", 0.25), ("gain", 0.0), ("half_life", 12.5),
                ("nil", 0.0), ("num_included", 1), ("examples", 5.0)):
            np.testing.assert_array_equal(getattr(log, name), [expected],
                                          name)
        np.testing.assert_array_equal(log.tensor_orthogonality,
                                      [[0.5, np.nan]])
        np.testing.assert_array_equal(log.tensor_norms, [[2.5, 0.5]])
        np.testing.assert_array_equal(log.ranks, [2, 5])
        np.testing.assert_array_equal(log.included, [[True, False]])
        for name, expected in (("norm", [2, np.inf]), ("loss_scale", [2, 0]),
                               ("mean_cosine", [-0.5, 0]),
                               ("examples", [5, 3])):
            np.testing.assert_array_equal(log.rows(name), [expected], name)
        np.testing.assert_array_equal(log.gram(0), [[4, -2], [-2, 9]])
        np.testing.assert_allclose(log.cosines(0),
                                   [[1, -1 / 3], [-1 / 3, 1]])
        np.testing.assert_array_equal(log.coefficients(0), [[0.5, 0.25]])
        self.assertEqual(list(log.shadows), ["mean/global"])
        np.testing.assert_array_equal(log.shadows["mean/global"],
                                      [[3.0], [0.5]])
        self.assertEqual(log.notes, [])

    def test_orthogonality_of_a_layer_is_that_of_its_tensors_together(self):
        # o n^2: 2 and .25 of 4 and .25; a tensor of zeros counts nothing.
        values = ("tensor_orthogonality: 0.5 tensor_orthogonality: %s "
                  "tensor_norms: 2 tensor_norms: %s ")
        log = self.log(record(1, RUN + values % (1, 0.5))
                       + record(2, values % ("nan", 0))
                       + record(3, "tensor_orthogonality: 1"))
        self.assertEqual(log.layers, {"a": ["a/w", "a/b"]})
        np.testing.assert_array_equal(log.layer_orthogonality,
                                      [[2.25 / 4.25], [0.5], [np.nan]])
        np.testing.assert_array_equal(
            log.orthogonality_of([["a/b"], ["a/w"]])[:2],
            [[1, 0.5], [np.nan, 0.5]])
        with self.assertRaisesRegex(agg.ManifestError, 'no tensor "b"; it has'):
            log.orthogonality_of([["b"]])

    def test_grams_of_tensors(self):
        rows = "rows { rank: 0 } rows { rank: 1 } rows { rank: 2 } "
        grams = " ".join(f"tensor_grams: {i}" for i in (4, 2, 9, 1, -2, 16))
        log = self.log(record(1, RUN + rows + grams) + record(2, rows))
        np.testing.assert_array_equal(log.gram(0, "a/w"), [[4, 2], [2, 9]])
        np.testing.assert_array_equal(log.gram(0, "a/b"), [[1, -2], [-2, 16]])
        np.testing.assert_allclose(log.cosines(0, "a/b"),
                                   [[1, -0.5], [-0.5, 1]])
        self.assertEqual(log.gram(1, "a/w").shape, (0, 0))
        with self.assertRaisesRegex(agg.ManifestError, 'no tensor "x"'):
            log.gram(0, "x")

    def test_every_cut_is_a_torn_record_and_a_later_look_has_it(self):
        data = FIRST + record(2) + record(3)
        ends = [len(FIRST), len(FIRST) + len(record(2)), len(data)]
        log = self.log(b"")
        self.assertEqual((len(log), log.notes), (0, []))
        self.assertEqual(log.gain.shape, (0,))
        for size in range(1, len(data) + 1):
            self.path.write_bytes(data[:size])
            complete = sum(end <= size for end in ends)
            self.assertEqual(log.refresh(), int(size in ends))
            self.assertEqual(len(log), complete)
            torn = size - max([end for end in ends if end <= size], default=0)
            self.assertEqual([note.split()[0] for note in log.notes],
                             [str(torn)] if torn else [])
            self.assertEqual(len(agg.RoundLog(self.path)), complete)
        np.testing.assert_array_equal(log.gain, [1.5, 2.5, 3.5])

    def test_a_restarted_server_cuts_a_torn_record_off(self):
        log = self.log(FIRST + record(2)[:-3])
        self.path.write_bytes(FIRST + record(2, 'message: "again"'))
        self.assertEqual(log.refresh(), 1)
        self.assertEqual(log.message, ["", "again"])

    def test_a_file_that_is_full_is_renamed(self):
        log = self.log(FIRST)
        with self.path.open("ab") as file:
            file.write(record(2))
        old = self.path.with_name("rounds.binlog.1")
        os.rename(self.path, old)
        self.path.write_bytes(record(3, RUN))
        self.assertEqual(log.refresh(), 2)
        for each in (log, agg.RoundLog(old, self.path)):
            np.testing.assert_array_equal(each.version, [1, 2, 3])

    def test_what_a_rewind_gives_up_is_left_out(self):
        rounds = [FIRST, *map(record, range(2, 7))]
        again = [record(version, "restored: true", 9) for version in (4, 5)]
        after = [record(6, "loss: 1", 9), record(7, history=9)]
        log = self.log(b"".join(rounds + again + after))
        np.testing.assert_array_equal(log.version, [1, 2, 3, 6, 7])
        np.testing.assert_array_equal(log.loss, [0, 0, 0, 1, 0])
        self.assertEqual([note.split(" records")[0].split(" rounds")[0]
                          for note in log.notes],
                         ["3", "2", "2 versions are missing in the log, from 4 "
                          "on"])
        # Without the record of the rewind, and a copy of a round.
        log = self.log(b"".join(rounds + [record(4, "loss: 2", 9),
                                          record(4, "restored: true", 9)]))
        np.testing.assert_array_equal(log.version, [1, 2, 3, 4])
        self.assertEqual(log.loss[-1], 2)

    def test_who_has_joined(self):
        def joined(rank, client):
            return RUN.rstrip()[:-1] + (
                'joined { rank: %d client: "%s" } } ' % (rank, client))

        log = self.log(record(1, joined(0, "a")) + record(2, joined(1, "b"))
                       + record(3, joined(0, "c")))
        self.assertEqual(log.clients, {0: "c", 1: "b"})
        self.assertEqual(len(log), 3)

    def test_another_model_begins_anew(self):
        other = RUN.replace("a/w", "z")
        log = self.log(FIRST + record(2) + record(1, other, 9))
        np.testing.assert_array_equal(log.version, [1])
        self.assertEqual(log.notes, ["2 rounds left out of another model"])

    def refused(self, said, data=None):
        if data is not None:
            self.path.write_bytes(data)
        with self.assertRaises(agg.RoundLogError) as raised:
            agg.RoundLog(self.path)
        self.assertIsInstance(raised.exception, ValueError)
        self.assertRegex(str(raised.exception), said)

    def test_what_is_no_round_log_is_named(self):
        path = str(self.path)
        self.refused(f"cannot read {path}: No such file .*; allowed: the path")
        for data in (b"hello, world, and more", b"\x00" * 9, b"\xff" * 9,
                     b"PK\x03\x04", b"\x09\x0a\x05x", encoded("version: 1")):
            self.refused(f"{path} is no round log, or damaged: at byte 0: ",
                         data)
        at = len(FIRST)
        for data in (b"\x00" * 9, b"\xff" * 9, b"\x03\x0a\x05x",
                     b"\x02\x1b\x00", b"\x02\x12\x00"):
            self.refused(f"damaged: at byte {at}: ", FIRST + data)
        with self.assertRaisesRegex(agg.RoundLogError, "Is a directory"):
            agg.RoundLog(self.path.parent)

    def test_a_file_that_got_shorter_is_named(self):
        log = self.log(FIRST + record(2))
        self.path.write_bytes(FIRST)
        with self.assertRaisesRegex(agg.RoundLogError, "fewer than"):
            log.refresh()

    def test_every_byte_may_be_another_one(self):
        """Another error than RoundLogError is a defect."""
        data = bytearray(FIRST + record(2, "rows { rank: 1 norm: 2 } gram: 4 "
                                        "numbers { key: 'x' value: 1 }"))
        for at in range(len(FIRST), len(data)):
            for change in (0xff, 0x80, 0x07, 0x01):
                data[at] ^= change
                try:
                    log = self.log(bytes(data))
                    for name in log.numbers:
                        log[name]
                    for index in range(len(log)):
                        log.cosines(index)
                    log.rows("norm")
                except agg.RoundLogError:
                    pass
                data[at] ^= change

    def test_what_came_before_a_damage_is_in_all_arrays(self):
        log = self.log(FIRST)
        np.testing.assert_array_equal(log.gain, [1.5])
        self.path.write_bytes(FIRST + record(2) + b"\xff" * 9)
        with self.assertRaises(agg.RoundLogError):
            log.refresh()
        self.assertEqual(len(log), 2)
        np.testing.assert_array_equal(log.version, [1, 2])
        np.testing.assert_array_equal(log.gain, [1.5, 2.5])

    def test_shadows_of_one_rule_and_scope_are_numbered(self):
        def shadow(rule, norm):
            return (f'shadows {{ rule: "{rule}" scope: "global" norm: {norm} '
                    "cosine: 0.5 } ")

        log = self.log(record(1, RUN + shadow("adacons", 1) + shadow("sum", 2)
                              + shadow("adacons", 3) + shadow("adacons", 4))
                       + record(2, shadow("adacons", 5)))
        self.assertEqual(list(log.shadows), [
            "adacons/global", "sum/global", "adacons/global#2",
            "adacons/global#3"])
        for name, norms in zip(log.shadows, (
                [1, 5], [2, np.nan], [3, np.nan], [4, np.nan])):
            np.testing.assert_array_equal(log.shadows[name].norm, norms, name)

    def test_names_that_are_wrong(self):
        log = self.log(FIRST)
        with self.assertRaisesRegex(AttributeError, 'has no "gian"'):
            log.gian  # pylint: disable=pointless-statement
        with self.assertRaisesRegex(KeyError, "allowed: .*gain"):
            log["gian"]  # pylint: disable=pointless-statement
        for call in (log.rows, log.frame):
            with self.assertRaisesRegex(agg.ManifestError, '"x"; allowed: '):
                call("x")
        self.assertIn("gain", dir(log))

    @unittest.skipUnless(importlib.util.find_spec("pandas"),
                         "pandas is not installed")
    def test_frames(self):
        shadow = ('shadows { rule: "sum" scope: "global" norm: 3 cosine: 1 } '
                  "rows { rank: 1 examples: 4 } ")
        log = self.log(FIRST + record(2, shadow))
        rounds = log.frame()
        self.assertEqual(list(rounds.index), [1, 2])
        self.assertEqual(list(rounds["gain"]), [1.5, 2.5])
        self.assertTrue(math.isnan(rounds["sum/global norm"][1]))
        self.assertEqual(rounds["sum/global norm"][2], 3)
        rows = log.frame("rows")
        self.assertEqual((len(rows), rows["version"][0], rows["examples"][0]),
                         (1, 2, 4))
        self.assertEqual(list(log.frame("tensors").columns), ["a/w", "a/b"])
        self.assertEqual(list(log.frame("layers").columns), ["a"])


class ServedTest(JobCase):

    def test_a_job_that_runs(self):
        """Against what the workers hear, and have pushed."""
        path = self.temporary_folder() / "rounds.binlog"
        server = self.serve(workers=3, rule="adasum", lr=0.5, shards=2, config={
            "round_log": {"path": str(path), "grams": "per_tensor",
                          "every": 2}, "shadow_rules": {"rule": "mean"}})
        log = agg.RoundLog(path)
        self.assertEqual(len(log), 0)
        rows = np.random.default_rng(1).standard_normal(
            (6, 3, 5)).astype(np.float32)
        rows[4, 1, 0] = np.nan

        def work(rank):
            w = {"w": np.zeros(4, np.float32), "b": np.zeros(1, np.float32)}
            with agg.Client(w, server.address, rank) as client:
                return [client.step({"w": row[:4], "b": row[4:]},
                                    examples=rank + 1, loss=float(rank))
                        for row in rows[:, rank]]

        outcomes = self.team(3, work)[0]
        server.close()  # has written all
        self.assertEqual(log.refresh(), 6)
        self.assertEqual((log.job, log.workers, log.shards),
                         ("local", 3, 2))
        self.assertEqual(log.tensors, {"w": 4, "b": 1})
        for name in ("version", "gain", "tau", "orthogonality", "loss",
                     "learning_rate", "combined_norm", "rule", "scope"):
            np.testing.assert_array_equal(
                getattr(log, name), [getattr(each, name) for each in outcomes],
                name)
        included = np.ones((6, 3), bool)
        included[4, 1] = False
        np.testing.assert_array_equal(log.included, included)
        np.testing.assert_array_equal(log.examples, [6, 6, 6, 6, 4, 6])
        norms = np.linalg.norm(rows.astype(np.float64), axis=2)
        np.testing.assert_allclose(log.rows("norm"), norms, rtol=1e-12)
        for index in (0, 1, 2, 3, 5):
            exact = rows[index].astype(np.float64)
            for name, part in (("w", exact[:, :4]), ("b", exact[:, 4:])):
                if log.version[index] % 2:
                    self.assertEqual(log.gram(index, name).size, 0)
                    continue
                np.testing.assert_allclose(log.gram(index, name),
                                           part @ part.T, rtol=1e-12,
                                           atol=1e-12)
            np.testing.assert_allclose(log.gram(index), exact @ exact.T,
                                       rtol=1e-12, atol=1e-12)
            self.assertEqual(log.coefficients(index).shape, (2, 3))
            combined = np.concatenate([
                log.coefficients(index)[0] @ exact[:, :4],
                log.coefficients(index)[1] @ exact[:, 4:]])
            # Coefficients have float32's digits.
            np.testing.assert_allclose(np.linalg.norm(combined),
                                       log.combined_norm[index], rtol=1e-6)
            mean = exact.mean(axis=0)
            np.testing.assert_allclose(
                log.shadows["mean/per_tensor"].cosine[index],
                mean @ combined / np.linalg.norm(mean)
                / np.linalg.norm(combined), rtol=1e-6)
        self.assertEqual(log.tensor_orthogonality.shape, (6, 2))
        lengths = np.square(rows[0].astype(np.float64)).mean(axis=0)
        np.testing.assert_allclose(
            log.tensor_norms[0],
            np.sqrt([lengths[:4].sum(), lengths[4]]), rtol=1e-6)
        np.testing.assert_allclose(log.orthogonality_of([["w", "b"]])[:, 0],
                                   log.orthogonality, rtol=1e-6)
        self.assertIn("6 rounds, versions 1 to 6", repr(log))
        self.assertEqual(sorted(log.clients), [0, 1, 2])
        self.assertIn(f":{os.getpid()}, agg_server {agg.__version__}, Python ",
                      log.clients[1])

    def test_a_worker_that_joins_later(self):
        path = self.temporary_folder() / "rounds.binlog"
        server = self.serve(workers=1, lr=0.5, config={
            "max_workers": 2, "round_log": {"path": str(path)}})
        begun, done = threading.Event(), threading.Event()

        def work(rank):
            w = {"w": np.zeros(2, np.float32)}
            if rank == 1:
                begun.wait(WAIT)
            with agg.Client(w, server.address, rank,
                            client_name=f"worker {rank}") as client:
                for _ in range(4 if rank else 10**6):
                    client.step({"w": np.ones(2, np.float32)})
                    begun.set()
                    if rank == 0 and done.is_set():
                        break
            if rank == 1:
                done.set()

        self.team(2, work)
        server.close()
        log = agg.RoundLog(path)
        np.testing.assert_array_equal(log.ranks, [0, 1])
        self.assertEqual(log.clients, {0: "worker 0", 1: "worker 1"})


if __name__ == "__main__":
    unittest.main()
