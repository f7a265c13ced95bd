"""The engine's side: its own metrics in one vocabulary, and the flips of its configuration."""
