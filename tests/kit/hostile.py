"""Hostile requests: every field of a message, by its descriptor, with every value of its type.

`mutations` walks a request's descriptor, so a field that is added to broker.proto is covered from
that day on. A mutation changes one field of a valid request and leaves all others as they are, for
a request that is wrong in one place gets further into the broker than noise does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from functools import partial
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

NUMBERS = (-(1 << 63), -(1 << 31), -1, 0, 1, 18, 77, (1 << 31) - 1, 1 << 31, 10**10, (1 << 63) - 1)
SEPARATORS = ("\x00", "\x01", "\x02", "\x02HALF_BLOCK\x011", "\x02TAGS\x01delay#1\x02")
TEXTS = ("", *SEPARATORS, "#", "@", "%23", " ", "..", "../x", "a/b", "n\u00e4he", "x" * 300)
HUGE_TEXT = "x" * (64 << 10)
BLOBS = (b"", b"\x00", b"\xff" * 33, bytes(range(256)), b"x" * (20 << 10))
_NOT_UTF8 = "not-utf-8-here"
_RANGES = {
    FieldDescriptor.CPPTYPE_INT32: (-(1 << 31), (1 << 31) - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(1 << 63), (1 << 63) - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, (1 << 32) - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, (1 << 64) - 1),
}


@dataclass(frozen=True)
class Values:
    """Hostile values by type, and those of the world: names, ids and numbers of other users.

    `names` are for fields that name a topic or a group, `texts` for all text, `keys` for the
    keys of maps. `called` says what some values are, so that a mutation's label is the same in
    every world.
    """

    numbers: Sequence[int] = NUMBERS
    texts: Sequence[str] = TEXTS
    names: Sequence[str] = ()
    blobs: Sequence[bytes] = BLOBS
    keys: Sequence[str] = ()
    called: Mapping[object, str] = dataclass_field(default_factory=dict)

    def show(self, value: object) -> str:
        """Return a value as labels show it."""
        with suppress(TypeError, KeyError):  # a list has no name, and no hash either
            return self.called[value]
        if value == _NOT_UTF8:
            return "not UTF-8"
        if isinstance(value, str | bytes) and len(value) > 40:
            return f"{value[:30]!r}… of {len(value)}"
        return repr(value)

    def of(self, field: FieldDescriptor) -> list[Any]:
        """Return the values that a field of a scalar type can be given."""
        if field.cpp_type in _RANGES:
            low, high = _RANGES[field.cpp_type]
            return [number for number in dict.fromkeys(self.numbers) if low <= number <= high]
        if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
            return [False, True]
        if field.type == FieldDescriptor.TYPE_BYTES:
            return list(self.blobs)
        if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
            names = self.names if field.name in ("topic", "group") else ()
            return list(dict.fromkeys([*self.texts, *names, _NOT_UTF8]))
        message = f"{field.full_name} has a type that no hostile values are known for: add some"
        raise NotImplementedError(message)


@dataclass(frozen=True)
class Mutation:
    """One change of a valid request; `apply` returns the bytes to send."""

    label: str
    apply: Callable[[Message], bytes]


Reach = Callable[[Message], Any]
"""Finds the part of a request that a mutation changes."""


def mutations(sample: Message, values: Values) -> Iterator[Mutation]:
    """Yield every change of one field; `sample` is a valid request, as those that are changed."""
    yield Mutation("as it is", _serialized)
    yield from _of_message(sample, lambda root: root, "", values)


def _of_message(part: Any, reach: Reach, path: str, values: Values) -> Iterator[Mutation]:
    for field in part.DESCRIPTOR.fields:
        name = f"{path}{field.name}"
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            yield from _of_map(field, reach, name, values)
        elif field.is_repeated:
            yield from _of_list(part, field, reach, name, values)
        elif field.message_type is not None:
            yield _changing(f"{name} left out", reach, partial(_clear, field.name))
            yield from _of_message(
                getattr(part, field.name), partial(_member, reach, field.name), f"{name}.", values
            )
        else:
            if field.has_presence:
                yield _changing(f"{name} left out", reach, partial(_clear, field.name))
            for value in values.of(field):
                yield _changing(
                    f"{name}={values.show(value)}", reach, partial(_set, field.name, value)
                )


def _of_map(field: FieldDescriptor, reach: Reach, name: str, values: Values) -> Iterator[Mutation]:
    assert field.message_type is not None
    entry = field.message_type.fields_by_name
    yield _changing(f"{name}={{}}", reach, partial(_put_entries, field.name, {}))
    for key in [*values.of(entry["key"]), *values.keys]:
        one = partial(_put_entries, field.name, {key: "v"})
        yield _changing(f"{name}={{{values.show(key)}: v}}", reach, one)
    for value in values.of(entry["value"]):
        one = partial(_put_entries, field.name, {"k": value})
        yield _changing(f"{name}={{k: {values.show(value)}}}", reach, one)


def _of_list(
    part: Any, field: FieldDescriptor, reach: Reach, name: str, values: Values
) -> Iterator[Mutation]:
    yield _changing(f"{name}=[]", reach, partial(_clear, field.name))
    yield _changing(f"{name} twice", reach, partial(_repeat, field.name, 2))
    yield _changing(f"{name} 500 times", reach, partial(_repeat, field.name, 500))
    if field.message_type is None:
        for value in values.of(field):
            yield _changing(
                f"{name}=[{values.show(value)}]", reach, partial(_fill, field.name, [value])
            )
        return
    sample = getattr(part, field.name)
    first = sample[0] if len(sample) else getattr(type(part)(), field.name).add()
    yield from _of_message(first, partial(_element, reach, field.name), f"{name}[0].", values)


# Changes


def _changing(label: str, reach: Reach, change: Callable[[Any], None]) -> Mutation:
    def apply(request: Message) -> bytes:
        copy = type(request)()
        copy.CopyFrom(request)
        change(reach(copy))
        return _serialized(copy)

    return Mutation(label, apply)


def _serialized(request: Message) -> bytes:
    # A message holds only UTF-8, so what is none is put into the bytes, at equal length.
    return request.SerializeToString().replace(
        _NOT_UTF8.encode(), b"\xff\xfe\xc3(\x80".ljust(len(_NOT_UTF8), b"\xf5")
    )


def _member(reach: Reach, name: str, root: Message) -> Any:
    return getattr(reach(root), name)


def _element(reach: Reach, name: str, root: Message) -> Any:
    items = getattr(reach(root), name)
    return items[0] if len(items) else items.add()


def _clear(name: str, part: Message) -> None:
    part.ClearField(name)


def _set(name: str, value: object, part: Message) -> None:
    setattr(part, name, value)


def _fill(name: str, items: Sequence[object], part: Message) -> None:
    part.ClearField(name)
    getattr(part, name).extend(items)


def _repeat(name: str, times: int, part: Message) -> None:
    items = getattr(part, name)
    items.extend(list(items) * (times - 1))


def _put_entries(name: str, entries: dict[str, str], part: Message) -> None:
    part.ClearField(name)
    getattr(part, name).update(entries)
