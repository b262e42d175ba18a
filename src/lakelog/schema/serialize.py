"""Arrow schemas as bytes, in the form that the catalog keeps."""

import pyarrow as pa

from lakelog.errors import ValidationError, Violation


def to_bytes(schema: pa.Schema) -> bytes:
    """The schema, with all its metadata, as an Arrow IPC schema message."""
    message: bytes = schema.serialize().to_pybytes()
    return message


def from_bytes(message: bytes) -> pa.Schema:
    """The inverse of ``to_bytes``. Bytes that hold no Arrow schema raise ``ValidationError``."""
    try:
        return pa.ipc.read_schema(pa.py_buffer(message))
    except (pa.ArrowException, OSError) as error:
        violation = Violation("schema", f"{len(message)} bytes cannot be read as an Arrow IPC schema message: {error}")
        raise ValidationError("schema", [violation]) from error
