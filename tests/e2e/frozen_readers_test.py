"""An update never waits for a reader.

Observers of every version, and workers that are frozen while they pull, end no
shard and change no result, however they are connected: all of them together
delay one round by 2 s at most. A machine that is busy with other tests may take
five times as long; a phase may take 20 s, so that a wait for a reader ends a
shard, or makes a round too long.
"""

import os
import pathlib
import re
import signal
import ssl
import subprocess
import tempfile
import time
import unittest
from unittest import mock

from deploy import quickstart_chaos
from tests.e2e import chaos, frozen_readers
from tests.e2e.frozen_readers import FEW, MANY, WAIT, FrozenReader

ROOT = pathlib.Path.cwd()
ROUNDS = 30
LAST_OBSERVED = ROUNDS - 2  # behind it shards may be leaving
LONGEST_ROUND = 5 * 2.0
# For the connections; a memory for each of their versions would be 120.
MORE_MIB = 64
SENT = "shared_memory: \"off\"\n"
LEASE = 2
WORKERS = (f"lease_seconds: {LEASE}\nmin_workers: 1\n"
           "reconnect_grace_seconds: 1\n")
EACH = 2  # readers of each version, shard and way
# Of 1 MiB at most on each shard: workers push and pull in one trip.
SMALL, FULL = "--rows=97", "--rows=1800"


