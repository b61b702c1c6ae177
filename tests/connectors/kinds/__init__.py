"""All connectors: one that is named here has its rows in `make connectors`."""

from tests.connectors.connector import Connector
from tests.connectors.kinds.files import FilesInHdfs, FilesOnS3

CONNECTORS: tuple[type[Connector], ...] = (FilesInHdfs, FilesOnS3)

__all__ = ["CONNECTORS"]
