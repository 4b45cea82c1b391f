"""Frames of the bus server: cut out of any stream, and refused when they are none."""

from __future__ import annotations

import pytest

from shared.base.errors import CodecError
from shared.protocol.topology import BODY_BYTES_MAX, CONTROLLER
from sim_backend.bus_server.wire import (
    CLIENT_DECODER,
    FRAME_BYTES_MAX,
    HEAD,
    SERVER_DECODER,
    Answered,
    Declare,
    Frames,
    FromClient,
    Publish,
    to_frame,
)

PUBLISH = Publish("trimtab.results", "controller", b"\x00\xff", 7, "reply.operator.ann")


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_frames_are_cut_out_of_parts_of_any_size(size: int) -> None:
    sent: list[FromClient] = [PUBLISH, Declare(1, CONTROLLER), PUBLISH]
    stream = b"".join(map(to_frame, sent))
    frames = Frames(CLIENT_DECODER)

    got = [value for at in range(0, len(stream), size) for value in frames.feed(stream[at : at + size])]

    assert got == sent


def test_the_largest_body_fits() -> None:
    whole = Publish("trimtab.actions", "n1", b"x" * BODY_BYTES_MAX, None, "")

    assert Frames(CLIENT_DECODER).feed(to_frame(whole)) == [whole]


def test_a_frame_that_claims_more_is_refused_before_it_has_come() -> None:
    with pytest.raises(CodecError, match="expected at most"):
        Frames(CLIENT_DECODER).feed(HEAD.pack(FRAME_BYTES_MAX + 1))


@pytest.mark.parametrize("body", [b"", b"\xc1", b"\x81\xa4type\xa5Hello", to_frame(Answered(1))[HEAD.size :]])
def test_what_no_client_sends_is_refused(body: bytes) -> None:
    with pytest.raises(CodecError, match="undecodable"):
        Frames(CLIENT_DECODER).feed(HEAD.pack(len(body)) + body)


def test_an_answer_is_what_the_server_sends() -> None:
    assert Frames(SERVER_DECODER).feed(to_frame(Answered(1, "no"))) == [Answered(1, "no")]
