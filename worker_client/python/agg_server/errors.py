"""What goes wrong, as types. Each message says what to do.

    agg.Error
      ShardLost      a process of the job was lost, and not back in time
      Superseded     another process has this rank: stop
      Evicted        an operator ended this session: stop
      EpochOver      the job began anew without this client (see reconnect)
      LeaseExpired   this process was away for too long
      JobFinished    no round follows; the last version can be pulled
      NotNow         not in this state; the message says when
      VersionGone    the version is not kept any more: pull the newest one
      Cancelled      this client has left, or was closed
      ResourceError  the server lacks memory for this
      ForkedError    the client belongs to the parent of this process
      LibraryError   libagg.so is not there, or of another release
      NotAllowed     (a PermissionError) the job does not know this client, or
                     its identity may not do this
      ManifestError  (a ValueError) arguments that do not fit the job
      RoundLogError  (a ValueError) a file that is no round log, or damaged
      Timeout        (a TimeoutError) a limit of this client's
"""

from __future__ import annotations

import re
from typing import Optional, Sequence, Type

from agg_server._shown import named, shown_lines


class Error(RuntimeError):
    """An agg_server job's or client's failure.

    Attributes:
      code: the status code's name, "UNAVAILABLE" say; "" for errors of this
        package itself.
      shard: the ordinal of the shard that it is about, or None.
      retryable: whether a new client (`Worker(...)` again) may go on.
    """

    retryable = False

    def __init__(self, message: str, code: str = "") -> None:
        # Names in it are a server's, a file's or a model's.
        message = shown_lines(message)
        super().__init__(message)
        self.code = code
        found = re.search(r"\bshard (\d+)\b", message)
        self.shard: Optional[int] = int(found.group(1)) if found else None


class ShardLost(Error):
    """A process of the job was lost and not back within recovery_window."""
    retryable = True


class Superseded(Error):
    """Another process has joined with this rank."""


class Evicted(Error):
    """An operator has ended this session."""


class EpochOver(Error):
    """The job has begun a new epoch, which this client is not in."""
    retryable = True


class LeaseExpired(Error):
    """The session ended, since nothing was heard of this process for long."""
    retryable = True


class JobFinished(Error):
    """No round follows."""


class NotNow(Error):
    """Not allowed in the present state."""


class VersionGone(Error):
    """A version, or an outcome, that is no longer kept."""
    retryable = True


class Cancelled(Error):
    """This client has left the job."""


class ResourceError(Error):
    """The server lacks memory for this."""


class ForkedError(Error):
    """The client belongs to the parent of this process."""


class LibraryError(Error):
    """libagg.so is not there, cannot be loaded, or is of another release."""


class ManifestError(Error, ValueError):
    """Arguments or tensors that do not fit the job."""


class RoundLogError(Error, ValueError):
    """A file that is no round log, is damaged, or cannot be read."""


class NotAllowed(Error, PermissionError):
    """The job does not know this client, or its identity may not do this."""


class Timeout(Error, TimeoutError):
    """A limit of this client's has passed; the call may be repeated."""
    retryable = True


_NAMES = {
    1: "CANCELLED", 2: "UNKNOWN", 3: "INVALID_ARGUMENT",
    4: "DEADLINE_EXCEEDED", 5: "NOT_FOUND", 6: "ALREADY_EXISTS",
    7: "PERMISSION_DENIED", 8: "RESOURCE_EXHAUSTED",
    9: "FAILED_PRECONDITION", 10: "ABORTED", 11: "OUT_OF_RANGE",
    12: "UNIMPLEMENTED", 13: "INTERNAL", 14: "UNAVAILABLE", 15: "DATA_LOSS",
    16: "UNAUTHENTICATED", 100: "FORKED",
}
_TYPES: dict[int, Type[Error]] = {
    1: Cancelled, 3: ManifestError, 4: Timeout, 6: NotNow, 7: NotAllowed,
    8: ResourceError, 9: NotNow, 10: EpochOver, 11: VersionGone, 14: ShardLost,
    16: NotAllowed, 100: ForkedError,
}
# What shards and the client say of a code that has several meanings. The first
# one in the message counts: an operator's words come behind "evicted:".
_SAYINGS: dict[int, dict[str, Type[Error]]] = {
    5: {"the lease": LeaseExpired, "session ": LeaseExpired},
    9: {"the job has finished": JobFinished},
    10: {"evicted: ": Evicted, "superseded: ": Superseded,
         "has left the job": Cancelled, "was replaced while": VersionGone,
         "was replaced by attempt": Error, "epoch ": EpochOver},
}
# Events that say why a session was ended.
_EVENTS: dict[Optional[int], Type[Error]] = {2: Superseded, 6: Evicted}


def _said(code: int, message: str) -> Optional[Type[Error]]:
    found = [(message.index(saying), kind)
             for saying, kind in _SAYINGS.get(code, {}).items()
             if saying in message]
    return min(found, key=lambda each: each[0])[1] if found else None


def error_of(code: int, message: str, finished: bool, left: bool,
             event: Optional[int]) -> Error:
    """The exception for a status code of the C ABI.

    The message goes before what the client knows besides: a shard may refuse a
    call before the event that says why has come, or long after it.

    Args:
      code: agg_code.
      message: agg_error().
      finished: whether the job has finished.
      left: whether this client was closed.
      event: the kind of the last event that ended the session, or None.
    """
    kind = _said(code, message)
    if left and code in (1, 9, 10):
        kind = Cancelled
    elif kind is None and code == 9 and finished:
        kind = JobFinished
    elif kind is None and code == 10:
        kind = _EVENTS.get(event)
    if kind is None:
        kind = _TYPES.get(code, Error)
    return kind(message, _NAMES.get(code, str(code)))


def written_complaint(written: Sequence[str], version: int, pull: str) -> str:
    """For parameters that a step would overwrite."""
    return (
        f"parameter {named(written)} was written by others since version "
        f"{version} was pulled. The server has the parameters: it would not hear of this, "
        "and the step would overwrite it. Allowed: load a checkpoint on every "
        "rank before the worker is made, of a job that has no parameters yet; "
        "have the job go on from the server's own checkpoint; or keep "
        'parameters and optimizer in the workers (mode "combine", a job with '
        f'optimizer {{ kind: "none" }}). {pull} drops what was written')
