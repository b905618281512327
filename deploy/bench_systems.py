"""The systems that the benchmark compares, and their configuration."""

import subprocess
from dataclasses import dataclass


@dataclass(frozen=True)
class Transport:
    """A way for bytes to go; the worker's --transport has the same name."""
    name: str
    config: tuple = ()  # lines of the servers' configuration
    flags: tuple = ()   # of the workers, besides --transport
    dtypes: tuple = ()  # that it is for; (): all

    def takes(self, dtype):
        """Whether rows of this type can go so."""
        return not self.dtypes or dtype in self.dtypes


# By name, in the order of the tables. Those that the worker's
# --list_transports lacks are left out.
TRANSPORTS = {transport.name: transport for transport in (
    Transport("tcp"),
    Transport("unix"),
    Transport("shm_copy"),
    Transport("shm", dtypes=("f32",)),  # what is computed in place is float32
)}

# What a name of --dtypes means for pushes and for pulls. A quantized type is
# for pushes alone: parameters want a type that rounds each value by itself.
PULL_DTYPES = {"int8": "bf16"}


@dataclass(frozen=True)
class System:
    """One thing that is measured."""
    kind: str  # "agg", "gloo", or a floor: "raw" sockets, "echo"
    transport: str
    rule: str
    dtype: str
    workers: int
    shards: int
    num_bytes: int  # of a worker's gradient in float32

    @property
    def elements(self):
        return self.num_bytes // 4

    @property
    def name(self):
        if self.kind != "agg":
            return self.kind
        return f"agg {self.transport} {self.rule} {self.dtype} " \
               f"{self.shards} shard(s)"


def config_text(system, addresses):
    """The servers' configuration (proto/config.proto) in text format."""
    lines = ['job: "bench"']
    lines += [f'shards: "{address}"' for address in addresses]
    lines += [
        f"workers: {system.workers}",
        f'combination {{ rule: "{system.rule}" }}',
        'optimizer { kind: "sgd" }',
        "learning_rate { rate: 0.001 }",
        # Second copies travel between shards, which is not what is measured.
        'replication: "none"',
        f'push_dtype: "{system.dtype}"',
        f'pull_dtype: "{PULL_DTYPES.get(system.dtype, system.dtype)}"',
        *TRANSPORTS[system.transport].config]
    return "\n".join(lines) + "\n"


def refusal(system, bin_folder):
    """Why this server cannot do it, or ""."""
    addresses = [f"127.0.0.1:{port + 1}" for port in range(system.shards)]
    result = subprocess.run(
        [bin_folder / "server" / "agg_server", "--config=-", "--validate"],
        input=config_text(system, addresses), check=False, text=True,
        capture_output=True)
    return result.stderr.strip() if result.returncode else ""


def built_transports(bin_folder):
    """Names that the worker knows."""
    return subprocess.run(
        [bin_folder / "tests/bench/transport_worker", "--list_transports"],
        check=True, text=True, capture_output=True).stdout.split()
