r"""Credentials: users, their secrets and their rules, in a file that can be changed any time.

    {"users": [{"name": "etl",
                "secret": "scrypt:16384:8:1:c2FsdA==:aGFzaA==",
                "rules": [{"topics": "orders-*", "rights": ["publish", "subscribe"]}]}]}

`secret` is printed by `rocketmq-broker hash-secret`: cost parameters, salt and scrypt hash, never
the secret itself. A client gives name and secret as accessKey and secretKey, or both as one token,
`name.secret`. Rights are publish, subscribe and admin, which includes both; topics are a name or a
pattern with `*`. They are asked for in auth/method_rules.py.

The file is read again when it has changed, and looked at once a second at most. If it can't be read
that is logged, the last good one stays in force, and it is tried again at every look: what hindered
it, as a mode or too many open files, may be over without a trace in the file.

Secrets are compared in constant time, and are neither kept nor shown. A secret that was right is
remembered by a keyed hash of it, for scrypt is slow on purpose. Because it is slow, and takes 16
MiB, one is computed at a time and few callers wait for it; others are refused at once and may try
again. Turns go to the machine, and on it to the name, for which least was computed lately: whoever
tries without end keeps nobody else waiting. A caller that is remembered never waits.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import logging
import os
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from broker_core.errors import AuthenticationError, ConfigError, UnavailableError
from broker_core.service.auth.user_rights import Right, Rule, UserIdentity
from broker_core.service.call_limits import origin_of

log = logging.getLogger(__name__)
_SCHEME = "scrypt"
_COST, _BLOCK, _PARALLEL = 1 << 14, 8, 1
_MAX_COST = 1 << 20
_MEMORY_BYTES = 256 << 20
_LOOK_AGAIN_S = 1.0
MOST_LOGINS = 8
"""Callers whose secret is being hashed, or who wait for that; each holds one of the server's
threads."""
_REMEMBERED_LOGINS = 256
"""Turns that count against whoever had them; about the last ten seconds when none is left out."""


def hash_secret(secret: str, salt: bytes | None = None) -> str:
    """Return a secret as a credentials file holds it."""
    chosen = os.urandom(16) if salt is None else salt
    hashed = _scrypt(secret, chosen, _COST, _BLOCK, _PARALLEL)
    return ":".join(
        (_SCHEME, str(_COST), str(_BLOCK), str(_PARALLEL), _text(chosen), _text(hashed))
    )


@dataclass(frozen=True, slots=True)
class HashedSecret:
    """A secret that can be recognised and not be read."""

    cost: int
    block: int
    parallel: int
    salt: bytes = field(repr=False)
    hashed: bytes = field(repr=False)

    @classmethod
    def parse(cls, text: str) -> HashedSecret:
        """Parse a text of `hash_secret`; raise ValueError for any other."""
        scheme, cost, block, parallel, salt, hashed = text.split(":")
        found = cls(int(cost), int(block), int(parallel), _raw(salt), _raw(hashed))
        if scheme != _SCHEME or not found._is_possible or not found.hashed:
            message = "unknown scheme or cost"
            raise ValueError(message)
        return found

    @property
    def _is_possible(self) -> bool:
        """True if scrypt takes these numbers: else a login would find out, and fail as a bug."""
        cost, block, parallel = self.cost, self.block, self.parallel
        if not 1 < cost <= _MAX_COST or cost & (cost - 1) or block < 1 or parallel < 1:
            return False
        memory_bytes = 128 * block * (cost + 2 + parallel)
        return memory_bytes <= _MEMORY_BYTES and (cost < 1 << 16 or block > 1)

    def is_hash_of(self, secret: str) -> bool:
        """Tell whether it was made from this secret; takes as long for a wrong one."""
        found = _scrypt(secret, self.salt, self.cost, self.block, self.parallel)
        return hmac.compare_digest(found, self.hashed)


_NOBODY = HashedSecret(_COST, _BLOCK, _PARALLEL, bytes(16), bytes(32))
"""Compared with for an unknown name in a file without users."""


@dataclass(frozen=True, slots=True)
class User:
    """One user of the file."""

    identity: UserIdentity
    secret: HashedSecret = field(repr=False)


def parse_credentials(text: str, origin: str) -> dict[str, User]:
    """Parse a credentials file; raise ConfigError with the user that makes no sense."""
    try:
        document = json.loads(text)
        entries: list[Mapping[str, Any]] = list(document["users"])
    except (ValueError, KeyError, TypeError) as error:
        message = f'{origin} is no credentials file; expected {{"users": [...]}}.'
        raise ConfigError(message) from error
    found: dict[str, User] = {}
    for number, entry in enumerate(entries):
        try:
            user = _parse_user(entry)
        except (ValueError, KeyError, TypeError, AttributeError, binascii.Error) as error:
            message = (
                f"User {number}{_named(entry)} in {origin} makes no sense; expected a name without "
                f"a dot, a secret of `rocketmq-broker hash-secret`, and rules of topics and rights."
            )
            raise ConfigError(message) from error
        found[user.identity.name] = user
    return found


def _named(entry: object) -> str:
    name = entry.get("name") if isinstance(entry, Mapping) else None
    return f" ({name})" if isinstance(name, str) and name else ""


def _parse_user(entry: Mapping[str, Any]) -> User:
    name = str(entry["name"])
    if not name or "." in name:
        message = "a name has no dot"
        raise ValueError(message)
    rules = tuple(
        Rule(str(rule["topics"]), frozenset(Right(right) for right in rule["rights"]))
        for rule in entry["rules"]
    )
    return User(UserIdentity(name, rules), HashedSecret.parse(str(entry["secret"])))


@dataclass(eq=False, slots=True)
class _Login:
    """One attempt to log in: from which machine, as whom."""

    origin: str
    name: str


class LoginTurns:
    """Turns of logins, one at a time, for those first who had fewest. Thread-safe.

    At most MOST_LOGINS have a turn or wait for one. One more takes the place of whoever would come
    last, if that is somebody else. It makes no difference whether a name exists.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: list[_Login] = []
        self._is_taken = False
        self._recent: deque[_Login] = deque()
        self._origins: Counter[str] = Counter()  # of those that wait, and of recent ones
        self._names: Counter[str] = Counter()

    @contextmanager
    def turn(self, origin: str, name: str) -> Iterator[None]:
        """Wait for a turn and have it over a block; raise UnavailableError if there is no place."""
        mine = _Login(origin, name)
        with self._changed:
            self._enter(mine)
            self._changed.wait_for(lambda: mine not in self._waiting or self._is_next(mine))
            if mine not in self._waiting:
                message = (
                    f"{MOST_LOGINS} logins are under way, which is the most at a time; try again. "
                    f"Callers that have logged in are not concerned."
                )
                raise UnavailableError(message)
            self._is_taken = True
            self._waiting.remove(mine)
            self._recent.append(mine)
            if len(self._recent) > _REMEMBERED_LOGINS:
                self._forget(self._recent.popleft())
        try:
            yield
        finally:
            with self._changed:
                self._is_taken = False
                self._changed.notify_all()

    def _enter(self, login: _Login) -> None:
        self._waiting.append(login)
        self._origins[login.origin] += 1
        self._names[login.name] += 1
        if len(self._waiting) + self._is_taken > MOST_LOGINS:
            # The latest of those who had most.
            last = max(reversed(self._waiting), key=self._had)
            self._waiting.remove(last)
            self._forget(last)
            self._changed.notify_all()

    def _forget(self, login: _Login) -> None:
        for counts, key in ((self._origins, login.origin), (self._names, login.name)):
            counts[key] -= 1
            if not counts[key]:
                del counts[key]

    def _had(self, login: _Login) -> tuple[int, int]:
        return self._origins[login.origin], self._names[login.name]

    def _is_next(self, login: _Login) -> bool:
        return not self._is_taken and login is min(self._waiting, key=self._had)


