"""All tests, and the programs of the checks."""

import os

# A JVM is started by a fork behind which Python runs on. Where calls of gRPC are under way, gRPC's own handlers for a fork
# abort that process (every third time on a busy machine: JAVA_GATEWAY_EXITED). Nothing here uses gRPC over a fork.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
