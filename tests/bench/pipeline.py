"""Atomic and pipelined rounds over a slow link: pipeline.py --bin=FOLDER.

Needs root, for network namespaces: the servers have one end of a pair of links,
the workers share the other, both shaped to --mbit. --delay_ms and --loss need
netem in the kernel. "raw" is a worker that speaks the wire's messages itself
(trip_worker), "client" is AggClient (transport_worker). Prints the median round
of each, and its ratio to the time of one direction alone, which is when the raw
worker's first answer of an atomic round comes. FOLDER: bazel-bin.
"""

import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

from trips import Team, barrier

CONTENDERS = [(worker, publish) for worker in ("raw", "client")
              for publish in ("atomic", "pipelined")]
PROGRAMS = {"raw": ["trip_worker"],
            "client": ["transport_worker", "--transport=tcp"]}

SERVER, WORKERS = f"aggs{os.getpid()}", f"aggw{os.getpid()}"
ADDRESS = "10.231.7.1"


def must(*command):
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


class Link:
    """Two namespaces and the link between them."""

    def __init__(self, args):
        self.args = args

    def __enter__(self):
        for name in (SERVER, WORKERS):
            must("ip", "netns", "add", name)
        must("ip", "link", "add", "end", "netns", SERVER, "type", "veth",
             "peer", "name", "end", "netns", WORKERS)
        for name, address in ((SERVER, ADDRESS), (WORKERS, "10.231.7.2")):
            self.run_in(name, "ip", "link", "set", "lo", "up")
            self.run_in(name, "ip", "addr", "add", f"{address}/24", "dev",
                        "end")
            self.run_in(name, "ip", "link", "set", "end", "up")
            self.shape(name)
        return self

    def shape(self, name):
        rate = f"{self.args.mbit}mbit"
        if self.args.delay_ms or self.args.loss:
            self.run_in(name, "tc", "qdisc", "add", "dev", "end", "root",
                        "netem", "delay", f"{self.args.delay_ms / 2}ms",
                        "loss", f"{self.args.loss}%", "rate", rate, "limit",
                        "20000")
        else:
            self.run_in(name, "tc", "qdisc", "add", "dev", "end", "root",
                        "tbf", "rate", rate, "burst", "256kb", "latency",
                        "100ms")

    def run_in(self, name, *command):
        must("ip", "netns", "exec", name, *command)

    def __exit__(self, *unused):
        for name in (SERVER, WORKERS):
            subprocess.run(["ip", "netns", "del", name], check=False)


def start(args, bin_folder, folder, contender, ports):
    """The servers of a contender's job."""
    worker, publish = contender
    name = f"{worker}_{publish}"
    config = folder / f"{name}.textproto"
    config.write_text(
        "".join(f'shards: "{ADDRESS}:{port}"\n' for port in ports)
        + "security { insecure: true }\n"
        + f'workers: {args.workers}\npublish: "{publish}"\n'
        f'push_dtype: "{args.push_dtype}"\nreplication: "none"\n'
        "lease_seconds: 3600 "
        'combination { rule: "adasum" } learning_rate { rate: 1e-3 }\n')
    return [subprocess.Popen(
        ["ip", "netns", "exec", SERVER, bin_folder / "server/agg_server",
         f"--config={config}", f"--shard={shard}", f"--bind={ADDRESS}"],
        stderr=open(folder / f"{name}{shard}.log", "w", encoding="utf-8"))
        for shard in range(len(ports))]


def team(args, bin_folder, folder, contender, port):
    worker, publish = contender
    path = barrier(folder, f"{worker}_{publish}")
    program, *more = PROGRAMS[worker]
    return Team([["ip", "netns", "exec", WORKERS,
                  bin_folder / "tests/bench" / program, *more,
                  f"--coordinator={ADDRESS}:{port}", f"--rank={rank}",
                  f"--workers={args.workers}", f"--barrier={path}",
                  f"--elements={args.elements}", f"--tensors={args.tensors}"]
                 for rank in range(args.workers)])


def measure(args, bin_folder, folder):
    # The raw worker's rows are of float32.
    raw = ["raw"] if args.push_dtype == "f32" else []
    times = {c: [] for c in CONTENDERS if c[0] in raw + ["client"]}
    servers, one_way = [], []
    try:
        teams = {}
        for i, contender in enumerate(times):
            first = 50051 + i * args.shards
            servers += start(args, bin_folder, folder, contender,
                             range(first, first + args.shards))
            teams[contender] = team(args, bin_folder, folder, contender, first)
        for turn in range(args.turns + 1):
            for contender, workers in teams.items():
                rounds = workers.run_rounds(1)
                if turn == 0:
                    continue  # to warm up
                times[contender] += [r["end"] - r["begin"] for r in rounds]
                if contender == ("raw", "atomic"):
                    one_way += [r["pushed"] - r["begin"] for r in rounds]
        for workers in teams.values():
            workers.stop()
    finally:
        for server in servers:
            server.terminate()
        for server in servers:
            server.wait(30)
    report(args, times, one_way)


def report(args, times, one_way):
    if one_way:
        base, named = statistics.median(one_way), "one direction"
        bits = args.workers * args.elements * 32
        print(f"{named:16} {base / 1e6:8.0f} ms, "
              f"{bits / base * 1e3 / args.mbit:.0%} of the link")
    else:
        base, named = statistics.median(times["client", "atomic"]), "atomic"
    for (worker, publish), values in times.items():
        print(f"{worker:6} {publish:9} {statistics.median(values) / 1e6:8.0f} "
              f"ms  {min(values) / 1e6:6.0f} to {max(values) / 1e6:.0f}"
              f"  {statistics.median(values) / base:5.2f} x {named}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", default="bazel-bin")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--elements", type=int, default=25000000)
    parser.add_argument("--tensors", type=int, default=50)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--shards", type=int, default=1)
    parser.add_argument("--push_dtype", default="f32")
    parser.add_argument("--mbit", type=int, default=1000)
    parser.add_argument("--delay_ms", type=float, default=0)
    parser.add_argument("--loss", type=float, default=0, help="percent")
    args = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("skipped: network namespaces need root")
    with tempfile.TemporaryDirectory() as name:
        try:
            with Link(args):
                measure(args, pathlib.Path(args.bin).resolve(),
                        pathlib.Path(name))
        except subprocess.CalledProcessError as error:
            sys.exit(f"skipped: {' '.join(map(str, error.cmd))} failed; "
                     "netem, tbf and veth have to be in the kernel")


if __name__ == "__main__":
    main()
