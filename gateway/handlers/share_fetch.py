"""ShareFetch (78) v1-2: session epochs, piggy-backed acknowledgements, then records of keys this
member owns.

Acknowledgements come first, so the same request can deliver the next records of their keys; both
are persisted in one round trip. MaxRecords 0 changes the session and acknowledges only. With either
ShareAcquireMode (v2) a delivery never exceeds MaxRecords. A request with IsRenewAck (v2, KIP-1222)
gets no records; without it a RENEW is invalid. MaxBytes is soft, by the partition's mean record
size. Beyond twice MaxBytes, records go back to the window; a single record is always sent. An
answer is smaller while the node holds many unread ones. Not implemented: MinBytes; the answer
leaves with the first records. A client that asks brokers in turns waits at none while one has some.
"""

# Long: one Kafka API, one file; its plan is in share_plan.py.
from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field

from dispatcher.core.model import Acquire, Gone, NotSent
from gateway.core.cluster.topology import PartitionInfo
from gateway.core.limits import LONG_STEP_BYTES
from gateway.core.reading.cache import RecordsGone, RecordsLarge, RecordsReplaced
from gateway.core.routing.ownership import Standing
from gateway.core.share.answers import (
    acquired_ranges,
    by_topic,
    fair_shares,
    fetch_row,
    node_endpoints,
)
from gateway.core.share.errors import GroupError, InvalidRequest, SessionLimitReached, UnknownMember
from gateway.core.share.sessions import (
    CLOSE_EPOCH,
    OPEN_EPOCH,
    PartitionKey,
    SessionKey,
    ShareSession,
    session_key,
)
from gateway.core.wire.codec import decode_request, encode_long_response
from gateway.core.wire.errors import ErrorCode
from gateway.core.wire.long_bytes import LongBytes
from gateway.core.wire.schema import Message
from gateway.handlers.limits import (
    CUT_FIRST_RECORDS_MAX,
    NO_ROOM_S,
    SESSION_PARTITIONS_MAX,
    SESSION_UNKNOWN_PARTITIONS_MAX,
    SHARE_FETCH_BYTES_MAX,
    SHARE_FETCH_WAIT_MS_MAX,
    TURN_PARTITIONS,
)
from gateway.handlers.share_plan import SharePlan, hasten, plan_of, ready_at, records_elsewhere
from gateway.handlers.share_requests import (
    AckAnswer,
    Acknowledgements,
    Located,
    Rights,
    ShareServices,
    ack_batches,
    authorise_group,
    is_elsewhere,
    is_unheard,
    locate,
    rights_of,
)
from gateway.listen.answering import Request
from gateway.reading.read_records import NO_BYTES_MAX
from gateway.upstream.errors import UpstreamError
from gateway.windows.failures import WindowUnavailable
from gateway.windows.window import Acquired, Window

