"""The request log, with one JSON object per request: writer and reader."""
