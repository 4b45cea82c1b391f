"""A service processor with Redfish for tests: a real HTTPS server with the resources that switch a machine's power.

These are the service root, the collection of systems, one system, and its action `ComputerSystem.Reset` (DMTF DSP0266).
"""

from __future__ import annotations

import json
import ssl
import threading
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

ROOT = "/redfish/v1"
SYSTEM = f"{ROOT}/Systems/1"
RESET = f"{SYSTEM}/Actions/ComputerSystem.Reset"
FORCE_OFF = "ForceOff"


@dataclass(slots=True)
class Redfish:
    """The device, and what it was asked: method, path, body. `may_reset`: whether the account may switch the power.
    `obeys`: whether a reset that was accepted is carried out. `lags`: how often the state is read before the machine is
    off. `silent`: it takes connections and answers nothing."""

    username: str
    password: str
    port: int = 0
    power: str = "On"
    may_reset: bool = True
    obeys: bool = True
    lags: int = 0
    silent: bool = False
    asked: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)

    def answer(self, method: str, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Return the status and the body for a request of somebody who is logged in."""
        if (method, path) == ("GET", f"{ROOT}/Systems"):
            return 200, {"Members": [{"@odata.id": SYSTEM}], "Members@odata.count": 1}
        if (method, path) == ("GET", SYSTEM):
            reset = {"target": RESET, "ResetType@Redfish.AllowableValues": ["On", FORCE_OFF, "ForceRestart"]}
            return 200, {"@odata.id": SYSTEM, "PowerState": self._read(), "Actions": {"#ComputerSystem.Reset": reset}}
        if (method, path) != ("POST", RESET):
            return 404, _error("ResourceMissingAtURI")
        if not self.may_reset:
            return 403, _error("InsufficientPrivilege")
        if body.get("ResetType") not in ("On", FORCE_OFF):
            return 400, _error("ActionParameterValueNotInList")
        if self.obeys:
            self.power = "PoweringOff" if body["ResetType"] == FORCE_OFF else "On"
        return 204, {}

    def _read(self) -> str:
        if self.power == "PoweringOff":
            self.lags -= 1
            self.power = "Off" if self.lags < 0 else self.power
        return self.power

    def lets_in(self, authorization: str) -> bool:
        """Return whether a header has the account's name and password."""
        return authorization == "Basic " + b64encode(f"{self.username}:{self.password}".encode()).decode()


@contextmanager
def redfish_server(context: ssl.SSLContext, username: str, password: str) -> Iterator[Redfish]:
    """A device on a free port of 127.0.0.1, whose machine is on."""
    device = Redfish(username, password)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer("GET", {})

        def do_POST(self) -> None:
            self._answer("POST", json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def _answer(self, method: str, body: dict[str, Any]) -> None:
            device.asked.append((method, self.path, body))
            if device.silent:
                device.ended.wait()
                return
            if (method, self.path) == ("GET", ROOT):  # open to all
                status, said = 200, {"Systems": {"@odata.id": f"{ROOT}/Systems"}}
            elif device.lets_in(self.headers.get("Authorization", "")):
                status, said = device.answer(method, self.path, body)
            else:
                status, said = 401, _error("NoValidSession")
            sent = json.dumps(said).encode() if said else b""
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(sent)))
            self.end_headers()
            self.wfile.write(sent)

        def log_message(self, format: str, *args: Any) -> None:
            del format, args

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: Any, client_address: Any) -> None:
            del request, client_address  # a client that does not trust us, or that was killed

    server = Server(("127.0.0.1", 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    device.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield device
    finally:
        device.ended.set()
        server.shutdown()
        server.server_close()
        thread.join(5.0)


def _error(name: str) -> dict[str, Any]:
    return {"error": {"code": f"Base.1.0.{name}", "message": name}}
