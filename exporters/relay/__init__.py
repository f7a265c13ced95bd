"""The relay process: bytes through, times and verdicts out."""
