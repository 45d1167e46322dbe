"""`python -m tests.postgres.late_end PORT URL`: edits through a wire on which an error comes behind
an answer, and the end of both later, from a thread of this very process."""

from __future__ import annotations

import socket
import sys
import threading
import time
from contextlib import suppress

import perdure
from tests.postgres.proxy import Proxy

END = 6
"""Bytes of the message that says that the server is ready for the next statement."""

FIELDS = b"SERROR\0VERROR\0C40001\0Mcould not serialize access\0\0"
ERROR = b"E" + (len(FIELDS) + 4).to_bytes(4, "big") + FIELDS


class LateEnd(Proxy):
    """`late`: the end of the next answer comes late, behind an error."""

    late = False

    def _down(self, client: socket.socket, server: socket.socket, lost: threading.Event) -> None:
        with suppress(OSError):
            while data := server.recv(65536):
                if self.late and len(data) > END and data[-END:-1] == b"Z\0\0\0\5":
                    self.late = False
                    client.sendall(data[:-END] + ERROR)
                    time.sleep(0.1)
                    data = data[-END:]
                client.sendall(data)
        self._end(client, server)


def main(port: str, url: str) -> None:
    wire = LateEnd(int(port))
    through = url.replace(f":{port}/", f":{wire.port}/")
    with perdure.open(through) as store:
        agent = store.agent("a", initial={"n": 0})
        agent.save({"n": 1})
        wire.late = True
        try:
            agent.save({"n": 2})
        except perdure.PerdureError as error:
            print(type(error).__name__)
        assert not wire.late
        agent.refresh()
        agent.save({"n": 3})
        print(agent.state)
    wire.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
