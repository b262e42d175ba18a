"""``format("lakelog")``: planning and commit in processes that Spark starts, rows through pyarrow in its tasks."""
