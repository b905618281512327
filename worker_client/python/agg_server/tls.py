"""TLS to a job's servers."""

from __future__ import annotations

import dataclasses
import os
from typing import Optional, Union

Path = Union[str, "os.PathLike[str]"]


@dataclasses.dataclass(frozen=True)
class Tls:
    """Paths of PEM files, which are read again when they change.

        agg.Client({"w": w}, coordinator="host:50051", rank=0,
                   tls=agg.Tls("ca.pem", "worker.pem", "worker.key"))

    What is None comes from AGG_TLS_CA, AGG_TLS_CERTIFICATE, AGG_TLS_KEY and
    AGG_TLS_SERVER_NAME; with these set no argument is needed at all.
    """

    ca: Optional[Path] = None  #: of the servers' certificates
    certificate: Optional[Path] = None  #: this process's, with its key
    key: Optional[Path] = None
    #: that the servers' certificates have, if not the host of their addresses
    server_name: Optional[str] = None
