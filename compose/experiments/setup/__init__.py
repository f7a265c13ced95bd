"""The experiment file, the folder of its results, and its cells."""
