"""Writes code_v1.json beside itself: golden vectors of the canary code, from nothing but hmac and hashlib.

Run it only for a new version of the spec: `python tests/detector/golden/make_code_v1.py`. It does not import
canaryjax, so that the vectors are an oracle of their own for the Python and the JavaScript code.
"""

import hashlib
import hmac
import json
import random
from pathlib import Path

PREFIX = "canaryjax-canary/1/"
# For tests alone; a live secret never stands in a repository.
SECRETS = {
    "seed": "golden-seed-0123456789abcdef",
    "control_seed": "golden-control-seed-0123456789abcdef",
    "edge_secret": "golden-edge-secret-0123456789abcdef",
}
POSITIONS = [0, 1, 2, 10, 299, 4095, 65537, 2**53 - 1]
EDGES = [
    ("vendor", "openai"),
    ("vendor", "common-crawl"),
    ("vendor", "société générale"),  # non-ASCII
    ("vendor", "soci\u0065\u0301te\u0301"),  # decomposed: labels are not normalised
    ("vendor", "\U0001f577"),  # outside the basic plane: two units in JavaScript, four bytes in UTF-8
    ("window", "2026-11-30T20"),
    ("window", "a/b/../c"),
    ("window", "x" * 300),
]
ARCHIVES = [16, 32, 64, 128, 256, 512, 1024, 2048, 4096]
YEARS = [[1503, 397], [1000, 2], [1900, 4096]]  # first year, number of years
SHAPES = [1, 3, 7]
OPENINGS = [1, 5, 11]
IDS = [
    0,
    1,
    42,
    0xFFF,
    0x1000,
    0x001002003FFF,
    2**32,
    2**47 - 1,
    2**47,
    0x800000000001,
    0xFFF000FFF000,
    2**48 - 1,
]


def identify(secret, kind, label):
    mac = hmac.new(SECRETS[secret].encode(), f"{PREFIX}{kind}/{label}".encode(), hashlib.sha256).digest()
    return f"{int.from_bytes(mac[:6], 'big'):012x}"


def check(kind, id, size):
    digest = hashlib.sha256(f"{PREFIX}{kind}/".encode() + id.to_bytes(6, "big")).digest()
    return int.from_bytes(digest[:2], "big") % size


def describe(id):
    return {
        "id": f"{id:012x}",
        "given": id >> 36,
        "surname": (id >> 24) % 4096,
        "place": (id >> 12) % 4096,
        "event": id % 4096,
        "archive": {str(size): check("archive", id, size) for size in ARCHIVES},
        "year": [first + check("year", id, years) for first, years in YEARS],
        "shape": {str(size): check("shape", id, size) for size in SHAPES},
        "opening": {str(size): check("opening", id, size) for size in OPENINGS},
    }


def golden():
    derived = [{"kind": "static", "position": p, "id": identify("seed", "static", p)} for p in POSITIONS]
    derived += [{"kind": "negative", "position": p, "id": identify("control_seed", "negative", p)} for p in POSITIONS]
    derived += [{"kind": tier, "label": label, "id": identify("edge_secret", tier, label)} for tier, label in EDGES]
    draw = random.Random(5).random
    ids = IDS + [int(entry["id"], 16) for entry in derived] + [int(draw() * 2**48) for _ in range(40)]
    return {
        "header": "Golden vectors of the canary code, spec v1; made by make_code_v1.py beside this file; test secrets",
        "version": 1,
        "secrets": SECRETS,
        "fingerprints": {
            name: hmac.new(key.encode(), f"{PREFIX}fingerprint".encode(), hashlib.sha256).digest()[:8].hex()
            for name, key in SECRETS.items()
        },
        "years": YEARS,
        "derived": derived,
        "codes": [describe(id) for id in ids],
    }


def main():
    path = Path(__file__).with_name("code_v1.json")
    path.write_text(json.dumps(golden(), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
