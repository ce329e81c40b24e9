"""What the broker's words, or its silence, mean."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from pika import exceptions as pika_errors
from pika.adapters.utils import connection_workflow as workflow

from migrator.errors import (
    AccessRefused,
    ConfigError,
    EntityMismatch,
    Interrupted,
    TargetError,
    TargetUnavailable,
)
from migrator.rabbitmq.addresses import BrokerAddress, parse_address, parse_addresses
from migrator.rabbitmq.connection import (
    ConnectionSettings,
    EntityAbsent,
    EntityLocked,
    TlsFiles,
    broker_tls_context,
    closing_error,
    opening_error,
)
from migrator.rabbitmq.entities import ServerFacts
from migrator.rabbitmq.event_loop import Connection, EventLoop

ADDRESS = parse_address("amqp://joe:hush@h:5672/prod")

OPENING = [
    (
        pika_errors.ProbableAuthenticationError("StreamLostError: ('Transport indicated EOF',)"),
        TargetUnavailable,
        "EOF",
    ),
    (
        pika_errors.ProbableAccessDeniedError(
            "ConnectionClosedByBroker: (530) \"NOT_ALLOWED - access to vhost 'prod' refused\""
        ),
        AccessRefused,
        "may not access",
    ),
    (
        pika_errors.ProbableAccessDeniedError(
            "ConnectionClosedByBroker: (530) \"NOT_ALLOWED - access to vhost 'prod' refused for "
            "user 'joe': connection limit (5) is reached\""
        ),
        TargetUnavailable,
        "limit",
    ),
    (
        workflow.AMQPConnectionWorkflowFailed(
            [workflow.AMQPConnectorTransportSetupError(ssl.SSLCertVerificationError(1, "x"))]
        ),
        TargetError,
        "certificate",
    ),
    (OSError(113, "No route to host"), TargetUnavailable, "No route"),
]
"""What no test of a real broker makes happen."""

CLOSING = [
    (pika_errors.ChannelClosedByBroker(403, "ACCESS_REFUSED - no"), AccessRefused),
    (pika_errors.ChannelClosedByBroker(404, "NOT_FOUND - no queue 'x'"), EntityAbsent),
    (
        pika_errors.ChannelClosedByBroker(404, "NOT_FOUND - home node of 'x' is down"),
        TargetUnavailable,
    ),
    (pika_errors.ChannelClosedByBroker(405, "RESOURCE_LOCKED - no"), EntityLocked),
    (
        pika_errors.ChannelClosedByBroker(406, "PRECONDITION_FAILED - inequivalent arg"),
        EntityMismatch,
    ),
    (pika_errors.ChannelClosedByBroker(406, "PRECONDITION_FAILED - message size"), TargetError),
    (
        pika_errors.ConnectionClosedByBroker(320, "CONNECTION_FORCED - node stops"),
        TargetUnavailable,
    ),
    (pika_errors.ConnectionClosedByBroker(540, "NOT_IMPLEMENTED"), TargetError),
    (pika_errors.ConnectionBlockedTimeout("x"), TargetUnavailable),
    (pika_errors.StreamLostError("x"), TargetUnavailable),
    (None, TargetUnavailable),
]


@pytest.mark.parametrize(("error", "kind", "word"), OPENING)
def test_a_failed_opening_is_told_by_its_cause(
    error: BaseException, kind: type[TargetError], word: str
) -> None:
    """Only the broker's own words are a refusal; a cut wire may be tried again."""
    meaning = opening_error(error, ADDRESS)
    assert type(meaning) is kind
    assert word in str(meaning)
    assert "hush" not in str(meaning)


@pytest.mark.parametrize(("error", "kind"), CLOSING)
def test_a_closed_channel_is_told_by_its_code(
    error: BaseException | None, kind: type[TargetError]
) -> None:
    """Each reply code of the broker has one meaning."""
    assert type(closing_error(error, ADDRESS)) is kind


