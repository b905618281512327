"""Shards of a job on this machine, for notebooks, tests and one host."""

from __future__ import annotations

import collections
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import time
import weakref
from typing import IO, Any, List, Mapping, Optional, Union

from agg_server._untraced import Closing, untraced_calls
from agg_server.errors import Error, ManifestError

_START_SECONDS = 60.0
_STOP_SECONDS = 20.0

# Of this process. A forked child shares their pipes, folders and processes.
_servers: "weakref.WeakSet[LocalServer]" = weakref.WeakSet()


def _after_fork() -> None:
    for server in list(_servers):
        server.forget()


os.register_at_fork(after_in_child=_after_fork)

Value = Union[str, int, float, bool, Mapping[str, Any], List[Any]]


def binary_path(name: str) -> str:
    """A program of this project: AGG_SERVER (agg_server alone), the package's
    own, or one on PATH. Raises Error: it is not there."""
    named = os.environ.get("AGG_SERVER") if name == "agg_server" else None
    inside = pathlib.Path(__file__).parent / "_bin" / name
    path = named or (str(inside) if inside.is_file() else shutil.which(name))
    if not path or not pathlib.Path(path).is_file():
        raise Error(f"{path or name} is not there; put it on PATH"
                    + (", or set AGG_SERVER" if name == "agg_server" else ""))
    return os.path.abspath(path)


def text_form(fields: Mapping[str, Value], indent: str = "") -> str:
    """A configuration (proto/config.proto) in protobuf's text form."""
    lines = []
    for name, value in fields.items():
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, Mapping):
                lines.append(f"{indent}{name} {{\n"
                             + text_form(item, indent + "  ")
                             + f"{indent}}}\n")
            elif isinstance(item, bool):
                lines.append(f"{indent}{name}: {str(item).lower()}\n")
            elif isinstance(item, str):
                quoted = item.replace("\\", "\\\\").replace('"', '\\"')
                lines.append(f'{indent}{name}: "{quoted}"\n')
            else:
                lines.append(f"{indent}{name}: {item}\n")
    return "".join(lines)


# Of the text form: a string, or a comment.
_NO_FIELD = re.compile(r"""#.*|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'""")


def workers_of(text: str, field: str = "workers") -> Optional[int]:
    """What a configuration in text form says; None: nothing. field: or
    "max_workers"."""
    named = re.search(rf"\b{field}\s*:\s*(\d+)", _NO_FIELD.sub(" ", text))
    return int(named.group(1)) if named else None


def job_text(workers: int, text: str) -> str:
    """A configuration in text form whose shards LocalServer says, and whose
    workers it says where the text does not. Raises Error: it names shards."""
    fields = _NO_FIELD.sub(" ", text)
    if re.search(r"\bshards\s*:", fields):
        raise Error("the configuration names shards; allowed: none, since "
                    "they are started here, on ports that are free")
    named = re.search(r"\bworkers\s*:", fields)
    return text + ("" if named else f"\nworkers: {workers}") + "\n"


def job_fields(workers: int, rule: str, lr: Optional[float],
               optimizer: Union[str, Mapping[str, Value]],
               step_scale: Optional[str], job: str,
               config: Optional[Mapping[str, Value]]) -> dict[str, Value]:
    """A configuration without its shards; LocalServer has the arguments."""
    kind = (dict(kind=optimizer) if isinstance(optimizer, str)
            else dict(optimizer))
    fields: dict[str, Value] = {"job": job, "workers": workers,
                                "combination": {"rule": rule},
                                "optimizer": kind}
    wins = (config or {}).get("optimizer", kind)
    name = wins.get("kind") if isinstance(wins, Mapping) else None
    if lr is None and name == "add":
        lr = 1.0
    if lr is None and name != "none" and \
            "learning_rate" not in (config or {}):
        raise ManifestError('lr is None; allowed: a number > 0, or another '
                            'optimizer: "none" and "add" need none')
    if lr is not None:
        fields["learning_rate"] = {"rate": lr}
    if step_scale is not None:
        fields["step_scale"] = {"kind": step_scale}
    fields.update(config or {})
    return fields


def last_lines(path: pathlib.Path) -> str:
    """Of a log, if it is there."""
    text = path.read_text(errors="replace") if path.exists() else ""
    return "\n".join(collections.deque(text.splitlines(), 10))


def _close_all(pipes: List[IO[bytes]]) -> None:
    for pipe in pipes:
        pipe.close()


def _remove(folder: pathlib.Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)


