"""agg_server processes of one job on loopback, and waiting for things."""

import os
import pathlib
import resource
import signal
import subprocess
import tempfile
import time

from stubs import Peer, agg

SERVER = os.environ["AGG_SERVER"]
# What takes as long has failed. No test passes by waiting for this long.
WAIT = 30


def wait_until(condition, what, timeout=WAIT):
    """Asks until condition() is true and returns what it gave."""
    deadline = time.monotonic() + timeout
    while True:
        result = condition()
        if result:
            return result
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout} s: {what}")
        time.sleep(0.005)


class Server:
    """One process. The port is its own choice."""

    def __init__(self, folder, name, config, ordinal=0, flags=(),
                 address_space=None):
        """address_space: bytes of memory that the process may have."""
        def limit():
            resource.setrlimit(resource.RLIMIT_AS, (address_space,) * 2)

        self.log_path = folder / f"{name}.log"
        config_path = folder / f"{name}.textproto"
        config_path.write_text(config)
        port_path = folder / f"{name}.port"
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen(
                [SERVER, f"--config={config_path}", f"--shard={ordinal}",
                 "--port=0", f"--port_file={port_path}", *flags],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                preexec_fn=limit if address_space else None)
        self.address = None
        try:
            wait_until(lambda: port_path.exists() or not self.alive(),
                       f"{name} listens")
            if not port_path.exists():
                raise AssertionError(self.log())
        except BaseException:
            self.kill()
            raise
        self.address = "127.0.0.1:" + port_path.read_text().strip()

    def alive(self):
        return self.process.poll() is None

    def log(self):
        return self.log_path.read_text(errors="replace")

    def terminate(self):
        self.process.send_signal(signal.SIGTERM)

    def freeze(self):
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self):
        self.process.send_signal(signal.SIGCONT)

    def kill(self):
        if self.alive():
            self.process.kill()
        self.process.wait(WAIT)


class Job:
    """The shards of a job. stop() ends what it started."""

    def __init__(self, config, num_shards=1, flags=(), first_shard=0,
                 address_space=None, credentials=None):
        """config without `shards`; first_shard 1: no shard 0 yet; credentials:
        of grpc, for peers that name none."""
        self._credentials = credentials
        self._folder = tempfile.TemporaryDirectory()
        self._path = pathlib.Path(self._folder.name)
        self._config = config
        self._flags = flags
        self._address_space = address_space
        self._peers = []
        self._servers = []
        # Until a shard listens, any address that no other has will do.
        self.addresses = [f"127.0.0.1:{1 + i}" for i in range(num_shards)]
        self.shards = [None] * num_shards
        try:
            for ordinal in range(num_shards - 1, first_shard - 1, -1):
                self.start(ordinal)
            if first_shard == 0:
                self.await_attached()
        except BaseException:
            self.stop()
            raise

    def start(self, ordinal):
        """Starts shard `ordinal` (again), with the addresses known so far."""
        server = self.start_beside(ordinal)
        self.shards[ordinal] = server
        self.addresses[ordinal] = server.address
        return server

    def start_beside(self, ordinal):
        """One more process with the job's configuration."""
        config = self._config + "".join(
            f'\nshards: "{address}"' for address in self.addresses)
        server = Server(self._path, f"server_{len(self._servers)}", config,
                        ordinal, self._flags, self._address_space)
        self._servers.append(server)
        return server

    def await_attached(self):
        """Until shard 0 has all shards."""
        coordinator = self.peer().coordinator
        wait_until(lambda: coordinator.GetStatus(
            agg.StatusRequest(), timeout=WAIT).phase != "waiting_for_shards",
            "all shards are attached")

    def peer(self, ordinal=0, options=()):
        """A new connection, closed by stop()."""
        return self.connect(self.addresses[ordinal], options)

    def connect(self, address, options=(), credentials=None):
        peer = Peer(address, options, credentials or self._credentials)
        self._peers.append(peer)
        return peer

    def stop(self):
        for peer in self._peers:
            peer.close()
        for server in self._servers:
            server.kill()
        self._folder.cleanup()
