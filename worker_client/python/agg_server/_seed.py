"""How a worker waits for another one's seed."""

from __future__ import annotations

import time
from typing import Any, Mapping

from agg_server._session import Session
from agg_server.errors import NotNow, ShardLost, Timeout

_POLL_SECONDS = 0.2


def await_seed(coordinator: str, timeout: float,
               options: Mapping[str, Any]) -> None:
    """Until somebody has seeded the job. Timeout: nobody did in time (s).
    options: of Session; those that let it in count."""
    own = {name: value for name, value in options.items()
           if name == "token_file" or name.startswith("tls")}
    deadline = time.monotonic() + timeout
    while True:
        left = deadline - time.monotonic()
        if left <= 0:
            raise Timeout(f"nobody has seeded the job within {timeout} s; "
                          'with seed="rank0" rank 0 has to')
        session = None
        try:
            session = Session([], coordinator, observer=True,
                              options={"connect_timeout": left, **own})
            session.latest_version()
            return
        except NotNow:
            time.sleep(min(left, _POLL_SECONDS))
        except ShardLost as error:
            raise Timeout(str(error), error.code) from error
        finally:
            if session is not None:
                session.close()
