"""Hostile inputs of every kind, and what may come of them: the right result, or an error of Lakelog's."""

import contextlib
import random
import shutil
import traceback
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from lakelog import LakelogError
from tests.campaign.inputs import arguments, catalogs, logs, predicates, vectors
from tests.campaign.inputs.world import World

Input = Callable[[World, random.Random], object]
"""Tries one. Raises ``AssertionError`` for a result that is wrong."""

INPUTS: dict[str, tuple[Input, int]] = {
    "an action with a field that is none": (arguments.odd_action, 60),
    "files as an Arrow table that is odd": (arguments.odd_files, 30),
    "a schema that is none": (arguments.odd_schema, 40),
    "a table property": (arguments.odd_property, 30),
    "a name, a place or a URL": (arguments.odd_name, 40),
    "an argument of another type": (arguments.odd_argument, 60),
    "a time": (arguments.odd_time, 20),
    "a condition over values from the edges": (predicates.condition, 100),
    "a condition that is damaged": (predicates.damaged, 40),
    "a Delta log that is damaged before its import": (logs.before_import, 40),
    "a Delta log that is damaged beside its table": (logs.after_import, 20),
    "a checkpoint that is damaged": (logs.damaged_checkpoint, 30),
    "a footer that is damaged": (logs.damaged_footer, 6),
    "a deletion vector that is damaged": (vectors.damaged, 60),
    "a SQLite catalog that is damaged": (catalogs.damaged, 6),
    "a stored text on a terminal": (catalogs.on_a_terminal, 6),
}
"""By their names, with how often each comes beside the others."""


@dataclass(slots=True)
class Tried:
    tried: Counter[str] = field(default_factory=Counter)
    unclear: list[str] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)


def try_inputs(
    directory: Path, seed: int, count: int, kinds: Mapping[str, tuple[Input, int]], backend: str, url: str | None = None
) -> Tried:
    """So many of them, on a catalog of this database; that of a server is to be empty."""
    found = Tried()
    rng = random.Random(seed)
    names = rng.choices(list(kinds), [weight for _, weight in kinds.values()], k=count)
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, directory, ignore_errors=True)
        world = stack.enter_context(World(directory, backend, url))
        # For paths that begin nowhere.
        stack.enter_context(contextlib.chdir(directory))
        for number, name in enumerate(names):
            found.tried[name] += 1
            told = f"{name} ({backend}, seed {seed}, number {number})"
            try:
                kinds[name][0](world, rng)
            except LakelogError:
                pass
            except AssertionError as wrong:
                found.findings.append(f"{told}: {wrong}"[:1500])
            except Exception as error:
                where = traceback.format_exc()[-1500:]
                found.unclear.append(f"{told}: {type(error).__name__}: {error}\n{where}")
    return found
