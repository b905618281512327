"""What is the same of every client."""

from __future__ import annotations

import types
from typing import Optional, Type, TypeVar

from agg_server._session import Session
from agg_server._untraced import untraced_calls
from agg_server.outcome import Job

_Self = TypeVar("_Self", bound="Member")


@untraced_calls
class Member:
    """A worker or an observer of a job, for as long as its session lasts."""

    _session: Session

    @property
    def version(self) -> int:
        """The last one that was pulled, or seeded."""
        return int(self._session.state().version)

    @property
    def finished(self) -> bool:
        """No round follows."""
        return bool(self._session.state().finished)

    @property
    def job(self) -> Job:
        """How the job is set up."""
        return self._session.job()

    def close(self) -> None:
        """Leaves the job. When its last worker leaves, a job has finished."""
        self._session.close()

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(self, kind: Optional[Type[BaseException]],
                 error: Optional[BaseException],
                 trace: Optional[types.TracebackType]) -> None:
        self.close()
