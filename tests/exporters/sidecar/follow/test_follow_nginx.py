"""A sidecar that follows the access log of a real nginx in front of the simulated engine."""

import os
import signal
from pathlib import Path

import aiohttp
import pytest

from exporters.sidecar.follow.access_fields import SHIPPED, load
from exporters.sidecar.follow.follower import absent
from tests.exporters.sidecar.follow.nginx_process import nginx
from tests.support.sidecar_process import following_sidecar
from tests.support.simulator import simulator
from tests.support.waiting import until

SLOS = """
version: 1
period: 2h
scrape_interval: 200ms
tenants: {header: x-tenant, allow: [team-a]}
classes:
  - {name: batch, max_tokens: ">1000"}
  - {name: all}
slos:
  - {name: ttft, classes: [all, batch], signal: ttft, threshold: 5s, objective: 95%}
  - {name: e2e, classes: [all, batch], signal: e2e, threshold: 1h, objective: 95%}
  - {name: availability, classes: [batch, all, other], signal: availability, objective: 99%}
"""
BODY = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 5}
LINES = "llm_sidecar_followed_lines_total"
EXPECTED = {
    "llm_requests_total{all,other,ok,chat_completions,false,team-a}": 1,
    "llm_requests_total{all,other,ok,chat_completions,true,team-a}": 1,
    "llm_requests_total{other,other,ok,chat_completions,true,team-a}": 1,
    "llm_requests_total{all,other,client_error,chat_completions,false,team-a}": 1,
    "llm_requests_total{batch,other,upstream_unreachable,completions,false,team-a}": 1,
    "llm_requests_total{batch,other,rejected,embeddings,false,team-a}": 1,
    "llm_requests_total{batch,other,timeout_idle,tokenize,false,team-a}": 1,
    "llm_requests_total{other,other,ok,models,false,other}": 1,
    "llm_requests_total{other,other,client_abort,chat_completions,true,other}": 1,
    "llm_slo_events_total{all,other,availability,team-a}": 2,
    "llm_slo_events_total{all,other,e2e,team-a}": 2,
    "llm_slo_events_total{other,other,availability,team-a}": 1,
    "llm_slo_events_total{batch,other,availability,team-a}": 3,
    "llm_slo_events_total{batch,other,e2e,team-a}": 3,
    "llm_slo_bad_events_total{batch,other,availability,team-a}": 3,
    "llm_slo_bad_events_total{batch,other,e2e,team-a}": 3,
    "llm_slo_abandoned_total{other,other,availability,other}": 1,
}


@pytest.mark.slow
async def test_the_access_log_of_nginx_gives_requests_durations_and_slo_events(tmp_path: Path) -> None:
    async with simulator() as engine, nginx(tmp_path, int(engine.rpartition(":")[2])) as (url, pid):
        log = tmp_path / "access.log"
        async with (
            following_sidecar(tmp_path, engine, log, "--follow-format", "nginx", slo_file=SLOS) as following,
            aiohttp.ClientSession() as session,
        ):

            async def send(path: str, request_class: str = "all", **fields: object) -> int:
                headers = {"x-request-class": request_class, "x-tenant": "team-a"}
                async with session.post(f"{url}{path}", json=BODY | fields, headers=headers) as response:
                    await response.read()
                    return response.status

            assert await send("/v1/chat/completions") == 200
            assert await send("/v1/chat/completions", stream=True) == 200
            assert await send("/v1/chat/completions", request_class="unknown", stream=True) == 200
            assert await send("/v1/chat/completions", model="unknown") == 404
            assert await send("/v1/completions", request_class="batch") == 502
            assert await send("/v1/embeddings", request_class="batch") == 503
            assert await send("/tokenize", request_class="batch") == 504
            async with session.get(f"{url}/v1/models") as response:
                assert response.status == 200
            async with session.get(f"{url}/metrics") as response:
                assert response.status == 200
            await following.shows(f"{LINES}{{counted}}", 8)
            log.rename(log.with_name("access.log.1"))
            os.kill(pid, signal.SIGUSR1)
            await until(log.exists)
            async with session.post(
                f"{url}/v1/chat/completions", json=BODY | {"stream": True, "max_tokens": 2000}
            ) as response:
                await response.content.readany()
                response.close()
            await following.shows(f"{LINES}{{counted}}", 9)
            found = {
                name: value
                for name, value in (await following.samples()).items()
                if value and name.startswith(("llm_requests_total", "llm_slo", LINES))
            }
            assert found == EXPECTED | {f"{LINES}{{counted}}": 9, f"{LINES}{{ignored}}": 1}
            _, page = await following.fetch("/metrics")
            names = {line.partition("{")[0] for line in page.splitlines() if not line.startswith(("#", "llm_engine_"))}
            assert not names & {signal.name for signal in absent(load(SHIPPED / "nginx.yaml"))}
            assert 'slo="ttft"' not in page
            assert 'llm_request_duration_seconds_count{class="all",model="other"} 2.0' in page
            assert await following.stop() == 0
