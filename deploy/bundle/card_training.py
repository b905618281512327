"""Training on one card: torch alone, agg.Worker, DistributedDataParallel over
gloo (NCCL refuses two ranks on one card); before that single rounds beside
torch's results in float64. A line of JSON for each thing that was measured.

    card_training.py [--device=cuda] [--small] [--steps=20]

`--device=cpu --small` tries the script without a card.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time

import torch

_EPSILON = 2 ** -23  # of float32
_WARM_STEPS = 5
_SECONDS = 150  # that a process may take


def options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--steps", type=int, default=20)
    # Of the processes that this one starts.
    parser.add_argument("--role", default="", help=argparse.SUPPRESS)
    parser.add_argument("--rank", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--workers", type=int, default=1,
                        help=argparse.SUPPRESS)
    parser.add_argument("--address", default="", help=argparse.SUPPRESS)
    parser.add_argument("--zero_copy", type=int, default=1,
                        help=argparse.SUPPRESS)
    parser.add_argument("--overlap", type=int, default=0,
                        help=argparse.SUPPRESS)
    parser.add_argument("--store", default="", help=argparse.SUPPRESS)
    return parser.parse_args()


def say(**values):
    # One write, since processes share the output.
    sys.stdout.write(json.dumps(values) + "\n")
    sys.stdout.flush()


class Task:
    """A model of layers of `width`, a batch of a rank's own, and what a step
    of it takes."""

    def __init__(self, o):
        self.o = o
        # 24 * (2048 * 2048 + 2048) are 100.7 million parameters.
        width, layers, self.batch = (256, 2, 8) if o.small else (2048, 24, 512)
        torch.manual_seed(0)
        self.net = torch.nn.Sequential(*[
            module for _ in range(layers) for module in
            (torch.nn.Linear(width, width), torch.nn.Tanh())]).to(o.device)
        generator = torch.Generator().manual_seed(100 + o.rank)
        self.x = torch.randn(self.batch, width, generator=generator).to(
            o.device)
        self.y = self.x.roll(1, 1).tanh()

    def sync(self):
        if self.o.device == "cuda":
            torch.cuda.synchronize()

    def measure(self, net, step):
        """Medians, in ms: step_ms of all, sync_ms of what follows backward():
        the exchange and the optimizer."""
        times = []
        for i in range(self.o.steps + _WARM_STEPS):
            self.sync()
            begin = time.monotonic()
            loss = torch.nn.functional.mse_loss(net(self.x), self.y)
            loss.backward()
            self.sync()
            computed = time.monotonic()
            step()
            self.sync()
            end = time.monotonic()
            if i >= _WARM_STEPS:
                times.append((end - begin, end - computed))
        median = [sorted(column)[len(times) // 2] * 1e3
                  for column in zip(*times)]
        return {"step_ms": round(median[0], 3), "sync_ms": round(median[1], 3),
                "loss": float(loss.detach())}


def run_torch(o):
    task = Task(o)
    optimizer = torch.optim.AdamW(task.net.parameters(), lr=1e-3,
                                  fused=True if o.device == "cuda" else None)

    def step():
        optimizer.step()
        optimizer.zero_grad()
    say(what="torch alone, fused AdamW", **task.measure(task.net, step))


def run_ddp(o):
    import torch.distributed as dist
    task = Task(o)
    dist.init_process_group("gloo", init_method="file://" + o.store,
                            rank=o.rank, world_size=o.workers)
    net = torch.nn.parallel.DistributedDataParallel(
        task.net, gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(task.net.parameters(), lr=1e-3)

    def step():
        optimizer.step()
        optimizer.zero_grad()
    measured = task.measure(net, step)
    if o.rank == 0:
        say(what=f"DistributedDataParallel over gloo, {o.workers} processes",
            **measured)
    dist.destroy_process_group()


def run_agg(o):
    import agg_server as agg
    task = Task(o)
    with agg.Worker(task.net, o.address, o.rank, zero_copy=bool(o.zero_copy),
                    overlap=bool(o.overlap)) as worker:
        measured = task.measure(task.net,
                                lambda: worker.step(examples=task.batch))
        digest = hashlib.sha256()
        for parameter in task.net.parameters():
            digest.update(parameter.detach().cpu().numpy().tobytes())
        say(what=f"agg.Worker, {o.workers} processes, zero_copy={o.zero_copy} "
            f"overlap={o.overlap}", rank=o.rank,
            transports=list(worker.job.transports),
            parameters=digest.hexdigest()[:12], **measured)


def start(o, role, processes, **more):
    """Runs processes of a role; whether one has failed, which ends the others,
    or whether their parameters differ."""
    given = [f"--{name}={value}" for name, value in more.items()]
    given += [f"--device={o.device}", f"--steps={o.steps}"]
    given += ["--small"] if o.small else []
    running = [subprocess.Popen([sys.executable, __file__, f"--role={role}",
                                 f"--rank={rank}", f"--workers={processes}",
                                 *given], stdout=subprocess.PIPE, text=True)
               for rank in range(processes)]
    end = time.monotonic() + _SECONDS
    while time.monotonic() < end and None in [p.poll() for p in running] and \
            not any(p.returncode for p in running):
        time.sleep(0.05)
    for process in running:
        if process.poll() is None:
            process.kill()  # another one has failed, or it took too long
    statuses = [process.wait() for process in running]
    lines = [line for process in running for line in process.stdout]
    sys.stdout.writelines(lines)
    parameters = {json.loads(line).get("parameters") for line in lines}
    failed = any(statuses) or len(parameters) > 1
    if failed:
        say(what=f"{role}, {processes} processes, {more}", failed=statuses,
            parameters=sorted(map(str, parameters)))
    return failed


def adasum(rows):
    """The tree of the paper's algorithm 1, on vectors."""
    while len(rows) > 1:
        rows = [(1 - a @ b / (2 * (a @ a))) * a + (1 - a @ b / (2 * (b @ b))) * b
                for a, b in zip(rows[::2], rows[1::2])]
    return rows[0]


