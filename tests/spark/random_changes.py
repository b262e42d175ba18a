"""What is done to a table of random types: rows, assignments and clauses of merges, out of one random generator."""

from random import Random

import pyarrow as pa

from tests.model.expressions import ASSIGNED, KINDS, Condition, Expressions, Joined, Leaf, Named
from tests.spark.plain_rows import Clause


class Draws:
    """Chooses a table's columns, and then what is done to it."""

    def __init__(self, random: Random) -> None:
        self._random = random
        some = random.sample(sorted(KINDS), random.randint(5, 8))
        # Two of some types, to be compared with each other.
        self.kinds = {"id": "bigint"} | {f"{kind}1": kind for kind in some}
        self.kinds |= {f"{kind}2": kind for kind in random.sample(some, 2)}
        self.kinds.setdefault("timestamp1", "timestamp")
        self.schema = pa.schema([(name, KINDS[kind].type) for name, kind in self.kinds.items()])
        can_part = [name for name, kind in self.kinds.items() if KINDS[kind].partitions and name != "id"]
        self.partitions = random.sample(can_part, random.choice((0, 0, 1, 1, 2)))
        self.expressions = Expressions(random, self.columns())
        self._last_id = 0

    def condition(self) -> Condition:
        return self.expressions.condition()

    @property
    def targets(self) -> dict[str, str]:
        """The types of everything that can be set."""
        return self.kinds | {
            f"{name}.{inner}": kind
            for name, outer in self.kinds.items()
            if outer == "struct"
            for inner, kind in (("a", "int"), ("b", "string"))
        }

    def columns(self, alias: str = "") -> list[Named]:
        return [Named(alias + name, kind) for name, kind in self.kinds.items()]

    def assignments(self, expressions: Expressions) -> dict[str, str]:
        """New values for some columns, a third of them of another type; never for a struct and for a field of it."""
        names = self._random.sample([name for name in self.targets if name != "id"], self._random.randint(1, 3))
        names = [name for name in names if name.partition(".")[0] not in {each for each in names if each != name}]
        return {name: self._value(expressions, self.targets[name]) for name in names or ["timestamp1"]}

    def _value(self, expressions: Expressions, kind: str) -> str:
        other = kind in ASSIGNED and self._random.random() < 0.35
        return expressions.of(self._random.choice(ASSIGNED[kind]) if other else kind)

    def clauses(self) -> list[Clause]:
        both = Expressions(self._random, [*self.columns("t."), *self.columns("s.")], fragile=0.05)
        table = Expressions(self._random, self.columns("t."), fragile=0.05)
        source = Expressions(self._random, self.columns("s."), fragile=0.05)
        found = []
        several = (0, 1, 2)
        asked = (("matched", both, several), ("not matched", source, several), ("by source", table, (0, 0, 1, 2)))
        for when, expressions, numbers in asked:
            for left in reversed(range(self._random.choice(numbers))):
                condition = expressions.condition(2) if left or self._random.random() < 0.4 else None
                if when == "not matched":
                    values = {name: f"s.{name}" for name in self.kinds}
                    values |= {name: self._value(source, self.kinds[name]) for name in self._some_columns()}
                    found.append(Clause(when, "insert", condition, values))
                elif self._random.random() < 0.3:
                    found.append(Clause(when, "delete", condition))
                else:
                    found.append(Clause(when, "update", condition, self.assignments(expressions)))
        return found or [Clause("matched", "delete")]

    def _some_columns(self) -> list[str]:
        return self._random.sample([name for name in self.kinds if name != "id"], 2)

    def merge_condition(self) -> Condition:
        both = Expressions(self._random, [*self.columns("t."), *self.columns("s.")], fragile=0.03)
        keys = [f"t.{name} = s.{name}" for name, kind in self.kinds.items() if kind in ("string", "date", "int")]
        keys += [f"t.timestamp1 = CAST(s.{name} AS TIMESTAMP)" for name, kind in self.kinds.items() if kind == "ntz"]
        keys += [f"CAST(t.timestamp1 AS DATE) = s.{name}" for name, kind in self.kinds.items() if kind == "date"]
        key = "t.id = s.id" if self._random.random() < 0.7 or not keys else self._random.choice(keys)
        return Leaf(key) if self._random.random() < 0.6 else Joined("AND", Leaf(key), both.condition(1))

    def source(self, rows: pa.Table) -> pa.Table:
        """Rows of which half have the id of a row of the table."""
        source = self.rows(self._random.randint(2, 6))
        known = rows.column("id").to_pylist()
        chosen = iter(self._random.sample(known, min(len(known), 6)))
        ids = [next(chosen, one) if self._random.random() < 0.6 else one for one in source.column("id").to_pylist()]
        return source.set_column(0, self.schema.field(0), pa.array(ids, pa.int64()))

    def rows(self, count: int) -> pa.Table:
        """Rows whose values are from few of a type's edges, so that files differ."""
        columns = []
        for name, kind in self.kinds.items():
            if name == "id":
                columns.append(pa.array(range(self._last_id + 1, self._last_id + 1 + count), pa.int64()))
                continue
            edges = [edge for edge in KINDS[kind].edges if self._fits(name, edge)]
            few = [None, *self._random.sample(edges, min(3, len(edges)))]
            columns.append(KINDS[kind].array([self._random.choice(few) for _ in range(count)]))
        self._last_id += count
        return pa.table(columns, self.schema)

    def _fits(self, name: str, edge: object) -> bool:
        return name not in self.partitions or KINDS[self.kinds[name]].names_a_directory(edge)
