"""A table's story: what is done to it, step by step, and what is seen after each. It is JSON, and played twice: on
Lakelog's ``LakeTable`` here, and on ``delta.tables.DeltaTable`` in the process that has delta-spark, by the same code.

Nothing but PySpark is imported here, of whichever version.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

Story = dict[str, Any]
Step = dict[str, Any]
Seen = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """What the two do under other names."""

    spark: Any
    builder: Callable[[], Any]
    """For the story's table, which does not exist."""
    table: Callable[[], Any]
    """The table. One that was looked up before its schema changed may have the old one, as Delta's has."""
    append: Callable[[Any], None]
    add_constraint: Callable[[str, str], None]
    changes: Callable[[int], Any]
    """The change feed of one version."""
    kind: Callable[[Exception], str]
    """An error in a word."""


def play(side: Side, story: Story) -> list[Seen]:
    """What is seen after each step."""
    _create(side, story)
    for rows in story["files"]:
        side.append(frame_of(side.spark, rows, story.get("given", story["schema"])).coalesce(1))
    for name, expression in story.get("constraints", {}).items():
        side.add_constraint(name, expression)
    newest, seen = _newest(side.table()), []
    for step in story["steps"]:
        before, (found, newest) = newest, _seen(side, step, newest, is_told=_is_told(story))
        seen.append(found | {"versions": newest["version"] - before["version"]})
    return seen


def frame_of(spark: Any, rows: list[list[Any]], schema: str) -> Any:
    return spark.createDataFrame(rows, schema)


def _is_told(story: Story) -> bool:
    return story.get("properties", {}).get("delta.enableChangeDataFeed") == "true"


def _create(side: Side, story: Story) -> None:
    from pyspark.sql.types import StructType

    builder = side.builder()
    for field in StructType.fromDDL(story["schema"]):
        default = story.get("defaults", {}).get(field.name)
        if default is not None:
            field.metadata["CURRENT_DEFAULT"] = default
            builder = builder.addColumns([field])
        else:
            builder = builder.addColumn(
                field.name,
                field.dataType,
                nullable=field.nullable,
                generatedAlwaysAs=story.get("generated", {}).get(field.name),
            )
    if story.get("partitioned"):
        builder = builder.partitionedBy(*story["partitioned"])
    for name, value in story.get("properties", {}).items():
        builder = builder.property(name, value)
    builder.execute()


def _seen(side: Side, step: Step, before: Any, *, is_told: bool) -> tuple[Seen, Any]:
    """What is seen, and the newest commit."""
    seen: Seen = {"step": step, "error": None, "answer": None}
    try:
        answer = _DOINGS[step["do"]](side, side.table(), step)
    except Exception as error:
        seen |= {"error": side.kind(error), "said": f"{type(error).__name__}: {error}"[:1500]}
    else:
        seen["answer"] = None if answer is None else _answer(answer)
    newest, frame = _newest(side.table()), side.table().toDF()
    is_new = newest["version"] > before["version"]
    seen |= {
        "rows": texts(frame),
        "schema": [[field.name, field.dataType.simpleString()] for field in frame.schema],
        "operation": newest["operation"] if is_new else None,
        "metrics": dict(newest["operationMetrics"] or {}) if is_new else {},
        "changes": texts(_plain_changes(side.changes(newest["version"]))) if is_new and is_told else [],
    }
    return seen, newest


def texts(frame: Any) -> list[str]:
    """Rows as JSON with every null in it, in an order of their own."""
    from pyspark.sql import functions as F

    return sorted(row[0] for row in frame.select(F.to_json(F.struct("*"), {"ignoreNullFields": "false"})).collect())


def _answer(frame: Any) -> Any:
    return (
        frame
        if isinstance(frame, dict)
        else {
            "columns": [[field.name, field.dataType.simpleString()] for field in frame.schema],
            "rows": [row.asDict(recursive=True) for row in frame.collect()],
        }
    )


def _newest(table: Any) -> Any:
    return table.history(1).collect()[0]


def _plain_changes(frame: Any) -> Any:
    return frame.drop("_commit_version", "_commit_timestamp")


def _delete(side: Side, table: Any, step: Step) -> Any:
    return table.delete(step["condition"])


def _update(side: Side, table: Any, step: Step) -> Any:
    return table.update(step["condition"], step["set"])


def _merge(side: Side, table: Any, step: Step) -> Any:
    source = frame_of(side.spark, step["source"], step["schema"]).alias("s")
    merge = table.alias("t").merge(source, step["condition"])
    if step.get("evolves"):
        merge = merge.withSchemaEvolution()
    clauses = step["clauses"]
    return reduce(lambda builder, clause: getattr(builder, clause[0])(**clause[1]), clauses, merge).execute()


def _append(side: Side, table: Any, step: Step) -> None:
    side.append(frame_of(side.spark, step["source"], step["schema"]).coalesce(1))


def _constrain(side: Side, table: Any, step: Step) -> None:
    side.add_constraint(step["name"], step["expression"])


def _restore(side: Side, table: Any, step: Step) -> Any:
    return table.restoreToVersion(step["version"])


def _optimize(side: Side, table: Any, step: Step) -> Any:
    builder = table.optimize()
    if step.get("condition"):
        builder = builder.where(step["condition"])
    return builder.executeZOrderBy(*step["zorder"]) if step.get("zorder") else builder.executeCompaction()


def _vacuum(side: Side, table: Any, step: Step) -> Any:
    return table.vacuum(step["hours"])


def _generate(side: Side, table: Any, step: Step) -> Any:
    """How many files each list has, by partition."""
    assert table.generate(step["mode"]) is None
    root = Path(table.detail().collect()[0]["location"].removeprefix("file:"), f"_{step['mode']}")
    return {str(each.relative_to(root)): len(each.read_text().split()) for each in root.rglob("manifest")}


def _history(side: Side, table: Any, step: Step) -> Any:
    return table.history(step.get("limit")).drop("timestamp")


def _detail(side: Side, table: Any, step: Step) -> Any:
    return table.detail().drop("createdAt", "lastModified")


_DOINGS: dict[str, Callable[[Side, Any, Step], Any]] = {
    "delete": _delete,
    "update": _update,
    "merge": _merge,
    "append": _append,
    "constrain": _constrain,
    "restore": _restore,
    "optimize": _optimize,
    "vacuum": _vacuum,
    "generate": _generate,
    "history": _history,
    "detail": _detail,
}
