"""Events of a web shop that does not exist: a few late, a few broken, a few sent twice. The same for the same seed."""

from dataclasses import dataclass
from datetime import date, timedelta
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

COUNTRIES = ("DE", "FR", "IT", "ES", "PL", "NL", "SE", "AT", "DK", "PT")
FIRST_DAY = date(2026, 3, 1)
DELIVERIES = 10
"""One a day."""
RELEASE = 5
"""The delivery from which on the shop's new app sends the device, and users whose ids need more than 32 bits."""

_TYPES = ("view",) * 7 + ("cart",) * 2 + ("purchase",)
_DEVICES = ("phone", "phone", "desktop", "tablet")
_LATEST_DAYS = 3
_FILES = 2
"""Files of a delivery, besides those of what is sent again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shop:
    """What the shop sends: so many events, in deliveries from 0 on."""

    rows: int
    seed: int = 2026

    def lines(self, spark: "SparkSession", first: int, last: int) -> "DataFrame":
        """Some deliveries line by line, each with its flaw: late, repeated, cut, price, country, or none."""
        events = spark.range(0, self.rows, 1, DELIVERIES * _FILES).select(
            "id",
            F.floor(F.col("id") * DELIVERIES / self.rows).cast("int").alias("number"),
            self._flaw(self._draw("flaw", 1000)).alias("flaw"),
        )
        # Some telephone had no answer, and sends its event again the next day.
        repeated = F.array("number", F.least(F.col("number") + 1, F.lit(DELIVERIES - 1)))
        sent = F.when(F.col("flaw") == "repeated", repeated).otherwise(F.array("number"))
        events = events.withColumn("delivery", F.explode(sent)).where(F.col("delivery").between(first, last))
        return events.select(_day(F.col("delivery")).alias("delivery"), "flaw", self._line().alias("value"))

    def deliver(self, spark: "SparkSession", landing: str, first: int, last: int) -> None:
        """Some deliveries as files of JSON lines, in a directory for each day."""
        lines = self.lines(spark, first, last).select("delivery", "value")
        lines.write.mode("append").partitionBy("delivery").text(landing)

    def planted(self, spark: "SparkSession") -> dict[str, int]:
        """How many lines there are with each flaw. Both copies of a repeated event count."""
        return {row.flaw: row["count"] for row in self.lines(spark, 0, DELIVERIES).groupBy("flaw").count().collect()}

    def _flaw(self, draw: "Column") -> "Column":
        flaw = F.when(draw < 3, "cut").when(draw < 6, "price").when(draw < 8, "country")
        return flaw.when(draw < 18, "repeated").when(draw < 48, "late").otherwise("none")

    def _line(self) -> "Column":
        released = F.col("number") >= RELEASE
        flaw = F.col("flaw")
        users = self._draw("user", 200_000)
        cents = self._draw("price", 20_000) + 99
        late = F.when(flaw == "late", 1 + self._draw("late", _LATEST_DAYS)).otherwise(0)
        start = F.unix_timestamp(_day(F.col("number") - late))
        event = F.struct(
            F.lower(F.hex(F.xxhash64("id", F.lit(self.seed)))).alias("event_id"),
            F.when(released & (users % 5 == 0), users + 2**31).otherwise(users).alias("user_id"),
            self._one_of(_TYPES, "type").alias("type"),
            F.when(flaw == "price", "free")
            .otherwise((cents / 100).cast("decimal(10,2)").cast("string"))
            .alias("price"),
            F.when(flaw == "country", "??").otherwise(self._one_of(COUNTRIES, "country")).alias("country"),
            F.timestamp_seconds(start + self._draw("second", 86_400)).alias("event_time"),
            F.when(released, self._one_of(_DEVICES, "device")).alias("device"),
        )
        line = F.to_json(event)
        return F.when(flaw == "cut", F.substring(line, 1, 70)).otherwise(line)

    def _draw(self, what: str, below: int) -> "Column":
        """A whole number from 0 on, at random but always the same."""
        return F.pmod(F.xxhash64("id", F.lit(self.seed), F.lit(what)), F.lit(below))

    def _one_of(self, values: tuple[str, ...], what: str) -> "Column":
        return F.element_at(F.array(*map(F.lit, values)), (1 + self._draw(what, len(values))).cast("int"))


def day(delivery: int) -> date:
    return FIRST_DAY + timedelta(days=delivery)


def _day(delivery: "Column") -> "Column":
    return F.date_add(F.lit(FIRST_DAY), delivery.cast("int"))
