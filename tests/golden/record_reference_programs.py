"""Makes reference_programs.json: what the papers' own programs compute.

    record_reference_programs.py --adacons=FOLDER --horovod=FOLDER \\
        --commits=adacons:HASH,horovod:HASH > reference_programs.json

The Python that runs it has torch, fairscale and adaptdl (pip install fairscale
adaptdl). The folders are checkouts of github.com/yoniLc/AdaCons and
github.com/horovod/horovod; a C++ compiler makes record_horovod_adasum.cc beside
the latter's adasum.h. Nothing of the four programs is changed, and nothing of
them is kept: they are given rows of the portable generator (README.md) as
gradients, and what comes out is written down.

Workers are processes that gloo connects; a gradient is that of <parameter, row>.
"""

import argparse
import contextlib
import datetime
import importlib.metadata
import importlib.util
import json
import os
import pathlib
import platform
import shutil
import subprocess
import sys
import tempfile
import types

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing
from adaptdl.torch import scaling_rules
from adaptdl.torch.gradient_noise_scale import GradientNoiseScale
from fairscale.optim import AdaScale
from torch.nn.parallel import DistributedDataParallel

HERE = pathlib.Path(__file__).resolve().parent


def lcg_rows(seed, rows, elements):
    """[rows, elements], float64; every value is one of float32."""
    x, values = seed, np.empty(rows * elements)
    for i in range(values.size):
        x = (1664525 * x + 1013904223) % 2**32
        values[i] = ((x >> 8) - 8388608) / 8388608
    return values.reshape(rows, elements)


def biased_rows(seed, rows, elements, bias):
    """The same with a shared vector added, rounded to float32."""
    shared = lcg_rows(seed + 1000, 1, elements)
    return np.float32(lcg_rows(seed, rows, elements) + bias * shared).astype(
        np.float64)


class Model(torch.nn.Module):
    """Tensors of zeros; the gradient of its output is the row it was given."""

    def __init__(self, sizes, dtype=torch.float32):
        super().__init__()
        self.tensors = torch.nn.ParameterList(
            torch.nn.Parameter(torch.zeros(size, dtype=dtype))
            for size in sizes)

    def forward(self, row):
        return sum((tensor * part).sum() for tensor, part in
                   zip(self.tensors, row.split([t.numel() for t in
                                                self.tensors])))


def per_process(rank, size, store, work, case, results):
    """One worker's process; rank 0 answers."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank,
                            world_size=size)
    answer = work(case, rank, size)
    if rank == 0:
        results.put(answer)
    dist.barrier()
    dist.destroy_process_group()


def of_processes(work, case, size):
    """What rank 0's work(case, rank, size) returned."""
    sys.stderr.write(f"{work.__name__} {case}\n")
    with tempfile.TemporaryDirectory() as folder:
        # Forked: this process has begun no thread, and imports take longest.
        results = torch.multiprocessing.get_context("fork").SimpleQueue()
        context = torch.multiprocessing.start_processes(
            per_process, (size, os.path.join(folder, "store"), work, case,
                          results), size, join=False, start_method="fork")
        while not context.join():  # raises what a process raised
            pass
        return results.get()


# --- fairscale and AdaptDL ---------------------------------------------------

def micro_rows(case, step, rank):
    """The micro-gradients of one worker in one step."""
    count = case["accumulation"]
    rows = biased_rows(case["seed"] + step, case["P"] * count,
                       sum(case["elements"]), case["bias"])
    return torch.tensor(rows[rank * count:(rank + 1) * count],
                        dtype=torch.float32)


def backward(case, step, rank, model, share):
    """Of all micro-gradients; the last one brings the workers together."""
    rows = micro_rows(case, step, rank)
    for at, row in enumerate(rows):
        last = at == len(rows) - 1
        with contextlib.nullcontext() if last else model.no_sync():
            (model(row) * share).backward()


def groups_of(model):
    """Each tensor is a parameter group of its own."""
    return [{"params": [tensor]} for tensor in model.module.tensors]


