"""Results of a run: records, summary, grades, exports."""
