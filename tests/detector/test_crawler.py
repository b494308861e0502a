"""Which requests are a vendor's own: by range, by reverse DNS that leads back, never by user agent (SD-A10)."""

import socket
import threading
from datetime import UTC, datetime

import pytest

from canaryjax.detector.edge import crawler as crawler_module
from canaryjax.detector.edge.crawler import SocketResolver, Verifier, address_of, read_crawlers, verified_fetches
from canaryjax.detector.edge.request_log import RequestRow
from canaryjax.errors import UserError

CRAWLERS = """
example:
  agents: [ExampleBot, Example-Reader]
  hosts: [crawl.example.org., Bots.Example.COM]
  ranges: [192.0.2.0/25, "2001:db8:5::/48", "::ffff:198.51.100.0/120", 203.0.113.77]
ranges-only:
  agents: [Other]
  ranges: [198.51.100.0/24]
names-only:
  agents: [Third]
  hosts: [third.example]
nothing:
  agents: [Fourth]
"""


class Zone:
    """DNS in a dict: names of addresses and addresses of names; counts what it is asked."""

    def __init__(self, names, addresses):
        self._names, self._addresses, self.asked = names, addresses, 0

    def names(self, address):
        self.asked += 1
        if address not in self._names:
            raise socket.herror(1, "Unknown host")
        return self._names[address]

    def addresses(self, name):
        self.asked += 1
        if name not in self._addresses:
            raise socket.gaierror(-2, "Name or service not known")
        return self._addresses[name]


ZONE = (
    {
        "198.51.100.7": ["a.crawl.example.org"],
        "198.51.100.8": ["A.Crawl.Example.org."],
        "198.51.100.9": ["evilcrawl.example.org", "crawl.example.org.evil.test"],
        "198.51.100.10": ["fake.crawl.example.org"],
        "198.51.100.11": ["gone.crawl.example.org"],
        "198.51.100.12": ["elsewhere.test", "b.bots.example.com"],
        "198.51.100.13": [],
        "198.51.100.14": [f"x{i}.test" for i in range(100)] + ["a.crawl.example.org"],
        "2001:db8:7::1": ["six.crawl.example.org"],
    },
    {
        "a.crawl.example.org": ["198.51.100.7", "198.51.100.14"],
        "A.Crawl.Example.org.": ["203.0.113.1", "198.51.100.8"],
        "evilcrawl.example.org": ["198.51.100.9"],
        "crawl.example.org.evil.test": ["198.51.100.9"],
        "fake.crawl.example.org": ["203.0.113.2"],
        "b.bots.example.com": ["::ffff:198.51.100.12"],
        "six.crawl.example.org": ["2001:0db8:0007:0000::0001"],
    },
)


@pytest.fixture
def crawlers(tmp_path):
    path = tmp_path / "crawlers.yaml"
    path.write_text(CRAWLERS)
    return read_crawlers(path)


@pytest.mark.parametrize(
    ("ip", "verified", "why"),
    [
        ("192.0.2.0", True, "range"),
        ("192.0.2.127", True, "range"),
        ("::ffff:192.0.2.5", True, "range"),
        ("::FFFF:C000:0205", True, "range"),
        ("2001:db8:5:ffff::1", True, "range"),
        ("203.0.113.77", True, "range"),
        ("192.0.2.128", False, "reverse DNS has no answer"),
        ("2001:db8:6::1", False, "reverse DNS has no answer"),
        ("203.0.113.76", False, "reverse DNS has no answer"),
        ("2001:db8:7::1", True, "reverse DNS"),
        (None, False, "no address"),
        ("", False, "no address"),
        ("unknown", False, "no address"),
        ("192.0.2.5:443", False, "no address"),
        ("192.0.2.5, 10.0.0.1", False, "no address"),
        ("192.0.02.5", False, "no address"),  # octal or decimal: it is not ours to guess
    ],
)
def test_addresses_and_ranges(crawlers, ip, verified, why):
    found = Verifier(crawlers, Zone(*ZONE)).verify(ip, "example")
    assert found.verified is verified
    assert why in (found.how if verified else found.reason)


def test_a_mapped_range_is_one_of_ipv4(crawlers):
    # ::ffff:198.51.100.0/120 is 198.51.100.0/24.
    zone = Zone({}, {})
    assert Verifier(crawlers, zone).verify("198.51.100.200", "example").how == "range"
    assert zone.asked == 0


@pytest.mark.parametrize(
    ("ip", "verified", "why"),
    [
        ("198.51.100.7", True, "reverse DNS"),
        ("198.51.100.8", True, "reverse DNS"),  # one of several addresses; any case, final dot
        ("198.51.100.9", False, "outside the vendor's domains"),  # ends alike, but is no part of the domain
        ("198.51.100.10", False, "does not lead back"),  # whoever owns an address can name it anything
        ("198.51.100.11", False, "does not lead back"),
        ("198.51.100.12", True, "reverse DNS"),
        ("198.51.100.13", False, "outside the vendor's domains"),
        ("198.51.100.14", False, "outside the vendor's domains"),  # a hundred names are not gone through
        ("198.51.100.99", False, "reverse DNS has no answer"),
    ],
)
def test_a_name_counts_if_it_leads_back(crawlers, ip, verified, why):
    named = next(one for one in crawlers if one.vendor == "example")
    only_names = crawler_module.Crawler("example", named.agents, named.hosts, ())
    found = Verifier([only_names], Zone(*ZONE)).verify(ip, "example")
    assert found.verified is verified
    assert why in (found.how if verified else found.reason)