class Credentials:
    """A credentials file in force. Thread-safe."""

    def __init__(self, path: Path, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._key = os.urandom(32)
        self._known: dict[str, bytes] = {}
        self._turns = LoginTurns()
        self._looked_s = monotonic()
        self._stamp = _stamp(path)
        """That of the file in force: taken before it was read, so a change meanwhile is seen."""
        self._kept_for = ""
        """Why the file that is there now is not in force; said once."""
        self._users = self._read()

    def identify(self, context: grpc.ServicerContext) -> UserIdentity:
        """Return a caller's identity; raise AuthenticationError without right credentials."""
        name, secret = given_credentials(context.invocation_metadata())
        return self.check(name, secret, origin_of(context.peer()))

    def recognise(self, context: grpc.ServicerContext) -> UserIdentity:
        """Return the identity of a caller that was identified before, as the file says it now."""
        name, secret = given_credentials(context.invocation_metadata())
        return self.check_again(name, secret)

    def check(self, name: str, secret: str, origin: str = "") -> UserIdentity:
        """Return the identity of a name; raise AuthenticationError for a wrong name or secret.

        Raise UnavailableError if too many logins are under way.
        """
        self._look_again()
        known = self._remembered(name, secret)
        return self._log_in(name, secret, origin) if known is None else known

    def check_again(self, name: str, secret: str) -> UserIdentity:
        """Return the identity of a name whose secret was right; no secret is hashed here.

        Raise AuthenticationError if there is no such user any more, and UnavailableError if the
        user's secret was changed: a new call, with the new secret, may be right.
        """
        self._look_again()
        known = self._remembered(name, secret)
        if known is not None:
            return known
        if name in self._users:
            message = f"The credentials of {name} were changed; begin the call again."
            raise UnavailableError(message)
        message = "The credentials are not right any more; check accessKey and secretKey, or token."
        raise AuthenticationError(message)

    def _log_in(self, name: str, secret: str, origin: str) -> UserIdentity:
        with self._turns.turn(origin, name):
            # Meanwhile another call may have brought the same secret.
            known = self._remembered(name, secret)
            if known is not None:
                return known
            user = self._users.get(name)
            is_right = (user.secret if user else self._decoy(name)).is_hash_of(secret)
            if user is not None and is_right:
                self._known[name] = self._mark(user, secret)
                return user.identity
        message = "The credentials are wrong; check accessKey and secretKey, or token."
        raise AuthenticationError(message)

    def _decoy(self, name: str) -> HashedSecret:
        """Return the secret that an unknown name is compared with.

        It costs as much as that of some user, always of the same one: time does not tell whether a
        name exists, also if secrets were made at different costs.
        """
        costs = [user.secret for _, user in sorted(self._users.items())] or [_NOBODY]
        chosen = int.from_bytes(hmac.digest(self._key, name.encode(), "sha256")[:8], "big")
        return costs[chosen % len(costs)]

    def _mark(self, user: User, secret: str) -> bytes:
        # The hash in the file is part of it: a secret that was changed there is not remembered.
        text = b"\0".join((user.identity.name.encode(), user.secret.hashed, secret.encode()))
        return hmac.digest(self._key, text, "sha256")

    def _remembered(self, name: str, secret: str) -> UserIdentity | None:
        """Return the identity of a user whose secret was recognised before."""
        user, mark = self._users.get(name), self._known.get(name)
        if user is None or mark is None or not hmac.compare_digest(mark, self._mark(user, secret)):
            return None
        return user.identity

    def _look_again(self) -> None:
        now_s = self._monotonic()
        if now_s - self._looked_s < _LOOK_AGAIN_S:
            return
        with self._lock:
            self._looked_s = now_s
            stamp = _stamp(self._path)
            if stamp == self._stamp:
                return
            try:
                self._users = self._read()
            except ConfigError as error:
                if str(error) != self._kept_for:
                    log.warning("event=credentials_kept error=%s", error)
                self._kept_for = str(error)
            else:
                self._stamp, self._kept_for = stamp, ""
                log.info("event=credentials_read users=%d", len(self._users))
                # What is remembered is bounded by the number of users.
                for name in self._known.keys() - self._users.keys():
                    self._known.pop(name, None)

    def _read(self) -> dict[str, User]:
        try:
            text = self._path.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            message = f"Can't read credentials {self._path}: {error}."
            raise ConfigError(message) from error
        return parse_credentials(text, str(self._path))


def given_credentials(metadata: Any) -> tuple[str, str]:
    """Return name and secret that a call carries; raise AuthenticationError if it has none."""
    given = {key: _decoded(value) for key, value in metadata or ()}
    name = given.get("x-rocketmq-access-key-bin", "")
    secret = given.get("x-rocketmq-secret-key-bin", "")
    kind, _, token = given.get("authorization", "").partition(" ")
    if kind.lower() == "bearer":
        name, _, secret = token.strip().partition(".")
    if not name or not secret:
        message = "This broker asks for credentials; give accessKey and secretKey, or token."
        raise AuthenticationError(message)
    return name, secret


def _decoded(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode("utf-8", "replace")


def _scrypt(secret: str, salt: bytes, cost: int, block: int, parallel: int) -> bytes:
    return hashlib.scrypt(
        secret.encode(), salt=salt, n=cost, r=block, p=parallel, maxmem=_MEMORY_BYTES, dklen=32
    )


def _text(raw: bytes) -> str:
    return base64.b64encode(raw).decode("ascii")


def _raw(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def _stamp(path: Path) -> tuple[int, ...] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    # The time of the last change of the inode, too: unlike the other time, nobody can set it back.
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
