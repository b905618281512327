"""The scenes of the drill (drill.py): what is done to a job, and who is told.

A scene is a class with a sentence, which the drill prints. `fires`: the alerts
that have to fire and to get through Alertmanager. `silent`: those that have to
fire, and that it has to keep back. `may`: those that fire or not, since it
depends on the moment; it has to keep them back where they are critical. Any
other alert of the job fails the scene, at any moment of it.
"""

import contextlib
import http.server
import os
import pathlib
import resource
import signal
import socket
import subprocess
import threading
import time

from deploy import quickstart_chaos as chaos
from deploy import quickstart_job
from tests.e2e import http2, proxies
from tests.e2e.drill_job import (DrillError, Job, NAMESPACE, PERIOD, WAIT,
                                 eventually)

ROOT = quickstart_job.ROOT
HANGING = "tests/e2e/hanging_folder.so"
# As long as the hold of a scene in which nobody may be paged, and longer than
# any range of the rules but the longest.
LONG = 20
CHECKPOINT = ('checkpoint { path: "{folder}/checkpoints" every_seconds: 4 '
              "every_rounds: 0 }")

IDENTITIES = """security {
  identities { name: "trainer" token_file: "{folder}/trainer" roles: "worker" }
  shard_token_file: "{folder}/shard" http { pages: "open" } }
"""


def write_tokens(job):
    """Those that IDENTITIES names; the file of one that nobody has."""
    for name in ("trainer", "shard", "wrong"):
        path = job.folder / name
        path.write_text(f"{name}-token-0123456789")
        path.chmod(0o600)
    job.environment["AGG_TOKEN_FILE"] = str(job.folder / "trainer")
    return job.folder / "wrong"


def memory_group(name):
    """A new control group for memory below this process's. Raises OSError."""
    groups = dict(line.split(":", 2)[1:] for line in pathlib.Path(
        "/proc/self/cgroup").read_text().splitlines())
    root = pathlib.Path("/sys/fs/cgroup")
    own = (root / "memory" / groups["memory"].lstrip("/")
           if "memory" in groups else root / groups[""].lstrip("/"))
    group = own / f"agg_drill_{name}_{os.getpid()}"
    group.mkdir()
    if not any((group / limit).exists()
               for limit in ("memory.limit_in_bytes", "memory.max")):
        group.rmdir()
        raise OSError(f"{group} has no limit of memory")
    return group


class FileLimit:
    """A full disk for one process: its files may not grow beyond `path`."""

    def __init__(self, pid, path):
        self.pid = pid
        self._set(os.stat(path).st_size)

    def end(self):
        self._set(resource.RLIM_INFINITY)

    def _set(self, size):
        resource.prlimit(self.pid, resource.RLIMIT_FSIZE,
                         (size, resource.RLIM_INFINITY))


ALL = []  # scenes, in the order in which they are told about


class Scene:
    """One bad thing that is done to a job, and undone."""

    fires = ()
    silent = ()
    may = ()
    # For so many minutes of the rules the alerts have to stay as they are.
    minutes = 6
    shards, workers = 2, 2
    config = ""
    job_options = {}
    # Whether the list of expected jobs has it.
    expected = False

    def __init_subclass__(cls, abstract=False):
        if not abstract:
            ALL.append(cls)

    @classmethod
    def name(cls):
        """As --only= has it: "all_shards_killed"."""
        return "".join("_" + c.lower() if c.isupper() else c
                       for c in cls.__name__).lstrip("_")

    def __init__(self, watch, minute):
        """minute: the seconds that a minute of the rules takes here."""
        self.watch = watch
        self.minute = minute
        # What ends with the scene, also where undo() is not reached.
        self.cleanup = contextlib.ExitStack()

    @classmethod
    def impossible(cls):
        """Why it cannot be played on this machine; "" if it can."""
        return ""

    @classmethod
    def selector(cls):
        """The labels by which its alerts are known."""
        return {"job": cls.name(), "namespace": NAMESPACE}

    def make(self, bin_folder, folder):
        return Job(self.name(), bin_folder, folder, shards=self.shards,
                   workers=self.workers, config=self.config,
                   **self.job_options)

    def targets(self, job):
        return job.targets()

    def begin(self, job):
        """Starts everything; returns when the job is as it should be."""
        job.start_shards()
        self.watch.watch(job.name, self.targets(job))
        job.start_workers()
        self.await_rounds(job)

    def await_rounds(self, job, number=8):
        """Until Prometheus has seen so many more rounds, of each shard."""
        self.await_up(job, len(job.metrics_ports))

        def rounds():
            job.check()
            return sum(value for _, value in self.watch.query(
                f'sum(aggserver_rounds_total{{job="{job.name}"}})'))
        before = rounds()
        # A shard 0 that was started again counts from 0.
        eventually(f"{number} rounds",
                   lambda: rounds() >= before + number or rounds() < before)

    def await_up(self, job, number):
        def number_up():
            job.check()
            return len(self.watch.query(
                f'aggserver_build_info{{job="{job.name}"}}'))
        eventually(f"{number} shards that are read",
                   lambda: number_up() == number)

    def await_checkpoint(self, job):
        eventually("a checkpoint", lambda: job.metric(
            "aggserver_checkpoint_sealed_total"))

    def do(self, job):
        raise NotImplementedError

    def undo(self, job):
        """After it the alerts end."""


