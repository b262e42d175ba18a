import os

from hypothesis import settings

pytest_plugins = ["tests.fixtures.postgres", "tests.fixtures.lakes", "tests.fixtures.spark"]

# Every Java that the tests start runs a few small queries: it need not compile them twice, nor collect in threads.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

# How long an example takes says how busy the machine is.
settings.register_profile("lakelog", deadline=None)
settings.load_profile("lakelog")
