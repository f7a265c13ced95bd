"""`vllm-slo drain`: drains a sidecar and waits for the end, for a hook that runs before the engine stops."""

import argparse
import sys
import time

import msgspec

from exporters.http.admin_client import TOKEN_FLAG, NoResponseError, add_flags, no_sidecar, post
from exporters.sidecar.http_api.admin_messages import Drained, read_admin_token
from exporters.text.errors import parse_flag
from exporters.text.units import parse_duration

RETRY_SECONDS = 0.1


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    add_flags(parser)
    parser.add_argument(
        "--timeout",
        default="30s",
        metavar="DURATION",
        help="maximum wait for the end of the drain; after that the exit status is 1 and the drain continues "
        "(default %(default)s)",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Request the drain, wait for its end and print what happened."""
    token = read_admin_token(arguments.admin_token_file, TOKEN_FLAG)
    timeout = parse_flag("--timeout", arguments.timeout, parse_duration)
    drained = _drain(arguments.sidecar, token, timeout)
    if drained is None:
        print(f"the sidecar has not drained within {timeout:g} s; the drain continues", file=sys.stderr)
        return 1
    print(f"drained in {drained.seconds:g} s; open requests that were cut: {drained.cut_requests}")
    for line in drained.engines:
        print(f"engine {line}")
    return 0


def _drain(url: str, token: bytes, timeout: float) -> Drained | None:
    """What happened; None if the drain takes longer. A request that is lost with the exporter is repeated."""
    deadline = time.monotonic() + timeout
    while (left := deadline - time.monotonic()) > 0:
        try:
            status, text = post(url, "/admin/drain", token, timeout=left)
        except NoResponseError:
            time.sleep(RETRY_SECONDS)
            continue
        try:
            return msgspec.json.decode(text, type=Drained)
        except msgspec.DecodeError as error:
            raise no_sidecar(url, status, text) from error
    return None
