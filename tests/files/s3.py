"""An S3 server of this process, on loopback, with a bucket."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from unittest.mock import patch
from uuid import uuid4

import boto3
from moto.moto_server.werkzeug_app import MotoRequestHandler
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

HOST = "127.0.0.1"


class OneAtATime:
    """An application that takes one request after the other. Moto looks whether an object is there (If-None-Match)
    before it puts it, without a lock, so that of two requests at once both would create it; S3 lets one."""

    def __init__(self, application: WSGIApplication) -> None:
        self._application = application
        self._turn = threading.Lock()

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> list[bytes]:
        with self._turn:
            return list(self._application(environ, start_response))


@contextmanager
def s3_bucket() -> Iterator[str]:
    """The location of an empty bucket, which this process and those it starts reach by their environment
    meanwhile, as programs of users do."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    application = OneAtATime(DomainDispatcherApplication(create_backend_app))
    server = make_server(HOST, 0, application, threaded=True, request_handler=MotoRequestHandler)
    serving = threading.Thread(target=server.serve_forever, daemon=True)
    serving.start()
    try:
        settings = {
            "AWS_ENDPOINT_URL": f"http://{HOST}:{server.server_port}",
            "AWS_ACCESS_KEY_ID": "tests",
            "AWS_SECRET_ACCESS_KEY": "tests",
            "AWS_DEFAULT_REGION": "us-east-1",
        }
        with patch.dict(os.environ, settings):
            name = f"tests-{uuid4().hex[:12]}"
            boto3.client("s3").create_bucket(Bucket=name)
            yield f"s3://{name}"
    finally:
        server.shutdown()
        serving.join()
        server.server_close()
