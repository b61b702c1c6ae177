"""Airflow (3.3 or later): waiting for completeness without a worker, and an event for each complete period.

`hooks`: the connection type `lowmark`. `sensors`: `CompleteSensor`, which is deferred. `triggers`: `PeriodTrigger`,
what an asset's watcher waits by. `operators`: `ReleasePeriods`, which makes of it one event of a partition for each
period, exactly once. Nothing here is imported before Airflow asks for it: it looks for providers early.

Needs the package `apache-airflow-core` (`pip install 'lowmark[airflow]'`).
"""

from __future__ import annotations

from typing import Any


def get_provider_info() -> dict[str, Any]:
    """What Airflow's list of providers and its page of connections show. Its entry point is
    `apache_airflow_provider`."""
    return {
        "package-name": "lowmark",
        "name": "Lowmark",
        "description": "Up to which moment everything that entered a pipeline has been completely processed.",
        "connection-types": [
            {
                "connection-type": "lowmark",
                "hook-class-name": "lowmark.airflow.hooks.LowmarkHook",
                "hook-name": "Lowmark",
            }
        ],
    }
