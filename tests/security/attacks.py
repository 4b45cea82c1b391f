"""What somebody with stolen credentials sends: bodies that cost much to read, and many of them."""

from __future__ import annotations

from shared.protocol.codec import encode
from shared.protocol.messages import Report
from shared.protocol.operator_messages import Query
from shared.values.nodes import NodeSample
from shared.values.vms import VmState, VmStatus

LARGE_VMS = 24_500  # make 1.6 MB
FITTING_VMS = 12_000  # make less than an agent may send


class Raw(bytes):
    """A value of a header table as it goes over the wire."""


def costly_report(node: str, vms: int) -> bytes:
    """A report whose last row is wrong, which is found last."""
    rows = tuple(VmStatus(f"vm-{index:05}", VmState.RUNNING) for index in range(vms - 1))
    body = encode(
        Report(
            node,
            "boot-1",
            1 << 40,
            clock_s=0.0,
            term=1,
            sample=NodeSample(),
            vms=(*rows, VmStatus("the-last", VmState.RUNNING)),
        )
    )
    return body.replace(b"\xa8the-last", b"\xa8the\x1blast")


def query(number: int) -> bytes:
    """A question that anybody may ask."""
    return encode(Query(f"q{number}", "jobs"))
