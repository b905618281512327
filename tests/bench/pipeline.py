"""Atomic and pipelined rounds over a slow link: pipeline.py --bin=FOLDER.

Needs root, for network namespaces: the servers have one end of a pair of links,
the workers share the other, both shaped to --mbit. With --rtt_ms or --loss the
link is slow_link, whose queue holds what the link carries in a round trip
(--queue_kb); --check measures that link itself. --congestion is the TCP
congestion control of both ends.

"sockets" are bare TCP connections, as many as the workers have: "atomic" carry
their bytes up and then down, "pipelined" both ways at once. "raw" is a worker
that speaks the wire's messages itself (trip_worker), "client" is AggClient
(transport_worker). They take turns. Prints the median round of each, its ratio
to the time of one direction alone, which is when the raw worker's first answer
of an atomic round comes, and its goodput: bytes of rows (and as many of
parameters come back) by its time, as a share of the link and of what the
sockets reach. FOLDER: bazel-bin.
"""

import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

import link_check
from links import ADDRESS, Link, LinkError, Shape, describe
from trips import Team, barrier

PUBLISH = ("atomic", "pipelined")
# Of an element of a row; int8 has a scale for each block of 256.
BITS = {"f32": 32, "bf16": 16, "f16": 16, "int8": 8 + 32 / 256}
PROGRAMS = {"raw": ["trip_worker"],
            "client": ["transport_worker", "--transport=tcp"]}
HERE = pathlib.Path(__file__).resolve().parent
SOCKETS_PORT = 50040


def start(args, bin_folder, folder, contender, link, ports):
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
        link.inside(link.servers, bin_folder / "server/agg_server",
                    f"--config={config}", f"--shard={shard}",
                    f"--bind={ADDRESS}"),
        stderr=open(folder / f"{name}{shard}.log", "w", encoding="utf-8"))
        for shard in range(len(ports))]


def team(args, bin_folder, folder, contender, link, port):
    worker, publish = contender
    path = barrier(folder, f"{worker}_{publish}")
    program, *more = PROGRAMS[worker]
    return Team([link.inside(link.workers, bin_folder / "tests/bench" / program,
                             *more, f"--coordinator={ADDRESS}:{port}",
                             f"--rank={rank}", f"--workers={args.workers}",
                             f"--barrier={path}",
                             f"--elements={args.elements}",
                             f"--tensors={args.tensors}")
                 for rank in range(args.workers)])


def start_sockets(link):
    server = subprocess.Popen(
        link.inside(link.servers, sys.executable, HERE / "bare_sockets.py",
                    "--serve", f"--port={SOCKETS_PORT}"),
        stdout=subprocess.PIPE, text=True)
    server.stdout.readline()
    return server


def sockets_team(args, publish, link):
    connections = args.workers * args.shards
    return Team([link.inside(
        link.workers, sys.executable, HERE / "bare_sockets.py",
        f"--connect={ADDRESS}", f"--port={SOCKETS_PORT}",
        f"--connections={connections}",
        f"--bytes={4 * args.elements // args.shards}",
        *(["--in_turn"] if publish == "atomic" else []))])


def measure(args, bin_folder, folder, link):
    # The raw worker's rows, and the sockets', are of float32.
    kinds = args.only or (["sockets", "raw", "client"]
                          if args.push_dtype == "f32" else ["client"])
    times = {(kind, publish): [] for kind in kinds
             for publish in args.publish}
    servers, one_way, teams = [], [], {}
    try:
        if "sockets" in kinds:
            servers.append(start_sockets(link))
        for i, contender in enumerate(times):
            if contender[0] == "sockets":
                teams[contender] = sockets_team(args, contender[1], link)
                continue
            first = 50051 + i * args.shards
            servers += start(args, bin_folder, folder, contender, link,
                             range(first, first + args.shards))
            teams[contender] = team(args, bin_folder, folder, contender, link,
                                    first)
        for turn in range(args.turns + args.warm_up):
            for contender, workers in teams.items():
                rounds = workers.run_rounds(1)
                if turn < args.warm_up:
                    continue
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
    describe(link.counts())


def report(args, times, one_way):
    bits = args.workers * args.elements * BITS[args.push_dtype]
    if one_way:
        base, named = statistics.median(one_way), "one direction"
        print(f"{named:17} {base / 1e6:8.0f} ms, "
              f"{bits / base * 1e3 / args.mbit:.0%} of the link")
    else:
        base = statistics.median(next(iter(times.values())))
        named = " ".join(next(iter(times)))
    for (worker, publish), values in times.items():
        median = statistics.median(values)
        print(f"{worker:7} {publish:9} {median / 1e6:8.0f} "
              f"ms  {min(values) / 1e6:6.0f} to {max(values) / 1e6:<6.0f}"
              f" {median / base:5.2f} x {named}"
              f" {bits / median * 1e3:6.0f} Mbit/s,"
              f" {bits / median * 1e3 / args.mbit:4.0%} of the link"
              + share(times, worker, publish, median))


def share(times, worker, publish, median):
    floor = times.get(("sockets", publish))
    if not floor or worker == "sockets":
        return ""
    return f", {statistics.median(floor) / median:4.0%} of the sockets"


def options():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default="bazel-bin")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--elements", type=int, default=25000000)
    parser.add_argument("--tensors", type=int, default=50)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--warm_up", type=int, default=1)
    parser.add_argument("--shards", type=int, default=1)
    parser.add_argument("--push_dtype", choices=BITS, default="f32")
    parser.add_argument("--only", nargs="*",
                        choices=["sockets", "raw", "client"])
    parser.add_argument("--publish", nargs="*", choices=PUBLISH,
                        default=PUBLISH)
    parser.add_argument("--mbit", type=int, default=1000)
    parser.add_argument("--rtt_ms", type=float, default=0, help="both ways")
    parser.add_argument("--loss", type=float, default=0,
                        help="percent of the packets, each way")
    parser.add_argument("--queue_kb", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--congestion", help="cubic, bbr, ..")
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    if args.push_dtype != "f32" and set(args.only or ()) - {"client"}:
        parser.error(f"--only is {' '.join(args.only)}; allowed with"
                     f" --push_dtype={args.push_dtype}: client, since the"
                     " others' rows are float32")
    if args.queue_kb and not (args.rtt_ms or args.loss):
        parser.error(f"--queue_kb is {args.queue_kb}; allowed: with --rtt_ms or"
                     " --loss, since tbf has a queue of its own")
    return args


def main():
    args = options()
    if os.geteuid() != 0:
        sys.exit("skipped: network namespaces need root")
    bin_folder = pathlib.Path(args.bin).resolve()
    shape = Shape(args.mbit, args.rtt_ms, args.loss, args.queue_kb, args.seed)
    try:
        if args.check:
            link_check.check(shape, bin_folder, args.congestion)
            return
        with tempfile.TemporaryDirectory() as name, \
                Link(shape, bin_folder, args.congestion) as link:
            print(f"{shape}; congestion control:"
                  f" {args.congestion or 'as the kernel has it'}")
            measure(args, bin_folder, pathlib.Path(name), link)
    except LinkError as error:
        sys.exit(f"skipped: {error}")


if __name__ == "__main__":
    main()