def round_of(o, server, rows):
    """One round of mode "combine": what each worker gets, how rows went."""
    import agg_server as agg
    got = [None] * len(rows)
    ways = [None] * len(rows)

    def one(rank):
        tensor = torch.zeros(rows[rank].numel(), device=o.device,
                             requires_grad=True)
        with agg.Worker({"t": tensor}, server.address, rank,
                        mode="combine") as worker:
            tensor.grad = rows[rank].clone()
            worker.combine()
            got[rank] = tensor.grad.clone()
            ways[rank] = list(worker.job.transports)
    threads = [threading.Thread(target=one, args=(rank,))
               for rank in range(len(rows))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return got, ways


def check_round(o, serve, num_rows, rule):
    numel = 1 << (14 if o.small else 24)
    rows = [torch.randn(numel, generator=torch.Generator().manual_seed(i)).to(
        o.device) for i in range(num_rows)]
    common = rows[0].clone()
    rows = [row + common for row in rows]
    with serve(num_rows, rule, "none", None) as server:
        got, ways = round_of(o, server, rows)
    wide = [row.double() for row in rows]
    expected = sum(wide) / num_rows if rule == "mean" else adasum(wide)
    error = float((got[0].double() - expected).norm() / expected.norm())
    right = error < _EPSILON and all(torch.equal(got[0], g) for g in got)
    say(what=f"one round, {rule}, {num_rows} rows", relative_error=error,
        right=right, transports=ways[0])
    return not right


def main():
    o = options()
    if o.role:
        {"torch": run_torch, "ddp": run_ddp, "agg": run_agg}[o.role](o)
        return 0
    import agg_server as agg

    def serve(workers, rule, optimizer, rate):
        return agg.LocalServer(
            workers=workers, rule=rule, lr=rate, optimizer=optimizer,
            config={"backend": o.device})
    failed = False
    for num_rows, rule in ((2, "mean"), (2, "adasum"), (4, "adasum"),
                           (8, "adasum")):
        failed |= check_round(o, serve, num_rows, rule)
    failed |= start(o, "torch", 1)
    adamw = {"kind": "adamw", "weight_decay": 0.01}
    for workers, zero_copy, overlap in ((1, 1, 0), (1, 0, 0), (2, 1, 0),
                                        (2, 0, 0), (2, 1, 1)):
        rule = "mean" if workers == 1 else "adasum"
        with serve(workers, rule, adamw, 1e-3) as server:
            failed |= start(o, "agg", workers, address=server.address,
                            zero_copy=zero_copy, overlap=overlap)
    with tempfile.TemporaryDirectory() as folder:
        failed |= start(o, "ddp", 2, store=os.path.join(folder, "store"))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
