"""Rounds of one trip against a bare echo, in turns: trips.py --bin=FOLDER.

Prints medians of the time from the first byte out to the last byte in, over all
workers, and their ratio to the echo: of workers that speak the wire's messages
themselves ("raw"), and of AggClient. Behind it, for each round, the processor's
time and the context switches of all workers and of all servers together: these
mean something on a busy machine, too. FOLDER: bazel-bin.
"""

import argparse
import json
import os
import pathlib
import socket
import statistics
import subprocess
import tempfile


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def used(pids):
    """Microseconds of processor time and context switches so far."""
    microseconds, switches = 0, 0
    for pid in pids:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
        fields = stat.rsplit(")", 1)[1].split()
        ticks = int(fields[11]) + int(fields[12])
        microseconds += ticks * 1e6 / os.sysconf("SC_CLK_TCK")
        for thread in pathlib.Path(f"/proc/{pid}/task").iterdir():
            for line in (thread / "status").read_text().splitlines():
                if "ctxt_switches" in line:
                    switches += int(line.split()[1])
    return microseconds, switches


class Team:
    """Workers that step together; a round is from the first begin to the last
    end."""

    def __init__(self, commands, servers=()):
        self.servers = [server.pid for server in servers]
        self.used = [0.0] * 4  # by workers and servers: time, switches
        self.rounds = 0
        self.workers = [subprocess.Popen(command, stdin=subprocess.PIPE,
                                         stdout=subprocess.PIPE, text=True)
                        for command in commands]
        for worker in self.workers:
            assert json.loads(worker.stdout.readline())["ready"]

    def run_rounds(self, rounds):
        """Of each round "begin", "end" and what else workers say, as the first
        or the last of them has it, in ns."""
        for worker in self.workers:
            worker.stdin.write(f"{rounds}\n")
            worker.stdin.flush()
        times = [[json.loads(w.stdout.readline()) for _ in range(rounds)]
                 for w in self.workers]
        return [{key: (min if key == "begin" else max)(t[key] for t in turn)
                 for key in turn[0]} for turn in zip(*times)]

    def run(self, rounds):
        return [(r["end"] - r["begin"]) / 1e3 for r in self.run_rounds(rounds)]

    def _used(self):
        return (*used(worker.pid for worker in self.workers),
                *used(self.servers))

    def measure(self, rounds):
        """The median time of a round, in us; adds to what rounds have used."""
        before = self._used()
        median = statistics.median(self.run(rounds))
        self.rounds += rounds
        self.used = [total + end - begin for total, begin, end
                     in zip(self.used, before, self._used())]
        return median

    def costs(self):
        """Of a round, by workers and servers: "1.2 ms, 34 switches"."""
        return "  ".join(
            f"{who} {self.used[i] / self.rounds / 1e3:.2f} ms,"
            f" {self.used[i + 1] / self.rounds:.0f} switches"
            for who, i in (("workers", 0), ("servers", 2)))

    def stop(self):
        for worker in self.workers:
            worker.stdin.close()
            worker.wait(30)


def barrier(folder, name):
    path = folder / f"{name}.barrier"
    path.write_bytes(bytes(4096))
    return path


def start_job(bin_folder, folder, args, num_shards, name):
    ports = free_ports(num_shards)
    config = folder / f"{name}.textproto"
    config.write_text("".join(
        f'shards: "127.0.0.1:{port}"\n' for port in ports)
        + f"workers: {args.workers}\n"
        + f'replication: "{args.replication}"\n'
        + 'combination { rule: "adasum" } learning_rate { rate: 1e-3 }\n')
    return f"127.0.0.1:{ports[0]}", [
        subprocess.Popen([bin_folder / "server/agg_server",
                          f"--config={config}", f"--shard={shard}"],
                         stderr=open(folder / f"{name}{shard}.log", "w"))
        for shard in reversed(range(num_shards))]


WORKERS = {
    "raw": ["tests/bench/trip_worker"],
    "AggClient": ["tests/bench/transport_worker", "--tensors=2"],
}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", default="bazel-bin")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--elements", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--replication", default="none")
    parser.add_argument("--shards", type=int, nargs="*", default=[1, 2])
    args = parser.parse_args()
    bin_folder = pathlib.Path(args.bin).resolve()
    with tempfile.TemporaryDirectory() as name:
        run(args, bin_folder, pathlib.Path(name))


def run(args, bin_folder, folder):
    servers, teams = [], {}
    try:
        port_file = folder / "port"
        servers.append(subprocess.Popen(
            [bin_folder / "tests/bench/grpc_echo", "--serve",
             f"--port_file={port_file}"]))
        while not port_file.exists() or not port_file.read_text().strip():
            pass
        address = "127.0.0.1:" + port_file.read_text().strip()
        teams["echo"] = Team(
            [[bin_folder / "tests/bench/grpc_echo", f"--server={address}",
              f"--bytes={4 * args.elements}", f"--workers={args.workers}",
              f"--barrier={barrier(folder, 'echo')}"]
             for _ in range(args.workers)], servers)
        for shards in args.shards:
            for worker, program in WORKERS.items():
                name = f"{worker} K={shards}"
                address, job = start_job(bin_folder, folder, args, shards,
                                         f"{worker}{shards}")
                servers += job
                path = barrier(folder, f"{worker}{shards}")
                teams[name] = Team(
                    [[bin_folder / program[0], *program[1:],
                      f"--coordinator={address}", f"--rank={rank}",
                      f"--workers={args.workers}", f"--barrier={path}",
                      f"--elements={args.elements}"]
                     for rank in range(args.workers)], job)
        for team in teams.values():
            team.run(args.rounds)  # to warm up
        medians = {name: [] for name in teams}
        for _ in range(args.turns):
            for name, team in teams.items():
                medians[name].append(team.measure(args.rounds))
        for name, values in medians.items():
            ratios = [v / e for v, e in zip(values, medians["echo"])]
            print(f"{name:14} {statistics.median(values):6.0f} us"
                  f" ({min(values):.0f} to {max(values):.0f})"
                  f" {statistics.median(ratios):5.2f} x echo;"
                  f" {teams[name].costs()}")
        for team in teams.values():
            team.stop()
    finally:
        for server in servers:
            server.terminate()
        for server in servers:
            server.wait(30)


if __name__ == "__main__":
    main()
