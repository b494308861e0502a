"""Whether a request that calls itself a vendor's crawler came from that vendor.

A user agent proves nothing. An address does, if it lies in a range that the vendor publishes, or if its name by reverse
DNS lies in the vendor's domain and that name leads back to the address. The site's owner gives ranges and domains.
"""

import ipaddress
import re
import socket
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol, TypeVar

from canaryjax.detector.edge.request_log import RequestRow
from canaryjax.detector.own_file import read_yaml
from canaryjax.errors import UserError

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
KEYS = ("agents", "hosts", "ranges")
LOOKUP_SECONDS = 5.0  # of one question to DNS; a resolver that is silent for longer is taken to have no answer
MOST_NAMES = 8  # of one address that are looked up: whoever owns an address can give it any number of names
MAPPED = ipaddress.IPv6Network("::ffff:0:0/96")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Crawler:
    """What is known of one vendor's crawlers.

    Attributes:
      vendor: Its name in the request log.
      agents: Parts of a user agent that claim to be one, ASCII, any case.
      hosts: Domains that their addresses' names lie in.
      ranges: Networks that their addresses lie in.
    """

    vendor: str
    agents: tuple[str, ...]
    hosts: tuple[str, ...]
    ranges: tuple[Network, ...]


@dataclass(frozen=True)
class Verification:
    """Whether an address is a vendor's, how that was shown, and why not."""

    verified: bool
    how: Literal["range", "reverse DNS"] | None
    reason: str | None


class Resolver(Protocol):
    """Answers of DNS; each raises OSError where there is none."""

    def names(self, address: str) -> Sequence[str]: ...
    def addresses(self, name: str) -> Sequence[str]: ...


class SocketResolver:
    """The system's resolver, with a limit on each question."""

    def names(self, address: str) -> Sequence[str]:
        """Names of an address, by reverse DNS."""
        name, others, _ = _within(LOOKUP_SECONDS, lambda: socket.gethostbyaddr(address))
        return [name, *others]

    def addresses(self, name: str) -> Sequence[str]:
        """Addresses of a name, IPv4 and IPv6."""
        found = _within(LOOKUP_SECONDS, lambda: socket.getaddrinfo(name, None, type=socket.SOCK_STREAM))
        return [str(entry[4][0]) for entry in found]


def _within(seconds: float, call: Callable[[], Result]) -> Result:
    """The result of a call, or TimeoutError; the system's lookups take no time limit of their own."""
    results: list[Result] = []
    errors: list[OSError | UnicodeError] = []

    def work() -> None:
        try:
            results.append(call())
        except (OSError, UnicodeError) as error:  # UnicodeError: a name that no DNS label can hold
            errors.append(error)

    # A daemon: a lookup that hangs must not keep the process alive.
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(seconds)
    if results:
        return results[0]
    if errors:
        raise OSError(str(errors[0])) from errors[0]
    raise TimeoutError("no answer in time")


@dataclass
class Verifier:
    """Verifies claims, each address once.

    Args:
      crawlers: As `read_crawlers` gives them.
      resolver: Asked about names; `SocketResolver()` asks the system.
    """

    crawlers: Sequence[Crawler]
    resolver: Resolver
    _known: dict[tuple[str, str], Verification] = field(default_factory=dict)

    def verify(self, ip: str | None, vendor: str) -> Verification:
        """Whether an address is a crawler of a vendor.

        DNS says what holds now: verify a log soon after it was written.
        Arguments: the address as the log has it, and the vendor whose crawler the user agent claimed.
        Raises UserError for a vendor that the list of crawlers does not have.
        """
        key = (ip or "", vendor)
        if key not in self._known:
            self._known[key] = self._examined(ip, self._crawler(vendor))
        return self._known[key]

    def _crawler(self, vendor: str) -> Crawler:
        for crawler in self.crawlers:
            if crawler.vendor == vendor:
                return crawler
        known = [crawler.vendor for crawler in self.crawlers]
        raise UserError(f"expected a vendor of crawlers.yaml, one of {known}, found {vendor!r}; add it or correct it")

    def _examined(self, ip: str | None, crawler: Crawler) -> Verification:
        address = address_of(ip)
        if address is None:
            return Verification(False, None, "the log has no address that can be read")
        if any(address in network for network in crawler.ranges):
            return Verification(True, "range", None)
        if not crawler.hosts:
            return Verification(
                False, None, "outside the vendor's ranges" if crawler.ranges else "nothing to verify by"
            )
        try:
            names = self.resolver.names(str(address))
        except OSError:
            return Verification(False, None, "reverse DNS has no answer")
        inside = [name for name in names[:MOST_NAMES] if _lies_in(name, crawler.hosts)]
        if not inside:
            return Verification(False, None, "its name lies outside the vendor's domains")
        if any(address in self._forward(name) for name in inside):
            return Verification(True, "reverse DNS", None)
        return Verification(False, None, "its name does not lead back to it")

    def _forward(self, name: str) -> set[Address]:
        try:
            return {address for text in self.resolver.addresses(name) if (address := address_of(text))}
        except OSError:
            return set()


