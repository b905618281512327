"""Atomic and pipelined rounds over a slow link: pipeline.py --bin=FOLDER.

Needs root, for network namespaces: the server has one end of a pair of links,
the workers share the other, both shaped to --mbit. --delay_ms and --loss need
netem in the kernel. Prints the median round of each, and its ratio to the time
of one direction alone, which is when an atomic round's first answer comes.
FOLDER: bazel-bin.
"""

import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

from trips import Team, barrier

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


def start(args, bin_folder, folder, publish, port):
    config = folder / f"{publish}.textproto"
    config.write_text(
        f'shards: "{ADDRESS}:{port}"\nworkers: {args.workers}\n'
        f'publish: "{publish}"\n'
        "lease_seconds: 3600 "
        'combination { rule: "adasum" } learning_rate { rate: 1e-3 }\n')
    log = open(folder / f"{publish}.log", "w", encoding="utf-8")
    return subprocess.Popen(
        ["ip", "netns", "exec", SERVER, bin_folder / "server/agg_server",
         f"--config={config}", "--shard=0", f"--bind={ADDRESS}"], stderr=log)


def team(args, bin_folder, folder, publish, port):
    path = barrier(folder, publish)
    return Team([["ip", "netns", "exec", WORKERS,
                  bin_folder / "tests/bench/trip_worker",
                  f"--coordinator={ADDRESS}:{port}", f"--rank={rank}",
                  f"--workers={args.workers}", f"--barrier={path}",
                  f"--elements={args.elements}", f"--tensors={args.tensors}"]
                 for rank in range(args.workers)])


def measure(args, bin_folder, folder):
    servers, times = [], {"atomic": [], "pipelined": []}
    one_way = []
    try:
        teams = {}
        for port, publish in enumerate(times, start=50051):
            servers.append(start(args, bin_folder, folder, publish, port))
            teams[publish] = team(args, bin_folder, folder, publish, port)
        for turn in range(args.turns + 1):
            for publish, workers in teams.items():
                rounds = workers.run_rounds(1)
                if turn == 0:
                    continue  # to warm up
                times[publish] += [r["end"] - r["begin"] for r in rounds]
                if publish == "atomic":
                    one_way += [r["pushed"] - r["begin"] for r in rounds]
        for workers in teams.values():
            workers.stop()
    finally:
        for server in servers:
            server.terminate()
        for server in servers:
            server.wait(30)
    report(args, times, statistics.median(one_way))


def report(args, times, one_way):
    bits = args.workers * args.elements * 32
    print(f"one direction {one_way / 1e6:8.0f} ms, "
          f"{bits / one_way * 1e3 / args.mbit:.0%} of the link")
    for publish, values in times.items():
        print(f"{publish:13} {statistics.median(values) / 1e6:8.0f} ms"
              f"  {min(values) / 1e6:6.0f} to {max(values) / 1e6:.0f}"
              f"  {statistics.median(values) / one_way:5.2f} x one direction")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", default="bazel-bin")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--elements", type=int, default=25000000)
    parser.add_argument("--tensors", type=int, default=50)
    parser.add_argument("--turns", type=int, default=5)
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