def fairscale_steps(case, rank, size):
    model = DistributedDataParallel(Model(case["elements"]))
    optimizer = AdaScale(
        torch.optim.SGD(groups_of(model), lr=0.1), world_size=size,
        smoothing=case["smoothing"],
        num_gradients_to_accumulate=case["accumulation"],
        debias_ewma=case["averaging"] == "debiased")
    steps = []
    for step in range(case["steps"]):
        optimizer.zero_grad()
        backward(case, step, rank, model, 1 / case["accumulation"])
        state = optimizer.state["adascale"]
        groups = range(len(case["elements"]))
        steps.append({"variance": [float(x) for x in state["grad_var_avg"]],
                      "mean_squared": [float(x) for x in
                                       state["grad_sqr_avg"]],
                      "group_gains": [float(optimizer.gain(g)) for g in groups],
                      "gain": float(optimizer.gain())})
        optimizer.step()
    return {**case, "default_smoothing":
            AdaScale(torch.optim.SGD(groups_of(model), lr=0.1), size,
                     num_gradients_to_accumulate=case["accumulation"]
                     ).smoothing, "values": steps}


def adaptdl_steps(case, rank, size):
    model = DistributedDataParallel(Model(case["elements"]))
    noise = GradientNoiseScale(
        model, torch.optim.SGD(groups_of(model), lr=0.1), num_replicas=size)
    rules = {"adascale": scaling_rules.AdaScale(),
             "adamscale": scaling_rules.AdamScale()}
    for rule in rules.values():
        rule.adp = types.SimpleNamespace(gns=noise)
    steps = []
    for step in range(case["steps"]):
        noise.reset_accumulation()
        backward(case, step, rank, model, 1)
        scale = noise.accum_scale * noise.accum_count
        steps.append({"variance": [float(x) for x in noise.raw_var_avg],
                      "mean_squared": [float(x) for x in noise.raw_sqr_avg],
                      "gain": float(noise.gain(scale)),
                      **{f"{name}_factors": [float(x) for x in
                                             rule.scale_lr(scale)]
                         for name, rule in rules.items()}})
    return {**case, "values": steps}


def adascale_case(name, P, steps, seed=40, accumulation=1, bias=0.3, **more):
    return {"name": name, "P": P, "seed": seed, "bias": bias,
            "elements": [40, 24], "accumulation": accumulation, "steps": steps,
            **more}


def record_fairscale():
    cases = [
        adascale_case("debiased", 4, 4, smoothing=None, averaging="debiased"),
        adascale_case("debiased, smoothing .5", 4, 4, smoothing=.5,
                      averaging="debiased"),
        adascale_case("paper, smoothing .5", 4, 4, smoothing=.5,
                      averaging="paper"),
        adascale_case("accumulation", 2, 3, accumulation=3, smoothing=None,
                      averaging="debiased"),
        # mu^2's estimate is below 0, so that its floor acts.
        adascale_case("noise", 8, 3, bias=0, smoothing=None,
                      averaging="debiased")]
    return [of_processes(fairscale_steps, case, case["P"]) for case in cases]


def record_adaptdl():
    cases = [adascale_case("four workers", 4, 4),
             adascale_case("accumulation", 2, 3, accumulation=3),
             adascale_case("noise", 8, 3, bias=0),
             # One sample a step: the estimator takes the step before, too.
             adascale_case("one sample", 1, 4)]
    return [of_processes(adaptdl_steps, case, case["P"]) for case in cases]


# --- AdaCons -----------------------------------------------------------------

