"""Rows and versions in shared memory (P39, P40): the bytes that TCP gives."""

import mmap
import os
import pathlib
import signal
import subprocess
import sys
import threading

import numpy

import frames
from client import Worker, round_of
from foreign_test_case import REDUCE, ForeignTestCase
from regions import Refused, Regions, SharedWorker, ask
from server_process import WAIT, wait_until

# The first one is of two slices; the last one is optional.
SHAPES = {"big": [3, 350001], "scalar": [], "small": [7, 5],
          "maybe": ([11], True)}
# Parameters, in place of the sum of the rows.
SGD = ('combination { rule: "adasum" } learning_rate { rate: 0.125 }\n'
       'optimizer { kind: "sgd" momentum: 0.5 }\n')


def row(worker, round):
    """Its gradient: numbers that bf16 holds exactly."""
    numbers = numpy.random.default_rng([worker.rank, round])
    return [numbers.integers(-128, 128, size).astype(numpy.float32) / 64
            for size in worker.sizes]


class SharedMemoryTest(ForeignTestCase):

    def train(self, kind, num_shards, config, rounds=3):
        """The bytes of all versions, as two workers of this kind get them."""
        job = self.start("workers: 2\n" + config, num_shards)
        workers = [kind(job, rank, SHAPES) for rank in range(2)]
        workers[0].seed(row(workers[0], 99))
        versions = []
        for round in range(rounds + 1):
            pulled = [worker.read(round) if kind is SharedWorker
                      else worker.pull(round) for worker in workers]
            self.assert_tensors(*pulled)
            versions.append([tensor.tobytes() for tensor in pulled[0]])
            if round == rounds:
                return versions
            pending = []
            for worker in workers:
                gradient = row(worker, round)
                # One leaves the optional tensor out, and says nothing of sums.
                absent = (3,) if worker.rank == 1 else ()
                worker.push(gradient, round, absent=absent)
                sums = [] if absent else worker.row_crc32c(gradient)
                pending.append(worker.commit_later(round, row_crc32c=sums))
            for future in pending:
                self.assertTrue(future.result().included)
        return versions

    def test_bytes_are_those_over_tcp(self):
        for num_shards in (1, 2):
            for dtypes in ("", 'push_dtype: "bf16"\n'):
                with self.subTest(num_shards=num_shards, dtypes=dtypes):
                    config = SGD + dtypes
                    self.assertEqual(
                        self.train(SharedWorker, num_shards, config),
                        self.train(Worker, num_shards, config))

    def test_versions_in_the_jobs_dtype(self):
        job = self.start("workers: 1\n" + SGD + 'pull_dtype: "bf16"\n')
        worker = SharedWorker(job, 0, SHAPES)
        worker.seed(row(worker, 99))
        for dtype in (frames.F32, frames.BF16):
            self.assert_tensors(worker.read(0, dtype), worker.pull(0, dtype))

    def test_what_is_given_is_sealed_and_versions_can_only_be_read(self):
        job = self.start()
        worker = SharedWorker(job, 0, SHAPES)
        reply, fds = ask(worker.reply.region_sockets[0],
                         session=worker.session, epoch=worker.epoch,
                         life=worker.reply.shard_lives[0])
        self.addCleanup(lambda: [os.close(fd) for fd in fds])
        # Again the same row, and all three memories of versions.
        self.assertEqual(reply.row.number, worker.regions[0].reply.row.number)
        self.assertEqual(len(reply.versions), 3)
        for fd in fds:
            self.assertRaises(OSError, os.ftruncate, fd, 4096)
            self.assertRaises(OSError, os.ftruncate, fd, 1 << 30)
        for fd in fds[1:]:
            self.assertRaises(PermissionError, mmap.mmap, fd, 4096,
                              mmap.MAP_SHARED)

    def test_who_asks_wrongly_gets_a_code(self):
        job = self.start()
        worker = Worker(job, 0, SHAPES)
        socket, life = (worker.reply.region_sockets[0],
                        worker.reply.shard_lives[0])
        good = {"session": worker.session, "epoch": worker.epoch, "life": life}
        for code, wrong in {5: {"session": worker.session + 1},
                            10: {"epoch": worker.epoch + 1},
                            14: {"life": life + 1}}.items():
            with self.subTest(wrong):
                with self.assertRaises(Refused) as raised:
                    ask(socket, **{**good, **wrong})
                self.assertEqual(raised.exception.args[0], code)
        # An observer gets versions alone.
        observer = Regions(worker, 0)
        self.assertIsNone(observer.row)
        self.assertEqual(len(observer.versions), 3)
        self.assertIsNotNone(Regions(worker, 0, worker.session).row)

    def test_a_worker_that_is_killed_in_the_midst_of_its_write(self):
        for num_shards in (1, 2):
            with self.subTest(num_shards=num_shards):
                self._kill_in_the_midst(num_shards)

    def _kill_in_the_midst(self, num_shards):
        job = self.start("workers: 3\nmin_workers: 2\n"
                         "reconnect_grace_seconds: 0.1\n" + REDUCE, num_shards)
        workers = [SharedWorker(job, rank, SHAPES) for rank in range(2)]
        half = subprocess.Popen(
            [sys.executable, "-B",
             str(pathlib.Path(__file__).parent / "half_writer.py"), "2",
             *job.addresses], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.addCleanup(half.communicate)
        self.addCleanup(half.kill)
        # One that never says so ends, and the line is empty.
        limit = threading.Timer(WAIT, half.kill)
        limit.start()
        self.addCleanup(limit.cancel)
        self.assertEqual(half.stdout.readline(), b"half\n")
        limit.cancel()
        workers[0].seed([numpy.zeros(size, numpy.float32)
                         for size in workers[0].sizes])
        rows = [row(worker, 0) for worker in workers]
        for worker, mine in zip(workers, rows):
            worker.push(mine)
        pending = [worker.commit_later() for worker in workers]
        half.send_signal(signal.SIGKILL)
        half.wait(WAIT)
        for future in pending:
            outcome = future.result()
            self.assertTrue(outcome.included)
            self.assertEqual(list(outcome.ranks), [0, 1])
        self.assert_tensors(workers[0].read(1),
                            [a + b for a, b in zip(*rows)])
        # Its rank comes back, with memory of its own.
        wait_until(lambda: len(self.status(job).workers) == 2,
                   "the lease is over")
        members = workers + [SharedWorker(job, 2, SHAPES)]
        self.assertEqual(members[2].reply.first_round, 2)
        round_of(workers, [row(worker, 1) for worker in workers], 1)
        rows = [row(worker, 2) for worker in members]
        for outcome in round_of(members, rows, 2):
            self.assertEqual(list(outcome.ranks), [0, 1, 2])
        self.assert_tensors(members[2].read(3),
                            [a + b + c for a, b, c in zip(*rows)])
        self.assert_works(job)
