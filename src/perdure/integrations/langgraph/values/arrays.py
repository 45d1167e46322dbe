"""Arrays of numpy, as LangGraph keeps them: type, shape and bytes."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from perdure.integrations.langgraph.values.kinds import Kind
from perdure.system.late_imports import loading

ARRAY = "ndarray"


class ArrayKind(Kind):
    """The kind of arrays of numbers, texts or times. Arrays of objects, or of records, are
    refused."""

    def __init__(self) -> None:
        super().__init__(ARRAY, object)

    def fields(self, value: Any) -> dict[str, Any]:
        fortran = value.flags.f_contiguous and not value.flags.c_contiguous
        order = "F" if fortran else "C"
        return {
            "dtype": value.dtype.str,
            "shape": list(value.shape),
            "order": order,
            "data": value.tobytes(order=order),
        }

    def build(self, fields: dict[str, Any]) -> Any:
        with loading:
            numpy: Any = importlib.import_module("numpy")  # by this name, not by one that was read
        dtype = numpy.dtype(str(fields["dtype"]))
        if dtype.hasobject:  # its bytes would be taken for addresses
            raise ValueError(f"an array of {dtype} is not plain data")
        found = numpy.frombuffer(fields["data"], dtype=dtype)
        order = fields["order"]
        return found.reshape(fields["shape"], order=order).copy(order=order)


ARRAYS = ArrayKind()


def is_array(value: Any) -> bool:
    """Returns True if a value is an array that can be kept as its bytes."""
    numpy: Any = sys.modules.get("numpy")
    if numpy is None or type(value) is not numpy.ndarray:
        return False
    return not value.dtype.hasobject and not value.dtype.names
