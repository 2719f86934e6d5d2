"""A client's connections to members, one for each, through which its requests and its questions go."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol

from antiphon.client.connection import JOIN_SECONDS, JOIN_SECONDS_MAX, JoinMember, MemberConnection, NoAnswer
from antiphon.core.errors import BadFrame, Unavailable
from antiphon.runtime.net import ReceivedFrame
from antiphon.runtime.net.frames import (
    CLIENT_BYTES_MAX,
    ROUTES_MAX,
    FrameKind,
    ProgressAnswer,
    ProgressQuestion,
    Refused,
    RouteMarks,
    decode,
    decode_taken,
    encode,
)

OnProgress = Callable[["RequestConnection", ProgressAnswer], None]


class RouteListener(Protocol):
    """Who hears what a member answers on one route number of one connection."""

    @property
    def is_current(self) -> bool:
        """Whether anybody still wants the connection for this route."""
        ...

    def on_taken(self, marks: RouteMarks) -> None: ...
    def on_refused(self, refused: Refused) -> None: ...
    def on_writable(self) -> None: ...
    def on_gone(self, why: str) -> None: ...


class RequestConnection(MemberConnection):
    """Requests go out and answers come in, for any number of routes."""

    frame_bytes_max = CLIENT_BYTES_MAX

    def __init__(self, member: str, group: str, members: Members) -> None:
        super().__init__()
        self.member = member
        self.group = group
        self._members = members
        self._listeners: list[RouteListener] = []  # by route number
        self._questions: deque[asyncio.Future[None]] = deque()

    def add_route(self, listener: RouteListener) -> int:
        """A new route number. When there are no more numbers, the connection has to be made anew."""
        if len(self._listeners) == ROUTES_MAX - 1:
            self.abort()
        self._listeners.append(listener)
        return min(len(self._listeners), ROUTES_MAX) - 1

    def ask_progress(self, sets: list[list[str]]) -> asyncio.Future[None]:
        """Ask how far sessions are. Done when the member's answer has been passed on."""
        question: asyncio.Future[None] = self.loop.create_future()
        self._questions.append(question)
        self.write(encode(FrameKind.PROGRESS, ProgressQuestion(sets)))
        return question

    def on_answers(self, frames: list[ReceivedFrame]) -> None:
        for kind, body in frames:
            if self.is_given_up:
                return
            if kind == FrameKind.TAKEN:
                number, marks = decode_taken(body)
                self._listener(number).on_taken(marks)
            elif kind == FrameKind.REFUSED:
                refused = decode(Refused, body)
                self._listener(refused.route).on_refused(refused)
            elif kind == FrameKind.PROGRESS_ANSWER:
                self._on_progress(decode(ProgressAnswer, body))
            elif kind != FrameKind.BUSY:
                super().on_answers([(kind, body)])

    def _listener(self, number: int) -> RouteListener:
        if not 0 <= number < len(self._listeners):
            raise BadFrame("A member answers for a set of groups that was never named to it.")
        return self._listeners[number]

    def _on_progress(self, answer: ProgressAnswer) -> None:
        if not self._questions or answer.group != self.group:
            raise BadFrame("An answer came without a question, or from another group.")
        question = self._questions.popleft()
        self._members.on_progress(self, answer)
        if not question.done():
            question.set_result(None)

    def on_writable(self) -> None:
        for listener in self._current():
            listener.on_writable()

    def on_gone(self) -> None:
        self._members.forget(self)
        for question in self._questions:
            if not question.done():
                question.set_exception(Unavailable(f"{self.member} went away."))
                question.exception()  # whoever asked may have given up waiting
        for listener in self._current():
            listener.on_gone(f"the connection to {self.member} was lost")
        self._listeners.clear()

    def _current(self) -> list[RouteListener]:
        return [listener for listener in self._listeners if listener.is_current]


class Members:
    """The connections that there are; those wanted are made."""

    def __init__(self, group_of: Callable[[str], str], join: JoinMember, on_progress: OnProgress) -> None:
        self.on_progress = on_progress
        self._group_of = group_of
        self._join = join
        self._connections: dict[str, RequestConnection] = {}
        self._patience: dict[str, float] = {}  # with those that did not answer in time, the last time
        self._dialling: dict[str, asyncio.Task[RequestConnection]] = {}

    def is_connected(self, member: str) -> bool:
        found = self._connections.get(member)
        return found is not None and found.is_open

    async def connection(self, member: str) -> RequestConnection:
        """The connection to a member, made now if there is none; it may be lost again when this returns."""
        found = self._connections.get(member)
        if found is not None and found.is_open:
            return found
        task = self._dialling.get(member)
        if task is None:
            task = self._dialling[member] = asyncio.get_running_loop().create_task(self._dial(member))
            task.add_done_callback(lambda done: done.cancelled() or done.exception())  # nobody may be waiting
        return await asyncio.shield(task)

    async def _dial(self, member: str) -> RequestConnection:
        connection = RequestConnection(member, self._group_of(member), self)
        seconds = self._patience.pop(member, JOIN_SECONDS)
        try:
            await self._join(connection, member, seconds)
        except NoAnswer:
            self._patience[member] = min(2 * seconds, JOIN_SECONDS_MAX)
            raise
        finally:
            del self._dialling[member]
        self._connections[member] = connection
        return connection

    def forget(self, connection: RequestConnection) -> None:
        if self._connections.get(connection.member) is connection:
            del self._connections[connection.member]

    def drop(self, connection: RequestConnection) -> None:
        """End a connection on which nothing comes any more."""
        if not connection.is_given_up:
            connection.give_up()
            connection.on_gone()

    async def close(self) -> None:
        dialling = list(self._dialling.values())
        for task in dialling:
            task.cancel()
        await asyncio.gather(*dialling, return_exceptions=True)
        for connection in list(self._connections.values()):
            connection.give_up()
