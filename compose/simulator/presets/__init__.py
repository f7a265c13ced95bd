"""Presets of GPUs and models, their files and variants, and the step model."""
