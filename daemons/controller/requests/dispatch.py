"""Requests of people: each is carried out once by its handler, however often it is delivered.

Questions (`Query`, `DryRun`, `Assess`, `CheckVmFit`, `CheckRules`) are answered by
`daemons/controller/requests/queries.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from daemons.controller.contract.feature import Caller, Refused, RequestHandler
from daemons.controller.contract.feature_set import FeatureSet
from daemons.controller.contract.replies import Replies
from daemons.values.view_format import Row
from shared.ports.effects import Received
from shared.protocol.codec import fingerprint
from shared.protocol.messages import Reply
from shared.protocol.operator_messages import Request

REMEMBERED_MAX = 1_000


class Requests:
    """Carries requests out by their handlers, and answers them when what they changed is stored."""

    def __init__(self, handlers: Mapping[type, RequestHandler], features: FeatureSet, replies: Replies) -> None:
        self._handlers, self._features, self._replies = handlers, features, replies
        self._done: dict[str, bytes] = {}

    def carry_out(self, received: Received, now_s: float, data: Row | None = None) -> None:
        """Carry out a received request, and answer it, with `data` if given."""
        request = cast(Request, received.message)  # it was screened
        reply = self.handle(request, now_s, received.sender, received.why)
        self._replies.when_stored(received, reply, now_s, data)

    def handle(self, request: Request, now_s: float, sender: str, why: str = "") -> Reply:
        """Do it, or say why not; a refusal changes nothing, and neither does a request that was done already. `sender`
        may ask for it (`daemons.controller.requests.authorization`), and said why."""
        if self._done.get(request.request) == fingerprint(request):
            return Reply(request.request, True)
        code, detail = self._handle(request, Caller(sender, why), now_s)
        if not code:
            self._remember(request)
        return Reply(request.request, not code, code, detail)

    def _handle(self, request: Request, caller: Caller, now_s: float) -> Refused:
        code, detail = self._handlers[type(request)](request, caller, now_s)
        if not code:
            self._features.after(request, now_s)
        return code, detail

    def _remember(self, request: Request) -> None:
        """Remember a request: a late repeat must not undo what was requested since."""
        self._done[request.request] = fingerprint(request)
        if len(self._done) > REMEMBERED_MAX:
            del self._done[next(iter(self._done))]
