"""The control plane: pickled messages over a socket pair, each behind its length.

Small and rare, so it is plain: no threads, no partial state visible to the caller. A descriptor can
travel with a message. Each end owns its socket.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import time
from collections.abc import Sequence

_HEADER = struct.Struct("<QI")  # bytes of the message, descriptors that came with it
_CHUNK = 1 << 16  # bytes
_MAX_DESCRIPTORS = 16


class ChannelClosedError(EOFError):
    """The other end is gone."""


class Channel:
    """One end of a socket pair that carries whole messages.

    Attributes:
        socket: The socket.
    """

    def __init__(self, end: socket.socket, *, takes_descriptors: bool) -> None:
        """Owns the socket from now on; an end that is never sent descriptors receives in a third of the time."""
        end.setblocking(False)
        self.socket = end
        self._takes_descriptors = takes_descriptors
        self._buffer = bytearray(_CHUNK)
        self._received = bytearray()
        self._descriptors: list[int] = []

    def fileno(self) -> int:
        """Returns the socket's descriptor, to wait on."""
        return self.socket.fileno()

    def send(self, payload: bytes, descriptors: Sequence[int] = (), deadline: float | None = None) -> None:
        """Sends one message.

        While the socket is full it takes in what the other end has sent, so that two ends that send
        at once never wait for each other.

        Args:
            payload: The message.
            descriptors: Open descriptors to hand over; they stay open here.
            deadline: When to give up, on `time.monotonic`; None for never.

        Raises:
            ChannelClosedError: The other end is gone.
            TimeoutError: The deadline has passed; the channel cannot be used any more.
        """
        if descriptors:
            # The header goes alone and carries the descriptors: they arrive with its first byte.
            self._send_all(memoryview(_HEADER.pack(len(payload), len(descriptors))), descriptors, deadline)
            self._send_all(memoryview(payload), (), deadline)
        else:
            self.finish(self.begin(payload), deadline)

    def begin(self, payload: bytes) -> memoryview:
        """Sends as much of a message as the other end has room for, and returns the rest, for `finish`."""
        data = memoryview(_HEADER.pack(len(payload), 0) + payload)
        try:
            return data[self.socket.send(data) :]
        except BlockingIOError:
            return data
        except OSError as error:
            raise ChannelClosedError(str(error)) from error

    def finish(self, rest: memoryview, deadline: float | None = None) -> None:
        """Sends the rest of a message; see `send`."""
        self._send_all(rest, (), deadline)

    def receive(self, deadline: float | None = None) -> tuple[bytes, list[int]]:
        """Returns the next message and the descriptors that came with it, which the caller owns.

        Raises:
            ChannelClosedError: The other end is gone.
            TimeoutError: The deadline has passed; what arrived so far is kept for the next call.
        """
        size = _HEADER.size
        self._fill(size, deadline)
        length, num_descriptors = _HEADER.unpack_from(self._received)
        self._fill(size + length, deadline)
        payload = bytes(memoryview(self._received)[size : size + length])
        del self._received[: size + length]
        descriptors, self._descriptors = self._descriptors[:num_descriptors], self._descriptors[num_descriptors:]
        return payload, descriptors

    def close(self) -> None:
        """Closes this end."""
        for descriptor in self._descriptors:
            socket.close(descriptor)
        self._descriptors.clear()
        self.socket.close()

    def _send_all(self, data: memoryview, descriptors: Sequence[int], deadline: float | None) -> None:
        while data:
            try:
                if descriptors:
                    sent = socket.send_fds(self.socket, [data], list(descriptors))
                    descriptors = ()
                else:
                    sent = self.socket.send(data[:_CHUNK])
                data = data[sent:]
            except BlockingIOError:
                if self._wait(select.POLLIN | select.POLLOUT, deadline) & select.POLLIN:
                    self._take_in()
            except OSError as error:
                raise ChannelClosedError(str(error)) from error

    def _fill(self, nbytes: int, deadline: float | None) -> None:
        while len(self._received) < nbytes:
            if not self._take_in():
                self._wait(select.POLLIN, deadline)

    def _take_in(self) -> bool:
        """Takes in what has arrived; returns False if there was nothing."""
        try:
            data = self._take_descriptors() if self._takes_descriptors else self._take_bytes()
        except BlockingIOError:
            return False
        except OSError as error:
            raise ChannelClosedError(str(error)) from error
        if not data:
            raise ChannelClosedError("the other end has been closed")
        self._received += data
        return True

    def _take_bytes(self) -> memoryview:
        return memoryview(self._buffer)[: self.socket.recv_into(self._buffer)]

    def _take_descriptors(self) -> bytes:
        data, descriptors, _flags, _address = socket.recv_fds(self.socket, _CHUNK, _MAX_DESCRIPTORS)
        for descriptor in descriptors:
            # Unlike those that Python opens itself, these would go to whatever an env starts.
            os.set_inheritable(descriptor, False)
        self._descriptors.extend(descriptors)
        return data

    def _wait(self, events: int, deadline: float | None) -> int:
        poller = select.poll()
        poller.register(self.socket, events)
        timeout_ms = None if deadline is None else max(0.0, (deadline - time.monotonic()) * 1000)
        ready = poller.poll(timeout_ms)
        if not ready:
            raise TimeoutError("the other end does not read or write")
        return ready[0][1]


def channel_pair(*, takes_descriptors: bool) -> tuple[Channel, socket.socket]:
    """Returns this process's end, and the socket to hand to the other."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    return Channel(ours, takes_descriptors=takes_descriptors), theirs
