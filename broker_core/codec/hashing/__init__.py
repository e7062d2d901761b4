"""Hashes and checksums that RocketMQ stores: Java's String.hashCode, CRC-32, index keys."""
