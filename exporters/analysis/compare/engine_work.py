"""The work of the engine in a window, from all requests of a log that overlap with it, however they ended."""

from collections.abc import Iterable

from exporters.analysis.compare.backlog import Backlog
from exporters.analysis.compare.request import Request
from exporters.analysis.estimates import figures
from exporters.analysis.estimates.block_means import Blocks, block_rate, block_ratio, edges
from exporters.analysis.estimates.event_estimates import Part, share
from exporters.analysis.estimates.figures import Figure, Measurement
from exporters.analysis.estimates.windows import Window
from exporters.vocabulary.signals import Outcome


def measure_work(requests: Iterable[Request], window: Window) -> dict[Figure, Measurement]:
    """Throughput by blocks: output tokens count evenly from the first token to the end, prompts at the first token."""
    arrived, ok, output, prompt, cached, decode, decoded = (Blocks(window) for _ in range(7))
    arrivals = with_output = with_prompt = with_decode = 0
    prompts: list[Part] = []
    for request in requests:
        if request.ended < window.start or request.arrived >= window.end:
            continue
        arrivals += window.contains(request.arrived)
        arrived.add(request.arrived, 1.0)
        ok.add(request.ended, float(request.outcome is Outcome.OK))
        if tokens := request.completion_tokens:
            since = request.served if request.served < request.ended else request.arrived
            with_output += output.spread(since, request.ended, tokens)
            if request.tpot is not None:
                decode.spread(since, request.ended, request.tpot * (tokens - 1))
                with_decode += decoded.spread(since, request.ended, tokens - 1)
        if request.prompt_tokens:
            hit = min(request.cached_tokens or 0, request.prompt_tokens)
            with_prompt += window.contains(request.served)
            prompt.add(request.served, request.prompt_tokens - hit)
            cached.add(request.served, hit)
            if window.contains(request.served) and request.cached_tokens is not None:
                prompts.append((request.served, float(hit), float(request.prompt_tokens)))
    return {
        figures.COMPLETED: Measurement(arrivals, block_ratio(ok.sums, arrived.sums)),
        figures.OUTPUT_TOKENS: Measurement(with_output, block_rate(window, output.sums)),
        figures.PROMPT_TOKENS: Measurement(with_prompt, block_rate(window, prompt.sums)),
        figures.CACHED_TOKENS: Measurement(len(prompts), block_rate(window, cached.sums)),
        figures.CACHE_HITS: share(window, prompts),
        figures.TPOT_MEAN: Measurement(with_decode, block_ratio(decode.sums, decoded.sums)),
    }


def backlog(requests: Iterable[Request], window: Window) -> Backlog:
    """The number of requests that wait at each edge of the blocks."""
    moments = edges(window)
    waiting = [0] * len(moments)
    arrivals = 0
    for request in requests:
        arrivals += window.contains(request.arrived)
        for index, at in enumerate(moments):
            waiting[index] += request.arrived <= at < request.served
    return Backlog(window, waiting, arrivals)
