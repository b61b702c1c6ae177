"""An S3 server of this process, on loopback, with a bucket."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch
from uuid import uuid4

import boto3
from moto.server import ThreadedMotoServer

HOST = "127.0.0.1"


@contextmanager
def s3_bucket() -> Iterator[str]:
    """The location of an empty bucket, which this process and those it starts reach by their environment
    meanwhile, as programs of users do."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(HOST, 0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        settings = {
            "AWS_ENDPOINT_URL": f"http://{host}:{port}",
            "AWS_ACCESS_KEY_ID": "tests",
            "AWS_SECRET_ACCESS_KEY": "tests",
            "AWS_DEFAULT_REGION": "us-east-1",
        }
        with patch.dict(os.environ, settings):
            name = f"tests-{uuid4().hex[:12]}"
            boto3.client("s3").create_bucket(Bucket=name)
            yield f"s3://{name}"
    finally:
        server.stop()
