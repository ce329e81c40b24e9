"""One storage account: clients, errors, pace, and how many requests at a time.

Entities, and of blobs what each of many timeouts needs, are asked for by ``http``; Azure's own
client libraries read the connection string and do the rest of what is done with blobs.

Rules of this file: everything that goes over the wire passes ``asking``; an error's text names
the table or container and Azure's own code, never a key, a signature or a body. An account that is
busy says so for all that is asked of it, so all wait together, for no longer than ``MOST_S`` or so
at a time. Source: Azure Storage answers 503 ``ServerBusy`` or 429, Retry-After in whole seconds.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property, partial
from random import uniform
from typing import Any, Final, TypeVar

import requests
from azure.core.exceptions import (
    AzureError,
    ClientAuthenticationError,
    HttpResponseError,
    ServiceRequestError,
    ServiceResponseError,
)
from azure.core.pipeline.transport import RequestsTransport
from azure.data.tables import TableServiceClient
from azure.storage.blob import BlobServiceClient, ContainerClient, LinearRetry
from requests.adapters import HTTPAdapter

from migrator.database.failures import retrying
from migrator.errors import ConfigError, SourceGone, StoreError, StoreUnavailable
from migrator.stores.azure.http import GONE, PASSING, Blobs, Continuation, Entity, Key, Tables

T = TypeVar("T")
R = TypeVar("R")
_REFUSED: Final = frozenset({401, 403})
_NO_PLACE: Final = frozenset({"TableNotFound", "ContainerNotFound"})
"""Codes by which the account says so itself; a proxy's 404 has none."""
_LATER_CODES: Final = frozenset({"TableBeingDeleted", "ContainerBeingDeleted"})
_ABOUT_ONE: Final = frozenset(
    {
        "ResourceNotFound",
        "EntityNotFound",
        "EntityAlreadyExists",
        "UpdateConditionNotSatisfied",
        "ConditionNotMet",
        "BlobNotFound",
        "BlobAlreadyExists",
        "TargetConditionNotMet",
    }
)
"""Codes that are about one entity or blob, not about the account."""
_AHEAD: Final = 2
"""Of what is done at a time: as many wait to be done or fetched, and their bodies with them."""
_CONNECT_S: Final = 10
_READ_S: Final = 30
_RETRIES: Final = 2
"""Of one request that is not answered."""
_RETRIES_WHEN_BUSY: Final = 4
"""Of one request that is refused for now: a busy account refuses some of many, and it waits as
long as it is told to before each; see ``transport``."""
_PATIENCE: Final[dict[str, Any]] = {
    "connection_timeout": _CONNECT_S,
    "read_timeout": _READ_S,
    "logging_enable": False,
}
_RETRIED: Final[dict[str, Any]] = {
    "retry_total": _RETRIES_WHEN_BUSY,
    "retry_connect": _RETRIES,
    "retry_read": _RETRIES,
    "retry_status": _RETRIES_WHEN_BUSY,
}
_log = logging.getLogger(__name__)
MOST_S: Final = 15.0
"""The longest wait between two requests, whatever is asked for."""
_BUSY: Final = frozenset({429, 503})
_TOLD_EVERY_S: Final = 60.0
_SPREAD: Final = 0.2
"""Part of a wait that is added by chance, so that not all come back at the same moment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountSettings:
    """Where timeouts are, by the vendor's names."""

    connection_string: str
    table: str
    container: str
    requests: int
    """Requests under way at a time."""
    keeps_bodies: bool = False
    """Whether the blob of a claimed timeout stays in its container."""


