"""Decides what binds a class, from the evidence alone; the first rule that applies decides."""

from dataclasses import dataclass, replace
from enum import StrEnum

from exporters.analysis.diagnose import levers, thresholds
from exporters.analysis.diagnose.evidence import ENGINE_TIMES, PROMETHEUS, ClassEvidence, EngineEvidence, Fact
from exporters.analysis.diagnose.lever_choice import Choice, for_decode, for_kv, for_output, for_prefill, for_queue


class Binding(StrEnum):
    """What limits a class."""

    QUEUE = "queue"
    PREFILL = "prefill"
    FRONT_END = "front end"
    DECODE = "decode"
    KV = "KV cache"
    ADMISSION = "admission"
    CLIENT = "client"
    ENGINE = "engine errors"
    OUTPUT = "invalid output"
    NOTHING = "nothing"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What binds a class, the statements that show it, and the first lever."""

    binding: Binding
    because: tuple[str, ...]
    choice: Choice | None = None


def diagnose(of: ClassEvidence, engine: EngineEvidence) -> Diagnosis:
    """Requests that end badly first, then whether the class needs anything, then where the time goes."""
    if of.requests.or_zero() + of.open_waiting.or_zero() < thresholds.FEWEST_REQUESTS:
        return Diagnosis(Binding.UNKNOWN, (f"{of.say('requests')}; {thresholds.FEWEST_REQUESTS} are needed",))
    found = _bad_ends(of, engine) or _healthy(of, engine) or _slow(of, engine)
    if found.binding is not Binding.ENGINE and _many(of, of.failed):
        return replace(found, because=(*found.because, of.say("failed")))
    return found


def _bad_ends(of: ClassEvidence, engine: EngineEvidence) -> Diagnosis | None:
    if engine.unusable.reaches(thresholds.UNUSABLE) and (_many(of, of.failed) or _late(of)):
        choice = Choice(levers.ENGINE_FAULT, "no setting helps while an engine does nothing")
        said = engine.say("unusable"), *([of.say("failed")] if _many(of, of.failed) else _stuck(of))
        return Diagnosis(Binding.ENGINE, said, choice)
    at_once = of.failed_time.value is not None and of.failed_time.value <= thresholds.INTERRUPTION
    if _many(of, of.failed) and not (at_once and _late(of)):
        choice = Choice(levers.ENGINE_FAULT, "no setting helps while requests fail")
        return Diagnosis(Binding.ENGINE, (of.say("failed"),), choice)
    if _many(of, of.rejected):
        idle = (
            engine.kv_use.value is not None
            and engine.kv_use.value < thresholds.KV_FREE
            and not engine.waiting.reaches(1)
        )
        lever = levers.RAISE_LIMITS if idle else levers.MORE_ENGINES
        why = f"{engine.say('kv_use')}, {engine.say('waiting')}"
        return Diagnosis(Binding.ADMISSION, (of.say("rejected"),), Choice(lever, why))
    if _many(of, of.client_errors):
        why = "only the request can be corrected"
        if of.longest.value is not None:
            why += f"; {of.say('longest')}, {engine.say('max_model_len')}"
        return Diagnosis(Binding.CLIENT, (of.say("client_errors"),), Choice(levers.FIX_REQUESTS, why))
    if of.client_paused.reaches(thresholds.CLIENT_PAUSING):
        return Diagnosis(Binding.CLIENT, (of.say("client_paused"),), Choice(levers.FIX_CLIENT, of.say("e2e")))
    if of.aborted.reaches(thresholds.ABORTING) and not _late(of):
        return Diagnosis(Binding.CLIENT, (of.say("aborted"),), Choice(levers.FIX_CLIENT, of.say("e2e")))
    if of.invalid_output.reaches(thresholds.INVALID) or of.truncated_output.reaches(thresholds.INVALID):
        said = of.say("invalid_output"), of.say("truncated_output")
        return Diagnosis(Binding.OUTPUT, said, for_output(of))
    return None


def _many(of: ClassEvidence, share: Fact) -> bool:
    return share.reaches(thresholds.FAILING) and share.or_zero() * of.requests.or_zero() >= thresholds.FEWEST_FAILING


def _stuck(of: ClassEvidence) -> tuple[str, ...]:
    """What shows that streams wait too long for a first token: they ended without, or are still open."""
    waiting = of.open_waiting.or_zero()
    share = waiting / (waiting + of.requests.or_zero() or 1.0)
    still = (
        waiting >= thresholds.FEWEST_FAILING
        and share >= thresholds.FAILING
        and of.oldest_wait.reaches(thresholds.LONG_WAIT)
    )
    return (
        *((of.say("no_first_token"),) if _many(of, of.no_first_token) else ()),
        *((f"{of.say('open_waiting')}, {of.say('oldest_wait')}",) if still else ()),
    )


def _late(of: ClassEvidence) -> bool:
    """Whether clients may have aborted because the server was slow."""
    return max(of.first_token_burn.or_zero(), of.decode_burn.or_zero()) > 1 or bool(_stuck(of))


def _healthy(of: ClassEvidence, engine: EngineEvidence) -> Diagnosis | None:
    burns = [name for name in _BURNS if getattr(of, name).value is not None]
    if not burns or _stuck(of) or any(getattr(of, name).value > 1 for name in burns):
        return None
    largest = _slow(of, engine)
    part = "" if largest.binding is Binding.UNKNOWN else f"; the largest part of its time: {largest.binding}"
    said = " and ".join(of.say(name) for name in burns)
    return Diagnosis(Binding.NOTHING, (f"{said}{part}", *largest.because))


_BURNS = ("first_token_burn", "decode_burn", "other_burn")


def _slow(of: ClassEvidence, engine: EngineEvidence) -> Diagnosis:
    binding, because = _first_token(of, engine) if _misses_first_token(of) else (Binding.DECODE, _decode(of))
    before_decode = binding in {Binding.QUEUE, Binding.UNKNOWN}
    crowded = before_decode and engine.kv_use.reaches(thresholds.KV_FULL) and engine.waiting.reaches(1)
    preempting = (before_decode or binding is Binding.DECODE) and engine.preemptions.reaches(thresholds.PREEMPTING)
    if crowded or preempting:
        full = f"{engine.say('kv_use')}, {engine.say('preemptions')}"
        return Diagnosis(Binding.KV, (full, *because), for_kv(of, engine))
    match binding:
        case Binding.QUEUE:
            return Diagnosis(binding, because, for_queue(of, engine))
        case Binding.PREFILL:
            return Diagnosis(binding, because, for_prefill(of, engine))
        case Binding.FRONT_END:
            return Diagnosis(
                binding, because, Choice(levers.API_SERVERS, "the time passes before and after the engine")
            )
        case Binding.DECODE:
            return Diagnosis(binding, because, for_decode(of, engine))
    return Diagnosis(binding, because)


def _misses_first_token(of: ClassEvidence) -> bool:
    """Whether the time before the first token is the problem, or else the larger part."""
    first_token, decode = of.first_token_burn.or_zero(), of.decode_burn.or_zero()
    if _stuck(of):
        return True
    if max(first_token, decode) > 1:
        return first_token >= decode
    return not of.decode_share.reaches(0.5)


def _decode(of: ClassEvidence) -> tuple[str, ...]:
    burn = (of.say("decode_burn"),) if of.decode_burn.or_zero() > 1 else ()
    return (of.say("decode_share"), of.say("tpot"), *burn)


def _first_token(of: ClassEvidence, engine: EngineEvidence) -> tuple[Binding, tuple[str, ...]]:
    """The largest part of TTFT."""
    stuck = _stuck(of)
    burn = (of.say("first_token_burn"),) if of.first_token_burn.or_zero() > 1 else ()
    parts = {Binding.QUEUE: "queue_share", Binding.PREFILL: "prefill_share", Binding.FRONT_END: "frontend_share"}
    known = {binding: name for binding, name in parts.items() if getattr(of, name).value is not None}
    if known:
        binding, name = max(known.items(), key=lambda each: getattr(of, each[1]).value)
        return binding, (of.say(name), of.say("ttft"), *burn, *stuck)
    if engine.queue.value is not None and engine.prefill.value is not None:
        binding = Binding.QUEUE if engine.queue.value > engine.prefill.value else Binding.PREFILL
        return binding, (f"{engine.say('queue')}, {engine.say('prefill')}", *burn, *stuck)
    if engine.waiting.reaches(1):
        return Binding.QUEUE, (engine.say("waiting"), *burn, *stuck)
    unknown = f"queue or prefill: no times of the engine ({ENGINE_TIMES}; {PROMETHEUS})"
    return Binding.UNKNOWN, (unknown, of.say("ttft"), *burn, *stuck)