class Quiet(Scene, abstract=True):
    """Base of scenes in which nobody may be told anything."""

    minutes = LONG


class Healthy(Quiet):
    """Trains a job to which nothing is done."""

    config = CHECKPOINT

    def do(self, job):
        pass


class NothingAtAll(Scene):
    """Waits for the alert by whose absence a dead Prometheus is noticed."""

    fires = ("AggWatchdog",)
    may = ("AggWatchdog",)  # it never ends

    @classmethod
    def selector(cls):
        return {"alertname": "AggWatchdog"}

    def begin(self, job):
        pass

    def do(self, job):
        pass


class NeverStarted(Scene):
    """Starts no process of a job that should be there."""

    fires = ("AggJobAbsent",)
    expected = True

    def begin(self, job):
        pass

    def do(self, job):
        pass

    def undo(self, job):
        super().begin(job)


class OneShardKilled(Scene):
    """Kills one shard: one page, not five."""

    fires = ("AggShardDown",)
    silent = ("AggShardMissing", "AggRecovering", "AggNotReplicated",
              "AggJobLost")
    may = ("AggRoundStalled", "AggWorkerStalled")
    # The coordinator tries a broken connection again for 5 s, which are minutes
    # here; a round is stalled after ten of these.
    job_options = {"period": 1.2}

    def do(self, job):
        job.kill_shards([1])

    def undo(self, job):
        job.restart_shards([1])
        self.await_rounds(job)


class AllShardsKilled(Scene):
    """Kills all shards: a page that stays until somebody acts."""

    fires = ("AggJobDown",)
    may = ("AggRewound",)
    minutes = LONG
    config = CHECKPOINT

    def begin(self, job):
        super().begin(job)
        self.await_checkpoint(job)

    def do(self, job):
        job.kill_shards()

    def undo(self, job):
        job.restart_shards()
        self.await_rounds(job)


class NothingToGoBackTo(Scene):
    """Begins a job anew though it had a checkpoint (restore: none)."""

    fires = ("AggBegunAnew",)
    config = CHECKPOINT

    def begin(self, job):
        super().begin(job)
        self.await_checkpoint(job)

    def do(self, job):
        job.kill_shards()
        job.kill_workers()
        job.config = CHECKPOINT.replace(" }", ' restore: "none" }')
        job.write_config()
        job.restart_shards()
        job.start_workers()
        self.await_rounds(job)


class GoneBack(Scene):
    """Kills all shards, which start again from a checkpoint."""

    fires = ("AggRewound",)
    config = CHECKPOINT

    def begin(self, job):
        super().begin(job)
        self.await_checkpoint(job)

    def do(self, job):
        job.kill_shards()
        job.restart_shards()
        self.await_rounds(job)


class ShardFlaps(Scene):
    """Keeps a shard away for 45 s of every 120 s."""

    fires = ("AggShardFlapping",)
    may = ("AggShardDown", "AggNotReplicated", "AggRecoversOften")

    def do(self, job):
        for _ in range(3):
            job.kill_shards([1])
            time.sleep(0.75 * self.minute)
            job.restart_shards([1])
            self.await_rounds(job, number=1)
            time.sleep(1.25 * self.minute)


class ShardsLostInTurn(Scene):
    """Kills each of four shards once, one after the other."""

    fires = ("AggRecoversOften",)
    may = ("AggShardDown", "AggNotReplicated")
    shards = 4

    def do(self, job):
        for ordinal in job.everybody():
            job.kill_shards([ordinal])
            job.restart_shards([ordinal])
            self.await_rounds(job, number=3)


