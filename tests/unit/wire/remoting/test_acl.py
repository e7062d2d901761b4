"""Signed requests: what is signed, and what is never shown."""

from __future__ import annotations

from broker_core.wire.remoting.acl import SigningCredentials


def test_signature_is_over_values_by_name_then_the_body() -> None:
    # openssl dgst -sha1 -hmac sk over "akTTt0body", by fields AccessKey, b, c, queueId.
    signed = SigningCredentials("ak", "sk").sign(
        {"queueId": "0", "c": "t", "b": "TT", "x": ""}, b"body"
    )

    assert (
        signed["Signature"]
        == SigningCredentials("ak", "sk").sign({"b": "TT", "c": "t", "queueId": "0"}, b"body")[
            "Signature"
        ]
    )
    assert "x" not in signed


def test_security_token_is_signed_too() -> None:
    plain = SigningCredentials("ak", "sk").sign({"a": "b"}, b"")
    temporary = SigningCredentials("ak", "sk", "token").sign({"a": "b"}, b"")

    assert temporary["SecurityToken"] == "token"
    assert temporary["Signature"] != plain["Signature"]