def test_a_missing_tls_file_is_named(tmp_path: Path) -> None:
    """A TLS file that cannot be read is a wrong setting, named by its path."""
    with pytest.raises(ConfigError, match=r"ca_file .*absent\.pem"):
        broker_tls_context(TlsFiles(ca_file=tmp_path / "absent.pem"))
    with pytest.raises(ConfigError, match=r"cert_file .*absent\.pem"):
        broker_tls_context(TlsFiles(cert_file=tmp_path / "absent.pem", key_file=tmp_path / "k"))


def test_the_guard_ends_a_wait_and_is_asked_at_each_step() -> None:
    """A sign of life, whether anything happens or not; what it raises comes out at once."""
    beats: list[None] = []

    def guard() -> None:
        beats.append(None)
        if len(beats) > 99:
            raise Interrupted("asked twice to stop")

    with closing(EventLoop(guard)) as loop:
        loop.wait_for_event(0.02)
        assert beats
        beats += [None] * 99
        with pytest.raises(Interrupted):
            loop.wait_for_event(3600)


def test_a_certificate_that_is_away_for_a_moment_is_no_bug(tmp_path: Path) -> None:
    """While it is renewed, say: there is no connection to be closed, and the lane tries again."""
    settings = ConnectionSettings(
        nodes=parse_addresses("amqps://u:p@localhost/%2F"),
        tls=TlsFiles(ca_file=tmp_path / "ca.pem"),
    )
    with closing(EventLoop()) as loop, pytest.raises(ConfigError, match="cannot be used"):
        Connection(loop, settings, "test")


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("4.0.0-rc.1", (4, 0, 0)),
        ("3.13.7+4.gdeadbee", (3, 13, 7)),
        ("4.1", (4, 1)),
        ("", ()),
        ("3.x", ()),
    ],
)
def test_a_version_is_read_as_numbers(version: str, expected: tuple[int, ...]) -> None:
    """Without what follows them; nothing when it is unreadable."""
    facts = ServerFacts(product="RabbitMQ", version=version, cluster_name="c", frame_max_bytes=0)
    assert facts.release == expected


# ── several nodes ───────────────────────────────────────────────────────────────────────────

NODES = parse_addresses("amqp://one\namqp://two\namqp://three")


def answering(*hosts: str) -> Callable[[BrokerAddress], str]:
    """Return what connects where one of *hosts* is, and nowhere else."""

    def connect(address: BrokerAddress) -> str:
        if address.host not in hosts:
            raise TargetUnavailable(f"{address.host_port}: cannot be reached")
        return address.host

    return connect


def test_the_next_node_is_tried(caplog: pytest.LogCaptureFixture) -> None:
    """The one that answered last is tried first, and not left for one that came back."""
    settings = ConnectionSettings(nodes=NODES)
    with caplog.at_level(logging.INFO):
        assert settings.try_nodes(answering("three")) == "three"
        assert settings.try_nodes(answering("one", "three")) == "three"
        assert settings.try_nodes(answering("one", "two")) == "one"
    named = [vars(each)["node"] for each in caplog.records]
    assert named == ["three:5672", "one:5672"]  # each once
    assert [settings.beginning_with(lane).address.host for lane in (1, 3)] == ["two", "one"]


def test_without_any_node_each_is_named() -> None:
    """Whoever has to look knows where."""
    with pytest.raises(
        TargetUnavailable, match=r"none of 3 nodes .*one:5672.*two:5672.*three:5672"
    ):
        ConnectionSettings(nodes=NODES).try_nodes(answering())


def test_a_refused_user_is_refused_at_once() -> None:
    """Nodes of one cluster have the same users; the other ones are not asked."""

    def connect(address: BrokerAddress) -> None:
        raise AccessRefused(address.host)

    with pytest.raises(AccessRefused, match="one"):
        ConnectionSettings(nodes=NODES).try_nodes(connect)
