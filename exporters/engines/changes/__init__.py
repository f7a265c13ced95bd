"""Config changes of engines: detection and storage."""
