"""Shards that are killed, frozen and started again while a job trains.

What is done when follows from a seed and from the versions that the job
reaches. Waits are for what the job says of itself (aggctl status), except for
the moment within a round: a random part of the last round's time, so that
every phase of a round is met.
"""

import json
import pathlib
import random
import signal
import socket
import subprocess
import time

from deploy import quickstart_job as job

SETTLE_SECONDS = 90  # a job that does not go on by then hangs
RESTART_SECONDS = 0.5  # a killed shard is started again within
FREEZE_SECONDS = (0.1, 3.0)
TERM_SECONDS = 60
# The others take a shard that is silent for 10 s as gone.
LONG_FREEZE_SECONDS = (8.0, 14.0)
# Below the ports that the kernel gives to connections: nobody takes a killed
# shard's while it is away.
PORTS = (20000, 32000)


def free_ports(number):
    """Ports of loopback that nobody listens on.

    Not of the run's seed: two runs of one seed at a time would get the same.
    """
    rng = random.SystemRandom()
    ports = []
    while len(ports) < number:
        port = rng.randrange(*PORTS)
        if port in ports:
            continue
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        ports.append(port)
    return ports


class Shards:
    """The agg_servers of a job; `command` gives the words to start one."""

    def __init__(self, processes, command, number):
        self.processes = processes
        self.command = command
        self.number = number
        self.lives = [0] * number
        self.running = [None] * number
        for ordinal in range(number):
            self.start(ordinal)

    def start(self, ordinal):
        """Every life with the same command, and a log of its own."""
        name = f"shard_{ordinal}_life_{self.lives[ordinal]}"
        self.lives[ordinal] += 1
        self.running[ordinal] = self.processes.start(
            name, self.command(ordinal))

    def kill(self, ordinals):
        """All at once, by SIGKILL; their ends are no failures."""
        for ordinal in ordinals:
            self.running[ordinal].kill()
        for ordinal in ordinals:
            ended = self.running[ordinal]
            ended.wait()
            if ended.returncode != -signal.SIGKILL:
                self.processes.check()  # raises: it had ended by itself
            self.processes.running = [
                item for item in self.processes.running if item[1] != ended]

    def replace(self, ordinal):
        """As Kubernetes does: SIGTERM, its end in good order, the next one."""
        ended = self.running[ordinal]
        ended.terminate()
        try:
            ended.wait(TERM_SECONDS)
        except subprocess.TimeoutExpired as error:
            raise job.RunError(f"shard {ordinal} does not end within "
                               f"{TERM_SECONDS} s of SIGTERM") from error
        self.processes.check()
        self.start(ordinal)

    def send(self, ordinals, number):
        for ordinal in ordinals:
            self.running[ordinal].send_signal(number)


def named(ordinals):
    return " and ".join(str(ordinal) for ordinal in ordinals)


def not_neighbours(number, ordinal):
    """The shards that hold no copy of what `ordinal` holds."""
    return [other for other in range(number)
            if (other - ordinal) % number not in (0, 1, number - 1)]


