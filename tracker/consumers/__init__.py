"""What is built on min time for those who wait for completeness: runs of a job, periods, callbacks."""

from __future__ import annotations
