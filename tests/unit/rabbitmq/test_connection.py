"""What the broker's words, or its silence, mean."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from pika import exceptions as pika_errors
from pika.adapters.utils import connection_workflow as workflow

from migrator.errors import (
    AccessRefused,
    ConfigError,
    EntityMismatch,
    TargetError,
    TargetUnavailable,
)
from migrator.rabbitmq.addresses import parse_address
from migrator.rabbitmq.connection import (
    EntityAbsent,
    EntityLocked,
    TlsFiles,
    closing_error,
    opening_error,
    tls_context,
)

ADDRESS = parse_address("amqp://joe:hush@h:5672/prod")

OPENING = [
    (
        pika_errors.ProbableAuthenticationError(
            "ConnectionClosedByBroker: (403) 'ACCESS_REFUSED - Login was refused'"
        ),
        AccessRefused,
        "user 'joe'",
    ),
    (
        pika_errors.ProbableAuthenticationError("StreamLostError: ('Transport indicated EOF',)"),
        TargetUnavailable,
        "EOF",
    ),
    (
        pika_errors.ProbableAccessDeniedError(
            "ConnectionClosedByBroker: (530) 'NOT_ALLOWED - vhost prod not found'"
        ),
        AccessRefused,
        "no virtual host 'prod'",
    ),
    (
        pika_errors.ProbableAccessDeniedError(
            "ConnectionClosedByBroker: (530) \"NOT_ALLOWED - access to vhost 'prod' refused\""
        ),
        AccessRefused,
        "may not enter",
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
        pika_errors.AMQPConnectionError(
            workflow.AMQPConnectionWorkflowFailed(
                [workflow.AMQPConnectorSocketConnectError(ConnectionRefusedError(111, "refused"))]
            )
        ),
        TargetUnavailable,
        "refused",
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
        tls_context(TlsFiles(ca_file=tmp_path / "absent.pem"))
    with pytest.raises(ConfigError, match=r"cert_file .*absent\.pem"):
        tls_context(TlsFiles(cert_file=tmp_path / "absent.pem", key_file=tmp_path / "k"))


def test_checks_can_be_switched_off() -> None:
    """Without verification neither the name nor the certificate is checked."""
    context = tls_context(TlsFiles(verify=False))
    assert context.verify_mode is ssl.CERT_NONE
    assert not context.check_hostname
