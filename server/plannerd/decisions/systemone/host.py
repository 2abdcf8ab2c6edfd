"""One host of System One models: the connection to it, and what its failures mean.

The SDK makes requests and reads responses. What a server must have in its own hands is taken from it:
retries and time-outs (`decisions.retries`), and, by the transport below it, how large a response may be,
where requests go (no redirects, no proxies of the environment) and which key goes with them.
"""

from __future__ import annotations

import json
import logging
import ssl
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx2
from typesafe_sdk import (
    AsyncTypeSafeClient,
    QuestionModel,
    RetryPolicy,
    TypeSafeAPIConnectionError,
    TypeSafeAPIError,
    TypeSafeAPIResponseValidationError,
)

from plannerd.decisions.causes import CauseError, cause_of_connection
from plannerd.decisions.masking import masked
from plannerd.decisions.retries import AttemptError, retry_after
from plannerd.decisions.systemone.credentials import ApiKey
from plannerd.decisions.systemone.wire import Reply
from plannerd.errors import PlannerdError, Reason

_NO_RETRIES: Final = RetryPolicy(max_retries=0, timeout=None)
_NO_KEY: Final = "none"  # the SDK insists on a key; it never leaves the transport
_TRANSIENT: Final = frozenset({408, 429})  # and all from 500 on
_CREDENTIALS: Final = {401: "rejects the credentials of this server", 403: "denies access to this server"}
_PAYMENT: Final = 402
_TOO_LARGE: Final = 413
_MAX_SAID: Final = 1000  # characters

# Its lines have addresses in them, and at the level debug what clients sent.
logging.getLogger("typesafe_sdk").setLevel(logging.CRITICAL + 1)
logging.getLogger("httpx2").setLevel(logging.WARNING)
logging.getLogger("httpcore2").setLevel(logging.WARNING)


@dataclass(frozen=True, slots=True)
class HostOptions:
    """How to reach a host.

    Attributes:
        base_url: where it is; `/v1/systemone` is added.
        model: the model's name there.
        key: the key that it wants.
        ca_file: certificates that sign the host's; None: those of the system.
        connections: open at once, idle ones included.
        idle_seconds: how long a connection that nobody uses is kept.
        max_response_bytes: the largest response.
    """

    base_url: str
    model: str
    key: ApiKey
    ca_file: Path | None = None
    connections: int = 16
    idle_seconds: float = 30.0
    max_response_bytes: int = 1 << 20


