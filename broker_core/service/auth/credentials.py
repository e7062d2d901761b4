r"""Credentials: users, their secrets and their rules, in a file that can be changed any time.

    {"users": [{"name": "etl",
                "secret": "scrypt:16384:8:1:c2FsdA==:aGFzaA==",
                "rules": [{"topics": "orders-*", "rights": ["publish", "subscribe"]}]}]}

`secret` is printed by `rocketmq-broker hash-secret`: cost parameters, salt and scrypt hash, never
the secret itself. A client gives name and secret as accessKey and secretKey, or both as one token,
`name.secret`. Rights are publish, subscribe and admin, which includes both; topics are a name or a
pattern with `*`. They are asked for in auth/method_rules.py.

The file is read again when it has changed, and looked at once a second at most. If it can't be read
that is logged, and the last good one stays in force. Secrets are compared in constant time, and are
neither kept nor shown. A secret that was right is remembered by a keyed hash of it, for scrypt is
slow on purpose.
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
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from broker_core.errors import AuthenticationError, ConfigError
from broker_core.service.auth.user_rights import Right, Rule, UserIdentity

log = logging.getLogger(__name__)
_SCHEME = "scrypt"
_COST, _BLOCK, _PARALLEL = 1 << 14, 8, 1
_MAX_COST = 1 << 20
_MEMORY_BYTES = 256 << 20
_LOOK_AGAIN_S = 1.0
_MAX_REMEMBERED = 10_000


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
        if scheme != _SCHEME or not 1 < found.cost <= _MAX_COST or not found.hashed:
            message = "unknown scheme or cost"
            raise ValueError(message)
        return found

    def is_hash_of(self, secret: str) -> bool:
        """Tell whether it was made from this secret; takes as long for a wrong one."""
        found = _scrypt(secret, self.salt, self.cost, self.block, self.parallel)
        return hmac.compare_digest(found, self.hashed)


_NOBODY = HashedSecret(_COST, _BLOCK, _PARALLEL, bytes(16), bytes(32))
"""Compared with for an unknown name, so that a wrong name takes as long as a right one."""


@dataclass(frozen=True, slots=True)
class User:
    """One user of the file."""

    identity: UserIdentity
    secret: HashedSecret = field(repr=False)


def parse_credentials(text: str, origin: str) -> dict[str, User]:
    """Parse a credentials file; raise ConfigError with the number of a user that makes no sense."""
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
                f"User {number} in {origin} makes no sense; expected a name without a dot, a "
                f"secret of `rocketmq-broker hash-secret`, and rules of topics and rights."
            )
            raise ConfigError(message) from error
        found[user.identity.name] = user
    return found


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


class Credentials:
    """A credentials file in force. Thread-safe."""

    def __init__(self, path: Path, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._key = os.urandom(32)
        self._known: dict[bytes, None] = {}
        self._looked_s = monotonic()
        self._stamp = _stamp(path)
        self._users = self._read()

    def identify(self, context: grpc.ServicerContext) -> UserIdentity:
        """Return a caller's identity; raise AuthenticationError without right credentials."""
        name, secret = given_credentials(context.invocation_metadata())
        return self.check(name, secret)

    def check(self, name: str, secret: str) -> UserIdentity:
        """Return the identity of a name; raise AuthenticationError for a wrong name or secret."""
        self._look_again()
        user = self._users.get(name)
        if user is not None and self._is_remembered(user, secret):
            return user.identity
        is_right = (user.secret if user else _NOBODY).is_hash_of(secret)
        if user is None or not is_right:
            message = "The credentials are wrong; check accessKey and secretKey, or token."
            raise AuthenticationError(message)
        self._remember(user, secret)
        return user.identity

    def _mark(self, user: User, secret: str) -> bytes:
        # The hash in the file is part of it: a secret that was changed there is not remembered.
        text = b"\0".join((user.identity.name.encode(), user.secret.hashed, secret.encode()))
        return hmac.digest(self._key, text, "sha256")

    def _is_remembered(self, user: User, secret: str) -> bool:
        return self._mark(user, secret) in self._known

    def _remember(self, user: User, secret: str) -> None:
        with self._lock:
            # Wrong secrets are never remembered, so only valid users can fill this.
            if len(self._known) >= _MAX_REMEMBERED:
                self._known.clear()
            self._known[self._mark(user, secret)] = None

    def _look_again(self) -> None:
        now_s = self._monotonic()
        if now_s - self._looked_s < _LOOK_AGAIN_S:
            return
        with self._lock:
            self._looked_s = now_s
            stamp = _stamp(self._path)
            if stamp == self._stamp:
                return
            self._stamp = stamp
            try:
                self._users = self._read()
            except ConfigError as error:
                log.warning("event=credentials_kept error=%s", error)
            else:
                log.info("event=credentials_read users=%d", len(self._users))

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


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
