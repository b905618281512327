"""A job of real processes whose shards are killed and frozen while it trains.

    chaos.py --bin=BAZEL_BIN [--replication=none|buddy] [--events=12]
             [--publish=atomic|pipelined] [--wide] [--rows=N]
             [--actions=kill,pair,..] [--checkpoint_every_rounds=N]
             [--shards=4] [--workers=3] [--rounds=200] [--rule=adasum]
             [--optimizer=adam] [--seed=1] [--minutes=M] [--edges]
             [--keep_logs]

Trains once undisturbed and once with events (deploy/quickstart_chaos.py), and
compares the sha256 of the final parameters of all workers. After each run
agg_report --audit proves that each gradient counted exactly once. With
--replication=buddy nothing may be rewound either, unless both copies of a part
are lost. Further actions: cut (all connections to one shard, for up to 1.5 s),
everything (all shards and workers killed at once), torn (all shards killed;
one comes back to a checkpoint folder that is empty, older, or has a part that
is cut; the job has to wait until the folder is put back), evict (an operator
evicts a frozen worker, a shard is killed behind the answer, the worker thaws: its
session never counts again, and another process takes its rank), freeze_workers
(all but rank 0, for up to 3 s, which meets some in the midst of a pull) and
frozen_observers (who ask all shards for the newest version, over TCP and Unix
sockets, and never read it); the last two have all bytes sent, shared memory or
not. With --edges a shard is
also killed while the job starts, and one in its last moments. With --minutes it
goes on with the next seeds until the time is up. Exits with 1 and says what
differs, and where the logs are.
"""

import argparse
import collections
import fcntl
import hashlib
import json
import os
import pathlib
import selectors
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent))

from deploy import quickstart_chaos as chaos  # noqa: E402
from deploy import quickstart_job as job  # noqa: E402
from tests.e2e import frozen_readers, proxies  # noqa: E402

ACTIONS = ("kill", "coordinator", "pair", "recovery", "freeze", "long_freeze",
           "freeze_all", "cut", "term", "roll", "all", "everything", "torn",
           "freeze_workers", "frozen_observers", "evict")
TEARS = ("empty", "older", "cut")
CUT_SECONDS = (0.0, 1.5)
EARLY_SECONDS = 1.5
SILENT_SECONDS = 120  # without a round: the job hangs
# What rank 0 may say unheard: a few rounds, where a page has 4 KiB. It waits
# then, and so does the job, so that no event is due before the one ahead of it
# is over.
PIPE_BYTES = 4096


def config_text(options, addresses, folder, more=""):
    lines = ['job: "chaos"']
    lines += [f'shards: "{address}"' for address in addresses]
    lines += [f"workers: {options.workers}",
              f'combination {{ rule: "{options.rule}" }}',
              f'step_scale {{ kind: "{options.step_scale}" }}',
              f'optimizer {{ kind: "{options.optimizer}" }}',
              "learning_rate { rate: 0.01 }",
              "compute_threads: 1",
              f'round_log {{ path: "{folder / "rounds.binlog"}" }}',
              f'replication: "{options.replication}"',
              f'publish: "{options.publish}"']
    if "cut" in options.actions.split(","):
        # The proxies that cut connections see TCP alone.
        lines.append('unix_socket: "off"')
    if "evict" in options.actions.split(","):
        # A round waits for the process that takes the rank.
        lines.append(f"min_workers: {options.workers}")
    return "\n".join(lines) + "\n" + more


def checkpoint_text(options, path):
    if not options.checkpoint_every_rounds:
        return ""
    path.mkdir(parents=True, exist_ok=True)
    return (f'checkpoint {{ path: "{path}" every_rounds: '
            f'{options.checkpoint_every_rounds} every_seconds: 0 }}\n')


def _order(name):
    """A checkpoint's folder by age: it is called MADE-VERSION."""
    return tuple(map(int, name.split("-")))


