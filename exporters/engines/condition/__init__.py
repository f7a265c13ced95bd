"""Is an engine starting, serving, saturated, wedged, paused or down? Evidence of both sides, and the rule."""