class Account:
    """The clients of one account, made when first asked for.

    Raises:
        ConfigError: The connection string is none.
    """

    def __init__(self, settings: AccountSettings) -> None:
        self.settings = settings
        self._pace = Pace()
        self._opened: list[Any] = []
        try:
            given = TableServiceClient.from_connection_string(settings.connection_string)
            self._blobs = self._kept(
                BlobServiceClient.from_connection_string(
                    settings.connection_string,
                    transport=self._transport(),
                    retry_policy=LinearRetry(backoff=1, random_jitter_range=1, **_RETRIED),
                    **_PATIENCE,
                )
            )
        except (ValueError, AzureError) as exc:
            self.close()
            raise ConfigError(
                "store.url is not a connection string of Azure Storage; write "
                "DefaultEndpointsProtocol=https;AccountName=…;AccountKey=…;EndpointSuffix=…"
            ) from exc
        self.name = str(given.account_name)
        """The account's name."""
        named = getattr(given.credential, "named_key", None)
        key = None if named is None else Key(account=named.name, text=named.key)
        signature = str(getattr(given.credential, "signature", "")).lstrip("?")
        paced: dict[str, Any] = {
            "connections": settings.requests,
            "wait": self._pace.wait,
            "learn": self._pace.learn,
        }
        self.tables: Tables = self._kept(Tables(f"{given.url}?{signature}", key, **paced))
        self.bodies: Blobs = self._kept(Blobs(self.container.url, key, **paced))
        given.close()

    @property
    def table(self) -> str:
        return self.settings.table

    @cached_property
    def container(self) -> ContainerClient:
        return self._blobs.get_container_client(self.settings.container)

    @cached_property
    def _pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self.settings.requests, thread_name_prefix="azure")

    def at_table(self, doing: str) -> AbstractContextManager[None]:
        return asking(doing, place=f"table {self.settings.table}")

    def at_container(self, doing: str) -> AbstractContextManager[None]:
        return asking(doing, place=f"container {self.settings.container}")

    def pages(
        self,
        where: str,
        parameters: Mapping[str, str],
        columns: Sequence[str] | None = None,
        *,
        doing: str,
        table: str = "",
        size: int | None = None,
    ) -> Iterator[Sequence[Entity]]:
        """Yield pages of entities with some *columns*; None: with all there are.

        *table* is another one than the timeouts'; *size* bounds a page. A page may be empty, and
        is asked for again while the account is unavailable.
        """
        name = table or self.table

        def page(begin: Continuation) -> tuple[Sequence[Entity], Continuation | None]:
            with asking(doing, place=f"table {name}"):
                return self.tables.page(name, where, parameters, columns, size, begin)

        following: Continuation | None = {}
        while following is not None:
            found, following = retrying(partial(page, following))
            yield found

    def each(self, work: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        """Yield what *work* returns for each of *items*, in order; several run at a time.

        Only a few are begun ahead of what is drawn. *work* is repeated while the account is
        unavailable, so it must be safe to repeat. When one raises, the others are awaited.
        """
        begun: deque[Future[R]] = deque()
        try:
            for item in items:
                begun.append(self._pool.submit(retrying, partial(work, item)))
                if len(begun) >= _AHEAD * self.settings.requests:
                    yield begun.popleft().result()
            while begun:
                yield begun.popleft().result()
        finally:
            for future in begun:
                future.cancel()
            for future in begun:
                if not future.cancelled():
                    future.exception()  # waits

    def close(self) -> None:
        if (pool := self.__dict__.pop("_pool", None)) is not None:
            pool.shutdown(cancel_futures=True)
        while self._opened:
            with suppress(Exception):
                self._opened.pop().close()

    def _transport(self) -> PacedTransport:
        return self._kept(PacedTransport(connections=self.settings.requests, pace=self._pace))

    def _kept(self, closable: T) -> T:
        self._opened.append(closable)
        return closable


@contextmanager
def asking(doing: str, *, place: str) -> Iterator[None]:
    """Turn errors of Azure's clients into ours; those of a missing entity or blob pass.

    Args:
        doing: What was attempted: ``claiming timeout x``.
        place: The table or container, as an operator knows it.
    """
    try:
        yield
    except HttpResponseError as exc:
        if is_about_one(exc):
            raise
        if isinstance(exc, ClientAuthenticationError) and exc.status_code is None:
            raise StoreError(
                "the account key in store.url cannot be used; is it complete?"
            ) from exc
        code = code_of(exc) or f"HTTP {exc.status_code}"
        if may_pass(exc):
            raise StoreUnavailable(f"Azure Storage cannot do {doing} now: {code}") from exc
        if exc.status_code in _REFUSED:
            raise StoreError(
                f"Azure Storage refused {doing} in {place}: {code}; check key, signature and rights"
            ) from exc
        if exc.status_code == GONE and code in _NO_PLACE:
            raise SourceGone(f"there is no {place} in this account ({code})") from exc
        raise StoreError(f"Azure Storage refused {doing} in {place}: {code}") from exc
    except (ServiceRequestError, ServiceResponseError) as exc:
        raise StoreUnavailable(
            f"Azure Storage cannot be reached for {doing}: {type(exc).__name__}; check store.url "
            "and the network"
        ) from exc
    except AzureError as exc:
        raise StoreUnavailable(f"{doing} was interrupted: {type(exc).__name__}") from exc


def code_of(exc: HttpResponseError) -> str | None:
    code = getattr(exc, "error_code", None)
    return None if code is None else str(getattr(code, "value", code))


def is_about_one(exc: HttpResponseError) -> bool:
    """Return whether an error only says that one entity or blob is not there, or not as thought."""
    return is_code_about_one(exc.status_code, code_of(exc))


def is_code_about_one(status: int | None, code: str | None) -> bool:
    """Return the same of an answer by its status and Azure's own code."""
    return status in (GONE, 409, 412) and code in _ABOUT_ONE


def may_pass(exc: HttpResponseError) -> bool:
    """Return whether the same request may succeed a little later."""
    is_passing = exc.status_code is None or exc.status_code in PASSING
    return is_passing or code_of(exc) in _LATER_CODES


def paged(pages: Iterator[Any], *, doing: str, place: str) -> Iterator[Sequence[Any]]:
    """Yield each page of a listing as a list; one may be empty.

    A page is asked for again while the account is unavailable: the listing goes on where it was.
    """

    def work() -> Sequence[Any] | None:
        with asking(doing, place=place):
            page = next(pages, None)
            return None if page is None else list(page)

    while (found := retrying(work)) is not None:
        yield found


class Pace:
    """When the next request may go to an account; its clients and their threads share one."""

    def __init__(
        self,
        *,
        monotonic_s: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._monotonic_s = monotonic_s
        self._sleep = sleep
        self._lock = threading.Lock()
        self._not_before_s = float("-inf")
        self._told_s = float("-inf")
        self._answers = 0

    def wait(self) -> None:
        left_s = min(self._not_before_s - self._monotonic_s(), MOST_S)
        if left_s > 0:
            self._sleep(left_s * uniform(1.0, 1.0 + _SPREAD))  # noqa: S311 - spreads, hides nothing

    def learn(self, status: int, retry_after: str | None) -> None:
        """Remember what an answer says of how busy the account is."""
        if status not in _BUSY:
            return
        is_number = retry_after is not None and retry_after.isascii() and retry_after.isdigit()
        asked_s = min(float(retry_after or 0), MOST_S) if is_number else 0.0
        now_s = self._monotonic_s()
        with self._lock:
            self._answers += 1
            self._not_before_s = max(self._not_before_s, now_s + asked_s)
            if now_s - self._told_s < _TOLD_EVERY_S:
                return
            self._told_s, answers, self._answers = now_s, self._answers, 0
        _log.warning(
            "Azure Storage is busy and takes requests more slowly; they are repeated",
            extra={"action": "store_busy", "status": status, "count": answers, "wait_s": asked_s},
        )


class PacedTransport(RequestsTransport):  # type: ignore[misc]  # it exports itself lazily, untyped
    """Keeps as many connections as there are requests at a time, and waits when told to."""

    def __init__(self, *, connections: int, pace: Pace) -> None:
        session = requests.Session()
        session.auth = lambda request: request  # else ~/.netrc would replace the signature
        for scheme in ("https://", "http://"):
            session.mount(scheme, HTTPAdapter(pool_maxsize=connections))
        super().__init__(session=session, session_owner=True)
        self._pace = pace

    def send(self, request: Any, **options: Any) -> Any:
        self._pace.wait()
        response: Any = super().send(request, **options)
        # taken away: Azure's client would sleep for as long as it says, however long that is
        self._pace.learn(response.status_code, response.headers.pop("Retry-After", None))
        return response