def test_a_vendor_is_verified_by_its_own_list_alone(crawlers):
    verifier = Verifier(crawlers, Zone(*ZONE))
    assert verifier.verify("198.51.100.7", "ranges-only").how == "range"
    assert verifier.verify("192.0.2.5", "ranges-only").reason == "outside the vendor's ranges"
    assert verifier.verify("198.51.100.7", "names-only").reason == "its name lies outside the vendor's domains"
    assert verifier.verify("192.0.2.5", "nothing").reason == "nothing to verify by"
    with pytest.raises(UserError, match=r"one of .*'names-only'.*found 'else'"):
        verifier.verify("192.0.2.5", "else")


def test_an_address_is_looked_up_once(crawlers):
    zone = Zone(*ZONE)
    verifier = Verifier([one for one in crawlers if one.vendor == "names-only"], zone)
    for _ in range(3):
        verifier.verify("198.51.100.7", "names-only")
    assert zone.asked == 1


def row(ip, vendor="example", status=200):
    time = datetime(2031, 3, 10, tzinfo=UTC)
    return RequestRow(time, "/a", ip, "ExampleBot", vendor, None, None, None, status)


def test_fetches_of_verified_crawlers(crawlers):
    rows = [
        row("192.0.2.1"),
        row("192.0.2.200"),
        row("192.0.2.2", None),
        row("192.0.2.3", "nothing"),
        row("192.0.2.4", status=404),
    ]
    assert verified_fetches(rows, "example", Verifier(crawlers, Zone({}, {}))) == [rows[0]]


def test_the_systems_resolver_answers_for_this_machine():
    assert "127.0.0.1" in SocketResolver().addresses("localhost")


def test_a_lookup_that_hangs_is_given_up(crawlers, monkeypatch):
    never = threading.Event()
    monkeypatch.setattr(crawler_module, "LOOKUP_SECONDS", 0.05)
    monkeypatch.setattr(socket, "gethostbyaddr", lambda address: never.wait(5))
    found = Verifier(crawlers, SocketResolver()).verify("203.0.113.5", "example")
    never.set()
    assert (found.verified, found.reason) == (False, "reverse DNS has no answer")


def test_a_name_that_no_dns_label_holds_is_no_answer():
    with pytest.raises(OSError, match="label"):
        SocketResolver().addresses("a" * 70 + ".example.org")


def test_the_list_is_read(crawlers):
    assert [one.vendor for one in crawlers] == ["example", "ranges-only", "names-only", "nothing"]
    assert crawlers[0].agents == ("ExampleBot", "Example-Reader")
    assert crawlers[0].hosts == ("crawl.example.org", "bots.example.com")
    assert [str(network) for network in crawlers[0].ranges] == [
        "192.0.2.0/25",
        "2001:db8:5::/48",
        "198.51.100.0/24",
        "203.0.113.77/32",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected vendors"),
        ("[a, b]", "expected vendors"),
        ("a: [", "broken YAML near line 1"),
        ("a: {agents: [x]}\na: {agents: [y]}", "a key that stands twice"),  # the second would silently win
        ("a b: {agents: [x]}", "vendor's name"),
        ("a|b: {agents: [x]}", "vendor's name"),
        ("a: {agents: [x], host: [y.example]}", "other keys"),
        ("a: x", "other keys"),
        ("a: {hosts: [y.example]}", "found none or others"),
        ("a: {agents: [caf\u00e9]}", "found none or others"),
        ("a: {agents: x}", "a list of texts as agents"),
        ("a: {agents: [17]}", "a list of texts as agents"),
        ("a: {agents: ['']}", "a list of texts as agents"),
        ("a: {agents: [x], hosts: [com]}", "expected a domain"),
        ("a: {agents: [x], hosts: ['*.example.org']}", "expected a domain"),
        ("a: {agents: [x], ranges: [192.0.2.1/24]}", "host bits set"),
        ("a: {agents: [x], ranges: [192.0.2.0/33]}", "expected ranges"),
        ("a: {agents: [x], ranges: [example.org]}", "expected ranges"),
        ("a: {agents: [x], ranges: [0.0.0.0/0]}", "holds every address"),
        ("a: {agents: [x], ranges: ['::/0']}", "holds every address"),
        ("a: {agents: [x], ranges: ['::ffff:0:0/96']}", "holds every address"),
    ],
)
def test_a_bad_list_is_refused(tmp_path, text, message):
    path = tmp_path / "crawlers.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=message):
        read_crawlers(path)


def test_a_missing_list_is_refused(tmp_path):
    with pytest.raises(UserError, match="No such file"):
        read_crawlers(tmp_path / "none.yaml")


def test_ipv4_within_ipv6_is_ipv4():
    assert str(address_of(" ::ffff:192.0.2.7 ")) == "192.0.2.7"
    assert str(address_of("2001:DB8::1")) == "2001:db8::1"
    assert address_of("fe80::1%eth0") is not None
