"""The command line of the quickstart: pure."""

import argparse
import math

SCOPES = ("per_tensor", "global")
STEP_SCALES = ("none", "linear", "sqrt", "adascale", "adamscale")
DTYPES = ("f32", "bf16", "f16", "int8")
BACKENDS = ("cpu", "cuda")

TRAINING_EXAMPLES = 1440
DEFAULT_LEARNING_RATE = 0.05  # the best one for a single worker: see --tune
# Flag, and its default without and with --chaos, which means a small job of
# many short rounds.
BY_CHAOS = {"shards": (2, 4), "workers": (32, 3), "batch": (2, 8),
            "epochs": (2, 4), "optimizer": ("sgd", "adam"),
            "learning_rate": (DEFAULT_LEARNING_RATE, 0.002)}


def integer(low, high):
    """A type for argparse: an integer in low..high."""

    def parse(text):
        try:
            value = int(text)
        except ValueError:
            value = None
        if value is None or not low <= value <= high:
            raise argparse.ArgumentTypeError(
                f"{text!r} is not allowed; allowed: an integer {low}..{high}")
        return value

    return parse


def positive(text):
    """A type for argparse: a finite number over 0."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (value > 0 and math.isfinite(value)):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not allowed; allowed: a number over 0")
    return value


def one_of(names):
    """A type for argparse: one of the names."""

    def parse(text):
        if text not in names:
            raise argparse.ArgumentTypeError(
                f"{text!r} is not allowed; allowed: {', '.join(names)}")
        return text

    return parse


def make_parser():
    parser = argparse.ArgumentParser(
        prog="deploy/quickstart.sh",
        allow_abbrev=False,
        description="Trains a 64-64-10 network on handwritten digits with "
        "agg_server shards and worker processes on this machine. With --rule "
        "one run; without it a comparison of the combination rules, three "
        "seeds each, at the learning rate that is best for one worker.")

    def add(flag, kind, default, text, metavar):
        shown = "" if default is None else f" (default {default})"
        if flag[2:] in BY_CHAOS:
            shown = " (default {}; with --chaos {})".format(*BY_CHAOS[flag[2:]])
        parser.add_argument(flag, type=kind, default=default, metavar=metavar,
                            help=text + shown)

    add("--shards", integer(1, 64), None, "server processes", "K")
    add("--workers", integer(1, 512), None, "worker processes", "P")
    # The server knows its rules, and names them if this is none of them.
    add("--rule", str, None, "one run with this rule of the server, such as "
        "mean, adasum or adacons", "R")
    add("--scope", one_of(SCOPES), None,
        "of the rule: per_tensor or global (default: the rule's)", "S")
    add("--step_scale", one_of(STEP_SCALES), None,
        "with --rule: " + ", ".join(STEP_SCALES) + " (default none)", "S")
    # The server knows its optimizers, and names them if this is none of them.
    add("--optimizer", str, None, "of the server, such as sgd, adam, lamb", "O")
    add("--learning_rate", positive, None, "constant", "X")
    add("--batch", integer(1, TRAINING_EXAMPLES), None,
        "examples per worker and round", "B")
    add("--epochs", integer(1, 1000), None,
        "passes over the 1440 training examples", "E")
    add("--seed", integer(0, 2**63 - 4), 0,
        "of weights and orders; the comparison takes this and the next two",
        "N")
    add("--wire_dtype", one_of(DTYPES), "f32",
        "of gradients and parameters on the wire: f32, bf16, f16, int8 (with "
        "error feedback, and parameters in bf16)", "D")
    add("--backend", one_of(BACKENDS), "cpu", "of the shards: cpu, cuda", "B")
    add("--json", str, None, "write results there", "FILE")
    parser.add_argument(
        "--monitoring", action="store_true",
        help="start Prometheus beside it and show where to look; installs it "
        "first. A higher --epochs (more passes over the data) leaves more "
        "to see")
    parser.add_argument(
        "--keep", action="store_true",
        help="with --monitoring: stay until Ctrl-C when done, as on a "
        "terminal; after one run (--rule) with its shards")
    parser.add_argument(
        "--chaos", action="store_true",
        help="train once undisturbed and once while shards are killed (kill "
        "-9) and started again; prints the sha256 of both results, which are "
        "the same")
    add("--kills", integer(1, 1000), 12, "with --chaos", "N")
    parser.add_argument(
        "--tune", action="store_true",
        help="sweep the learning rate for one worker and for every rule; "
        "writes deploy/quickstart_tuned.json")
    parser.add_argument("--bin", default=None, help=argparse.SUPPRESS)
    parser.add_argument("--check", action="store_true",
                        help=argparse.SUPPRESS)
    return parser


def parse(arguments):
    """The options; exits with 2 and one line that names what is wrong."""
    parser = make_parser()
    # argparse's own errors repeat the usage, which hides the line.
    parser.print_usage = lambda file=None: None
    options = parser.parse_args(arguments)
    for name, defaults in BY_CHAOS.items():
        if getattr(options, name) is None:
            setattr(options, name, defaults[options.chaos])
    if options.workers * options.batch > TRAINING_EXAMPLES:
        parser.error(
            f"--workers {options.workers} with --batch {options.batch} needs "
            f"{options.workers * options.batch} examples a round; allowed: at "
            f"most {TRAINING_EXAMPLES}")
    if options.rule is None:
        for flag in ("scope", "step_scale"):
            if getattr(options, flag) is not None:
                parser.error(f"--{flag} {getattr(options, flag)} needs --rule")
    elif options.tune:
        parser.error("--tune sweeps all rules; allowed: without --rule")
    if options.chaos:
        for flag in ("tune", "monitoring"):
            if getattr(options, flag):
                parser.error(f"--{flag} and --chaos; allowed: one of them")
        if options.shards < 2:
            parser.error(f"--shards {options.shards} with --chaos; allowed: 2 "
                         "or more, since each part has a copy in another one")
    if options.keep and not options.monitoring:
        parser.error("--keep needs --monitoring")
    if options.monitoring and options.tune:
        parser.error("--monitoring watches runs; allowed: without --tune")
    options.step_scale = options.step_scale or "none"
    return options
