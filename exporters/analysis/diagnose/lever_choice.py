"""Chooses the first lever for what binds a class, and says why this one."""

from dataclasses import dataclass

from exporters.analysis.diagnose import levers, thresholds
from exporters.analysis.diagnose.evidence import ClassEvidence, EngineEvidence, Fact, Quantity, spell
from exporters.analysis.diagnose.levers import Lever


@dataclass(frozen=True, slots=True)
class Choice:
    """A lever and the reason why it is the first."""

    lever: Lever
    why: str


@dataclass(frozen=True, slots=True)
class _Hits:
    possible: Fact
    actual: Fact
    said: str


def _of_class(of: ClassEvidence, engine: EngineEvidence) -> _Hits:
    actual = engine.cache_hits if of.actual_hits.value is None else of.actual_hits
    return _Hits(of.possible_hits, actual, of.say("possible_hits"))


def _of_all(engine: EngineEvidence) -> _Hits:
    """Requests of all classes share the queue and the KV cache, so each gains from the hits of the others."""
    return _Hits(engine.possible_hits, engine.cache_hits, engine.say("possible_hits"))


def for_queue(of: ClassEvidence, engine: EngineEvidence) -> Choice:
    """Requests wait for the engine's scheduler."""
    return (
        _reuse(of, _of_all(engine), engine)
        or _batch_limit(of, engine)
        or _long_prompts(of, engine)
        or Choice(
            levers.MORE_ENGINES,
            f"requests arrive faster than the engine serves them: {engine.say('waiting')}, {engine.say('kv_use')}",
        )
    )


def for_prefill(of: ClassEvidence, engine: EngineEvidence) -> Choice:
    """Requests wait while their prompts are computed."""
    if choice := _reuse(of, _of_class(of, engine), engine):
        return choice
    if not of.prompt_p50.reaches(thresholds.LONG_PROMPT) and (choice := _long_prompts(of, engine)):
        return choice
    shared = of.say("possible_hits") if of.actual_hits.value is None else of.say("actual_hits")
    return Choice(levers.FASTER_PREFILL, f"the cache cannot save more of it: {of.say('prompt_p50')}, {shared}")


def for_kv(of: ClassEvidence, engine: EngineEvidence) -> Choice:
    """The KV cache is full."""
    choice = _reuse(of, _of_all(engine), engine)
    if choice and choice.lever is not levers.MORE_HITS:
        return choice
    if "fp8" not in engine.settings.get("cache_dtype", ""):
        dtype = engine.settings.get("cache_dtype", "unknown")
        return Choice(
            levers.FP8_KV, f"it doubles the tokens that fit; {engine.say('kv_capacity')}, cache_dtype {dtype}"
        )
    return Choice(levers.FEWER_SEQUENCES, f"the KV cache is in FP8 already; {engine.say('running')}")


def for_decode(of: ClassEvidence, engine: EngineEvidence) -> Choice:
    """Most of the time passes after the first token."""
    if _lacks_response_cache(of):
        return Choice(levers.RESPONSE_CACHE, of.say("repeated_bodies"))
    if of.stall_ratio.reaches(thresholds.STALLING) and _has_long_prompts(of):
        return _interference(of, engine, of.say("stall_ratio"))
    if engine.switch("enforce_eager"):
        return Choice(levers.CUDA_GRAPHS, "enforce_eager is on: each step launches its kernels from Python")
    floor, tpot = engine.tpot_floor.value, of.tpot.value
    if floor and tpot and tpot > thresholds.NEAR_FLOOR * floor:
        why = f"{of.say('tpot')} is {tpot / floor:.1f} times the {engine.say('tpot_floor')}"
        return Choice(levers.FEWER_SEQUENCES, f"{why}, so compute or KV reads limit each step, not the weights")
    if of.reasoning.reaches(thresholds.REASONING):
        return Choice(levers.SHORTER_REASONING, f"it precedes the answer: {of.say('reasoning')}")
    if _drafts_are_cheap(engine):
        reason = engine.say("running" if engine.draft_floor.value is None else "draft_floor")
        return Choice(levers.SPECULATIVE, f"each step reads the weights for few tokens: {reason}")
    return Choice(levers.FASTER_DECODE, f"the batch is too large for cheap draft tokens: {engine.say('running')}")


def for_output(of: ClassEvidence) -> Choice:
    """Answers that have to be JSON are not."""
    if of.truncated_output.or_zero() > of.invalid_output.or_zero():
        return Choice(levers.HIGHER_MAX_TOKENS, of.say("truncated_output"))
    if of.invalid_tool_calls.reaches(0.5):
        return Choice(levers.TOOL_PARSER, of.say("invalid_tool_calls"))
    return Choice(levers.STRUCTURED_OUTPUTS, f"{spell(thresholds.INVALID, Quantity.SHARE)} or more fail a parser")


