"""Our side of an exchange: a store of some variety written by us, and everything we read in one."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from broker_core import open_broker
from broker_core.codec.compression import Compression, compress, compression_flags
from broker_core.codec.message_batch import MessageBatch
from broker_core.codec.properties.text import format_properties
from tests.interop.kit.peers import ROOT
from tests.kit.fixtures import SIZES

TOPICS = {"ours-one": 1, "ours-four": 4, "ours-eight": 8}
_TAGS = (None, "TagA", "TagB", "Aa", "BB", "订单")


def write_variety(store: Path, seed: int, count: int = 400, *, config: Any = SIZES) -> None:
    """Send single messages and batches, plain and compressed, to several topics and queues."""
    chance = random.Random(seed)
    with open_broker(f"file:{store}", mode="rw", create=True, config=config) as broker:
        for topic, queues in TOPICS.items():
            broker.create_topic(topic, queues=queues, exist_ok=True)
        for number in range(count // 4):
            broker.send(
                chance.choice(list(TOPICS)),
                chance.randbytes(chance.randint(1, 300)),
                tags=chance.choice(_TAGS),
                keys=[f"k{seed}-{number}", f"shared{number % 7}"],
                properties={"number": str(number), "naïve": "ünï", "price": f"{number}.5"},
            )
        for _ in range(3):
            broker.append(_batch(chance, count // 4))


def _batch(chance: random.Random, count: int) -> MessageBatch:
    """Bodies of all compressions in one batch, over all queues of all topics."""
    topics = list(TOPICS)
    codes = [chance.randrange(len(topics)) for _ in range(count)]
    kinds: list[Compression] = [
        chance.choice(("none", "zlib", "lz4", "zstd")) for _ in range(count)
    ]
    bodies = [bytes(chance.choices(b"abcdef", k=chance.randint(1, 2000))) for _ in range(count)]
    properties = [
        format_properties(
            {"UNIQ_KEY": f"{chance.getrandbits(128):032X}", "KEYS": "batch", "a": "1"}
        )
        for _ in range(count)
    ]
    return MessageBatch(
        topics=topics,
        topic_codes=np.array(codes, dtype=np.int32),
        queue_ids=np.array([chance.randrange(TOPICS[topics[c]]) for c in codes], dtype=np.int32),
        bodies=pa.array(map(compress, bodies, kinds), type=pa.binary()),
        properties=pa.array(properties, type=pa.binary()),
        born_timestamps=1_700_000_000_000,
        sys_flags=np.array([compression_flags(kind) for kind in kinds], dtype=np.int32),
        flags=7,
    )


def dump_ours(store: Path) -> dict[str, Any]:
    """What `rocketmq-broker dump --json` prints of a store."""
    return dict(json.loads(_command("dump", str(store), "--json")))


def check_ours(store: Path) -> str:
    """What `rocketmq-broker check` prints; fails if it finds anything wrong."""
    return _command("check", str(store))


def _command(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "broker_core.cli", *words],
        check=False,
        capture_output=True,
        encoding="utf-8",
        cwd=ROOT,
    )
    assert done.returncode == 0, f"{words[0]} ended with {done.returncode}: {done.stderr}"
    return done.stdout


def used_topics(document: dict[str, Any]) -> dict[str, Any]:
    """The topics of a dump that hold messages, by name."""
    return {name: topic for name, topic in document.items() if topic["queues"]}
