"""Reads the engines' metrics pages into one vocabulary, and detects changes of their configuration."""
