"""Recording rules: counts of windows, burn rates, baselines, costs."""