class NobodySeeds(Scene):
    """Lets all workers join, and none of them send parameters."""

    fires = ("AggUnseeded",)

    def begin(self, job):
        pass

    def do(self, job):
        job.tell_all(hold=True)
        job.start_shards()
        self.watch.watch(job.name, self.targets(job))
        job.start_workers()

    def undo(self, job):
        job.tell_all()
        self.await_rounds(job)


class ShardUnread(Scene):
    """Hides a shard of a job that goes on from Prometheus."""

    fires = ("AggShardUnread",)

    def do(self, job):
        self.watch.watch(job.name, self.targets(job)[:1])

    def undo(self, job):
        self.watch.watch(job.name, self.targets(job))


class ShardNeverThere(Scene):
    """Starts all shards but one."""

    fires = ("AggRecovering",)
    silent = ("AggShardMissing",)

    def begin(self, job):
        pass

    def do(self, job):
        job.absent = {1}
        job.start_shards()
        self.watch.watch(job.name, self.targets(job))
        job.start_workers()

    def undo(self, job):
        job.absent = set()
        job.kill_shards([1])
        job.restart_shards([1])
        self.await_rounds(job)


class FolderLost(Scene):
    """Kills all shards, and empties a checkpoint folder that the job needs."""

    fires = ("AggRecovering",)
    may = ("AggRewound",)  # when it is over
    config = 'replication: "none"'
    job_options = {"own": lambda ordinal: (
        f'checkpoint {{ path: "{{folder}}/checkpoints_{ordinal}" '
        "every_seconds: 4 every_rounds: 0 }\n")}

    def make(self, bin_folder, folder):
        for ordinal in range(self.shards):
            (folder / f"checkpoints_{ordinal}").mkdir()
        return super().make(bin_folder, folder)

    def begin(self, job):
        super().begin(job)
        self.await_checkpoint(job)

    def do(self, job):
        job.kill_shards()
        self.folder = job.folder / "checkpoints_1"
        self.aside = job.folder / "aside"
        self.folder.rename(self.aside)
        self.folder.mkdir()
        job.restart_shards()

    def undo(self, job):
        self.folder.rmdir()
        self.aside.rename(self.folder)
        self.await_rounds(job)


class CheckpointFails(Scene):
    """Puts a file where the folder of the checkpoints was."""

    fires = ("AggCheckpointFailed", "AggCheckpointOld")
    config = CHECKPOINT

    def do(self, job):
        self.folder = job.folder / "checkpoints"
        self.aside = job.folder / "aside"
        self.folder.rename(self.aside)
        self.folder.write_text("no folder")

    def undo(self, job):
        self.folder.unlink()
        self.aside.rename(self.folder)


class CheckpointDiskFrozen(Scene):
    """Freezes the disk of a job with checkpoints by time."""

    fires = ("AggCheckpointHung",)
    may = ("AggCheckpointOld",)  # it comes first, and is kept back then
    config = CHECKPOINT

    def make(self, bin_folder, folder):
        job = super().make(bin_folder, folder)
        self.flag = folder / "hangs"
        job.server = lambda ordinal: (
            "env", f"LD_PRELOAD={job.bin / HANGING}",
            f"AGG_HANG_BELOW={folder}/checkpoints",
            f"AGG_HANG_WHILE={self.flag}")
        return job

    def begin(self, job):
        super().begin(job)
        self.await_checkpoint(job)

    def do(self, job):
        self.flag.touch()

    def undo(self, job):
        self.flag.unlink()


class CheckpointDiskFrozenByRounds(CheckpointDiskFrozen):
    """Freezes the disk of a job with checkpoints by rounds."""

    config = ('checkpoint { path: "{folder}/checkpoints" every_seconds: 0 '
              "every_rounds: 5 }")


class RoundLogDiskFull(Scene):
    """Fills the round log's disk."""

    fires = ("AggRoundLogErrors",)
    config = 'round_log { path: "{folder}/rounds.binlog" }'
    job_options = {"piped_log": True}

    def do(self, job):
        self.limit = FileLimit(job.shards.running[0].pid,
                               job.folder / "rounds.binlog")

    def undo(self, job):
        self.limit.end()


