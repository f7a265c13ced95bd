"""Results of queries as data frames, and what Grafana computes from them."""
