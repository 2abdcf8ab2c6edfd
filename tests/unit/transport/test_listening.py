"""Where a server listens, and when it refuses to."""

import errno
import os
import socket
from collections.abc import Iterator
from ipaddress import ip_address

import pytest

from plannerd.services.codec.run import ENVELOPE_BYTES
from plannerd.settings import KeepaliveSettings, ServerSettings
from plannerd.transport.listening import Address, ListenError, check_exposure, resolve, usable
from plannerd.transport.server import channel_options

LOOPBACK = Address(ip_address("127.0.0.1"))


@pytest.fixture
def taken() -> Iterator[int]:
    """A port of 127.0.0.1 that somebody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


@pytest.mark.parametrize(
    ("host", "target"),
    [
        ("127.0.0.1", "127.0.0.1:7"),
        ("0.0.0.0", "0.0.0.0:7"),
        ("::1", "[::1]:7"),
        ("[::1]", "[::1]:7"),
        ("::", "[::]:7"),
    ],
)
async def test_addresses_stand_for_themselves(host: str, target: str) -> None:
    """An address needs no look-up, and an IPv6 address is bracketed where a port follows."""
    assert [address.with_port(7) for address in await resolve(host)] == [target]


async def test_names_stand_for_their_addresses() -> None:
    """A name stands for every address that it has, once."""
    addresses = await resolve("localhost")
    assert LOOPBACK in addresses or Address(ip_address("::1")) in addresses
    assert len(set(addresses)) == len(addresses)


@pytest.mark.parametrize("host", ["nowhere.invalid", "a..b", "x" * 300, " "])
async def test_unknown_names_are_refused(host: str) -> None:
    """A name without addresses is refused with the setting to change."""
    with pytest.raises(ListenError, match=r"^server\.host: '.*' has no address"):
        await resolve(host)


@pytest.mark.parametrize(
    ("host", "exposed"),
    [("127.0.0.1", False), ("127.9.9.9", False), ("::1", False), ("0.0.0.0", True), ("::", True), ("10.0.0.1", True)],
)
async def test_exposure_must_be_asked_for(host: str, exposed: bool) -> None:
    """What other machines can reach is refused without TLS unless the operator insists; loopback never is."""
    addresses = await resolve(host)
    assert check_exposure(host, addresses, tls=False, allow_insecure=True) is exposed
    assert check_exposure(host, addresses, tls=True, allow_insecure=False) is exposed
    if exposed:
        with pytest.raises(ListenError, match=r"server\.allow_insecure"):
            check_exposure(host, addresses, tls=False, allow_insecure=False)
    else:
        assert check_exposure(host, addresses, tls=False, allow_insecure=False) is False


def test_one_exposed_address_is_enough() -> None:
    """A name of which one address can be reached from elsewhere counts as exposed."""
    assert check_exposure("name", [LOOPBACK, Address(ip_address("10.0.0.1"))], tls=False, allow_insecure=True)


def test_a_taken_port_is_refused(taken: int) -> None:
    """A port that somebody listens on is refused with its address."""
    with pytest.raises(ListenError, match=rf"^server\.port: 127\.0\.0\.1:{taken} is in use"):
        usable("localhost", [LOOPBACK], taken, reuse=False)


def test_a_port_that_is_taken_on_one_address_is_refused(taken: int) -> None:
    """A second server on a name does not make do with the addresses that the first one left."""
    with pytest.raises(ListenError, match="is in use"):
        usable("localhost", [Address(ip_address("127.0.0.2")), LOOPBACK], taken, reuse=False)


def test_addresses_of_other_machines_are_refused() -> None:
    """An address that this machine does not have is refused; beside one that it has it is left out."""
    elsewhere = Address(ip_address("192.0.2.1"))
    with pytest.raises(ListenError, match=r"^server\.host: 'name' is not an address of this machine"):
        usable("name", [elsewhere], 0, reuse=False)
    assert usable("name", [elsewhere, LOOPBACK], 0, reuse=False) == (LOOPBACK,)


@pytest.mark.parametrize(("number", "text"), [(errno.EACCES, "needs more rights"), (errno.ENOBUFS, "can't listen on")])
def test_other_failures_are_explained(monkeypatch: pytest.MonkeyPatch, number: int, text: str) -> None:
    """Whatever else keeps a port from being bound is told with the address."""

    def fail(self: Address, port: int, reuse: bool) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Address, "try_port", fail)
    with pytest.raises(ListenError, match=rf"127\.0\.0\.1:80.*{text}|{text}.*127\.0\.0\.1:80"):
        usable("127.0.0.1", [LOOPBACK], 80, reuse=False)


def test_a_shared_port_is_free_for_those_who_share() -> None:
    """With reuse_port a port can be had that another process shares."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        assert usable("127.0.0.1", [LOOPBACK], port, reuse=True) == (LOOPBACK,)
        with pytest.raises(ListenError):
            usable("127.0.0.1", [LOOPBACK], port, reuse=False)


def test_options_follow_the_settings() -> None:
    """What the settings say reaches grpc, in its units."""
    options = dict(
        channel_options(
            ServerSettings(
                reuse_port=True,
                max_request_bytes=10_000,
                max_reply_bytes=20_000,
                max_connection_calls=77,
                max_connections=88,
                handshake_timeout_seconds=2.5,
                max_connection_age_seconds=None,
                max_connection_age_grace_seconds=7.0,
                keepalive=KeepaliveSettings(
                    interval_seconds=1.5, timeout_seconds=1_000_000, min_client_interval_seconds=0
                ),
            )
        )
    )
    assert options == {
        "grpc.so_reuseport": 1,
        "grpc.max_receive_message_length": 2 * (10_000 + ENVELOPE_BYTES),
        "grpc.max_send_message_length": 20_000 + ENVELOPE_BYTES,
        "grpc.max_concurrent_streams": 77,
        "grpc.server.max_pending_requests": 77,
        "grpc.server.max_pending_requests_hard_limit": 154,
        "grpc.max_allowed_incoming_connections": 88,
        "grpc.server_handshake_timeout_ms": 2500,
        "grpc.max_connection_age_ms": 2**31 - 1,
        "grpc.max_connection_age_grace_ms": 7000,
        "grpc.keepalive_time_ms": 1500,
        "grpc.keepalive_timeout_ms": 1_000_000_000,
        "grpc.http2.ping_timeout_ms": 1_000_000_000,
        "grpc.keepalive_permit_without_calls": 1,
        "grpc.http2.min_ping_interval_without_data_ms": 0,
    }
    assert dict(channel_options(ServerSettings()))["grpc.so_reuseport"] == 0