@untraced_calls
class LocalServer(Closing):
    """One job; a process for each of its shards, on loopback.

        with agg.LocalServer(shards=2, workers=4, rule="adasum", lr=0.05) as s:
            worker = agg.Worker(model, coordinator=s.address, rank=0)

    The processes end with this object, and with this process, whatever ends
    it: they read a pipe that it holds. A forked child of it has no server:
    close() does nothing there. What they write is in files of `folder`.
    """

    def __init__(self, shards: int = 1, workers: int = 1,
                 rule: str = "mean", lr: Optional[float] = None,
                 optimizer: Union[str, Mapping[str, Value]] = "sgd",
                 step_scale: Optional[str] = None, job: str = "local",
                 folder: Optional[str] = None,
                 config: Union[Mapping[str, Value], str, None] = None
                 ) -> None:
        """Starts them, and waits until they serve.

        Args:
          shards: processes that share the parameters.
          workers: that the job expects.
          rule: "mean", "adasum", "adacons", "multi_krum", ... Options of a
            rule go into `config`: {"combination": {"rule": "multi_krum",
            "krum": {"byzantine_workers": 2}}, "outliers": {}}.
          lr: the learning rate. None: 1 for the optimizer "add"; others but
            "none" need one.
          optimizer: its kind, or its fields: {"kind": "adamw", "beta1": 0.8}.
          step_scale: "adascale", or None.
          job: its name.
          folder: for logs, made if it is not there; None: a temporary one.
          config: further fields of proto/config.proto, by name. They win. Or
            a whole configuration in text form, without its shards: then rule,
            lr, optimizer, step_scale and job are what it says. With
            {"metrics": {"port": N}} shard i serves its metrics on port N + i.

        Raises Error: a server did not start; with the last lines of its log.
        """
        self._text = (
            job_text(workers, config) if isinstance(config, str) else
            text_form(job_fields(workers, rule, lr, optimizer, step_scale, job,
                                 config)))
        self.folder = pathlib.Path(
            tempfile.mkdtemp(prefix="agg_server_") if folder is None
            else folder)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise Error(f"folder is {folder}: {error}") from error
        # None: the folder is the caller's.
        self._remove_folder = (None if folder is not None else
                               weakref.finalize(self, _remove, self.folder))
        self._processes: list[subprocess.Popen[bytes]] = []
        # The end of its pipe ends a server, also when this object is forgotten.
        self._pipes: list[IO[bytes]] = []
        weakref.finalize(self, _close_all, self._pipes)
        _servers.add(self)
        if shards < 1:
            raise ManifestError(f"shards is {shards}; allowed: 1 or more")
        # Shard 0 needs the others' ports: it starts last. Until then any
        # addresses that differ will do.
        self.addresses = [f"127.0.0.1:{1 + i}" for i in range(shards)]
        try:
            for ordinal in reversed(range(shards)):
                self.addresses[ordinal] = self._start(ordinal)
        except BaseException:
            self.close()
            raise

    @property
    def address(self) -> str:
        """Of shard 0: the coordinator of the workers."""
        return self.addresses[0]

    @property
    def pids(self) -> list[int]:
        """Of the shards' processes, by ordinal."""
        return [process.pid for process in reversed(self._processes)]

    def log(self, shard: int = 0) -> str:
        """What a shard has written so far."""
        path = self.folder / f"shard{shard}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def close(self) -> None:
        """Ends the processes: they drain, for some seconds at most."""
        for process in self._processes:
            process.terminate()
        deadline = time.monotonic() + _STOP_SECONDS
        for process in self._processes:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        _close_all(self._pipes)
        self._processes = []
        if self._remove_folder is not None:
            self._remove_folder()

    def forget(self) -> None:
        """In a forked child, which has nothing to end: all is the parent's."""
        _close_all(self._pipes)  # else the servers would outlive the parent
        self._processes = []
        if self._remove_folder is not None:
            self._remove_folder.detach()

    def _start(self, ordinal: int) -> str:
        config = self.folder / f"shard{ordinal}.textproto"
        port_file = self.folder / f"shard{ordinal}.port"
        config.write_text(
            self._text + text_form({"shards": list(self.addresses)}))
        port_file.unlink(missing_ok=True)
        with open(self.folder / f"shard{ordinal}.log", "wb") as log:
            process = subprocess.Popen(
                [binary_path("agg_server"), f"--config={config}",
                 f"--shard={ordinal}", "--port=0", f"--port_file={port_file}",
                 "--exit_with_stdin", "--drain_seconds=2"],
                stdin=subprocess.PIPE, stdout=log, stderr=log,
                start_new_session=True)
        self._processes.append(process)
        if process.stdin is not None:
            self._pipes.append(process.stdin)
        deadline = time.monotonic() + _START_SECONDS
        while not port_file.exists():
            if process.poll() is not None or time.monotonic() > deadline:
                raise Error(
                    f"shard {ordinal} did not start:\n"
                    + last_lines(self.folder / f"shard{ordinal}.log"))
            time.sleep(0.005)
        return "127.0.0.1:" + port_file.read_text().strip()