def verified_fetches(rows: Iterable[RequestRow], vendor: str, verifier: Verifier) -> list[RequestRow]:
    """The rows that a verified crawler of a vendor fetched and that were answered with content."""
    return [
        row
        for row in rows
        if row.vendor == vendor and row.page_status < 400 and verifier.verify(row.ip, vendor).verified
    ]


def address_of(text: str | None) -> Address | None:
    """The address of a text, an IPv4 one also where it is written as IPv6; None for anything else.

    >>> address_of("::ffff:192.0.2.7")
    IPv4Address('192.0.2.7')
    """
    try:
        address = ipaddress.ip_address((text or "").strip())
    except ValueError:
        return None
    return (isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped) or address


def _lies_in(name: str, hosts: Sequence[str]) -> bool:
    host = name.rstrip(".").lower()
    return any(host == suffix or host.endswith(f".{suffix}") for suffix in hosts)


def read_crawlers(path: str | Path) -> tuple[Crawler, ...]:
    """Reads the list of crawlers: by vendor, `agents`, `hosts` and `ranges`, each a list, as `Crawler` has them.

    Raises:
      UserError: A file that cannot be read, an unknown key, a vendor without agents, or a range or domain that is
        malformed or would hold everybody.
    """
    found = read_yaml(Path(path), "vendors' crawlers")
    if not isinstance(found, dict) or not found:
        raise UserError(f"expected vendors, each with {', '.join(KEYS)}, in {path}, found none; see `read_crawlers`")
    return tuple(_crawler(str(vendor), entry, f"{vendor!s} in {path}") for vendor, entry in found.items())


def _crawler(vendor: str, entry: object, where: str) -> Crawler:
    if not re.fullmatch("[A-Za-z0-9._-]+", vendor):
        raise UserError(f"expected a vendor's name of letters, digits and . _ -, found {where}; rename it")
    if not isinstance(entry, dict) or set(entry) - set(KEYS):
        raise UserError(f"expected of {where} a mapping of {', '.join(KEYS)}, found other keys; correct it")
    lists = {key: entry.get(key) or [] for key in KEYS}
    for key, values in lists.items():
        if not isinstance(values, list) or not all(isinstance(value, str) and value.strip() for value in values):
            raise UserError(f"expected a list of texts as {key} of {where}, found something else; correct it")
    if not lists["agents"] or not all(agent.isascii() for agent in lists["agents"]):
        raise UserError(f"expected agents of {where}, in ASCII, found none or others; name parts of its user agents")
    return Crawler(
        vendor,
        tuple(lists["agents"]),
        tuple(_host(host, where) for host in lists["hosts"]),
        tuple(_network(text, where) for text in lists["ranges"]),
    )


def _host(text: str, where: str) -> str:
    host = text.strip().strip(".").lower()
    if not re.fullmatch(r"[a-z0-9-]+(\.[a-z0-9-]+)+", host):  # one label, such as com, would hold everybody
        raise UserError(f"expected a domain such as crawl.example.org as host of {where}, found {text!r}; correct it")
    return host


def _network(text: str, where: str) -> Network:
    try:
        network = ipaddress.ip_network(text.strip())
    except ValueError as error:
        raise UserError(f"expected ranges of {where} such as 192.0.2.0/24, found {error}; correct it") from None
    if isinstance(network, ipaddress.IPv6Network) and network.subnet_of(MAPPED):
        mapped = network.network_address.ipv4_mapped
        network = ipaddress.ip_network(f"{mapped}/{network.prefixlen - 96}")
    if network.prefixlen == 0:
        raise UserError(f"expected ranges of {where} of one vendor, found one that holds every address; correct it")
    return network
