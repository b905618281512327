"""A TCP relay between two processes, whose connections a test can cut."""

import socket
import threading


class Relay:
    """Listens on a port of its own and passes bytes to `target`."""

    def __init__(self, target):
        host, port = target.split(":")
        self._target = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self._listener.getsockname()[1]
        self.num_connections = 0
        self._open = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return  # close() was called.
            far = socket.create_connection(self._target)
            self._open += [near, far]
            self.num_connections += 1
            for pair in ((near, far), (far, near)):
                threading.Thread(target=self._pass, args=pair,
                                 daemon=True).start()

    @staticmethod
    def _pass(source, sink):
        try:
            while data := source.recv(1 << 16):
                sink.sendall(data)
        except OSError:
            pass
        # Wakes the other direction's thread, too.
        for end in (source, sink):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def cut(self):
        """Ends all connections; new ones are let through."""
        while self._open:
            end = self._open.pop()
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            end.close()

    def close(self):
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()
