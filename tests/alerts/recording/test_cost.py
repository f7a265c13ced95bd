"""The cost of tokens and good requests: the price of an hour over the counts of that hour."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from alerts.prices import ApiPrice, Prices
from alerts.rule_file import render
from compose.cli import main
from exporters.text.units import spell_duration
from exporters.vocabulary.slo_file import SloFile
from tests.support.promtool import Case, Pace, Promtool, counter

HOUR_PRICE = 7.2
PRICES = Prices(HOUR_PRICE)
API = Prices(HOUR_PRICE, ApiPrice(prompt=0.2, cached=0.05, completion=0.6))
RELAY = 'llm_completion_tokens_total{model="org/m",class="siso",tenant="other"}'
SIDE = 'llm_completion_tokens_total{model="org/m",class="lilo",tenant="a"}'
PROMPT = 'llm_prompt_tokens_total{model="org/m",class="siso",tenant="other"}'
CACHED = 'llm_cached_prompt_tokens_total{model="org/m",class="siso",tenant="other"}'
ENGINE = 'llm_engine_generation_tokens_total{engine="e:1",rank="0",model="org/m"}'
VLLM = 'vllm:generation_tokens_total{engine="0",model_name="org/m"}'
ENGINE_PROMPT = 'llm_engine_prompt_tokens_total{engine="e:1",rank="0",model="org/m"}'
ENGINE_HITS = 'llm_engine_prefix_cache_hits_tokens_total{engine="e:1",rank="0",model="org/m"}'
VLLM_PROMPT = 'vllm:prompt_tokens_total{engine="0",model_name="org/m"}'
GOOD = 'llm_goodput_requests_total{model="org/m",class="siso",tenant="other"}'
STEPS_OF_AN_HOUR = 12
"""At a period of 30 days."""


def case(pace: Pace, series: Mapping[str, str], *, sidecar_is_up: bool = True) -> Case:
    return Case(pace.spec, series, pace.step, sidecar_is_up=sidecar_is_up)


def expect_value(case: Case, pace: Pace, steps: float, name: str, value: float | None) -> None:
    """After `steps`, `name` over the last twelve steps is `value`, or absent."""
    window = spell_duration(STEPS_OF_AN_HOUR * pace.step)
    samples = {} if value is None else {f'{{window="{window}"}}': round(value, 6)}
    case.expect(pace.seconds(steps), f'round({name}{{window="{window}"}}, 0.000001)', samples)


def money(pace: Pace, steps: float) -> float:
    return HOUR_PRICE * pace.step * steps / 3600


def test_the_price_of_a_million_tokens_is_money_over_all_tokens(promtool: Promtool, pace: Pace) -> None:
    n = pace.scrapes(20)
    each = case(pace, {RELAY: counter((300, n)), SIDE: counter((100, n)), GOOD: counter((2, n))})
    tokens, good = 400 * pace.scrapes(12), 2 * pace.scrapes(12)
    expect_value(each, pace, 18, "llm_cost:money:per_million_output_tokens", 1e6 * money(pace, 12) / tokens)
    expect_value(each, pace, 18, "llm_cost:money:per_good_request", money(pace, 12) / good)
    expect_value(each, pace, 18, "llm_cost:idle_money:increase", 0)
    promtool.test([each], prices=PRICES)


def test_without_traffic_a_price_is_absent_and_all_money_is_idle(promtool: Promtool, pace: Pace) -> None:
    still = case(pace, {RELAY: counter((0, pace.scrapes(20))), GOOD: counter((0, pace.scrapes(20)))})
    gone = case(pace, {}, sidecar_is_up=False)
    for each in (still, gone):
        expect_value(each, pace, 18, "llm_cost:money:per_million_output_tokens", None)
        expect_value(each, pace, 18, "llm_cost:money:per_good_request", None)
        expect_value(each, pace, 18, "llm_cost:idle_money:increase", money(pace, 12))
        expect_value(each, pace, 18, "llm_cost:money:increase", money(pace, 12))
        # Nineteen steps are recorded, including the one at 0.
        day = spell_duration(288 * pace.step)
        total = f'round(llm_cost:money:increase{{window="{day}"}}, 0.000001)'
        each.expect(pace.seconds(18), total, {f'{{window="{day}"}}': round(money(pace, 19), 6)})
    promtool.test([still, gone], prices=PRICES)


def test_prices_include_idle_steps(promtool: Promtool, pace: Pace) -> None:
    """Three steps of work appear in four steps, as each step waits for a scrape in progress."""
    work = counter((0, pace.scrapes(15)), (100, pace.scrapes(3)), (0, pace.scrapes(3)), start=5000)
    each = case(pace, {RELAY: work})
    expect_value(
        each, pace, 20, "llm_cost:money:per_million_output_tokens", 1e6 * money(pace, 12) / (100 * pace.scrapes(3))
    )
    expect_value(each, pace, 20, "llm_cost:idle_money:increase", money(pace, 8))
    promtool.test([each], prices=PRICES)


def test_without_good_requests_only_tokens_have_a_price(promtool: Promtool, pace: Pace) -> None:
    n = pace.scrapes(20)
    each = case(pace, {RELAY: counter((100, n)), GOOD: counter((0, n))})
    expect_value(
        each, pace, 18, "llm_cost:money:per_million_output_tokens", 1e6 * money(pace, 12) / (100 * pace.scrapes(12))
    )
    expect_value(each, pace, 18, "llm_cost:money:per_good_request", None)
    promtool.test([each], prices=PRICES)


@pytest.mark.parametrize(
    "growths, output_tokens",
    [
        pytest.param({RELAY: 100, ENGINE: 130, VLLM: 130}, 100, id="the relay before all others"),
        pytest.param({RELAY: 0, ENGINE: 130, VLLM: 130}, 130, id="the engine for traffic that bypasses the relay"),
        pytest.param({VLLM: 130}, 130, id="vLLM itself without a sidecar"),
    ],
)
def test_tokens_are_counted_from_one_source(
    growths: Mapping[str, float], output_tokens: float, promtool: Promtool, pace: Pace
) -> None:
    series = {name: counter((growth, pace.scrapes(20))) for name, growth in growths.items()}
    each = case(pace, series, sidecar_is_up=RELAY in growths)
    expect_value(
        each,
        pace,
        18,
        "llm_cost:money:per_million_output_tokens",
        1e6 * money(pace, 12) / (output_tokens * pace.scrapes(12)),
    )
    promtool.test([each], prices=PRICES)


@pytest.mark.parametrize(
    "growths, per_million",
    [
        pytest.param({RELAY: 100, PROMPT: 500, CACHED: 200}, 0.6 + 0.2 * 3 + 0.05 * 2, id="input, cached and output"),
        pytest.param({RELAY: 100, PROMPT: 500, ENGINE: 130, ENGINE_PROMPT: 900}, 0.6 + 0.2 * 5, id="the relay first"),
        pytest.param(
            {RELAY: 0, PROMPT: 0, ENGINE: 100, ENGINE_PROMPT: 900, ENGINE_HITS: 600},
            0.6 + 0.2 * 3 + 0.05 * 6,
            id="the engine for traffic that bypasses the relay",
        ),
        pytest.param({VLLM: 100, VLLM_PROMPT: 300}, 0.6 + 0.2 * 3, id="vLLM itself without a sidecar"),
        pytest.param({RELAY: 100}, 0.6, id="without counts of input"),
        pytest.param({PROMPT: 500}, None, id="without output"),
    ],
)
def test_the_price_of_an_api_is_that_of_the_same_tokens(
    growths: Mapping[str, float], per_million: float | None, promtool: Promtool, pace: Pace
) -> None:
    series = {name: counter((growth, pace.scrapes(20))) for name, growth in growths.items()}
    each = case(pace, series, sidecar_is_up=RELAY in growths)
    expect_value(each, pace, 18, "llm_cost:api_money:per_million_output_tokens", per_million)
    promtool.test([each], prices=API)


def test_a_price_only_adds_rules(promtool: Promtool, spec: SloFile) -> None:
    priced = render(spec, prices=PRICES)
    promtool.check(priced)
    assert priced.startswith(render(spec))
    assert "llm_cost" not in render(spec)


def test_the_price_of_an_api_adds_only_rules_on_that_api(promtool: Promtool, spec: SloFile) -> None:
    compared = render(spec, prices=API)
    promtool.check(compared)
    assert compared.count("record: llm_cost:") - render(spec, prices=PRICES).count("record: llm_cost:") == 5
    assert compared.count("record: llm_cost:api_money:") == 5
    assert "api_money" not in render(spec, prices=PRICES)


def test_render_multiplies_the_price_by_the_gpus(tmp_path: Path) -> None:
    flags = ["alerts", "render", "--gpu-hour-price", "2.50", "--gpus", "4", "--out", str(tmp_path)]
    assert main(flags) == 0
    # 10 an hour, in 5 minutes.
    assert "expr: vector(0.833333333333)\n" in (tmp_path / "rules.yaml").read_text()


NO_API_PRICE = (
    "--api-price: '{}' is not a price; write INPUT/OUTPUT or INPUT/CACHED/OUTPUT, each above 0 and per million tokens, "
    "such as 0.15/0.60"
)
NO_PRICE = "--gpu-hour-price: {} is not a price; write the price of one GPU hour, such as 2.50"


@pytest.mark.parametrize(
    "flags, message",
    [
        pytest.param(["--gpu-hour-price", "0"], NO_PRICE.format(0), id="zero"),
        pytest.param(["--gpu-hour-price=-1"], NO_PRICE.format(-1), id="negative"),
        pytest.param(["--gpu-hour-price", "nan"], NO_PRICE.format("nan"), id="not a number"),
        pytest.param(["--gpu-hour-price", "2", "--gpus", "0"], "--gpus: 0 is too few; use 1 or more", id="no GPUs"),
        pytest.param(["--gpus", "4"], "--gpus: needs a price; add --gpu-hour-price X", id="GPUs without a price"),
        *(
            pytest.param(["--gpu-hour-price", "2", "--api-price", text], NO_API_PRICE.format(text), id=f"API: {text}")
            for text in ("0.15", "0.15/", "0.15/x", "0/0.6", "0.15/inf", "1/2/3/4")
        ),
        pytest.param(
            ["--gpu-hour-price", "2", "--api-price", "0.15/0.6/0.075"],
            "--api-price: '0.15/0.6/0.075' charges more for cached input than for other input; write "
            "INPUT/CACHED/OUTPUT, such as 0.15/0.075/0.60",
            id="API: cached last",
        ),
        pytest.param(
            ["--api-price", "0.15/0.60"],
            "--api-price: needs a price to compare with; add --gpu-hour-price X",
            id="API without GPUs",
        ),
        pytest.param(
            ["--gpu-hour-price", "0", "--gpus", "0", "--api-price", "1"],
            f"{NO_PRICE.format(0)}\n--gpus: 0 is too few; use 1 or more\n{NO_API_PRICE.format(1)}",
            id="all mistakes at once",
        ),
    ],
)
def test_an_invalid_price_is_rejected(flags: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["alerts", "render", "--out", "-", *flags]) == 2
    assert capsys.readouterr() == ("", f"vllm-slo: {message}\n")