class FrozenReadersTest(unittest.TestCase):
    expected = {}  # the digests of undisturbed runs, by their flags

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="agg_frozen_readers_")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def start(self, flags, more, environment=None, server_flags=()):
        options = chaos.make_parser().parse_args(
            [f"--bin={ROOT}", "--wide", *flags.split()])
        folder = pathlib.Path(tempfile.mkdtemp(dir=self.folder))
        one = chaos.Job(options, folder,
                        "phase_timeout_seconds: 20\n" + more, environment,
                        server_flags)
        self.addCleanup(one.stop)
        return one

    def log(self, one, ordinal=0):
        path = one.folder / f"shard_{ordinal}_life_0.log"
        return path.read_text(errors="replace")

    def check_shards(self, one):
        for ordinal, shard in enumerate(one.shards.running):
            self.assertIsNone(shard.poll(), self.log(one, ordinal))
        self.assertEqual(one.shards.lives, [1] * len(one.shards.lives))

    def check_log(self, one, ordinal):
        log = self.log(one, ordinal)
        self.assertNotIn("has hung", log)
        self.assertNotIn("more than planned", log)
        return log

    def use_default_buffers(self):
        """As with a kernel whose net.core.wmem_max is the default."""
        capped = self.folder / "capped"
        environment = mock.patch.dict(os.environ, {
            "LD_PRELOAD": str(ROOT / "tests/e2e/default_buffers.so"),
            "AGG_CAPPED": str(capped)})
        environment.start()
        self.addCleanup(environment.stop)
        return capped

    def make_tls(self):
        """What a job has of it, its workers' environment, an observer's."""
        folder = self.folder / "tls"
        subprocess.run([ROOT / "deploy/test_ca.sh", folder], check=True,
                       capture_output=True)
        more = (f'security {{ tls {{ certificate: "{folder}/server.pem" '
                f'key: "{folder}/server.key" '
                f'client_ca: "{folder}/ca.pem" }} }}\n')
        context = ssl.create_default_context(cafile=folder / "ca.pem")
        context.load_cert_chain(folder / "worker.pem", folder / "worker.key")
        context.set_alpn_protocols(["h2"])
        return more, {"AGG_TLS_CA": f"{folder}/ca.pem",
                      "AGG_TLS_CERTIFICATE": f"{folder}/worker.pem",
                      "AGG_TLS_KEY": f"{folder}/worker.key"}, context

    def peaks(self, one):
        """The largest resident sizes of the shards so far, in MiB."""
        return [int(re.search(r"VmHWM:\s+(\d+) kB", pathlib.Path(
            f"/proc/{shard.pid}/status").read_text())[1]) // 1024
                for shard in one.shards.running]

    def undisturbed(self, flags, more):
        """Digests and peaks; neither Unix sockets nor TLS change a result."""
        if (flags, more) not in self.expected:
            one = self.start(flags, more)
            for versions, _ in enumerate(one.lines(), 1):
                if versions == LAST_OBSERVED:
                    peaks = self.peaks(one)
            self.expected[flags, more] = one.digests(), peaks
            one.stop()
        return self.expected[flags, more]

    def observe_every_version(self, flags, ways, more="", tls=None):
        """`ways`: "unix", "tcp"; `tls`: as make_tls."""
        flags += f" --rounds={ROUNDS}"
        more = SENT + more
        expected, usual = self.undisturbed(flags, more)
        secured, environment, context = tls or ("", None, None)
        one = self.start(flags, more + secured, environment)
        small = SMALL in flags
        readers = []
        versions, longest = 0, 0.0
        for line in one.lines():
            self.assertTrue(line["included"])
            self.assertLess(line["seconds"], LONGEST_ROUND)
            longest = max(longest, line["seconds"])
            versions += 1
            if versions > LAST_OBSERVED:
                continue
            for ordinal, shard in enumerate(one.shards.running):
                pulls = MANY if versions % 8 == 1 else 1
                if ordinal == 0 and not small:
                    pulls = FEW
                for address in [one.addresses[ordinal] if way == "tcp" else
                                frozen_readers.local_socket(shard)
                                for way in ways] * EACH:
                    readers.append(FrozenReader(address, pulls, tls=context))
                    self.addCleanup(readers[-1].close)
            self.check_shards(one)
            peaks = self.peaks(one)
        self.assertEqual(versions, ROUNDS)
        print(f"{self.id()}: {len(readers)} readers, the longest round took "
              f"{longest:.2f} s; MiB of the shards at most {peaks}, "
              f"undisturbed {usual}")
        for peak, before in zip(peaks, usual):
            self.assertLess(peak, before + MORE_MIB)
        self.assertEqual(one.digests(), expected)
        self.check_shards(one)
        log = self.check_log(one, 0)
        self.assertIn("does not read: its pull of version ", log)
        self.assertIn("the round goes on", log)
        if ways == ["tcp"]:
            # It could have taken what is left for a version: a frame is one.
            self.assertIsInstance(readers[0].read(), OSError)

    def test_observers_over_unix_sockets(self):
        self.observe_every_version("--shards=2 --replication=buddy", ["unix"])

    def test_observers_over_tcp(self):
        self.observe_every_version("--shards=2 --replication=buddy", ["tcp"])

    def test_observers_over_tls(self):
        self.observe_every_version("--shards=2 --replication=buddy", ["tcp"],
                                   tls=self.make_tls())

    def test_observers_over_all_that_is_open_with_default_buffers(self):
        capped = self.use_default_buffers()
        self.observe_every_version("--shards=2 --replication=buddy",
                                   ["unix", "tcp"])
        self.assertTrue(capped.exists())

    def test_observers_of_one_shard_and_of_narrowed_versions(self):
        self.observe_every_version("--shards=1 --replication=none", ["unix"],
                                   more='pull_dtype: "bf16"\n')

    def test_observers_of_a_pipelined_job(self):
        self.observe_every_version(
            "--shards=2 --replication=none --publish=pipelined",
            ["unix", "tcp"])

    def test_observers_of_a_pipelined_job_over_tls(self):
        self.observe_every_version(
            "--shards=2 --replication=none --publish=pipelined", ["tcp"],
            tls=self.make_tls())

    def test_observers_of_a_job_of_one_trip(self):
        self.observe_every_version(f"--shards=2 --replication=buddy {SMALL}",
                                   ["unix", "tcp"])

    def test_observers_of_a_job_of_one_trip_over_tls(self):
        self.observe_every_version(f"--shards=2 --replication=buddy {SMALL}",
                                   ["tcp"], tls=self.make_tls())

    def test_a_drain_waits_for_no_reader(self):
        """Else a rolling restart would take its whole limit at each shard."""
        for way in ("unix", "tcp"):
            one = self.start("--shards=2 --replication=buddy --workers=2 "
                             "--rounds=1000000", SENT,
                             server_flags=[f"--drain_seconds={10 * WAIT}"])
            lines = one.lines()
            next(lines)
            shard = one.shards.running[1]
            address = (one.addresses[1] if way == "tcp" else
                       frozen_readers.local_socket(shard))
            for pulls in (1, FEW, MANY):
                self.addCleanup(FrozenReader(address, pulls).close)
            for _ in range(5):
                next(lines)
            shard.terminate()
            self.assertEqual(shard.wait(WAIT), 0, self.log(one, 1))
            self.assertIn("drained", self.log(one, 1))
            one.stop()

    def version(self, one, environment):
        found = subprocess.run(
            [one.bin / "worker_client" / "tools" / "aggctl", "status",
             f"--coordinator={one.coordinator}", "--output=json"],
            capture_output=True, text=True, timeout=WAIT, check=True,
            env={**os.environ, **(environment or {})})
        return int(re.search(r'"version": *"?(\d+)', found.stdout)[1])

    def stop_workers(self, flags, more, environment=None):
        """Two of four, at any moment of a round; their sessions run out, which
        a round may have to wait for."""
        one = self.start(f"--workers=4 --rounds=1000000 {flags}",
                         WORKERS + more, environment)
        lines = one.lines()
        rng = quickstart_chaos.make_random(flags)

        def next_line():
            line = next(lines)
            self.assertLess(line["seconds"], 5 * LEASE + LONGEST_ROUND)
            self.check_shards(one)
            return line

        for _ in range(3):
            for _ in range(rng.randrange(5, 10)):
                next_line()
            # Pulls take a part of the time between two lines of rank 0.
            for worker in one.workers[2:]:
                time.sleep(rng.uniform(0, 0.1))
                worker.send_signal(signal.SIGSTOP)
            before = self.version(one, environment)
            while next_line()["version"] < before + 6:
                pass
            for worker in one.workers[2:]:
                worker.send_signal(signal.SIGCONT)
        for worker in one.workers:
            self.assertIsNone(worker.poll())
        self.check_shards(one)
        for ordinal in range(2):
            self.check_log(one, ordinal)
        one.stop()

    def test_workers_that_are_stopped_while_they_pull(self):
        self.stop_workers("--shards=2 --replication=buddy --rows=32768", SENT)

    def test_workers_over_tcp(self):
        self.stop_workers("--shards=2 --replication=buddy --rows=32768",
                          SENT + 'unix_socket: "off"\n')

    def test_workers_over_tls(self):
        secured, environment, _ = self.make_tls()
        self.stop_workers("--shards=2 --replication=buddy --rows=16384",
                          secured, environment)

    def test_workers_of_a_pipelined_job(self):
        self.stop_workers(
            "--shards=2 --replication=none --publish=pipelined --rows=16384",
            SENT)

    def test_workers_in_one_trip_with_default_buffers(self):
        for shared in ("auto", "off"):
            with self.subTest(shared):
                capped = self.use_default_buffers()
                self.stop_workers(f"--shards=2 --replication=buddy {FULL}",
                                  f'shared_memory: "{shared}"\n')
                self.assertTrue(capped.exists())


if __name__ == "__main__":
    unittest.main()
