"""The salt of prompts, and an executor for their hashes."""

from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

SALT = b"salt"


class Hashing(Executor):
    """An executor whose tasks the test runs."""

    def __init__(self) -> None:
        self.tasks: list[Callable[[], None]] = []

    def submit(self, function: Any, /, *arguments: Any, **_: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.tasks.append(lambda: future.set_result(function(*arguments)))
        return future
