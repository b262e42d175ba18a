"""Deletion vectors whose bytes, or what the log says of them, are not what they were."""

import dataclasses
import random

import pyarrow.fs as pf

from lakelog.log.deletion_vectors import FileVector
from tests.campaign.inputs.arguments import TEXTS
from tests.campaign.inputs.world import World
from tests.fixtures.vectors import inline, stored


def damaged(world: World, rng: random.Random) -> None:
    rows = sorted(rng.sample(range(rng.choice((10, 70_000, 1 << 33))), rng.choice((1, 5))))
    place = world.place()
    in_log = rng.random() < 0.4
    vector = inline(rows) if in_log else stored(place, rows)[0]
    spoiled = False
    if in_log or rng.random() < 0.5:
        name = rng.choice(("path_or_inline_dv", "offset", "size_in_bytes", "cardinality", "storage_type"))
        odd = {
            "path_or_inline_dv": _changed(vector.path_or_inline_dv, rng),
            "offset": rng.choice((0, 2, 10**9, None)),
            "size_in_bytes": rng.choice((0, 1, vector.size_in_bytes + 4, 10**9)),
            "cardinality": rng.choice((0, len(rows) + 1, 2**40)),
            "storage_type": rng.choice(("u", "p", "i", "x")),
        }[name]
        spoiled = odd != getattr(vector, name) and not (name == "offset" and odd is None)
        vector = dataclasses.replace(vector, **{name: odd})
    else:
        (file,) = place.rglob("*.bin")
        data = bytearray(file.read_bytes())
        for _ in range(rng.choice((1, 1, 4))):
            if data:
                at = rng.randrange(len(data))
                if rng.random() < 0.2:
                    del data[at:]
                else:
                    data[at] ^= 1 << rng.randrange(8)
        file.write_bytes(data)
    known = FileVector(file="a.parquet", rows=rng.choice((None, 1 << 34)), root=place.as_uri(), vector=vector)
    found = known.read(_open).tolist()
    assert found == rows or (spoiled and in_log), f"rows {found[:5]} instead of {rows}, of {vector}"


def _open(uri: str) -> object:
    system, path = pf.FileSystem.from_uri(uri)
    return system.open_input_file(path)


def _changed(text: str, rng: random.Random) -> str:
    at = rng.randrange(len(text) + 1)
    return rng.choice((text[:at] + rng.choice("0aZ~\u00e9") + text[at + 1 :], text[:at], rng.choice(TEXTS)))
