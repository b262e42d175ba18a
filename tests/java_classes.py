"""Makes an archive of the classes that Spark loads. Each Java that the tests start has them from there, sooner.

Started as a script with the archive's path, before the tests. Java itself refuses an archive of other classes.
"""

import os
import sys
import tempfile
from pathlib import Path


def main(archive: str) -> None:
    # Of the same kind as the Javas of the tests, see conftest.py.
    os.environ["SPARK_SUBMIT_OPTS"] = f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ArchiveClassesAtExit={archive}"
    import lakelog
    import lakelog.spark

    spark = lakelog.spark.session("classes", master="local[1]", config={"spark.sql.shuffle.partitions": "1"})
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        options = {"catalog": f"sqlite:///{place}/catalog.db", "root": str(place / "lake")}
        with lakelog.connect(options["catalog"], root=options["root"]) as lake:
            rows = spark.range(10).selectExpr("id", "id % 2 AS part", "'text' AS s")
            lakelog.write_dataset(lake, "one", rows, partition_by=["part"])
            one = lake.dataset("one")
            one.delete("id = 3")
            one.merge(rows.alias("n"), "t.id = n.id", alias="t").whenMatchedUpdateAll().execute()
            lakelog.read_dataset(lake, "one").groupBy("part").count().collect()
            stream = spark.readStream.format("lakelog").options(**options).load("one")
            writer = stream.writeStream.format("lakelog").options(**options).option("checkpointLocation", f"{place}/c")
            writer.trigger(availableNow=True).start("two").awaitTermination()
    java = spark.sparkContext._gateway.proc
    spark.stop()
    # It ends with its input, and writes the archive then.
    java.stdin.close()
    java.wait()


if __name__ == "__main__":
    main(sys.argv[1])
