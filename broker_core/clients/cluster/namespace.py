"""Namespaces: one cluster shared by several tenants, each with topics and groups of its own.

A name of namespace `tenant` travels as `tenant%name`, behind the prefix of a retry or dead-letter
topic where there is one. RocketMQ's own topics and groups belong to no namespace.
"""

from __future__ import annotations

from dataclasses import dataclass

from broker_core.codec.property_names import DEAD_LETTER_PREFIX, RETRY_PREFIX, SYSTEM_TOPICS

_SEPARATOR = "%"
_OWN_PREFIXES = ("RMQ_SYS_", "rmq_sys_", "CID_RMQ_SYS_")


@dataclass(frozen=True)
class Namespace:
    """A tenant's namespace: turns its names into the cluster's and back; "" changes nothing.

    >>> tenant = Namespace("tenant")
    >>> tenant.wrap("orders"), tenant.wrap("%RETRY%group"), tenant.wrap("TBW102")
    ('tenant%orders', '%RETRY%tenant%group', 'TBW102')
    >>> tenant.unwrap("%RETRY%tenant%group"), tenant.unwrap("other%orders")
    ('%RETRY%group', 'other%orders')
    """

    name: str = ""

    def wrap(self, own: str) -> str:
        """Return a name as the cluster knows it."""
        prefix, rest = _split(own)
        if not self.name or not rest or _is_rocketmqs(rest) or rest.startswith(self._mark):
            return own
        return f"{prefix}{self._mark}{rest}"

    def unwrap(self, known: str) -> str:
        """Return a name as the tenant knows it."""
        prefix, rest = _split(known)
        return prefix + rest.removeprefix(self._mark) if self.name else known

    def holds(self, known: str) -> bool:
        """Return True if a name of the cluster is one of the tenant's."""
        _, rest = _split(known)
        return not self.name or rest.startswith(self._mark)

    @property
    def _mark(self) -> str:
        return f"{self.name}{_SEPARATOR}"


def _split(name: str) -> tuple[str, str]:
    for prefix in (RETRY_PREFIX, DEAD_LETTER_PREFIX):
        if name.startswith(prefix):
            return prefix, name[len(prefix) :]
    return "", name


def _is_rocketmqs(name: str) -> bool:
    return name in SYSTEM_TOPICS or name.startswith(_OWN_PREFIXES)
