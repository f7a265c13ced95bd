"""A rolling update of replicas under load, with the flags, the hook and the stop order of the Helm chart."""