class WorkerSendsNan(Scene):
    """Makes one worker's gradients NaN."""

    fires = ("AggNonFiniteGradients",)

    def do(self, job):
        job.tell(1, gradient="nan")

    def undo(self, job):
        job.tell(1)


class AllSendNan(Scene):
    """Makes every worker's gradients NaN."""

    fires = ("AggRoundsSkipped",)
    may = ("AggNonFiniteGradients",)
    config = "max_skipped_rounds: 0"

    def do(self, job):
        job.tell_all(gradient="nan")

    def undo(self, job):
        job.tell_all()


class JobGivesUp(Scene):
    """Makes every gradient NaN until the job gives up."""

    fires = ("AggJobFailed",)
    may = ("AggNonFiniteGradients", "AggRoundsSkipped")
    config = "max_skipped_rounds: 3"

    def do(self, job):
        job.tell_all(gradient="nan")

    def undo(self, job):
        job.stop_shards()


class ParametersDiverge(Scene):
    """Makes updates after which the parameters are infinite."""

    fires = ("AggParametersNotFinite",)
    may = ("AggRoundsSkipped", "AggNonFiniteGradients")
    config = "max_skipped_rounds: 0\nlearning_rate { rate: 100 }"

    def begin(self, job):
        job.tell_all(gradient="zero")
        super().begin(job)

    def do(self, job):
        job.tell_all(gradient="huge")

    def undo(self, job):
        job.stop_shards()


class WorkerFrozen(Scene):
    """Freezes a worker: it is in, and sends nothing."""

    fires = ("AggRoundStalled",)
    silent = ("AggWorkerStalled",)
    may = ("AggStraggler",)

    def do(self, job):
        job.workers[1].send_signal(signal.SIGSTOP)

    def undo(self, job):
        job.workers[1].send_signal(signal.SIGCONT)


class WorkerSlow(Scene):
    """Makes one worker of four five times as slow as the others."""

    fires = ("AggStraggler",)
    workers = 4

    def do(self, job):
        job.tell(3, delay=4 * PERIOD)

    def undo(self, job):
        job.tell(3)


class WorkerLost(Scene):
    """Kills a worker that nobody starts again."""

    fires = ("AggWorkersMissing",)
    workers = 3
    # Else a round waits for it as long as the rules wait for a minute.
    config = "min_workers: 1 reconnect_grace_seconds: 0.5"

    def do(self, job):
        job.kill_worker(2)

    def undo(self, job):
        job.start_worker(2)


class WorkerIsAnOutlier(Scene):
    """Makes one worker's gradients a hundred times as long as the others'."""

    fires = ("AggOutlierWorker",)
    workers = 8
    config = 'outliers { action: "exclude" }'

    def do(self, job):
        job.tell(5, gradient="long")

    def undo(self, job):
        job.tell(5)


class WorkersAreTheSame(Scene):
    """Makes all workers send the same gradients."""

    fires = ("AggWorkersWasted", "AggOrthogonalityFloor")

    def do(self, job):
        job.tell_all(gradient="same")

    def undo(self, job):
        job.tell_all()


class RuleFallsBack(Scene):
    """Leaves Krum fewer gradients than it needs."""

    fires = ("AggFallbackRate",)
    may = ("AggNonFiniteGradients",)
    workers = 5
    config = 'combination { rule: "krum" krum { byzantine_workers: 1 } }'

    def do(self, job):
        job.tell(4, gradient="nan")

    def undo(self, job):
        job.tell(4)


class SmallBudget(Scene, abstract=True):
    """Base of scenes whose job's plan nearly fills its memory budget."""

    def begin(self, job):
        super().begin(job)
        planned = max(job.metric("aggserver_memory_planned_bytes", ordinal)
                      for ordinal in job.everybody())
        job.config += f"\nmemory_budget_bytes: {int(1.04 * planned)}"
        job.write_config()
        for ordinal in job.everybody():
            job.kill_shards([ordinal])
            job.restart_shards([ordinal])
            self.await_rounds(job)


class MemoryNearBudget(SmallBudget):
    """Kills a worker of a job whose plan nearly fills its budget."""

    fires = ("AggMemoryNearBudget", "AggWorkersMissing")
    workers = 3
    config = "min_workers: 1 reconnect_grace_seconds: 0.5"

    def do(self, job):
        job.kill_worker(2)

    def undo(self, job):
        job.start_worker(2)


