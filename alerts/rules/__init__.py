"""Rules as values: expressions, groups, labels of a fleet, annotations and their text."""
