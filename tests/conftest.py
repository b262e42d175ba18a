import os
import sys
from pathlib import Path

from hypothesis import settings

pytest_plugins = ["tests.fixtures.postgres", "tests.fixtures.lakes", "tests.fixtures.spark", "tests.fixtures.disk"]

# Every Java that the tests start runs a few small queries: it need not compile them twice, nor collect in threads.
JAVA_OPTIONS = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
# Made by ./dev. One that does not fit is passed over, which need not be said.
if (classes := Path(sys.prefix, "java-classes.jsa")).exists():
    JAVA_OPTIONS += [f'"-XX:SharedArchiveFile={classes}"', "-Xlog:cds*=off"]
os.environ.setdefault("SPARK_SUBMIT_OPTS", " ".join(JAVA_OPTIONS))

# How long an example takes says how busy the machine is.
settings.register_profile("lakelog", deadline=None)
settings.load_profile("lakelog")
