"""All connectors: one that is named here has its rows in `make connectors`."""

from tests.connectors.connector import Connector
from tests.connectors.kinds.files import FilesInHdfs, FilesOnS3
from tests.connectors.kinds.kafka import FromKafka
from tests.connectors.kinds.kafka_sink import IntoKafka
from tests.connectors.kinds.tables import DeltaOnS3, IcebergOnS3

CONNECTORS: tuple[type[Connector], ...] = (
    FilesInHdfs, FilesOnS3, FromKafka, IntoKafka, DeltaOnS3, IcebergOnS3,
)  # fmt: skip

__all__ = ["CONNECTORS"]
