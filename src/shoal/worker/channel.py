"""The control plane: pickled messages over a socket pair, each behind its length.

Small and rare, so it is plain: no threads. A descriptor can travel with a message. Each end owns its socket.

Nothing is lost or sent twice if Ctrl-C comes in between: a message is kept until all of it is sent, what arrives is
kept until the message after it is asked for, and messages have numbers. What a system call did is stored in the same
instruction, by `extend(map(call, ...))`, since the interpreter looks for signals after every call.
"""

from __future__ import annotations

import array
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


class _Message:
    """One message on its way out."""

    __slots__ = ("data", "descriptors", "sent")

    def __init__(self, payload: bytes, descriptors: Sequence[int]) -> None:
        self.data = memoryview(_HEADER.pack(len(payload), len(descriptors)) + payload)
        # They arrive with its first byte.
        self.descriptors = array.array("i", descriptors)
        self.sent: list[int] = []


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
        # The number of the first message, and it and all behind it; one tuple, so that both change at once.
        self._outbox: tuple[int, list[_Message]] = (0, [])
        self._inbox: tuple[int, list[bytes]] = (0, [])
        self._descriptors: list[int] = []

    def fileno(self) -> int:
        """Returns the socket's descriptor, to wait on."""
        return self.socket.fileno()

    def post(self, payload: bytes, descriptors: Sequence[int] = ()) -> int:
        """Puts a message behind those that are to be sent, and returns its number; `flush` sends it.

        Args:
            payload: The message.
            descriptors: Open descriptors to hand over; they stay open here, until it is sent.
        """
        first, messages = self._outbox
        number = first + len(messages)
        messages.append(_Message(payload, descriptors))
        return number

    def flush(self, deadline: float | None = None, *, waits: bool = True) -> None:
        """Sends what has been posted.

        While the socket is full it takes in what the other end has sent, so that two ends that send
        at once never wait for each other.

        Args:
            deadline: When to give up, on `time.monotonic`; None for never.
            waits: Whether to wait for room in the socket, or to leave the rest for the next time.

        Raises:
            ChannelClosedError: The other end is gone.
            TimeoutError: The deadline has passed; the rest is sent by the next call.
        """
        while self._outbox[1]:
            number, messages = self._outbox
            message = messages[0]
            start = sum(message.sent)
            if start >= len(message.data):
                self._outbox = (number + 1, messages[1:])
                continue
            try:
                if message.descriptors and not start:
                    # Only a part, lest all that follows has to wait for a reader that wants the descriptors.
                    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, message.descriptors)]
                    message.sent.extend(map(self.socket.sendmsg, ([message.data[:_CHUNK]],), (rights,)))
                else:
                    message.sent.extend(map(self.socket.send, (message.data[start : start + _CHUNK],)))
            except BlockingIOError:
                if not waits:
                    return
                if self._wait(select.POLLIN | select.POLLOUT, deadline) & select.POLLIN:
                    self._take_in()
            except OSError as error:
                raise ChannelClosedError(str(error)) from error

    def has_unsent(self) -> bool:
        """Tells whether something has been posted that is not sent."""
        return bool(self._outbox[1])

    def send(self, payload: bytes, descriptors: Sequence[int] = (), deadline: float | None = None) -> None:
        """Sends one message; see `post` and `flush`."""
        self.post(payload, descriptors)
        self.flush(deadline)

    def look(self, number: int, deadline: float | None = None) -> bytes:
        """Returns the message of that number, and keeps it; those before it are dropped.

        Raises:
            ChannelClosedError: The other end is gone.
            TimeoutError: The deadline has passed; what arrived so far is kept for the next call.
        """
        while self._inbox[0] < number:
            self._first(deadline)
            for descriptor in self._drop():
                os.close(descriptor)
        return self._first(deadline)

    def take(self, number: int | None = None, deadline: float | None = None) -> tuple[bytes, list[int]]:
        """Returns the next message, or that of a number, and the descriptors that came with it, the caller's now.

        Raises:
            ChannelClosedError, TimeoutError: As for `look`.
        """
        payload = self._first(deadline) if number is None else self.look(number, deadline)
        return payload, self._drop()

    def has_message(self) -> bool:
        """Tells whether the next message has come with one before it, so that the socket may not tell of it."""
        arrived = b"".join(self._inbox[1])
        return len(arrived) >= _HEADER.size and len(arrived) >= _HEADER.size + _HEADER.unpack_from(arrived)[0]

    def close(self) -> None:
        """Closes this end."""
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._descriptors.clear()
        self.socket.close()

    def _first(self, deadline: float | None) -> bytes:
        """Returns the first message that has not been dropped."""
        size = _HEADER.size
        data = self._fill(size, deadline)
        length, _ = _HEADER.unpack_from(data)
        return self._fill(size + length, deadline)[size : size + length]

    def _drop(self) -> list[int]:
        """Drops the first message, which is there, and returns its descriptors."""
        number, (data,) = self._inbox
        length, num_descriptors = _HEADER.unpack_from(data)
        rest = data[_HEADER.size + length :]
        descriptors, self._descriptors = self._descriptors[:num_descriptors], self._descriptors[num_descriptors:]
        self._inbox = (number + 1, [rest] if rest else [])
        return descriptors

    def _fill(self, nbytes: int, deadline: float | None) -> bytes:
        """Returns what has arrived once it is that much."""
        pieces = self._inbox[1]
        while sum(map(len, pieces)) < nbytes:
            if not self._take_in():
                self._wait(select.POLLIN, deadline)
        if len(pieces) > 1:
            pieces[:] = [b"".join(pieces)]
        return pieces[0]

    def _take_in(self) -> bool:
        """Takes in what has arrived; returns False if there was nothing."""
        pieces = self._inbox[1]
        try:
            if self._takes_descriptors:
                pieces.append(self._take_descriptors())
            else:
                pieces.extend(map(self.socket.recv, (_CHUNK,)))
        except BlockingIOError:
            return False
        except OSError as error:
            raise ChannelClosedError(str(error)) from error
        if not pieces[-1]:
            raise ChannelClosedError("the other end has been closed")
        return True

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