class Job:
    """The processes of one run. `more`: of the configuration; `environment`: of
    the workers, beside this process's; `flags`: of the servers."""

    def __init__(self, options, folder, more="", environment=None, flags=()):
        self.options = options
        self.environment = environment
        self.folder = folder
        self.bin = pathlib.Path(options.bin).resolve()
        self.processes = job.Processes(folder)
        ports = chaos.free_ports(2 * options.shards)
        listening, known = ports[:options.shards], ports[:options.shards]
        self.proxies = []
        if "cut" in options.actions.split(","):
            known = ports[options.shards:]
            self.proxies = [proxies.Proxy(port, target)
                            for port, target in zip(known, listening)]
        addresses = [f"127.0.0.1:{port}" for port in known]
        self.coordinator = addresses[0]
        self.addresses = [("127.0.0.1", port) for port in listening]
        actions = options.actions.split(",")
        if "freeze_workers" in actions or "frozen_observers" in actions:
            more += 'shared_memory: "off"\n'
        text = config_text(options, addresses, folder, more)
        # One folder for all, or one for each.
        self.own_folders = "torn" in actions
        for ordinal in range(options.shards):
            path = folder / "checkpoints"
            if self.own_folders:
                path = path / str(ordinal)
            (folder / f"job_{ordinal}.textproto").write_text(
                text + checkpoint_text(options, path))
        self.shards = chaos.Shards(
            self.processes,
            lambda ordinal: [self.bin / "server" / "agg_server",
                             f"--config={folder / f'job_{ordinal}.textproto'}",
                             f"--shard={ordinal}",
                             f"--port={listening[ordinal]}", *flags],
            options.shards)
        self.readers = []
        self.worker_lives = 0
        self.start_workers()

    def start_workers(self):
        self.workers = [self.start_worker(rank)
                        for rank in range(self.options.workers)]
        self.worker_lives += 1

    def kill_workers(self):
        for worker in self.workers:
            worker.kill()
            worker.wait()
        self.processes.running = [item for item in self.processes.running
                                  if item[1] not in self.workers]

    def replace_worker(self, rank):
        """Starts the next process of a rank whose last one has ended."""
        ended = self.workers[rank]
        self.processes.running = [item for item in self.processes.running
                                  if item[1] != ended]
        self.workers[rank] = self.start_worker(rank)
        self.worker_lives += 1

    def start_worker(self, rank):
        worker = self.processes.start(
            f"worker_{rank}_life_{self.worker_lives}",
            [self.bin / "tests" / "e2e" / "chaos_worker",
             f"--coordinator={self.coordinator}", f"--rank={rank}",
             f"--rounds={self.options.rounds}",
             f"--{'' if self.options.wide else 'no'}wide",
             f"--rows={self.options.rows}",
             f"--audit_log={self.folder / f'audit_{rank}.log'}",
             f"--save={self.folder / f'parameters_{rank}'}"],
            stdout=subprocess.PIPE if rank == 0 else None,
            more=self.environment)
        if rank == 0:
            fcntl.fcntl(worker.stdout, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        return worker

    def lines(self):
        """What rank 0 says of each round, until its last life ends."""
        worker = None
        while worker != self.workers[0]:
            worker = self.workers[0]
            yield from self.lines_of_life(worker)
            worker.stdout.close()

    def lines_of_life(self, worker):
        pipe, rest = worker.stdout, b""
        heard = time.monotonic()
        with selectors.DefaultSelector() as selector:
            selector.register(pipe, selectors.EVENT_READ)
            while worker == self.workers[0]:
                if not selector.select(timeout=0.5):
                    self.processes.check()
                    if time.monotonic() - heard > SILENT_SECONDS:
                        raise job.RunError(
                            f"no round for {SILENT_SECONDS} s")
                    continue
                piece = os.read(pipe.fileno(), 1 << 16)
                if not piece:
                    return
                *lines, rest = (rest + piece).split(b"\n")
                for line in map(json.loads, lines):
                    yield line
                    heard = time.monotonic()

    def stop(self):
        for reader in self.readers:
            reader.close()
        self.processes.stop()
        for proxy in self.proxies:
            proxy.close()

    def digests(self):
        """Waits for the workers' ends; the sha256 of what each has saved."""
        for worker in self.workers:
            worker.wait(SILENT_SECONDS)
        self.processes.check()
        return [hashlib.sha256(
            (self.folder / f"parameters_{rank}").read_bytes()).hexdigest()
            for rank in range(self.options.workers)]


    def audit(self):
        """Ends the processes, so that the log is complete; what it says."""
        self.processes.stop()
        command = [self.bin / "server" / "tools" / "agg_report",
                   f"--audit={self.folder / 'rounds.binlog'}"]
        command += [f"--worker={self.folder / f'audit_{rank}.log'}"
                    for rank in range(self.options.workers)]
        result = subprocess.run(command, capture_output=True, text=True,
                                timeout=SILENT_SECONDS, check=False)
        if result.returncode:
            raise job.RunError(f"the audit:\n{result.stdout}{result.stderr}")
        return result.stdout


class Disturber(chaos.Chaos):
    """Kills workers, too."""

    def __init__(self, one, rng, events, say):
        super().__init__(
            one.shards, one.bin / "worker_client" / "tools" / "aggctl",
            one.coordinator, rng, events,
            one.options.replication == "buddy", say)
        self.job = one
        self.evicted = {}  # the version at which the answer was there

    def _cut(self):
        ordinal = self._any()
        seconds = self.rng.uniform(*CUT_SECONDS)
        self.job.proxies[ordinal].cut()
        time.sleep(seconds)
        self.job.proxies[ordinal].mend()
        return f"connections to shard {ordinal} cut for {seconds:.1f} s"

    def _freeze_workers(self):
        seconds = self.rng.uniform(*chaos.FREEZE_SECONDS)
        for worker in self.job.workers[1:]:
            worker.send_signal(signal.SIGSTOP)
        time.sleep(seconds)
        for worker in self.job.workers[1:]:
            worker.send_signal(signal.SIGCONT)
        return f"all workers but rank 0 frozen for {seconds:.1f} s"

    def _frozen_observers(self):
        for shard, address in zip(self.shards.running, self.job.addresses):
            self.job.readers.append(frozen_readers.FrozenReader(address))
            if "cut" in self.job.options.actions.split(","):
                continue  # there are no Unix sockets
            name = frozen_readers.local_socket(shard)
            self.job.readers.append(frozen_readers.FrozenReader(name))
        return "observers that do not read"

    def kill_early(self):
        """Before it is known how far the job is: seeded or not."""
        time.sleep(self.rng.uniform(0, EARLY_SECONDS))
        self.say(f"at the start: {self._kill()}")

    def _evict(self):
        rank = self.rng.randrange(1, self.job.options.workers)
        worker = self.job.workers[rank]
        worker.send_signal(signal.SIGSTOP)
        command = [self.job.bin / "worker_client" / "tools" / "aggctl", "evict",
                   f"--coordinator={self.job.coordinator}", f"--rank={rank}",
                   "--reason=chaos", "--output=json", "--timeout=60"]
        run = subprocess.run(command, capture_output=True, text=True,
                             timeout=SILENT_SECONDS, check=False)
        if run.returncode and "has left the job" in run.stderr:
            worker.send_signal(signal.SIGCONT)
            return f"rank {rank} had done its rounds before it was evicted"
        if run.returncode:
            raise job.RunError(f"evict: {run.stderr}")
        session = int(json.loads(run.stdout)["session"])
        # It was answered OK: no kill undoes it.
        what = self._kill()
        status = self.settle(self.before, must_change=True)
        self.evicted[session] = int(status["version"])
        worker.send_signal(signal.SIGCONT)
        if worker.wait(SILENT_SECONDS) == 0:
            raise job.RunError(f"rank {rank} was evicted and has ended with 0")
        log = max(self.job.folder.glob(f"worker_{rank}_life_*.log"),
                  key=lambda path: int(path.stem.rsplit("_", 1)[1]))
        if "evicted: chaos" not in log.read_text():
            raise job.RunError(f"rank {rank} does not say that it was evicted")
        self.job.replace_worker(rank)
        return f"rank {rank} evicted, {what}"

    def counted_again(self):
        """Rows of evicted sessions in rounds after their eviction."""
        found = []
        for path in self.job.folder.glob("audit_*.log"):
            for line in map(json.loads, path.read_text().splitlines()):
                ended = self.evicted.get(line["session"])
                if (ended is not None and line["included"]
                        and line["round"] > ended):
                    found.append(f"session {line['session']} was evicted at "
                                 f"version {ended} and counts in round "
                                 f"{line['round']}")
        return found

    def _everything(self):
        self.job.kill_workers()
        what = self._all()
        self.job.start_workers()
        return f"kill -9 of all workers; {what}"


    def _torn(self):
        everybody = list(range(self.shards.number))
        self.shards.kill(everybody)
        ordinal = self._any()
        # The kill may have come when this shard alone had sealed.
        if not self._sealed(ordinal):
            ordinal = (ordinal + 1) % self.shards.number
        folder = self.job.folder / "checkpoints" / str(ordinal)
        aside = folder.with_name(f"{ordinal}_aside")
        folder.rename(aside)
        kind = self.rng.choice(TEARS)
        if kind == "empty":
            folder.mkdir()
        else:
            shutil.copytree(aside, folder)
            newest = folder / "chaos" / max(self._sealed(ordinal), key=_order)
            # What no other folder knows of, nobody waits for.
            for path in (folder / "chaos").glob("*/manifest.json"):
                if _order(path.parent.name) > _order(newest.name):
                    shutil.rmtree(path.parent)
            if kind == "older":
                shutil.rmtree(newest)
            else:
                part, = newest.glob("part-*")
                os.truncate(part, part.stat().st_size - 1)
        for other in everybody:
            self.shards.start(other)
        self._await_word(ordinal, folder)
        shutil.rmtree(folder)
        aside.rename(folder)
        return f"kill -9 of all; the folder of shard {ordinal} torn: {kind}"

    def _sealed(self, but):
        """The checkpoints that shards other than `but` have sealed."""
        manifests = (self.job.folder / "checkpoints").glob(
            "[0-9]*/chaos/*/manifest.json")
        return [path.parent.name for path in manifests
                if path.parents[2].name not in (str(but), f"{but}_aside")]

    def _await_word(self, ordinal, folder):
        """Until the job says that it waits, and for which folder."""
        deadline = time.monotonic() + chaos.SETTLE_SECONDS
        while time.monotonic() < deadline:
            self.shards.processes.check()
            status = self.status()
            if not status:
                continue
            if status["phase"] in ("unseeded", "open", "closing", "finished"):
                raise job.RunError("the job does not wait for the folder of "
                                   f"shard {ordinal}: {status}")
            said = status["recovering"]
            if "the job waits" in said:
                if f"shard {ordinal}" not in said or str(folder) not in said:
                    raise job.RunError(f"{folder} is not named: {said}")
                return
            time.sleep(0.02)
        raise job.RunError("the job does not say that it waits")


Result = collections.namedtuple(
    "Result", "digests rewinds left_out pauses histories")


def run(options, events, rng, say):
    """One run. Raises job.RunError."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="agg_chaos_"))
    keep = True
    one = Job(options, folder)
    try:
        disturber = Disturber(one, rng, events, say)
        if events and options.edges:
            disturber.kill_early()
        last, rewinds, left_out = 0, 0, 0
        for line in one.lines():
            # A rewound worker takes part again from an older version on.
            if line["version"] <= last:
                rewinds += 1
            elif not line["included"]:
                left_out += 1
            last = line["version"]
            disturber.on_version(last)
        if disturber.counted_again():
            raise job.RunError("; ".join(disturber.counted_again()))
        result = Result(one.digests(), rewinds, left_out, disturber.pauses,
                        disturber.histories)
        say(one.audit())
        keep = options.keep_logs
        return result
    except (job.RunError, subprocess.TimeoutExpired) as error:
        raise job.RunError(f"{error}\nlogs: {folder}") from error
    finally:
        one.stop()
        if not keep:
            shutil.rmtree(folder)


def faults(options, undisturbed, disturbed):
    """What a run must not do, in words."""
    found = []
    if len(set(disturbed.digests)) != 1:
        found.append(f"the workers end with unlike parameters: "
                     f"{disturbed.digests}")
    if disturbed.digests[0] != undisturbed.digests[0]:
        found.append("the parameters are not those of the undisturbed run")
    if disturbed.left_out:
        found.append(f"{disturbed.left_out} gradients of rank 0 were left out")
    actions = set(options.actions.split(","))
    loses_both_copies = {"all", "everything", "torn"} & actions
    hands_over = actions <= set(chaos.Chaos.ORDERLY)
    if (options.replication == "buddy" and not loses_both_copies
            or hands_over) and (
            disturbed.rewinds or len(disturbed.histories) > 1):
        found.append(f"rewound {disturbed.rewinds} times; histories "
                     f"{disturbed.histories}")
    return found


def compare(options, seed, undisturbed, say):
    """One seed; returns the faults."""
    rng = chaos.make_random(seed)
    events = chaos.plan(options.rounds, options.events,
                        options.actions.split(","), rng)
    if options.edges:
        events.append((options.rounds - rng.randrange(2), "kill"))
    disturbed = run(options, events, rng, say)
    found = faults(options, undisturbed, disturbed)
    pauses = disturbed.pauses or [0]
    # A job may be done before the last ones.
    if len(disturbed.pauses) < options.events // 2:
        found.append(f"only {len(disturbed.pauses)} of {options.events} events")
    say(f"seed {seed}: {len(disturbed.pauses)} events, "
        f"{disturbed.rewinds} rewinds, pauses of "
        f"{statistics.median(pauses):.2f} s, at most {max(pauses):.2f} s\n"
        f"undisturbed sha256 {undisturbed.digests[0]}\n"
        f"disturbed   sha256 {disturbed.digests[0]}")
    return found


def make_parser():
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n", maxsplit=1)[0], allow_abbrev=False)
    parser.add_argument("--bin", required=True)
    parser.add_argument("--replication", default="buddy",
                        choices=("none", "buddy"))
    parser.add_argument("--publish", default="atomic",
                        choices=("atomic", "pipelined"))
    parser.add_argument("--checkpoint_every_rounds", type=int, default=0)
    parser.add_argument("--events", type=int, default=12)
    parser.add_argument("--actions", default="kill",
                        help="some of " + ",".join(ACTIONS))
    parser.add_argument("--shards", type=int, default=4)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--rule", default="adasum")
    parser.add_argument("--step_scale", default="none")
    parser.add_argument("--optimizer", default="adam")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=0)
    parser.add_argument("--wide", action="store_true",
                        help="rows of several waves")
    parser.add_argument("--rows", type=int, default=0,
                        help="of 1 KiB, of the first tensor")
    parser.add_argument("--edges", action="store_true")
    parser.add_argument("--keep_logs", action="store_true")
    return parser


def main(arguments):
    options = make_parser().parse_args(arguments)
    for action in options.actions.split(","):
        if action not in ACTIONS:
            print(f"--actions={action}; allowed: {', '.join(ACTIONS)}",
                  file=sys.stderr)
            return 2
        if action == "torn" and not options.checkpoint_every_rounds:
            print("--actions=torn; allowed: with --checkpoint_every_rounds",
                  file=sys.stderr)
            return 2
    deadline = time.monotonic() + 60 * options.minutes
    seed = options.seed
    try:
        undisturbed = run(options, [], chaos.make_random("undisturbed"), print)
        while True:
            for fault in compare(options, seed, undisturbed, print):
                print(f"seed {seed}: {fault}", file=sys.stderr)
                return 1
            seed += 1
            if time.monotonic() > deadline:
                return 0
    except job.RunError as error:
        print(f"seed {seed}: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
