"""The configuration of Alertmanager: routes, receivers, inhibition."""
