"""The request log: one JSON object a line for each request, how it is written and how it is read."""
