"""The engine's own counts of tokens."""

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

COUNTERS = ("vllm:prompt_tokens_total", "vllm:generation_tokens_total", "vllm:prefix_cache_hits_total")


async def engine_counts(url: str) -> tuple[float, ...]:
    """The values of `COUNTERS`."""
    async with aiohttp.request("GET", f"{url}/metrics") as response:
        families = text_string_to_metric_families(await response.text())
    samples = [sample for family in families for sample in family.samples]
    return tuple(sum(sample.value for sample in samples if sample.name == name) for name in COUNTERS)
