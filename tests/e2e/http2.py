"""HTTP/2 frames by hand, for what no client library would send."""

import socket

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
# RFC 9113 6.
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY = 0, 1, 3, 4, 6, 7
WINDOW_UPDATE, CONTINUATION = 8, 9
END_STREAM, ACK, END_HEADERS = 1, 1, 4
# Until the other end's settings are acknowledged, and always enough.
MAX_FRAME = 16384
FIRST_WINDOW = 65535
MAX_WINDOW = 2**31 - 1


def frame(kind, flags, stream, payload=b""):
    return (len(payload).to_bytes(3, "big") + bytes([kind, flags]) +
            stream.to_bytes(4, "big") + payload)


def _length(number):
    """RFC 7541 5.1, with a prefix of 7 bits."""
    if number < 127:
        return bytes([number])
    number -= 127
    out = [127]
    while number >= 128:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes(out + [number])


def header(name, value):
    """A field that is not indexed, as text (RFC 7541 6.2.2)."""
    return b"\0" + _length(len(name)) + name + _length(len(value)) + value


def call_headers(method, token="", more=()):
    """Those of a gRPC call of "agg.v1.Shard/Push"; `more`: (name, value)s."""
    fields = [(b":method", b"POST"), (b":scheme", b"http"),
              (b":path", b"/" + method.encode()), (b":authority", b"job"),
              (b"te", b"trailers"), (b"content-type", b"application/grpc"),
              *more]
    if token:
        fields.append((b"authorization", b"Bearer " + token.encode()))
    return b"".join(header(*field) for field in fields)


def message(payload, compressed=False):
    """gRPC's prefix, and the message."""
    return bytes([compressed]) + len(payload).to_bytes(4, "big") + payload


class Connection:
    """Reads nothing unless it is asked to.

    `address`: of TCP, or the name of an abstract Unix socket. `tls`: an
    ssl.SSLContext, for TCP; the other end is "localhost".
    """

    def __init__(self, address, timeout, source="127.0.0.2", receive_bytes=0,
                 tls=None):
        if isinstance(address, str):
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.settimeout(timeout)
            self.socket.connect("\0" + address)
        else:
            self.socket = socket.socket()
            self.socket.settimeout(timeout)
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if receive_bytes:
                self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF,
                                       receive_bytes)
            self.socket.bind((source, 0))
            self.socket.connect(address)
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket,
                                          server_hostname="localhost")
        self.window = FIRST_WINDOW
        self.stream_windows = {}
        self.first_window = FIRST_WINDOW
        self.next_stream = 1
        self._rest = b""

    def send(self, data):
        self.socket.sendall(data)

    def greet(self, settings=b""):
        self.send(PREFACE + frame(SETTINGS, 0, 0, settings))
        return self

    def open_windows(self):
        """The other end may send as much as it has, of all calls."""
        self.greet(b"\0\4" + MAX_WINDOW.to_bytes(4, "big"))
        self.send(frame(WINDOW_UPDATE, 0, 0,
                        (MAX_WINDOW - FIRST_WINDOW).to_bytes(4, "big")))
        return self

    def call(self, method, token="", body=None, more=()):
        """Begins a call, with one message and its end if there is a body."""
        stream = self.next_stream
        self.next_stream += 2
        block = call_headers(method, token, more)
        self.send(frame(HEADERS, END_HEADERS, stream, block))
        if body is not None:
            self.send_data(stream, message(body), end=True)
        return stream

    def send_data(self, stream, data, end=False):
        while data:
            room = min(self.window, MAX_FRAME, self.first_window +
                       self.stream_windows.get(stream, 0))
            if room <= 0:
                self.read()
                continue
            part, data = data[:room], data[room:]
            self.window -= len(part)
            self.stream_windows[stream] = self.stream_windows.get(
                stream, 0) - len(part)
            self.send(frame(DATA, END_STREAM if end and not data else 0,
                            stream, part))

    def read(self):
        """The next frame: kind, flags, stream, payload. Raises OSError."""
        while len(self._rest) < 9 or len(self._rest) < 9 + int.from_bytes(
                self._rest[:3], "big"):
            piece = self.socket.recv(1 << 16)
            if not piece:
                raise ConnectionError("the connection was closed")
            self._rest += piece
        size = int.from_bytes(self._rest[:3], "big")
        kind, flags = self._rest[3], self._rest[4]
        stream = int.from_bytes(self._rest[5:9], "big")
        payload, self._rest = self._rest[9:9 + size], self._rest[9 + size:]
        self._answer(kind, flags, stream, payload)
        return kind, flags, stream, payload

    def _answer(self, kind, flags, stream, payload):
        if kind == WINDOW_UPDATE:
            more = int.from_bytes(payload, "big")
            if stream:
                self.stream_windows[stream] = self.stream_windows.get(
                    stream, 0) + more
            else:
                self.window += more
        elif kind == SETTINGS and not flags & ACK:
            for i in range(0, len(payload), 6):
                if payload[i:i + 2] == b"\0\4":
                    self.first_window = int.from_bytes(payload[i + 2:i + 6],
                                                       "big")
            self.send(frame(SETTINGS, ACK, 0))
        elif kind == PING and not flags & ACK:
            self.send(frame(PING, ACK, 0, payload))

    def ends(self, number):
        """The headers that end `number` calls, as bytes: they have the status
        and the message in clear text."""
        found = []
        while len(found) < number:
            kind, flags, _, payload = self.read()
            if kind == HEADERS and flags & END_STREAM:
                found.append(payload)
            elif kind == GOAWAY:
                raise ConnectionError(payload.decode("latin1"))
        return found

    def close(self):
        self.socket.close()
