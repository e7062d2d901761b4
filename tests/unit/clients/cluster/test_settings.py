"""Settings, credentials and texts: what is refused, and what is never shown."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.clients.cluster.settings import ClusterSettings, TlsSettings
from broker_core.errors import (
    AuthenticationError,
    BrokerError,
    ConfigError,
    PermissionDeniedError,
    RequestError,
    TopicNotFoundError,
    UnavailableError,
    UnsupportedError,
)
from broker_core.wire.remoting.acl import SigningCredentials
from broker_core.wire.remoting.command import Command, ResponseCode
from broker_core.wire.remoting.lenient_json import _Parser, parse_json
from broker_core.wire.remoting.status import refusal


def test_names_are_those_of_the_options() -> None:
    found = ClusterSettings.of(
        {
            "accessKey": "ak",
            "secretKey": "sk",
            "pullTimeoutMs": "5000",
            "compression": "zstd",
            "tls.ca": None,
        }
    )

    assert found.credentials == SigningCredentials("ak", "sk")
    assert (found.pull_timeout_ms, found.compression, found.tls) == (5000, "zstd", None)


def test_pythons_names_mean_the_same() -> None:
    spelled = ClusterSettings.of({"access_key": "ak", "secret_key": "sk", "tls_server_name": "b"})

    assert spelled == ClusterSettings.of(
        {"accessKey": "ak", "secretKey": "sk", "tls.serverName": "b"}
    )


def test_settings_may_come_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "client.conf"
    path.write_text("consumerGroup = readers\ntls.ca = none\n")

    found = ClusterSettings.of(path)

    assert found.consumer_group == "readers"
    assert found.tls == TlsSettings("none")


@pytest.mark.parametrize(
    ("given_", "complaint"),
    [
        ({"pullTimeoutMs": "soon"}, "pull_timeout_ms is 'soon', expected a number"),
        ({"pullTimeoutMs": 0}, "expected a number from 1"),
        ({"compression": "rar"}, "none, zlib, lz4 or zstd"),
        ({"pullTimeout": 1}, "did you mean pull_timeout_ms"),
        ({"accessKey": "ak"}, "secretKey is missing"),
        ({"secretKey": "sk"}, "accessKey is missing"),
    ],
)
def test_wrong_settings_are_named(given_: dict[str, object], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        ClusterSettings.of(given_)


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nothing"):
        ClusterSettings.of(tmp_path / "nothing.conf")


def test_missing_certificates_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="missing"):
        TlsSettings(str(tmp_path / "missing.pem")).context()


def test_secrets_are_in_no_text() -> None:
    settings = ClusterSettings.of({"accessKey": "ak", "secretKey": "hush", "securityToken": "tok"})

    assert "hush" not in repr(settings)
    assert "tok" not in str(settings)


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


@pytest.mark.parametrize(
    ("code", "remark", "kind", "said"),
    [
        (2, "[TIMEOUT_CLEAN_QUEUE] broker busy", UnavailableError, "overloaded"),
        (3, "request type 11 not supported", UnsupportedError, "port"),
        (16, "the topic[t] pulling message is forbidden", PermissionDeniedError, "forbidden"),
        (16, "authentication failed: check signature failed.", AuthenticationError, "secretKey"),
        (1, "AclException: check signature failed for user", AuthenticationError, "secretKey"),
        (1, "AclException: No default permission for T", PermissionDeniedError, "right"),
        (1, "queueId[9] is illegal, topic:[T]", RequestError, "illegal"),
        (1, "java.lang.NullPointerException", UnavailableError, "NullPointer"),
        (17, "topic not exist", TopicNotFoundError, "not exist"),
        (999, "something new", BrokerError, "999"),
    ],
)
def test_answers_are_told_in_words(
    code: int, remark: str, kind: type[BrokerError], said: str
) -> None:
    error = refusal(Command(code, 1, 1, {}, b"", remark), "Broker b (h:1)")

    assert type(error) is kind
    assert said in str(error)
    assert str(error).startswith("Broker b (h:1) answered")


def test_endless_remark_is_cut() -> None:
    error = refusal(Command(1, 1, 1, {}, b"", "x\n" * 10_000), "Broker b (h:1)")

    assert len(str(error)) < 500
    assert "\n" not in str(error)


@pytest.mark.parametrize("code", ResponseCode)
def test_every_code_has_an_error_but_success(code: ResponseCode) -> None:
    assert isinstance(refusal(Command(code, 1, 1, {}, b""), "b"), BrokerError)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{0:"a",-1:"b"}', {"0": "a", "-1": "b"}),
        ('{"a":{1:{2:3}}}', {"a": {"1": {"2": 3}}}),
        ('{{"b":1,"a":"x"}:[1,2.5,true,null]}', {(("a", "x"), ("b", "1")): [1, 2.5, True, None]}),
        ('{0:"a",}', {"0": "a"}),
        ('{0:"\\u00e4 \\"q\\""}', {"0": 'ä "q"'}),
        ("{}", {}),
    ],
)
def test_servers_json_is_read(text: str, value: object) -> None:
    assert parse_json(text.encode()) == value


@pytest.mark.parametrize("text", ["", "{", "{0", "{0:", "{0:1", "{0:1}x", "{0:+-}", "{0 1}", "[0"])
def test_no_json_at_all_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError):
        parse_json(text)


def test_nesting_without_end_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="nested"):
        parse_json("{0:" * 1000)
    with pytest.raises(ValueError, match="nested"):
        parse_json("[" * 100_000)


@given(st.text(max_size=60))
def test_any_text_is_a_value_or_a_value_error(text: str) -> None:
    with contextlib.suppress(ValueError):
        parse_json(text)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


@given(json_values)
def test_lenient_reading_agrees_with_pythons_on_standard_texts(value: object) -> None:
    assert _Parser(json.dumps(value)).document() == value
