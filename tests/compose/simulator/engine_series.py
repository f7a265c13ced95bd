"""Reads the series of a simulated engine."""

import aiohttp
from prometheus_client.parser import text_string_to_metric_families


async def value(client: aiohttp.ClientSession, name: str, **labels: str) -> float:
    """The sum of the samples with this name and these labels."""
    async with client.get("/metrics") as response:
        families = text_string_to_metric_families(await response.text())
        samples = [sample for family in families for sample in family.samples if sample.name == name]
    return sum(sample.value for sample in samples if labels.items() <= sample.labels.items())