def adacons_module(folder):
    """Main.py, whose program does not run on import."""
    spec = importlib.util.spec_from_file_location("adacons_main",
                                                  folder / "Main.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    gather = dist.all_gather
    # It gives a scalar where lists of one number are to be filled: NCCL, which
    # it is written for, does not look at shapes, and gloo does.
    module.dist = types.SimpleNamespace(**vars(dist))
    module.dist.all_gather = lambda tensors, mine: gather(
        tensors, mine.reshape(tensors[0].shape))
    return module


def adacons_steps(case, rank, _size):
    module = adacons_module(pathlib.Path(case["folder"]))
    model = DistributedDataParallel(Model(case["elements"]))
    aggregator = module.AdaConsAggregator(model, momentum=case["beta"])
    steps = []
    for step in range(case["steps"]):
        model.zero_grad()
        rows = biased_rows(case["seed"] + step, case["P"],
                           sum(case["elements"]), case["bias"])
        model(torch.tensor(rows[rank], dtype=torch.float32)).backward()
        aggregator.aggregate()
        combined = torch.cat([t.grad for t in model.module.tensors])
        steps.append({"momentum": aggregator.momentum_alphas.tolist(),
                      "combined": combined.tolist()})
    del case["folder"]
    return {**case, "values": steps}


def record_adacons(folder):
    cases = [{"P": P, "seed": 60 + P, "bias": .5, "elements": [20, 11],
              "beta": beta, "steps": 3, "folder": str(folder)}
             for P in (2, 3, 8) for beta in (.99, 0.)]
    return [of_processes(adacons_steps, case, case["P"]) for case in cases]


# --- Horovod's Adasum --------------------------------------------------------

def horovod_program(checkout, folder):
    """record_horovod_adasum beside a copy of adasum.h; its two includes are of
    what the program brings itself."""
    header = pathlib.Path("horovod/common/ops/adasum/adasum.h")
    (folder / header).parent.mkdir(parents=True)
    shutil.copyfile(checkout / header, folder / header)
    for name in ("common.h", "global_state.h"):
        (folder / "horovod/common" / name).touch()
    program = folder / "record_horovod_adasum"
    subprocess.run([os.environ.get("CXX", "g++"), "-std=c++17", "-O2",
                    f'-DHOROVOD_ADASUM="{folder / header}"', str(HERE / "record_horovod_adasum.cc"),
                    "-o", str(program), "-lpthread"], check=True)
    return program


def opposite_rows(case):
    """Pairs of opposite rows but for noise."""
    rows = lcg_rows(case["seed"], case["P"], sum(case["elements"]))
    rows[1::2] = np.float32(case["noise"] * rows[1::2] - rows[::2])
    return rows


def horovod_case(program, case):
    rows = (opposite_rows(case) if "noise" in case else biased_rows(
        case["seed"], case["P"], sum(case["elements"]), case["bias"]))
    done = subprocess.run(
        [str(program), case["type"], str(case["P"]),
         *map(str, case["elements"])], input=rows.astype(case["type"]).tobytes(),
        stdout=subprocess.PIPE, check=True)
    return {**case, "combined": np.frombuffer(done.stdout,
                                              case["type"]).tolist()}


def record_horovod(checkout):
    cases = [{"type": type_, "P": P, "seed": 20 + P, "bias": bias,
              "elements": [17, 8]}
             for type_ in ("float64", "float32") for P in (2, 4, 8, 16)
             for bias in (0, 1)]
    cases += [{"type": "float64", "P": 4, "seed": 31, "noise": noise,
               "elements": [17, 8]} for noise in (1e-2, 1e-4)]
    with tempfile.TemporaryDirectory() as folder:
        program = horovod_program(checkout, pathlib.Path(folder))
        return [horovod_case(program, case) for case in cases]


# --- All of them -------------------------------------------------------------

def processor():
    for line in pathlib.Path("/proc/cpuinfo").read_text("utf-8").split("\n"):
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--adacons", type=pathlib.Path, required=True)
    parser.add_argument("--horovod", type=pathlib.Path, required=True)
    parser.add_argument("--commits", required=True,
                        help="adacons:HASH,horovod:HASH")
    flags = parser.parse_args()
    commits = dict(item.split(":") for item in flags.commits.split(","))
    version = importlib.metadata.version
    recorded = {
        "made": {"date": datetime.date.today().isoformat(),
                 "machine": processor(), "python": platform.python_version(),
                 "torch": torch.__version__, "numpy": np.__version__},
        "programs": {
            "fairscale": {"version": version("fairscale")},
            "adaptdl": {"version": version("adaptdl")},
            "adacons": {"repository": "github.com/yoniLc/AdaCons",
                        "file": "Main.py", "commit": commits["adacons"]},
            "horovod": {"repository": "github.com/horovod/horovod",
                        "file": "horovod/common/ops/adasum/adasum.h",
                        "commit": commits["horovod"]}},
        "horovod": record_horovod(flags.horovod),
        "fairscale": record_fairscale(),
        "adaptdl": record_adaptdl(),
        "adacons": record_adacons(flags.adacons.resolve())}
    json.dump(recorded, sys.stdout, indent=1)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
