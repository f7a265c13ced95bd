"""Prices of the GPUs, and of an API to compare with, by which the rules calculate costs."""

import argparse
import math
from collections.abc import Iterator
from dataclasses import dataclass

from exporters.text.errors import InvalidValueError, UsageError, parse_flag


@dataclass(frozen=True, slots=True)
class ApiPrice:
    """Prices of an API per million tokens."""

    prompt: float
    cached: float
    completion: float


@dataclass(frozen=True, slots=True)
class Prices:
    """The price of all GPUs for one hour, and that of an API, in the same currency."""

    hour: float
    api: ApiPrice | None = None


def add_price_flags(parser: argparse.ArgumentParser, gpu_use: str, api_use: str) -> None:
    """Declare the flags of prices; the texts say what they are used for."""
    parser.add_argument(
        "--gpu-hour-price", type=float, metavar="X", help=f"price of one GPU hour: {gpu_use} (default: none)"
    )
    parser.add_argument("--gpus", type=int, metavar="N", help="number of GPUs (default: 1)")
    parser.add_argument(
        "--api-price",
        metavar="IN/OUT",
        help=f"price of an API per million input and output tokens, or IN/CACHED/OUT: {api_use} (default: none)",
    )


def parse_prices(gpu_hour: float | None, gpus: int | None, api: str | None) -> Prices | None:
    """The prices of the flags; None without a price.

    Raises:
        UsageError: a flag is invalid; the message lists all mistakes.
    """
    if mistakes := "\n".join(_mistakes(gpu_hour, gpus, api)):
        raise UsageError(mistakes)
    if gpu_hour is None:
        return None
    return Prices(gpu_hour * (gpus or 1), None if api is None else parse_api_price(api))


def parse_api_price(text: str) -> ApiPrice:
    """Read INPUT/OUTPUT or INPUT/CACHED/OUTPUT.

    Raises:
        InvalidValueError: the text has another form.
    """
    try:
        values = [float(part) for part in text.split("/")]
    except ValueError:
        values = []
    if len(values) not in {2, 3} or not all(0 < value < math.inf for value in values):
        raise InvalidValueError(
            f"{text!r} is not a price; write INPUT/OUTPUT or INPUT/CACHED/OUTPUT, each above 0 and per million tokens, "
            "such as 0.15/0.60"
        )
    price = ApiPrice(values[0], values[-2], values[-1])
    if price.cached > price.prompt:
        raise InvalidValueError(
            f"{text!r} charges more for cached input than for other input; write INPUT/CACHED/OUTPUT, such as "
            "0.15/0.075/0.60"
        )
    return price


def _mistakes(gpu_hour: float | None, gpus: int | None, api: str | None) -> Iterator[str]:
    if gpu_hour is None:
        if gpus is not None:
            yield "--gpus: needs a price; add --gpu-hour-price X"
        if api is not None:
            yield "--api-price: needs a price to compare with; add --gpu-hour-price X"
    elif not 0 < gpu_hour < math.inf:
        yield f"--gpu-hour-price: {gpu_hour:g} is not a price; write the price of one GPU hour, such as 2.50"
    if gpus is not None and gpu_hour is not None and gpus < 1:
        yield f"--gpus: {gpus} is too few; use 1 or more"
    if api is not None:
        try:
            parse_flag("--api-price", api, parse_api_price)
        except UsageError as error:
            yield str(error)
