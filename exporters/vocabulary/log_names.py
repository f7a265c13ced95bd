"""Names of fields in request logs of earlier releases."""

_OLD, _NEW = b'"endpoint":', b'"route":'


def renamed(line: bytes) -> bytes:
    """A line of a request log with `route` for the `endpoint` of 0.2.0; other lines are returned as they are.

    An SLO may have either name, but its verdict comes after the field.
    """
    old = line.find(_OLD)
    if old < 0 or 0 <= line.find(_NEW) < old:
        return line
    return line.replace(_OLD, _NEW, 1)
