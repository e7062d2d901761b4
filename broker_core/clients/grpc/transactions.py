"""Transactions over gRPC: messages are encoded here; the broker makes half messages and decides.

Every call but `end` is retried after a lost answer: messages that were prepared twice are named by
no decision and are rolled back, and a batch is decided once.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import grpc

from broker_core.clients.grpc.send import Parcel, packed_chunks
from broker_core.errors import BrokerError, IllegalMessageError
from broker_core.retry import Backoff, Deadline
from broker_core.types import (
    BatchOutcome,
    CheckBackReport,
    HalfMessage,
    LocalTransactionState,
    Prepared,
)
from broker_core.wire.core import broker_pb2 as pb
from broker_core.wire.core import methods
from broker_core.wire.core.frames import pack_records
from broker_core.wire.core.transactions import (
    pack_batch,
    pack_half,
    pack_receipt,
    unpack_half,
    unpack_prepared,
)

if TYPE_CHECKING:
    from broker_core.api import TransactionListener
    from broker_core.clients.grpc.connection import Connection
    from broker_core.codec.message_batch import MessageBatch
    from broker_core.types import BatchRef, Receipt

log = logging.getLogger(__name__)
DECISION_S = 600.0
"""Deadline of a decision. It takes longer the larger its batch; the broker finishes it anyway."""


class GrpcTransactions:
    """A BrokerTransactions (api.py) behind gRPC. Thread-safe."""

    def __init__(self, connection: Connection, parcel: Callable[[MessageBatch], Parcel]) -> None:
        self._connection = connection
        self._parcel = parcel

    # Batches

    def is_batch_decided(self, batch: BatchRef) -> bool:
        """Tell whether a batch, or a later one of its owner, is committed."""
        reply = self._connection.call(methods.IS_DECIDED, pack_batch(batch))
        return bool(reply.is_decided)

    def prepare_batch(
        self,
        batch: BatchRef,
        attempt: str,
        messages: MessageBatch,
        *,
        is_first: bool,
        flush: str | None = None,
    ) -> Prepared:
        """Store messages of one attempt at a part of a batch, invisibly."""
        parcel = self._parcel(messages)
        limits = self._connection.greeting().limits
        total = len(parcel.records)
        if total > limits.append_bytes:
            message = (
                f"{total} bytes are too many to prepare at once, {limits.append_bytes} is the "
                f"broker's limit (grpcMaxAppendBytes); prepare them in parts."
            )
            raise IllegalMessageError(message)
        head = pb.PrepareHead(
            batch=pack_batch(batch),
            attempt=attempt,
            is_first=is_first,
            flush=flush or "",
            total_bytes=total,
        ).SerializeToString()

        def ask() -> Any:
            if total <= limits.chunk_bytes or len(parcel.sizes) == 1:
                packed = pack_records(head, parcel.sizes, parcel.records)
                return self._connection.ask(methods.PREPARE, packed)
            chunks = packed_chunks(head, parcel, limits.chunk_bytes)
            return self._connection.ask(methods.PREPARE_CHUNKS, chunks)

        return unpack_prepared(self._connection.retry(ask))

    def commit_batch(
        self,
        batch: BatchRef,
        receipts: Sequence[Receipt],
        *,
        run: str = "",
        keep: bool = True,
        flush: str | None = None,
        fingerprint: str = "",
        conflict: str = "refuse",
        previous: int | None = None,
    ) -> BatchOutcome:
        """Commit the messages that some attempts prepared, once, however often it is asked."""
        request = _decide(batch, receipts, flush)
        request.run, request.keep = run, keep
        request.fingerprint, request.conflict = fingerprint, conflict
        if previous is not None:
            request.previous = previous
        attempts = 0

        def ask() -> Any:
            nonlocal attempts
            attempts += 1
            return self._connection.ask(methods.COMMIT_BATCH, request, timeout_s=DECISION_S)

        reply = self._connection.retry(ask)
        # If this call was retried, its own first attempt may have committed the batch. Then the
        # run is the caller's, and the batch is no repeat to the caller.
        is_own = attempts > 1 and reply.run == run
        return BatchOutcome(is_repeat=reply.is_repeat and not is_own, run=reply.run)

    def abort_batch(
        self, batch: BatchRef, receipts: Sequence[Receipt], *, flush: str | None = None
    ) -> None:
        """Roll back the messages that some attempts prepared; a committed batch stays so."""
        request = _decide(batch, receipts, flush)
        self._connection.call(methods.ABORT_BATCH, request, timeout_s=DECISION_S)

    # Single messages

    def prepare(
        self,
        topic: str,
        body: bytes,
        *,
        group: str,
        tags: str | None = None,
        keys: Sequence[str] | str | None = None,
        properties: Mapping[str, str] | None = None,
        queue_id: int | None = None,
    ) -> HalfMessage:
        """Append one half message for a producer group; `end` decides it."""
        request = pb.PrepareMessage(
            topic=topic,
            body=body,
            group=group,
            tags=tags or "",
            keys=[keys] if isinstance(keys, str) else list(keys or ()),
            properties=dict(properties or {}),
            queue_id=queue_id,
        )
        return unpack_half(self._connection.call(methods.PREPARE_MESSAGE, request))

    def end(self, half: HalfMessage, state: LocalTransactionState) -> None:
        """Commit a half message or roll it back; UNKNOWN leaves it to check-back."""
        self._connection.call(methods.END, pb.End(half=pack_half(half), fate=state.value))

    # Check-back

    def listen(self, group: str, listener: TransactionListener) -> None:
        """Let a listener answer for a producer group, in a thread, until the broker is closed."""
        asked = _Listening(self._connection, group, listener, self.end)
        threading.Thread(target=asked.run, name=f"listen-{group}", daemon=True).start()

    def check_back(self) -> CheckBackReport:
        """Run one round of check-back over all open half messages, now."""
        reply = self._connection.call(methods.CHECK_BACK, pb.Empty(), timeout_s=DECISION_S)
        return CheckBackReport(
            reply.waiting, reply.finished, reply.rolled_back, reply.asked, reply.given_up
        )


class _Listening:
    """A group's listener in its thread: answers questions, and listens again after a break."""

    def __init__(
        self,
        connection: Connection,
        group: str,
        listener: TransactionListener,
        end: Callable[[HalfMessage, LocalTransactionState], None],
    ) -> None:
        self._connection = connection
        self._group = group
        self._listener = listener
        self._end = end

    def run(self) -> None:
        """Answer until the connection is closed."""
        backoff = Backoff()
        while not self._connection.is_closed:
            try:
                for question in self._connection.stream(
                    methods.LISTEN, pb.Listen(group=self._group)
                ):
                    self._answer(question)
                    backoff.reset()
            except (BrokerError, grpc.RpcError) as error:
                log.debug("event=listen_broken group=%s error=%s", self._group, error)
            if not self._connection.is_closed:
                backoff.pause(Deadline.after_ms(60_000))

    def _answer(self, question: Any) -> None:
        half = unpack_half(question.half)
        try:
            fate = self._listener.check_local_transaction(
                half, question.body, dict(question.properties)
            )
            self._end(half, fate)
        except Exception as error:  # noqa: BLE001 - the user's code; the broker asks again
            log.warning("event=check_failed group=%s error=%s", self._group, error)


def _decide(batch: BatchRef, receipts: Sequence[Receipt], flush: str | None) -> pb.Decide:
    return pb.Decide(
        batch=pack_batch(batch),
        receipts=[pack_receipt(each) for each in receipts],
        flush=flush or "",
    )