class Chaos:
    """Does `events`, pairs of a version and an action, to the shards.

    Actions: kill (one shard), coordinator, pair (two that are no neighbours,
    at once), recovery (a second one while the first is missed), freeze (one, by
    SIGSTOP, for up to 3 s), long_freeze (up to 14 s), freeze_all (every shard,
    for up to 14 s), all (every shard at once), term (one, by SIGTERM), roll (all
    by SIGTERM, each when the one before is back).
    """

    # After these the same processes may go on in the same epoch.
    SAME_EPOCH = ("freeze", "long_freeze", "freeze_all", "cut",
                  "freeze_workers", "frozen_observers")
    # These take a checkpoint by themselves.
    ORDERLY = ("term", "roll")
    # These need one, whatever else there is.
    SAVED = ("torn",)

    def __init__(self, shards, aggctl, coordinator, rng, events,
                 replicated=True, say=print):
        # Not replicated: nothing is killed before there is a checkpoint.
        self.shards = shards
        self.status_command = [
            aggctl, "status", f"--coordinator={coordinator}", "--output=json",
            "--timeout=5"]
        self.rng = rng
        self.events = sorted(events)
        self.replicated = replicated
        self.say = say
        self.before = None  # the status when the last event began
        self.pauses = []
        self.status_error = ""  # of the last call that had one
        self.histories = []  # epochs of the seed and of rewinds, as seen
        self._last = time.monotonic()
        self._round_seconds = 0.0
        self._ready_at = 0  # lines of lower versions are of the past

    def on_version(self, version):
        """The job has published it: does what is due."""
        now = time.monotonic()
        self._round_seconds = min(now - self._last, 1.0)
        self._last = now
        if (not self.events or version < self.events[0][0]
                or version < self._ready_at):
            return
        before = self.status()
        if before is None:
            raise job.RunError("the coordinator does not answer before a kill:"
                               f" {self.status_error}")
        action = self.events[0][1]
        if ((not self.replicated or action in self.SAVED)
                and action not in self.SAME_EPOCH + self.ORDERLY
                and before["checkpoint"]["num_sealed"] == "0"
                and before["checkpoint"]["restored_made"] == "0"):
            return
        self.events.pop(0)
        self.before = before
        self._note(before)
        time.sleep(self.rng.uniform(0, self._round_seconds))
        began = time.monotonic()
        what = getattr(self, "_" + action)()
        after = self.settle(
            before, must_change=action not in self.SAME_EPOCH)
        self.pauses.append(time.monotonic() - began)
        self._note(after)
        self._ready_at = int(after["version"]) + 1
        self.say(f"round {version}: {what}; goes on at version "
                 f"{after['version']} after {self.pauses[-1]:.2f} s")

    def status(self):
        """StatusReply as a dictionary, or None."""
        run = subprocess.run(
            [str(word) for word in self.status_command], check=False,
            stdin=subprocess.DEVNULL, capture_output=True, text=True,
            env=job.environment())
        self.status_error = run.stderr.strip()
        return json.loads(run.stdout) if run.returncode == 0 else None

    def settle(self, before, must_change):
        """Waits until rounds are open again, or the job has finished, whose
        epoch need not change any more; returns the status."""
        deadline = time.monotonic() + SETTLE_SECONDS
        status = None
        while time.monotonic() < deadline:
            self.shards.processes.check()
            status = self.status()
            if (status and status["phase"] in ("open", "closing", "finished")
                    and (not must_change or status["phase"] == "finished"
                         or status["epoch"] != before["epoch"])
                    and (not self.replicated or status["replicated"])):
                return status
            time.sleep(0.02)
        raise job.RunError(
            f"the job does not go on within {SETTLE_SECONDS} s: "
            f"{status or self.status_error}")

    def _note(self, status):
        if status["history"] not in self.histories:
            self.histories.append(status["history"])

    def _any(self):
        return self.rng.randrange(self.shards.number)

    def _restart(self, ordinals):
        self.shards.kill(ordinals)
        time.sleep(self.rng.uniform(0, RESTART_SECONDS))
        for ordinal in ordinals:
            self.shards.start(ordinal)
        return f"kill -9 of shard {named(ordinals)}"

    def _kill(self):
        return self._restart([self._any()])

    def _coordinator(self):
        return self._restart([0])

    def _pair(self):
        first = self._any()
        return self._restart(
            [first, self.rng.choice(not_neighbours(self.shards.number, first))])

    def _recovery(self):
        first = self._any()
        second = self.rng.choice(
            [first] + not_neighbours(self.shards.number, first))
        what = self._restart([first])
        time.sleep(self.rng.uniform(0, RESTART_SECONDS))
        return f"{what}, then {self._restart([second])}"

    def _all(self):
        return self._restart(list(range(self.shards.number)))

    def _freeze(self):
        return self._freeze_for([self._any()], FREEZE_SECONDS)

    def _long_freeze(self):
        return self._freeze_for([self._any()], LONG_FREEZE_SECONDS)

    def _freeze_all(self):
        return self._freeze_for(range(self.shards.number), LONG_FREEZE_SECONDS)

    def _freeze_for(self, ordinals, limits):
        seconds = self.rng.uniform(*limits)
        self.shards.send(ordinals, signal.SIGSTOP)
        time.sleep(seconds)
        self.shards.send(ordinals, signal.SIGCONT)
        return f"shard {named(ordinals)} frozen for {seconds:.1f} s"

    def _term(self):
        ordinal = self._any()
        self.shards.replace(ordinal)
        return f"SIGTERM of shard {ordinal}"

    def _roll(self):
        order = list(range(self.shards.number))
        self.rng.shuffle(order)
        for ordinal in order[:-1]:
            before = self.status()
            self.shards.replace(ordinal)
            self.settle(before, must_change=True)
        self.shards.replace(order[-1])
        return f"SIGTERM of shard {', then '.join(map(str, order))}"


def train(run, bin_folder, kills, on_round, say):
    """A run whose shards are killed so often: its JSON entry, and Chaos.

    Raises quickstart_job.RunError.
    """
    rng = make_random(run.seed)
    bin_folder = pathlib.Path(bin_folder)
    disturbers = []

    def start(_, server, processes):
        addresses = [f"127.0.0.1:{port}"
                     for port in free_ports(run.shards)]
        config = processes.folder / "job.textproto"
        config.write_text(job.config_text(run, addresses))
        shards = Shards(
            processes,
            lambda ordinal: [server, f"--config={config}",
                             f"--shard={ordinal}"], run.shards)
        disturbers.append(Chaos(
            shards, bin_folder / "worker_client" / "tools" / "aggctl",
            addresses[0], rng, plan(run.rounds(), kills, ["kill"], rng),
            say=say))
        return addresses[0]

    def disturb(line):
        on_round(line)
        disturbers[0].on_version(line["round"] + 1)

    entry = job.train(run, bin_folder, disturb, start=start)
    return entry, disturbers[0]


def plan(rounds, number, actions, rng):
    """Events, about evenly spread: an event takes some rounds, and so many are
    left behind the last one."""
    if number == 0:
        return []
    gap = max(1, rounds * 85 // 100 // number)
    versions = [2 + i * gap + rng.randrange(gap) for i in range(number)]
    return [(version, rng.choice(actions)) for version in versions]


def make_random(seed):
    return random.Random(f"chaos {seed}")
