"""Shards and workers on a Ray cluster: placed by it, and restarted by it.

    from agg_server.ray import RayJob

    def train(rank):              # in a process of its own, on some node
        with agg.Worker(model) as worker:     # AGG_COORDINATOR, RANK are set
            while worker.version < 1000:
                ...

    with RayJob(shards=2, workers=4, rule="adasum", lr=0.05,
                config={"security": {"insecure": True}}) as job:
        results = job.run(train)
"""

from __future__ import annotations

import importlib
import os
import pathlib
import socket
import subprocess
import tempfile
import threading
import time
from typing import Any, Callable, Mapping, Optional, Sequence, Union

from agg_server._untraced import Closing
from agg_server.errors import Error
from agg_server.local_server import (Value, binary_path, job_fields,
                                     last_lines, text_form)

_START_SECONDS = 60.0
_STOP_SECONDS = 20.0
# Of a restarted shard: until its address is free again.
_RETRY_SECONDS = 0.2


def _free_address() -> str:
    """On the node of the caller."""
    host = importlib.import_module("ray").util.get_node_ip_address()
    with socket.socket() as free:
        free.bind((host, 0))
        return f"{host}:{free.getsockname()[1]}"


def _check_security(addresses: Sequence[str],
                    config: Mapping[str, Any]) -> None:
    """Raises Error: the servers would refuse to start."""
    for address in addresses:
        host = address.rpartition(":")[0]
        if not host.startswith("127.") and "security" not in config:
            raise Error(
                f"shards at {host} and no security in config; allowed: "
                '{"security": {"tls": {..}}} with files that each node has, '
                'or {"security": {"insecure": True}}, where anyone who '
                "reaches the ports can read and change the model")


class Shard:
    """An actor with one agg_server process. Ray makes it anew if it is lost;
    then the process serves at the same address, and the job goes on."""

    def __init__(self, ordinal: int, fields: Mapping[str, Any]) -> None:
        """Raises Error: the configuration is wrong, or the process does not
        start within a minute."""
        self._ordinal = ordinal
        self._host, _, self._port = fields["shards"][ordinal].rpartition(":")
        self._ending = False
        self._folder = tempfile.TemporaryDirectory(prefix="agg_server_")
        folder = pathlib.Path(self._folder.name)
        self._log, self._port_file = folder / "log", folder / "port"
        self._config = folder / "job.textproto"
        self._config.write_text(text_form(fields))
        checked = subprocess.run(
            [binary_path("agg_server"), f"--config={self._config}",
             "--validate"], stdin=subprocess.DEVNULL, capture_output=True,
            text=True, check=False)
        if checked.returncode != 0:
            raise Error(f"shard {ordinal} did not start: {checked.stderr}")
        deadline = time.monotonic() + _START_SECONDS
        self._process = self._start()
        while not self._port_file.exists():
            if time.monotonic() > deadline:
                raise Error(f"shard {ordinal} did not start:\n"
                            + last_lines(self._log))
            if self._process.poll() is not None:
                # The one before it may still have the port.
                time.sleep(_RETRY_SECONDS)
                self._process = self._start()
            time.sleep(0.005)
        threading.Thread(target=self._watch, daemon=True).start()

    def place(self) -> tuple[str, int]:
        """(the node's id, the pid of agg_server)"""
        context = importlib.import_module("ray").get_runtime_context()
        return context.get_node_id(), self._process.pid

    def stop(self) -> None:
        """Drains the process; the actor is not made anew for that."""
        self._ending = True
        self._process.terminate()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._folder.cleanup()  # Ray ends the actor without destructors.

    def _start(self) -> "subprocess.Popen[bytes]":
        with open(self._log, "ab") as log:
            return subprocess.Popen(
                [binary_path("agg_server"), f"--config={self._config}",
                 f"--shard={self._ordinal}", f"--port={self._port}",
                 f"--port_file={self._port_file}", f"--bind={self._host}",
                 "--exit_with_stdin", "--drain_seconds=2"],
                stdin=subprocess.PIPE, stdout=log, stderr=log)

    def _watch(self) -> None:
        self._process.wait()
        if not self._ending:
            self._folder.cleanup()
            os._exit(1)  # Ray makes the actor anew.


def _work(function: Callable[..., Any], rank: int,
          environment: Mapping[str, str], arguments: tuple[Any, ...]) -> Any:
    os.environ.update(environment, RANK=str(rank))
    return function(rank, *arguments)


