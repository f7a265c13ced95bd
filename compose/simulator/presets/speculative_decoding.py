"""Speculative decoding: draft tokens that one step of the model verifies, how many are accepted, and their cost."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftModel:
    """The costs of a draft model, as those of a preset."""

    weight_bytes: float
    kv_bytes_per_token: float
    flop_per_token: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Speculation:
    """Drafts of `len(rates)` tokens for each request and step.

    `rates[i]` is the share of drafts whose first i + 1 tokens are all accepted, as vLLM's `synthetic_acceptance_rates`.
    Without a draft model, the drafts are n-grams of the prompt, which take no time.
    """

    rates: tuple[float, ...]
    draft: DraftModel | None = None

    @property
    def tokens(self) -> int:
        """Draft tokens for each request and step."""
        return len(self.rates)

    def accepted(self, drafted: int, uniform: float) -> int:
        """The accepted ones of `drafted` tokens, for a random number from 0 to 1."""
        return sum(uniform < rate for rate in self.rates[:drafted])


def independent(acceptance: float, tokens: int) -> tuple[float, ...]:
    """The rates of `tokens` draft tokens, each of which is accepted with this probability if all before it are.

    A step then has (1 - a^(k + 1)) / (1 - a) output tokens on average, for probability a and k draft tokens: Leviathan
    et al., "Fast Inference from Transformers via Speculative Decoding" (2023), equation 1.
    """
    return tuple(acceptance**position for position in range(1, tokens + 1))
