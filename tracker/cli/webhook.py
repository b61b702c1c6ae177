"""`lowmark webhook`: periods that are complete, posted to a URL."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tracker.cli.common import (
    EXIT_TIMED_OUT,
    PipelineName,
    SegmentName,
    exit_when_told,
    fail,
    write_secret,
)
from tracker.cli.periods import Every, Since, periods_by
from tracker.client.moments import parse_duration_ns
from tracker.consumers.periods.signing import new_secret
from tracker.consumers.periods.webhook import Patience, Webhook
from tracker.errors import Code, UnavailableError


def secret(
    out: Annotated[Path, typer.Option(help="new file for the secret, which is shown nowhere else")],
) -> None:
    """Make a secret that messages are signed with, for the sender and for the receiver."""
    write_secret(out, new_secret())


def follow(
    context: typer.Context,
    pipeline: PipelineName,
    url: Annotated[
        str,
        typer.Option(
            envvar="LOWMARK_WEBHOOK_URL", help="where to post: https://reports.example/hours"
        ),
    ],
    secret_file: Annotated[
        Path, typer.Option(help="file of secrets, one a line: `lowmark webhook secret` makes one")
    ],
    record: Annotated[str, typer.Option(help="the webhook's own file: which period is next")],
    every: Every = "1h",
    segment: SegmentName = None,
    since: Since = None,
    give_up_after: Annotated[
        str, typer.Option(help="end when one period was not taken in so long: 24h, 10m")
    ] = "24h",
    answer_within: Annotated[
        str, typer.Option(help="how long one attempt may take, with its answer: 10s")
    ] = "10s",
    receiver_ca: Annotated[
        str,
        typer.Option(help="PEM file of the CA of the receiver's certificate; else the system's"),
    ] = "",
    plain: Annotated[
        bool, typer.Option("--plain", help="allow http to another machine, which anybody can read")
    ] = False,
    timeout: Annotated[
        float | None, typer.Option(min=0, help="end after so many seconds without a period")
    ] = None,
) -> None:
    """Post a signed message for each period when it is complete, in order, none skipped, until the
    receiver has answered with 2xx. Until SIGTERM, --timeout, or the end of the pipeline."""
    exit_when_told()
    patience = Patience(
        attempt_s=parse_duration_ns(answer_within) / 1e9,
        give_up_s=parse_duration_ns(give_up_after) / 1e9,
    )
    webhook = Webhook(url, secret_file, ca=receiver_ca, patience=patience, plain=plain)
    with periods_by(context, pipeline, segment, every, record, since) as periods:
        try:
            periods.run(webhook, timeout_s=timeout)
        except UnavailableError as error:
            if error.code != Code.UNAVAILABLE_RECEIVER:
                raise
            fail(error, EXIT_TIMED_OUT)
