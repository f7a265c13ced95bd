"""The schedule of a run: phases, arrivals and requests, fixed before the first is sent."""
