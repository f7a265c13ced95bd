"""What a GPU and a model cost: presets, their files and variants, and the step model."""