class MemoryAbovePlan(SmallBudget):
    """Opens 400 connections to a shard, which takes more than its budget."""

    fires = ("AggMemoryAbovePlan",)
    may = ("AggDenied",)  # of the calls that are too many

    def do(self, job):
        for _ in range(400):
            connection = http2.Connection(("127.0.0.1", job.ports[1]), WAIT)
            self.cleanup.callback(connection.close)
            connection.greet()
            for _ in range(20):
                connection.call("agg.v1.Coordinator/Attend")

    def undo(self, job):
        self.cleanup.close()
        job.kill_shards([1])
        job.restart_shards([1])
        self.await_rounds(job)


class MemoryNearLimit(Scene):
    """Lowers the limit of a shard's container to what it has."""

    fires = ("AggMemoryNearLimit",)

    @classmethod
    def impossible(cls):
        try:
            memory_group(cls.name()).rmdir()
        except OSError as error:
            return f"no control group for memory can be made: {error}"
        return ""

    def do(self, job):
        group = memory_group(self.name())
        shard = job.shards.running[1]
        self.cleanup.callback(group.rmdir)
        self.cleanup.callback(job.stop)  # an empty group alone can go
        self.limit = group / "memory.limit_in_bytes"
        if not self.limit.exists():
            self.limit = group / "memory.max"
        used = job.metric("aggserver_memory_resident_bytes", 1)
        self.limit.write_text(str(int(1.02 * used)))
        (group / "cgroup.procs").write_text(str(shard.pid))

    def undo(self, job):
        self.limit.write_text(str(1 << 33))


class SharedMemoryRefused(Scene):
    """Starts a shard that the system gives no memory to share (ulimit -f)."""

    fires = ("AggSharedMemoryFallback",)
    job_options = {"piped_log": True, "server": lambda ordinal: (
        "bash", "-c", 'ulimit -S -f 1; exec "$@"', "bash") if ordinal else ()}

    def begin(self, job):
        pass

    def do(self, job):
        super().begin(job)

    def undo(self, job):
        job.server = lambda ordinal: ()
        job.kill_shards([1])
        job.restart_shards([1])
        self.await_rounds(job)


