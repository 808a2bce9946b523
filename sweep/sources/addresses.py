"""Which addresses an `https:` source may lead to.

A catalog or a redirect of a server may point at this machine, its network or a cloud's metadata
service. Every hop is checked by name before and by address while connecting, so that a name that
resolves differently a moment later gains nothing.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import urllib.request

from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import ThreadedResolver
from yarl import URL

from sweep.errors import SourceError

REMEDY = (
    "If you trust this source, set LITERTJS_SWEEP_ALLOW_PRIVATE=1; otherwise correct the catalog."
)


def is_public(address: str) -> bool:
    """True for an address on the open internet (not loopback, private, link-local, reserved)."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(ip, ipaddress.IPv6Address):
        embedded = ip.ipv4_mapped or ip.sixtofour
        if embedded is not None:
            ip = embedded
        elif ip in _NAT64:
            ip = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
    return ip.is_global and not ip.is_multicast


_NAT64 = ipaddress.ip_network("64:ff9b::/96")


def check_url(url: URL, source: str, *, allow_insecure: bool, allow_private: bool) -> None:
    """Raise SourceError for a URL that may not be followed. Literal addresses are judged here."""
    allowed = {"https", "http"} if allow_insecure else {"https"}
    if url.scheme not in allowed or not url.host:
        raise SourceError(
            f"{source}: leads to {shown(url)}, which is refused: only https is followed. "
            "Correct the source."
        )
    if allow_private:
        return
    host = url.host.rstrip(".").lower()
    local = host == "localhost" or host.endswith((".localhost", ".internal", ".local"))
    try:
        # inet_aton also reads 127.1, 0x7f000001 and 2130706433, as connecting would.
        literal: str | None = str(ipaddress.IPv4Address(socket.inet_aton(host)))
    except OSError:
        literal = host if ":" in host else None
    if local or (literal is not None and not is_public(literal)):
        raise SourceError(
            f"{source}: leads to {shown(url)}, an address of this machine or its network, which is "
            f"refused. {REMEDY}"
        )


def shown(url: URL) -> str:
    """A URL for messages and records: without credentials and without its query."""
    bare = url.with_query(None).with_fragment(None)
    return str(bare.with_user(None) if bare.host else bare)


class PublicResolver(AbstractResolver):
    """Resolves names, and refuses those of which any address is not public."""

    def __init__(self, trusted: frozenset[str] = frozenset()) -> None:
        self._inner = ThreadedResolver()
        self._trusted = trusted

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """As aiohttp asks. `trusted` names (the user's own proxy) may have any address."""
        found = await self._inner.resolve(host, port, family)
        if host not in self._trusted:
            for result in found:
                if not is_public(result["host"]):
                    raise PrivateAddressError(f"{host} is {result['host']}")
        return found

    async def close(self) -> None:
        """Release the inner resolver."""
        await self._inner.close()


class PrivateAddressError(OSError):
    """A name resolved to an address that is not public."""


async def proxy_hosts() -> frozenset[str]:
    """Host names of the proxies that the environment sets."""
    proxies = await asyncio.to_thread(urllib.request.getproxies)
    hosts = (_host(proxy) for proxy in proxies.values())
    return frozenset(host for host in hosts if host)


def _host(proxy: str) -> str | None:
    try:
        return URL(proxy if "://" in proxy else f"http://{proxy}").host
    except ValueError:
        return None
