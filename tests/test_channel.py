"""The control plane: whole messages in their order, whatever comes at once, in parts, or not at all."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from shoal.worker.channel import Channel, ChannelClosedError, channel_pair


@pytest.fixture
def ends():
    """Both ends; the second takes descriptors."""
    first, theirs = channel_pair(takes_descriptors=False)
    second = Channel(theirs, takes_descriptors=True)
    yield first, second
    first.close()
    second.close()


def soon():
    return time.monotonic() + 10


def test_messages_that_come_at_once_are_told_apart(ends):
    """The socket tells of the first only, so the second must be asked for."""
    first, second = ends
    first.send(b"one")
    first.send(b"two")
    assert second.take(deadline=soon()) == (b"one", [])
    assert second.has_message()
    assert second.take(deadline=soon()) == (b"two", [])
    assert not second.has_message()


def test_message_is_kept_until_a_later_one_is_asked_for(ends):
    """Whoever was interrupted looks again."""
    first, second = ends
    assert [second.post(text) for text in (b"a", b"b" * 300_000, b"c")] == [0, 1, 2]
    second.flush(waits=False)
    for _ in range(3):
        assert first.look(0, soon()) == b"a"
    second.flush(waits=False)
    assert len(first._fill(200_000, soon())) >= 200_000
    second.flush(soon())
    assert first.look(1, soon()) == b"b" * 300_000
    assert first.look(2, soon()) == b"c"


def test_descriptors_arrive_with_their_own_message_and_are_closed_with_a_skipped_one(ends):
    """A message that was never announced is passed over, and leaves nothing open."""
    first, second = ends
    before = len(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd") else None
    read, write = os.pipe()
    os.write(write, b"!")
    first.send(b"skipped", [read, write])
    first.send(b"plain")
    first.send(b"wanted", [read])
    payload, descriptors = second.take(2, soon())
    assert payload == b"wanted"
    (own,) = descriptors
    assert os.read(own, 1) == b"!"
    assert not os.get_inheritable(own)
    for fd in (own, read, write):
        os.close(fd)
    if before is not None:
        assert len(os.listdir("/proc/self/fd")) == before


def test_what_does_not_fit_into_the_socket_is_sent_later(ends):
    """Sending gives up at its deadline, and goes on where it stopped."""
    first, second = ends
    payload = os.urandom(3_000_000)
    with pytest.raises(TimeoutError):
        first.send(payload, deadline=time.monotonic() + 0.05)
    with pytest.raises(TimeoutError):
        second.take(deadline=time.monotonic() + 0.05)
    received = None
    while received is None:
        first.flush(waits=False)
        try:
            received, _ = second.take(deadline=time.monotonic())
        except TimeoutError:
            continue
    assert received == payload


def test_two_ends_that_send_at_once_do_not_wait_for_each_other(ends):
    """Each takes in what the other has sent while there is no room for its own."""
    first, second = ends
    ours, theirs = os.urandom(2_000_000), os.urandom(2_000_000)

    def swap(end, message):
        end.send(message, (), soon())
        return end.take(deadline=soon())[0]

    with ThreadPoolExecutor() as pool:
        other = pool.submit(swap, second, theirs)
        assert swap(first, ours) == theirs
        assert other.result() == ours


def test_end_of_the_other_side_is_an_error(ends):
    """Whether it is noticed in sending or in receiving."""
    first, second = ends
    second.close()
    with pytest.raises(ChannelClosedError):
        first.take(deadline=soon())
    with pytest.raises(ChannelClosedError):
        first.send(b"x")
