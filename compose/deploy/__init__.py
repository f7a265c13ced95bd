"""What Kubernetes needs of an SLO file: rendered values of the chart."""