class Host:
    """A host, with one pool of connections.

    Args:
        name: the configured name of the model, for errors.
        options: how to reach it.

    Raises:
        ValueError: the certificates can't be read.
    """

    def __init__(self, name: str, options: HostOptions) -> None:
        self._name = name
        self._options = options
        # Made now, because that imports much; connections are made when they are needed, in the event loop.
        self._http = _pool(options)
        self._client: tuple[str | None, AsyncTypeSafeClient] | None = None

    async def ask(self, state: Any, questions: Mapping[str, QuestionModel]) -> Reply:
        """Ask once.

        Raises:
            AttemptError: it failed in a way that may pass.
            PlannerdError: DECISION_INVALID_ANSWER, DECISION_MODEL_CREDENTIALS, DECISION_MODEL_LIMIT or
                DECISION_MODEL_REJECTED.
        """
        failure: Exception
        cause: CauseError | None = None
        try:
            return await self._connected().system_one(
                state, questions, model=self._options.model, retry=_NO_RETRIES, response_model=Reply
            )
        except TypeSafeAPIResponseValidationError:
            failure = self._unreadable("is no System One response")
        except _UnreadableError as error:
            failure = self._unreadable(error.problem)
        except TypeSafeAPIError as error:
            failure = self._refused(error.status, retry_after(error.headers))
            cause = self._said(error.body)
        except TypeSafeAPIConnectionError as error:
            connected = not isinstance(error.__cause__, httpx2.ConnectError)
            failure = AttemptError("broke the connection" if connected else "can't be reached")
            cause = cause_of_connection(error)
        # Outside of the handlers: what the SDK raises has whole requests and responses in it, which nobody must find.
        raise failure from cause

    async def close(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    def _connected(self) -> AsyncTypeSafeClient:
        """The SDK's client for the key of this moment, over the one pool."""
        key = self._options.key.current()
        if self._client is None or self._client[0] != key:
            client = AsyncTypeSafeClient(
                api_key=key or _NO_KEY,
                base_url=self._options.base_url,
                model=self._options.model,
                http_client=self._http,
                compression=False,
            )
            self._client = key, client
        return self._client[1]

    def _said(self, body: object) -> CauseError | None:
        """What goes with a status that is no success. It may have the key in it, and be long."""
        if not body:
            return None
        text = body if isinstance(body, str) else json.dumps(body, ensure_ascii=False, default=str)
        return CauseError(masked(text, self._options.key.secrets)[:_MAX_SAID])

    def _unreadable(self, problem: str) -> PlannerdError:
        return PlannerdError(
            Reason.DECISION_INVALID_ANSWER,
            f"the response of decision model '{self._name}' {problem}",
            metadata={"model": self._name},
        )

    def _refused(self, status: int, wait: float | None) -> Exception:
        """What a status means that is no success."""
        if status in _TRANSIENT or status >= 500:
            return AttemptError(f"answered {status}", wait)
        metadata = {"model": self._name, "http_status": str(status)}
        if status in _CREDENTIALS or status == _PAYMENT:
            problem = _CREDENTIALS.get(status, "wants to be paid")
            return PlannerdError(
                Reason.DECISION_MODEL_CREDENTIALS,
                f"decision model '{self._name}' {problem} ({status}); its operator must mend that",
                metadata=metadata,
            )
        if status == _TOO_LARGE:
            return PlannerdError(
                Reason.DECISION_MODEL_LIMIT,
                f"the request is larger than decision model '{self._name}' takes ({status}); send less",
                metadata={**metadata, "limit": "request_bytes"},
            )
        return PlannerdError(
            Reason.DECISION_MODEL_REJECTED,
            f"decision model '{self._name}' rejects the request ({status}); its operator must check the address, the "
            "name of the model and its limits",
            metadata=metadata,
        )


class _UnreadableError(Exception):
    """A successful response that is not read to its end; `problem` goes on after "the response"."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem


class _Transport(httpx2.AsyncBaseTransport):
    """Sends no key where there is none, takes no cookies, and reads no more than is allowed."""

    def __init__(self, inner: httpx2.AsyncBaseTransport, options: HostOptions) -> None:
        self._inner = inner
        self._key = options.key
        self._most = options.max_response_bytes

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if self._key.current() is None:
            del request.headers["Authorization"]
        response = await self._inner.handle_async_request(request)
        if "Set-Cookie" in response.headers:
            del response.headers["Set-Cookie"]
        encoding = response.headers.pop("Content-Encoding", "identity")
        stream = response.stream
        if not isinstance(stream, httpx2.AsyncByteStream):
            raise TypeError("an asynchronous transport gave a synchronous stream")
        response.stream = _Bounded(stream, self._most, encoding if response.is_success else "identity", response)
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Bounded(httpx2.AsyncByteStream):
    """A body of so many bytes at most. What goes with an error is cut there; a success is refused."""

    def __init__(self, inner: httpx2.AsyncByteStream, most: int, encoding: str, response: httpx2.Response) -> None:
        self._inner = inner
        self._most = most
        self._encoding = encoding
        self._success = response.is_success

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if self._encoding.strip().lower() != "identity":
            raise _UnreadableError("is compressed, which it was not asked to be")
        room = self._most
        async for chunk in self._inner:
            room -= len(chunk)
            if room < 0:
                if self._success:
                    raise _UnreadableError(f"has more than {self._most} bytes")
                return
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()


def _pool(options: HostOptions) -> httpx2.AsyncClient:
    limits = httpx2.Limits(
        max_connections=options.connections,
        max_keepalive_connections=options.connections,
        keepalive_expiry=options.idle_seconds,
    )
    inner = httpx2.AsyncHTTPTransport(verify=_verification(options), trust_env=False, limits=limits)
    return httpx2.AsyncClient(
        transport=_Transport(inner, options),
        headers={"Accept-Encoding": "identity"},
        timeout=None,  # attempts have their own, around everything
        follow_redirects=False,
        trust_env=False,
    )


def _verification(options: HostOptions) -> ssl.SSLContext | bool:
    if not options.base_url.lower().startswith("https:"):
        return False  # there is nothing to verify, and the system's certificates take long to load
    if options.ca_file is None:
        return httpx2.create_ssl_context()
    try:
        return ssl.create_default_context(cafile=str(options.ca_file))
    except (OSError, ssl.SSLError):
        raise ValueError(f"ca_file: {options.ca_file} can't be read as certificates in PEM form") from None