class RayJob(Closing):
    """One job on the cluster of ray.init().

    A shard that is lost comes back on its node, with its state from its
    neighbour's second copy: 2 shards or more. A shard's node that is lost for
    good ends the job. Workers may be anywhere: one that is lost starts anew
    with the same rank, anywhere, and pulls the newest version.
    """

    def __init__(self, shards: int = 1, workers: int = 1, rule: str = "mean",
                 lr: Optional[float] = None,
                 optimizer: Union[str, Mapping[str, Value]] = "sgd",
                 step_scale: Optional[str] = None, job: str = "ray",
                 config: Optional[Mapping[str, Value]] = None, *,
                 shard_resources: Optional[Mapping[str, float]] = None,
                 worker_resources: Optional[Mapping[str, float]] = None,
                 strategy: str = "SPREAD", restarts: int = 3,
                 start_timeout: float = 120.0) -> None:
        """Reserves the places of all, and starts the shards.

        Args:
          shards, workers, rule, lr, optimizer, step_scale, job, config: as
            LocalServer's. On nodes that are reached beyond loopback `config`
            needs "security": with "tls", or {"insecure": True}.
          shard_resources, worker_resources: of each; default: {"CPU": 1}.
            {"CPU": 2, "GPU": 1} gives each worker a GPU.
          strategy: of Ray's placement group.
          restarts: of each worker.
          start_timeout: until there is room, in s.

        Raises Error: no room, or a shard did not start.
        """
        self._ray: Any = importlib.import_module("ray")
        self._restarts = restarts
        self._num_workers, self._num_shards = workers, shards
        self._actors: list[Any] = []
        self._needs = [dict(shard_resources or {"CPU": 1})
                       for _ in range(shards)]
        self._needs += [dict(worker_resources or {"CPU": 1})
                        for _ in range(workers)]
        self._group = self._ray.util.placement_group(self._needs,
                                                     strategy=strategy)
        try:
            if not self._group.wait(start_timeout):
                raise Error(f"the cluster has no room for {self._needs} "
                            f"within {start_timeout} s")
            self.addresses = self._reserve()
            _check_security(self.addresses, config or {})
            fields = {**job_fields(workers, rule, lr, optimizer, step_scale,
                                   job, config), "shards": self.addresses}
            shard = self._ray.remote(Shard)
            self._actors = [
                shard.options(max_restarts=-1, max_task_retries=-1,
                              **self._place(i)).remote(i, fields)
                for i in range(shards)]
            self.places()
        except BaseException:
            self.close()
            raise

    @property
    def address(self) -> str:
        """Of shard 0: the coordinator of the workers."""
        return str(self.addresses[0])

    def places(self) -> list[tuple[str, int]]:
        """(node's id, pid of agg_server) of each shard."""
        try:
            found = self._ray.get([a.place.remote() for a in self._actors])
        except self._ray.exceptions.RayError as error:
            raise Error(f"a shard did not start: {error}") from error
        return list(found)

    def run(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """function(rank, *arguments) as a task for each rank; their results.

        AGG_COORDINATOR, RANK and WORLD_SIZE are in its environment. It is
        called again if its process was lost, or after an agg.Error that is
        retryable: so it goes by worker.version, not by its own count. Its
        other exceptions end the tasks of all ranks, and are raised here. A
        rank that is lost after its last step, when the others have left, finds
        that the job has finished: agg.JobFinished, which it may catch.
        """
        environment = {"AGG_COORDINATOR": self.address,
                       "WORLD_SIZE": str(self._num_workers)}
        task = self._ray.remote(_work)
        tasks = [task.options(
            max_retries=self._restarts, retry_exceptions=_RETRYABLE,
            **self._place(self._num_shards + rank)).remote(
                function, rank, environment, arguments)
                 for rank in range(self._num_workers)]
        waiting = list(tasks)
        try:
            while waiting:
                done, waiting = self._ray.wait(waiting)
                self._ray.get(done)
        except BaseException:
            for left in waiting:
                self._ray.cancel(left, force=True)
            raise
        return list(self._ray.get(tasks))

    def close(self) -> None:
        """Ends the shards, and gives their places back."""
        actors, self._actors = self._actors, []
        stops = [actor.stop.remote() for actor in actors]
        if stops:
            self._ray.wait(stops, num_returns=len(stops),
                           timeout=2 * _STOP_SECONDS)
        for actor in actors:
            self._ray.kill(actor, no_restart=True)
        self._ray.util.remove_placement_group(self._group)

    def _place(self, index: int) -> dict[str, Any]:
        strategies = importlib.import_module(
            "ray.util.scheduling_strategies")
        needs = dict(self._needs[index])
        return {"num_cpus": needs.pop("CPU", 0),
                "num_gpus": needs.pop("GPU", 0), "resources": needs,
                "scheduling_strategy":
                    strategies.PlacementGroupSchedulingStrategy(
                        self._group, placement_group_bundle_index=index)}

    def _reserve(self) -> list[str]:
        """An address on the node of each shard; all differ."""
        free = self._ray.remote(_free_address)
        found: list[str] = []
        while len(found) < self._num_shards:
            address = self._ray.get(
                free.options(**self._place(len(found))).remote())
            if address not in found:
                found.append(address)
        return found


_RETRYABLE = [kind for kind in Error.__subclasses__() if kind.retryable]

__all__ = ["RayJob", "Shard"]