def _reuse(of: ClassEvidence, hits: _Hits, engine: EngineEvidence) -> Choice | None:
    """Work that need not be done: the same request, or the same beginning of a prompt."""
    if _lacks_response_cache(of):
        return Choice(levers.RESPONSE_CACHE, of.say("repeated_bodies"))
    possible, actual, switch = hits.possible, hits.actual, engine.switch("enable_prefix_caching")
    long = max(of.prompt_p50.or_zero(), of.other_prompt.or_zero()) >= thresholds.SHORT_REQUEST
    seems_off = switch is False or (switch is None and actual.value == 0.0 and long)
    off = "it is off" if switch is False else f"it seems to be off: 0 % hits ({actual.origin})"
    if possible.value is None:
        return Choice(levers.PREFIX_CACHING, f"{off}; {hits.said}") if seems_off else None
    if possible.value < thresholds.SHAREABLE or possible.value - actual.or_zero() < thresholds.MISSED_HITS:
        return None
    if seems_off:
        return Choice(levers.PREFIX_CACHING, f"{hits.said}, and {off}")
    if actual.value is None and switch is None:
        return Choice(levers.PREFIX_CACHING, f"{hits.said}; actual unknown ({actual.origin})")
    value = "unknown" if actual.value is None else spell(actual.value, Quantity.SHARE)
    return Choice(levers.MORE_HITS, f"{hits.said}, actual {value} ({actual.origin}) although prefix caching is on")


def _lacks_response_cache(of: ClassEvidence) -> bool:
    return of.repeated_bodies.reaches(thresholds.REPEATING) and not of.cached_answers.reaches(thresholds.CACHED)


def _batch_limit(of: ClassEvidence, engine: EngineEvidence) -> Choice | None:
    """Requests wait for a place in the batch, while the KV cache has free blocks."""
    running, limit, kv_use = engine.running.value, engine.max_num_seqs.value, engine.kv_use.value
    if kv_use is not None and kv_use >= thresholds.KV_FREE:
        return None
    kv_said = engine.say("kv_use")
    if limit:
        full = running is not None and running / limit >= thresholds.BATCH_FULL
        return Choice(levers.MORE_SEQUENCES, f"{engine.say('running')} of {limit:,.0f}; {kv_said}") if full else None
    if running and engine.running_p50.or_zero() / running >= thresholds.STEADY and _is_short(of):
        why = f"the batch is constant, as at a limit: {engine.say('running_p50')}, {engine.say('running')}"
        return Choice(levers.MORE_SEQUENCES, f"{why}; the requests are short; {engine.say('max_num_seqs')}; {kv_said}")
    return None


def _is_short(of: ClassEvidence) -> bool:
    """Whether many requests of the class fit in the KV cache."""
    return of.prompt_p95.value is not None and of.prompt_p95.value + of.output_p95.or_zero() <= thresholds.SHORT_REQUEST


def _is_behind_long(of: ClassEvidence) -> bool:
    """Whether another class has prompts that are long, and much longer than those of this one."""
    return of.other_prompt.reaches(max(thresholds.LONG_PROMPT, thresholds.LONGER * of.prompt_p50.or_zero()))


def _has_long_prompts(of: ClassEvidence) -> bool:
    return of.other_prompt.reaches(thresholds.LONG_PROMPT) or of.prompt_p50.reaches(thresholds.LONG_PROMPT)


def _long_prompts(of: ClassEvidence, engine: EngineEvidence) -> Choice | None:
    if not _is_behind_long(of):
        return None
    return _interference(of, engine, f"{of.say('other_prompt')} against {of.say('prompt_p50')}")


def _interference(of: ClassEvidence, engine: EngineEvidence, why: str) -> Choice:
    """Long prompts of the same engine delay this class."""
    chunked = engine.switch("enable_chunked_prefill")
    if chunked is False:
        return Choice(levers.CHUNKED_PREFILL, f"a long prompt blocks the engine until it is computed: {why}")
    note = "chunked prefill is on" if chunked else "chunked prefill is the default of vLLM V1 (setting unknown)"
    lever = levers.SMALLER_CHUNKS if of.stall_ratio.reaches(thresholds.STALLING) else levers.SEPARATE_ENGINES
    return Choice(lever, f"{note}, and long prompts still delay this class: {why}")


def _drafts_are_cheap(engine: EngineEvidence) -> bool:
    if engine.draft_floor.value is not None:
        return engine.draft_floor.value <= thresholds.DRAFTS_FREE
    return engine.running.value is None or engine.running.value <= thresholds.SMALL_BATCH
