"""What all parts share: series and labels, the SLO file, verdicts, plausible values of engines."""