class DamagingProxy(proxies.Proxy):
    """Turns a bit of a row a second, while it is told to."""

    damages = False
    last = 0.0

    def to_shard(self, piece):
        now = time.monotonic()
        # What is as long is a row, and its middle is no header of gRPC's.
        if self.damages and len(piece) > 8192 and now > self.last + 1:
            self.last = now
            piece[len(piece) // 2] ^= 1


class RowsAreDamaged(Scene):
    """Turns bits of what workers push, as a bad network card does."""

    fires = ("AggChecksumErrors",)
    shards = 1
    config = 'unix_socket: "off"\nshared_memory: "off"'

    def make(self, bin_folder, folder):
        job = super().make(bin_folder, folder)
        job.known_ports = chaos.free_ports(1)
        self.proxy = DamagingProxy(job.known_ports[0], job.ports[0])
        self.cleanup.callback(self.proxy.close)
        return job

    def do(self, job):
        self.proxy.damages = True

    def undo(self, job):
        self.proxy.damages = False


class WrongTokens(Scene):
    """Calls again and again with a token that is not valid."""

    fires = ("AggDenied",)
    config = IDENTITIES

    def make(self, bin_folder, folder):
        job = super().make(bin_folder, folder)
        self.wrong = write_tokens(job)
        return job

    def do(self, job):
        for _ in range(8):
            code, said = job.aggctl("status", f"--token-file={self.wrong}")
            if not code:
                raise DrillError(f"a wrong token was taken: {said}")


class AuditDiskFull(Scene):
    """Fills the audit's disk."""

    fires = ("AggAuditErrors",)
    config = IDENTITIES.replace("security {", "security { audit { path: "
                                '"{folder}/audit.log" }')
    job_options = {"piped_log": True}

    def make(self, bin_folder, folder):
        job = super().make(bin_folder, folder)
        self.wrong = write_tokens(job)
        return job

    def do(self, job):
        self.limit = FileLimit(job.shards.running[0].pid,
                               job.folder / "audit.log")
        # It is denied, which goes into the audit.
        for _ in range(2):
            job.aggctl("status", f"--token-file={self.wrong}")

    def undo(self, job):
        self.limit.end()


class CertificateNearItsEnd(Scene):
    """Gives the shards certificates with ten days left."""

    fires = ("AggCertificateExpires",)
    days = 10
    config = ('security { tls { certificate: "{folder}/tls/server.pem" '
              'key: "{folder}/tls/server.key" client_ca: "{folder}/tls/ca.pem" '
              'reload_seconds: 1 } http { pages: "open" } }')

    def make(self, bin_folder, folder):
        job = super().make(bin_folder, folder)
        self.tls = folder / "tls"
        self.tls.mkdir()
        for name in ("ca.pem", "ca.key"):
            (self.tls / name).write_text((self.watch.ca / name).read_text())
        self._renew()
        job.environment = {"AGG_TLS_CA": str(self.tls / "ca.pem"),
                           "AGG_TLS_CERTIFICATE": str(self.tls / "worker.pem"),
                           "AGG_TLS_KEY": str(self.tls / "worker.key")}
        return job

    def targets(self, job):
        return job.targets(scheme="https")

    def _renew(self, days=30):
        text = (ROOT / "deploy" / "test_ca.sh").read_text()
        script = self.tls.parent / "test_ca.sh"
        script.write_text(text.replace("-days 30 ", f"-days {days} "))
        subprocess.run(["bash", script, self.tls], check=True,
                       stdout=subprocess.DEVNULL)

    def do(self, job):
        self._renew(self.days)

    def undo(self, job):
        self._renew()


class CertificateEndsToday(CertificateNearItsEnd):
    """Gives the shards certificates with less than a day left."""

    fires = ("AggCertificateExpiresSoon",)
    silent = ("AggCertificateExpires",)
    days = 1


class OrderlyStop(Quiet):
    """Sends SIGTERM to all shards of a job that trains."""

    config = CHECKPOINT

    def do(self, job):
        job.stop_shards()


class JobFinishes(Quiet):
    """Lets a job do its last round, and its processes end."""

    config = "max_rounds: 30"

    def do(self, job):
        for worker in job.workers.values():
            worker.wait(120)
        job.stop_shards()


class SilentConnections(Quiet):
    """Opens 60 connections to the metrics port that send nothing."""

    def do(self, job):
        self.connections = []
        self.times = 0
        self.failed = None
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self._again,
                                       args=(job.metrics_ports[0],))
        self.thread.start()
        self.cleanup.callback(self._end)

    def _again(self, port):
        """The server closes them after a while: as many come again."""
        stop = False
        while not stop and not self.failed:
            try:
                for _ in range(60):
                    self.connections.append(
                        socket.create_connection(("127.0.0.1", port), WAIT))
                self.times += 1
            except OSError as error:
                self.failed = error
            stop = self.stopped.wait(1)
            while self.connections:
                self.connections.pop().close()

    def _end(self):
        self.stopped.set()
        self.thread.join()

    def undo(self, job):
        self.cleanup.close()
        # Else nothing was done to the job.
        if self.failed or self.times < 2:
            raise DrillError(f"60 connections were open {self.times} times, "
                             f"not again and again: {self.failed}")


class ForeignTarget(Quiet):
    """Lets a target of another namespace say that this job has failed."""

    def do(self, job):
        text = "".join(
            f'{series}{{namespace="{NAMESPACE}",job="{job.name}",'
            f'pod="{job.name}-0",shard="0"{more}}} {value}\n'
            for series, more, value in (
                ("aggserver_job_failed", "", 1),
                ("aggserver_recovering", "", 1),
                ("aggserver_shards", "", 7),
                ("aggserver_not_finite_rounds", "", 9),
                ("aggserver_job_phase", ',phase="shard_lost"', 1)))

        class Forger(http.server.BaseHTTPRequestHandler):

            def do_GET(self):  # pylint: disable=invalid-name
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, *_):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Forger)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.cleanup.callback(server.server_close)
        self.cleanup.callback(server.shutdown)
        address = f"127.0.0.1:{server.server_port}"
        self.watch.watch("foreign", [
            {"targets": [address],
             "labels": {"namespace": "elsewhere", "pod": "forger"}}])
        eventually("the foreign target is read", lambda: any(
            value == 1 for _, value in self.watch.query(
                f'up{{instance="{address}"}}')))

    def undo(self, job):
        self.watch.watch("foreign", [])



# Alerts that no scene makes fire, and why.
WITHOUT = {
    "AggDeviceMemoryNearBudget": "it needs a card; promtool tests it",
    "AggBackendErrors": "the CPU backend does not fail; promtool tests it",
}