UNKNOWN_PARTITION = (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
ASKS_FOR_RECORDS = ("MaxBytes", "MinBytes", "MaxRecords", "MaxWaitMs")
_Cut = tuple[bytes | LongBytes, list[tuple[int, int, int]]]  # records, their acquired ranges


async def share_fetch(services: ShareServices, request: Request) -> bytes | LongBytes:
    header = request.header
    request.waited_ns = 0
    body = decode_request(header.api_key, header.api_version, request.frame, header.body_at)
    try:
        group, member_id = await authorise_group(services, request.connection, body)
        _check_renewal(body)
        key = session_key(request.connection.broker_id, group, member_id)
        if body["ShareSessionEpoch"] == OPEN_EPOCH and not services.groups.member(group, member_id):
            await services.coordination.await_member(group, member_id)
        open_session = services.groups.sessions.find(key)
        plan = plan_of(services, request.connection, open_session, body["Topics"])
        if plan is None:
            named = _named(open_session, body)
            rights = await rights_of(services, request.connection, named)
        else:
            rights = plan.rights
        # From here on a session that is closed here is closed for the dispatchers, too, whenever
        # the client hangs up.
        session = _session(services, request, body, key)
        services.groups.connected(group, member_id, request.connection.id)
        if session.resolved is not plan:
            plan = None  # the plan is for other partitions
        answer = await _ShareFetch(services, request, body, session, rights, plan).answer()
    except GroupError as error:
        request.connection.counters.count_request_refused(header.api_key, error.code)
        answer = {"ErrorCode": int(error.code), "ErrorMessage": str(error)}
    return encode_long_response(header.api_key, header.api_version, answer)


def _check_renewal(body: Message) -> None:
    """Raises InvalidRequest for a renewal that asks for records, too."""
    if body["IsRenewAck"]:
        asking = [name for name in ASKS_FOR_RECORDS if body[name] != 0]
        if asking:
            raise InvalidRequest(f"{', '.join(asking)} must be 0 with IsRenewAck.")


def _named(session: ShareSession | None, body: Message) -> list[PartitionKey]:
    """Every partition the answer may speak of."""
    asked = [
        (topic["TopicId"], row["PartitionIndex"])
        for topic in body["Topics"]
        for row in topic["Partitions"]
    ]
    return asked if session is None else [*session.partitions, *asked]


def _session(
    services: ShareServices, request: Request, body: Message, key: SessionKey
) -> ShareSession:
    """Opens, continues or closes the session and updates the partitions it covers. Raises
    GroupError.
    """
    connection = request.connection
    sessions = services.groups.sessions
    _, group, member_id = key
    epoch = body["ShareSessionEpoch"]
    if epoch == OPEN_EPOCH:
        if services.groups.member(group, member_id) is None:
            raise UnknownMember(f"Member {member_id} is not a member of group {group}.")
        if not sessions.has(key) and not connection.may_open_session(sessions.opened_on):
            raise SessionLimitReached("The limit of share sessions of this client is reached.")
        acknowledges = bool(ack_batches(body["Topics"]))
        session = sessions.open(key, connection.id, acknowledges=acknowledges)
        services.news.session_opened(session)
    elif epoch == CLOSE_EPOCH:
        return sessions.close(key)
    else:
        session = sessions.resume(key, epoch)
    _check_size(session, body)
    count = len(session.partitions)
    for topic in body["ForgottenTopicsData"]:
        session.resolved = None
        for partition in topic["Partitions"]:
            session.partitions.pop((topic["TopicId"], partition), None)
    for topic in body["Topics"]:
        for row in topic["Partitions"]:
            session.partitions[(topic["TopicId"], row["PartitionIndex"])] = None
    if len(session.partitions) != count:
        session.resolved = None
    return session


def _check_size(session: ShareSession, body: Message) -> None:
    """A client may name topics that do not exist, others with each request. Raises GroupError."""
    added = sum(
        (topic["TopicId"], row["PartitionIndex"]) not in session.partitions
        for topic in body["Topics"]
        for row in topic["Partitions"]
    )
    if len(session.partitions) + added > SESSION_PARTITIONS_MAX:
        raise InvalidRequest(f"A share session has at most {SESSION_PARTITIONS_MAX} partitions.")


@dataclass(slots=True)
class _Part:
    """One partition of the answer."""

    error: ErrorCode = ErrorCode.NONE
    leader: PartitionInfo | None = None
    acknowledged: AckAnswer = (ErrorCode.NONE, None)
    records: bytes | LongBytes = b""
    acquired: list[tuple[int, int, int]] = field(default_factory=list)

    def row(self, partition: int) -> Message:
        return fetch_row(
            partition,
            error=self.error,
            acknowledge_error=self.acknowledged[0],
            acknowledge_message=self.acknowledged[1],
            leader=self.leader,
            records=self.records,
            acquired=self.acquired,
        )


@dataclass(slots=True)
class _ShareFetch:
    """One request on its way to its answer."""

    services: ShareServices
    request: Request
    body: Message
    session: ShareSession
    rights: Rights  # another connection may add partitions to the session meanwhile
    plan: SharePlan | None
    pairs: list[tuple[PartitionKey, Window]] = field(default_factory=list)  # to deliver from
    windows_version: int = -1  # of the table, when they were looked up
    parts: dict[PartitionKey, _Part] = field(default_factory=dict)
    has_records: bool = False
    room: int = 0  # bytes of the records of the answer
    no_room: bool = False  # for a record as large as the waiting ones
    large_bytes: int = 0  # of a record that was cut out and found no room

    async def answer(self) -> Message:
        batches = ack_batches(self.body["Topics"])
        renewing = self.body["IsRenewAck"]
        acks = Acknowledgements(self.services, self.request.connection, self.session, renewing)
        closing = self.body["ShareSessionEpoch"] == CLOSE_EPOCH
        try:
            await self._locate_all(batches)
            allowed = {k: b for k, b in batches.items() if not self._part(k).acknowledged[0]}
            await acks.ask(allowed, {} if self.plan is None else self.plan.windows)
        finally:
            if closing:  # also here when the client hangs up meanwhile
                self.services.news.session_closed(self.session)
        wanted = self.body["MaxRecords"] > 0 and self.body["MaxBytes"] > 0
        wanted = wanted and not closing and not renewing
        member = self.session.of_member
        if wanted:
            member.asks()
        try:
            if wanted:
                await self._acquire()
            for key, acknowledged in (await acks.answers()).items():
                self._part(key).acknowledged = acknowledged
            if wanted and not self.has_records:
                await self._wait_for_records()
        finally:
            if wanted:
                member.answered(has_records=self.has_records)
        misled = any(part.leader is not None for part in self.parts.values())
        services, listener = self.services, self.request.connection.listener
        rows: list[tuple[bytes, Message]] = []
        for at, (key, part) in enumerate(self.parts.items(), 1):
            rows.append((key[0], part.row(key[1])))
            if at % TURN_PARTITIONS == 0:
                await asyncio.sleep(0)
        return {
            "AcquisitionLockTimeoutMs": services.settings.of(self.session.group).lock_duration_ms,
            "Responses": by_topic(rows),
            "NodeEndpoints": node_endpoints(services.advertised(listener)) if misled else [],
        }

    def _part(self, key: PartitionKey) -> _Part:
        part = self.parts.get(key)
        if part is None:
            part = self.parts[key] = _Part()
        return part

    async def _locate_all(self, batches: Iterable[PartitionKey]) -> None:
        """The windows to deliver from. The other partitions become errors: the client may not read
        them, or not here.
        """
        services, connection, session = self.services, self.request.connection, self.session
        version = services.windows.version
        if self.plan is not None:
            self.pairs, self.windows_version = self.plan.rotated(session), version
            return
        topology = services.topology()
        closing = self.body["ShareSessionEpoch"] == CLOSE_EPOCH
        found: dict[PartitionKey, Window] = {}
        topics: set[str] = set()
        unknown = 0
        for at, key in enumerate(dict.fromkeys([*session.rotated(), *batches]), 1):
            if at % TURN_PARTITIONS == 0:
                await asyncio.sleep(0)
            located = self._located(key, acknowledged=key in batches)
            if key not in session.partitions or not (located.error or self.rights.get(key)):
                continue
            if located.window is not None:
                found[key] = located.window
                topics.add(located.window.partition.topic)
            elif located.error:
                unknown += located.error in UNKNOWN_PARTITION
                if unknown > SESSION_UNKNOWN_PARTITIONS_MAX:
                    session.partitions.pop(key, None)  # answered now, and not again
            elif not closing and not self._opened(located, key):
                self._part(key).error = ErrorCode.REPLICA_NOT_AVAILABLE
        self.pairs, self.windows_version = list(found.items()), version
        until_ms = services.authoriser.readable_until_ms(connection, topics)
        if until_ms and len(found) == len(session.partitions) and not closing:
            session.resolved = SharePlan(topology, version, connection.id, until_ms, found)

    def _located(self, key: PartitionKey, *, acknowledged: bool) -> Located:
        """The partition with its topic id. If it has an error, that is noted for the answer."""
        session = self.session
        located = locate(self.services, self.request.connection, session.group, key)
        if self.rights.get(key) is False:
            located = Located(error=ErrorCode.TOPIC_AUTHORIZATION_FAILED, topic=located.topic)
            if acknowledged:
                self._part(key).acknowledged = (located.error, None)
        if located.error and key in session.partitions:
            part = self._part(key)
            part.error, part.leader = located.error, located.leader
        return located

    def _opened(self, located: Located, key: PartitionKey) -> bool:
        """False: there are too many windows."""
        assert located.topic is not None, "a partition without an error has a topic"
        connection = self.request.connection.id
        return self.services.windows.wanted(self.session.group, located.topic, key[1], connection)

    async def _wait_for_records(self) -> None:
        """Waits up to MaxWaitMs for records. The time is noted, so that it does not count as work
        on the request.
        """
        services, session = self.services, self.session
        loop = asyncio.get_running_loop()
        wait_ms = min(max(self.body["MaxWaitMs"], 0), SHARE_FETCH_WAIT_MS_MAX)
        if any(part.error for part in self.parts.values()):
            wait_ms = 0  # the client has to hear at once that it must look for another leader
        if wait_ms and is_unheard(services, self.request.connection):
            for key in session.partitions:
                self._part(key).error = ErrorCode.NOT_LEADER_OR_FOLLOWER
            return
        deadline = loop.time() + wait_ms / 1000
        with services.ready.watch(session.group, session.member_id, session.key[0]) as signal:
            # Whatever came before this signal is found now.
            while wait_ms:
                if is_elsewhere(services, self.request.connection):
                    self.plan = None
                    await self._locate_all(())  # each of them has its error now
                    return
                await self._acquire()
                if self.has_records or (remaining := deadline - loop.time()) <= 0:
                    return
                if not self.no_room and records_elsewhere(services, session):
                    session.of_member.sent_on()
                    return
                hasten(self.pairs)
                began = loop.time()
                try:
                    async with asyncio.timeout(
                        min(remaining, NO_ROOM_S) if self.no_room else remaining
                    ):
                        await signal.wait()
                except TimeoutError:
                    if not self.no_room:
                        return
                finally:
                    self.request.waited_ns += int((loop.time() - began) * 1e9)
                signal.clear()

    async def _acquire(self) -> None:
        """Takes the ready records, at once in memory; their bytes are cut out while the leases are
        being persisted.
        """
        session = self.session
        if not self.services.groups.sessions.is_open(session):
            return  # the member has opened another since, or was evicted: nobody reads this answer
        answer_room = self.request.connection.answer_room.bytes_max()
        # Soft: the mean is wrong by a little all the time, and returning records has a cost.
        self.room = min(2 * int(self.body["MaxBytes"]), SHARE_FETCH_BYTES_MAX, answer_room)
        taken = self._take(answer_room)
        if sum(len(acquired.offsets) for _, _, acquired in taken) > CUT_FIRST_RECORDS_MAX:
            # The write to the store leaves now, so that it is under way while records are cut out.
            await asyncio.sleep(0)
        cuts: list[_Cut | None] = []
        connection, room, held = self.request.connection, self.room, 0
        for _, window, acquired in taken:
            cut = await self._cut_out(window, acquired, room)
            if cut is not None and len(cut[0]) > room:
                cut = self._one_large(window, cut)
            cuts.append(cut)
            size = 0 if cut is None else len(cut[0])
            room -= size
            held += size
            if size > LONG_STEP_BYTES:
                connection.answer_room.hold(held)
                await asyncio.sleep(0)
        connection.answer_room.hold(held)
        for (key, window, acquired), cut in zip(taken, cuts, strict=True):
            try:
                await acquired.persisted
            except WindowUnavailable:
                continue  # nothing was handed out: the window is rebuilt, the client fetches again
            if cut is not None:
                part = self._part(key)
                part.records, part.acquired = cut
                records = sum(last - first + 1 for first, last, _ in part.acquired)
                topic = window.partition.topic
                self.services.delivered(session.group, topic, records, len(part.records))
                self.has_records = True

    def _one_large(self, window: Window, cut: _Cut) -> _Cut | None:
        """A single record that is larger than the room of the answer. Its size was a guess until it
        was read. If other large records were cut out meanwhile, it goes back to the window.
        """
        connection = self.request.connection
        records, acquired = cut
        connection.answer_room.hold(0)  # the guess
        if connection.answer_room.has(len(records)):
            return cut
        self.no_room, self.large_bytes = True, len(records)
        self._give_back(window, [acquired[0][0]])
        return None

    def _take(self, answer_room: int) -> list[tuple[PartitionKey, Window, Acquired]]:
        """Acquisitions of all dispatchers, shared fairly among the partitions."""
        session, now_ms = self.session, self.services.now_ms()
        if self.services.owners.standing(session.key[0]) is not Standing.OWNED:
            return []  # its windows move to another node
        broker, member_id = session.key[0], session.member_id
        having: list[tuple[PartitionKey, Window, int]] = []
        for key, window in self._windows():
            if ready := ready_at(self.services, window, broker, member_id, now_ms):
                having.append((key, window, ready))
        bytes_max = min(self.body["MaxBytes"], SHARE_FETCH_BYTES_MAX, answer_room)
        bytes_left = bytes_max
        self.no_room = False
        shares = fair_shares([ready for _, _, ready in having], self.body["MaxRecords"])
        taken: list[tuple[PartitionKey, Window, Acquired]] = []
        for (key, window, _), share in zip(having, shares, strict=True):
            if share == 0 or bytes_left <= 0:
                continue
            mean_bytes = self.services.records.mean_record_bytes(window.source)
            if not self.request.connection.answer_room.has(max(mean_bytes, self.large_bytes)):
                self.no_room = True  # Its records wait in the window.
                continue
            records_max = max(1, min(share, bytes_left // mean_bytes))
            acquired = window.acquire(
                Acquire(session.member_id, session.session_id, records_max, now_ms)
            )
            if acquired is not None:
                taken.append((key, window, acquired))
                bytes_left -= len(acquired.offsets) * mean_bytes
        if taken:
            self.request.connection.answer_room.hold(bytes_max - bytes_left)
        return taken

    def _windows(self) -> list[tuple[PartitionKey, Window]]:
        """The windows to deliver from. Some may have been opened or dropped while this fetch
        waited.
        """
        table, session = self.services.windows, self.session
        if self.windows_version != table.version:
            self.windows_version = table.version
            self.pairs = [
                (key, window)
                for key in session.partitions
                if self.rights.get(key)
                and not (key in self.parts and self.parts[key].error)
                and (window := table.get(session.group, *key)) is not None
            ]
        return self.pairs

    async def _cut_out(self, window: Window, acquired: Acquired, room: int) -> _Cut | None:
        """The bytes of the acquired records. Records that cannot be had, or that exceed `room`
        bytes, go back to the window. An answer without any other record takes one of any size.
        """
        session, offsets, attempts = self.session, acquired.offsets, acquired.attempts
        least = 1 if room == self.room else 0
        bytes_max = room if len(offsets) > least else NO_BYTES_MAX
        batch_size = self.body["BatchSize"]
        records_max = batch_size if batch_size > 0 else self.body["MaxRecords"]
        try:
            records = await self.services.records.bytes_for(
                window.source, offsets, records_max, bytes_max, acquired.epoch_max
            )
            return records, acquired_ranges(offsets, attempts)
        except RecordsGone as gone:
            lost = set(gone.offsets)
            now_ms = self.services.now_ms()
            window.post(Gone(session.member_id, session.session_id, sorted(lost), now_ms))
        except RecordsLarge as large:
            lost = set(offsets[max(large.fitting, least) :])
            self._give_back(window, sorted(lost))
        except RecordsReplaced:
            await window.replaced(self._not_sent(offsets))
            return None
        except UpstreamError:
            self._give_back(window, offsets)
            return None
        kept = [(o, a) for o, a in zip(offsets, attempts, strict=True) if o not in lost]
        if not kept:
            return None
        rest = acquired._replace(offsets=[o for o, _ in kept], attempts=[a for _, a in kept])
        return await self._cut_out(window, rest, room)

    def _give_back(self, window: Window, offsets: list[int]) -> None:
        window.post(self._not_sent(offsets))

    def _not_sent(self, offsets: list[int]) -> NotSent:
        session, now_ms = self.session, self.services.now_ms()
        return NotSent(session.member_id, session.session_id, offsets, now_ms)
