"""The command line of the benchmark: pure."""

import argparse
import re

TRANSPORTS = ("tcp", "unix", "shm_copy", "shm")
UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9}
# Flag, and its default without and with --quick.
BY_QUICK = {
    "sizes": ((100_000_000, 4_000_000, 4_000), (64_000, 4_000)),
    "workers": ((2, 4, 8), (2,)),
    "rules": (("mean", "adasum", "adacons"), ("mean", "adasum")),
    "dtypes": (("f32", "bf16", "int8"), ("f32",)),
    "rounds": (7, 3),
    "warmups": (2, 1),
}


def num_bytes(text):
    """"4MB" (decimal) or "4000000": bytes of float32, so a multiple of 4."""
    match = re.fullmatch(r"(\d{1,12})([KMG]?B?)", text)
    value = (int(match.group(1)) * UNITS.get(match.group(2), 0)
             if match else 0)
    if value < 64 or value % 4:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not allowed; allowed: bytes like 100MB, 4KB or "
            "4000, at least 64 and a multiple of 4")
    return value


def integer(low, high):
    """A type for argparse: an integer in low..high."""

    def parse_integer(text):
        if not re.fullmatch(r"\d{1,9}", text) or not low <= int(text) <= high:
            raise argparse.ArgumentTypeError(
                f"{text!r} is not allowed; allowed: an integer {low}..{high}")
        return int(text)

    return parse_integer


def word(text):
    """A name; which ones there are is the server's to say."""
    if not re.fullmatch(r"[a-z0-9_]+", text):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not allowed; allowed: a name")
    return text


def transport(text):
    if text not in TRANSPORTS:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not allowed; allowed: {', '.join(TRANSPORTS)}")
    return text


def list_of(kind):
    """A type for argparse: values of `kind` with commas, each one once."""

    def parse_list(text):
        return tuple(dict.fromkeys(kind(part) for part in text.split(",")))

    return parse_list


def parse(arguments):
    """The options; for a bad one, exits with 2 and a line that says why."""
    parser = argparse.ArgumentParser(
        prog="deploy/bench.sh", usage="%(prog)s [options]",
        description="Measures complete rounds of agg_server, gloo's "
        "all_reduce and this machine's limits, in turns. Lists have commas.")
    add = parser.add_argument
    add("--sizes", type=list_of(num_bytes),
        help="of a worker's float32 gradient (default 100MB,4MB,4KB)")
    add("--workers", type=list_of(integer(1, 64)), help="default 2,4,8")
    add("--shards", type=list_of(integer(1, 16)), default=(1,),
        help="servers (default 1); with more, replication is off")
    add("--transports", type=list_of(transport), default=TRANSPORTS,
        help="default: those that are built")
    add("--rules", type=list_of(word), help="default mean,adasum,adacons")
    add("--dtypes", type=list_of(word),
        help="on the wire (default f32,bf16,int8 as far as they are built)")
    add("--rounds", type=integer(1, 1000),
        help="turns of each system that count (default 7); a turn has one "
        "round, or some if they are short")
    add("--warmups", type=integer(0, 100),
        help="turns before them that do not (default 2)")
    add("--python", action="store_true",
        help="in place of all this: steps with the Python package against DDP "
        "over gloo (workers: default 4), and its cost over the C++ client")
    add("--quick", action="store_true",
        help="a smoke test under a minute: small, few, installs no PyTorch")
    add("--json", metavar="FILE", help="writes the results")
    add("--check", action="store_true", help="checks the options alone")
    add("--bin", default="bazel-bin", help=argparse.SUPPRESS)
    add("--torch_python", default="", help=argparse.SUPPRESS)
    parser.error = lambda message: parser.exit(
        2, f"{parser.prog}: {message}\n")
    options = parser.parse_args(arguments)
    if options.python and options.workers is None and not options.quick:
        options.workers = (4,)
    for name, (full, quick) in BY_QUICK.items():
        if getattr(options, name) is None:
            setattr(options, name, quick if options.quick else full)
    return options
