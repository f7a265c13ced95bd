"""The engines of a cell in virtual time, and the routers in front of them."""

from collections.abc import Callable, Iterator, Sequence
from itertools import count

from compose.experiments.cells.virtual_engine import VirtualEngine, prompt_tokens
from compose.experiments.setup.pools import ONE_ENGINE, Pool, Pools, Routing, pool_numbers
from compose.simulator.engine.flags import EngineFlags
from compose.simulator.engine.kv_cache import block_hashes
from compose.simulator.presets.preset import Preset
from loadgen.schedule.requests import PlannedRequest


class VirtualFleet:
    """Engines with the same flags; each pool has a router, which knows the state of its engines at once."""

    def __init__(self, flags: EngineFlags, preset: Preset, pools: Pools = ONE_ENGINE) -> None:
        self.flags = flags
        self.request_seconds = preset.request_seconds
        self.request_ids: Iterator[int] = count()
        self._pool_of = pool_numbers(pools)
        self._routers = [Router(pool, flags, preset) for pool in pools]

    @property
    def engines(self) -> Sequence[VirtualEngine]:
        return [engine for router in self._routers for engine in router.engines]

    def route(self, request: PlannedRequest) -> VirtualEngine:
        """The engine that serves a request."""
        router = self._routers[self._pool_of.get(request.request_class, 0)]
        return router.route(
            request.prompt_tokens,
            lambda: [*block_hashes(prompt_tokens(request), self.flags.block_size)],
            request.number,
            last_turn=not request.later,
        )


class Router:
    """The router of a pool; one without a preference takes the engines in turn."""

    def __init__(self, pool: Pool, flags: EngineFlags, preset: Preset) -> None:
        self.engines = [VirtualEngine(flags, preset) for _ in range(pool.replicas)]
        self._routing = pool.routing
        self._next = 0
        self._sessions: dict[int | None, VirtualEngine] = {}

    def route(
        self,
        tokens: int,
        find_hashes: Callable[[], Sequence[int]],
        conversation: int | None = None,
        *,
        last_turn: bool = True,
    ) -> VirtualEngine:
        """The engine for a prompt of this length, with these hashes of its full blocks."""
        if len(self.engines) == 1:
            return self.engines[0]
        match self._routing:
            case Routing.ROUND_ROBIN:
                return self._least([0] * len(self.engines))
            case Routing.LEAST_REQUESTS:
                return self._least([engine.open for engine in self.engines])
            case Routing.PREFIX:
                hashes = find_hashes()
                return self._least([_cost(engine, tokens, hashes) for engine in self.engines])
            case Routing.SESSION:
                engine = self._sessions.pop(conversation, None)
                engine = engine or self._least([engine.open for engine in self.engines])
                if not last_turn:
                    self._sessions[conversation] = engine
                return engine

    def _least(self, costs: Sequence[int]) -> VirtualEngine:
        """The engine with the least cost; of several, the next in turn."""
        size = len(costs)
        number = min(range(self._next, self._next + size), key=lambda number: costs[number % size]) % size
        self._next = (number + 1) % size
        return self.engines[number]


def _cost(engine: VirtualEngine, tokens: int, hashes: Sequence[int]) -> int:
    """Blocks to compute and in use if the engine serves a prompt."""
    size, scheduler = engine.flags.block_size, engine.scheduler
    hits = scheduler.pool.find(hashes) if engine.flags.enable_prefix_caching else []
    waiting = sum(-(-job.length // size) for job in scheduler.waiting)
    return -(-tokens // size) - len(hits) + waiting + scheduler.pool.capacity - scheduler.pool.free
