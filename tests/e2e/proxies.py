"""TCP proxies before the shards of a job, whose connections can be cut."""

import contextlib
import socket
import struct
import threading

RESET = struct.pack("ii", 1, 0)  # SO_LINGER: close with a reset
PIECE = 1 << 18


class Proxy:
    """Passes the connections to one port on to another one."""

    def __init__(self, port, target):
        self.target = target
        self.lock = threading.Lock()
        self.sockets = set()  # of all connections, both ends
        self.is_cut = False
        self.listener = socket.socket()
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.listener.bind(("127.0.0.1", port))
        self.listener.listen(64)
        self._start(self._accept)

    def cut(self):
        """Resets what is connected, and takes nothing until mend()."""
        with self.lock:
            self.is_cut = True
            for one in self.sockets:
                self._reset(one)

    def mend(self):
        with self.lock:
            self.is_cut = False

    def to_shard(self, piece):
        """What a subclass does to bytes on their way to the shard."""

    def close(self):
        self.cut()
        self.listener.close()

    @staticmethod
    def _start(body, *arguments):
        threading.Thread(target=body, args=arguments, daemon=True).start()

    @staticmethod
    def _reset(one):
        with contextlib.suppress(OSError):
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            one.shutdown(socket.SHUT_RDWR)  # wakes its thread, which closes

    def _accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:  # closed
                return
            self._start(self._connect, near)

    def _connect(self, near):
        try:
            far = socket.create_connection(("127.0.0.1", self.target), 5)
        except OSError:  # the shard is away
            near.close()
            return
        far.settimeout(None)
        ends = (near, far)
        for one in ends:
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self.lock:
            if self.is_cut:
                for one in ends:
                    one.close()
                return
            self.sockets.update(ends)
        other = threading.Thread(target=self._pass_on, args=(far, near),
                                 daemon=True)
        other.start()
        self._pass_on(near, far)
        other.join()
        with self.lock:
            self.sockets.difference_update(ends)
        for one in ends:
            one.close()

    def _pass_on(self, source, sink):
        buffer = memoryview(bytearray(PIECE))
        with contextlib.suppress(OSError):
            while True:
                size = source.recv_into(buffer)
                if not size:
                    break
                if sink.getpeername()[1] == self.target:
                    self.to_shard(buffer[:size])
                sink.sendall(buffer[:size])
        # The end of one direction is the end of both: gRPC has no half ones.
        for one in (source, sink):
            self._reset(one)
