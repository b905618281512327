"""How a worker waits for another one's seed."""

from __future__ import annotations

import logging
import time
from typing import Optional, cast

from agg_server._session import Session
from agg_server.errors import NotNow, ShardLost, Timeout
from agg_server.options import ClientOptions, fields_of

_log = logging.getLogger("agg_server")

_POLL_SECONDS, _MAX_POLL_SECONDS = 0.2, 2.0
# Without a limit: of one attempt to reach the coordinator.
_CONNECT_SECONDS = 30.0
# When it is said who is waited for, and when again.
_SAY_SECONDS, _SAY_AGAIN_SECONDS = 5.0, 60.0


def await_seed(coordinator: str, timeout: Optional[float],
               options: ClientOptions) -> None:
    """Until somebody has seeded the job. Timeout: nobody did in time (s; None:
    no limit, once the coordinator can be reached). options: of the worker;
    those that let it in count. TypeError: one of them is wrong."""
    fields_of(options)  # or it would be found wrong behind the wait
    own = cast(ClientOptions, {
        name: value for name, value in options.items()
        if name == "token_file" or name.startswith("tls")})
    begin = time.monotonic()
    pause, say_at = _POLL_SECONDS, begin + _SAY_SECONDS
    while True:
        now = time.monotonic()
        left = (_CONNECT_SECONDS if timeout is None else
                begin + timeout - now)
        if left <= 0:
            raise Timeout(f"nobody has seeded the job within {timeout} s; "
                          'with seed="rank0" rank 0 has to')
        session = None
        try:
            session = Session([], coordinator, observer=True,
                              options={"connect_timeout": left, **own})
            session.latest_version()
            return
        except NotNow as error:
            if now >= say_at:
                say_at = now + _SAY_AGAIN_SECONDS
                _log.warning('waiting for rank 0, which has to seed the job '
                             '(seed="rank0"): %s', error)
            time.sleep(min(left, pause))
            pause = min(1.5 * pause, _MAX_POLL_SECONDS)
        except ShardLost as error:
            raise Timeout(str(error), error.code) from error
        finally:
            if session is not None:
                session.close()
