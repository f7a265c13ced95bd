"""`vllm-slo sidecar`: declares and checks the flags, then starts the supervisor."""

import argparse
import logging
import os
import secrets
import stat
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from exporters import slos
from exporters.ceilings import read_ceilings
from exporters.configuration import pem_file
from exporters.configuration.origin import origin
from exporters.configuration.sidecar_config import MAX_MODELS, LogContent, SidecarConfig
from exporters.configuration.tls import SYSTEM, Certificate, Trust
from exporters.engines.config_change_store import ConfigChangeStore
from exporters.engines.engine_names import named_targets
from exporters.engines.engine_token import EngineToken
from exporters.errors import UsageError, parse_flag
from exporters.logging_setup import add_logging_flags, configure_logging
from exporters.quantities import parse_duration, parse_size
from exporters.requestlog.rotation import RotationLimits
from exporters.requestlog.standard_output import STANDARD_OUTPUT
from exporters.requestlog.writer import check_writable
from exporters.sidecar.follow import follow_flags
from exporters.sidecar.follow.follow_state import FollowStateFile
from exporters.sidecar.http_api.admin_messages import read_admin_token
from exporters.sidecar.http_api.credentials import Credentials
from exporters.sidecar.supervision.supervisor import supervise
from exporters.sidecar.tracing import collector_flags
from exporters.token_file import read_token

MAX_LOGGED_CONTENT = 64 * 1024
"""Bytes of a prompt or a completion; escaped as JSON, both together are shorter than `MAX_LINE` of the log's reader."""

MAX_BUFFERED = 128 * 1024 * 1024
LEAST_BUFFERED = 16 * 1024 * 1024
"""The default of --max-buffered, and the least share of a relay in bytes."""

logger = logging.getLogger("vllm_slo.sidecar")


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    relay = parser.add_argument_group("relay")
    relay.add_argument(
        "--upstream", required=True, metavar="URL", help="URL of the engine, such as http://127.0.0.1:8000"
    )
    relay.add_argument(
        "--upstream-ca", metavar="FILE", help="CA certificates of the engine, in PEM (default: the system's)"
    )
    relay.add_argument("--upstream-insecure", action="store_true", help="do not verify the engine's certificate")
    relay.add_argument(
        "--listen", default="127.0.0.1:8001", metavar="H:P", help="address for clients (default %(default)s)"
    )
    relay.add_argument(
        "--tls-cert",
        metavar="FILE",
        help="server certificate and its chain, in PEM; enables TLS for clients; SIGHUP reloads it",
    )
    relay.add_argument("--tls-key", metavar="FILE", help="private key of --tls-cert, in PEM")
    relay.add_argument(
        "--allow-path",
        action="append",
        default=[],
        metavar="PATH",
        help="additional path to relay; the default is inference and model paths only (repeatable)",
    )
    relay.add_argument(
        "--expose-engine-metrics",
        action="store_true",
        help="relay GET /metrics to the engine, for routers that read it at the serving address; these requests are in "
        "no series and in no log",
    )
    relay.add_argument(
        "--workers", type=int, default=1, metavar="N", help="number of relay processes (default %(default)s)"
    )

    limits = parser.add_argument_group("limits", "DURATION is, for example, 250ms, 30s or 10m; SIZE is 64KiB or 256MiB")
    limits.add_argument(
        "--max-head",
        default="64KiB",
        metavar="SIZE",
        help="maximum size of request line and headers; larger requests get status 431 (default %(default)s)",
    )
    limits.add_argument(
        "--max-body",
        default="256MiB",
        metavar="SIZE",
        help="maximum size of request bodies, or 'never'; larger requests get status 413 (default %(default)s)",
    )
    limits.add_argument(
        "--max-buffered",
        metavar="SIZE",
        help="maximum memory for request bodies that are incomplete or that the engine has not read, shared equally by "
        "the relays; from 7/8 of it on, no further bytes of uploads are read, and uploads that have stalled for 30 s "
        "get status 503 (default 128MiB, or 16MiB for each of --workers if that is more)",
    )
    limits.add_argument(
        "--connect-timeout",
        default="10s",
        metavar="DURATION",
        help="timeout of connections to the engine; the request then gets status 502 (default %(default)s)",
    )
    limits.add_argument(
        "--client-idle",
        default="75s",
        metavar="DURATION",
        help="close a connection that has sent no byte of its next request for this time, with status 408 if a request "
        "has begun, or 'never' (default %(default)s)",
    )
    limits.add_argument(
        "--cut-stalled-client",
        default="5m",
        metavar="DURATION",
        help="disconnect a client that has not read its response for this time, or 'never' (default %(default)s)",
    )
    limits.add_argument(
        "--cut-first-token",
        metavar="DURATION",
        help="end a request that has no first token after this time (default: never)",
    )
    limits.add_argument(
        "--cut-idle",
        default="10m",
        metavar="DURATION",
        help="end a request if the engine has sent nothing for this time, or 'never' (default %(default)s)",
    )
    limits.add_argument(
        "--drain-delay",
        default="5s",
        metavar="DURATION",
        help="time from SIGTERM, which fails /readyz, until no further connection is accepted (default %(default)s)",
    )
    limits.add_argument(
        "--drain",
        default="15s",
        metavar="DURATION",
        help="time after that for open requests to finish (default %(default)s)",
    )
    limits.add_argument(
        "--linger",
        default="8s",
        metavar="DURATION",
        help="maximum time after that until a scrape has read the final counts (default %(default)s)",
    )

    measuring = parser.add_argument_group("measurement")
    slos.add_flag(measuring)
    measuring.add_argument(
        "--model",
        action="append",
        default=[],
        metavar="NAME",
        help="model name to use as a label value, in addition to the engine's /v1/models (repeatable)",
    )
    measuring.add_argument(
        "--max-models",
        type=int,
        default=MAX_MODELS,
        metavar="N",
        help="maximum number of model names used as label values: those of --model first, then as the engine lists "
        "them; the others are `other` (default %(default)s)",
    )
    measuring.add_argument(
        "--no-inject-usage",
        action="store_true",
        help="do not add include_usage to streams; if the client omits it, their token counts are unknown",
    )
    measuring.add_argument(
        "--check-structured-output",
        action="store_true",
        help="check whether answers that have to be JSON are valid; up to 1 MiB of such an answer is kept in memory",
    )
    measuring.add_argument(
        "--request-log",
        metavar="FILE",
        help="append one JSON object per request to this file, or to standard output (-)",
    )
    measuring.add_argument(
        "--request-log-max-size",
        default="256MiB",
        metavar="SIZE",
        help="rotate the request log before it exceeds this size, or 'never' (default %(default)s)",
    )
    measuring.add_argument(
        "--request-log-max-age",
        default="1d",
        metavar="DURATION",
        help="rotate the request log this time after its first line, or 'never' (default %(default)s)",
    )
    measuring.add_argument(
        "--request-log-total",
        default="8GiB",
        metavar="SIZE",
        help="maximum size of the request log with its rotated files, or 'never'; the oldest files are deleted "
        "(default %(default)s)",
    )
    measuring.add_argument(
        "--log-content",
        default=LogContent.HASH.value,
        metavar="CONTENT",
        help="what the request log has of prompts and completions: off, hash (a salted hash of the prompt) or full "
        "(the hash and both texts) (default %(default)s)",
    )
    measuring.add_argument(
        "--log-content-limit",
        default="16KiB",
        metavar="SIZE",
        help="with --log-content full: cut each prompt and each completion at this size, up to 64KiB (default "
        "%(default)s)",
    )
    measuring.add_argument(
        "--log-prefix-hashes",
        action="store_true",
        help="add hashes of blocks of prompts to the request log, and count the tokens that a prefix cache could share",
    )
    measuring.add_argument(
        "--prompt-hash-salt-file",
        metavar="FILE",
        help="file with the salt of the hashes of prompts, so that those of several sidecars are comparable (default: "
        "random at each start)",
    )
    measuring.add_argument(
        "--engine-metrics",
        action="append",
        default=[],
        metavar="URL",
        help="URL of the engine's metrics; one flag per engine behind a gateway (default: /metrics of the upstream)",
    )
    measuring.add_argument(
        "--engine-name",
        action="append",
        default=[],
        metavar="URL=NAME",
        help="value of the label `engine` for the engine at this --upstream or --engine-metrics (repeatable; default: "
        "HOST:PORT, and HOSTNAME:PORT for a single engine at a loopback address)",
    )
    measuring.add_argument(
        "--engine-token-file",
        metavar="FILE",
        help="file with the bearer token for the engine's metrics and /v1/models, such as its --api-key; SIGHUP reads "
        "it again (default: no token)",
    )
    measuring.add_argument(
        "--roofline", metavar="FILE", help="output of `vllm-slo roofline --format json`, exposed for comparison"
    )

    metrics = parser.add_argument_group("metrics")
    metrics.add_argument(
        "--metrics",
        default="127.0.0.1:9464",
        metavar="H:P",
        help="address of /metrics, /healthz and /readyz (default %(default)s)",
    )
    metrics.add_argument(
        "--metrics-auth-file",
        metavar="FILE",
        help="credentials for these endpoints, one 'bearer TOKEN' or 'basic USER:PASSWORD' per line; /healthz and "
        "/readyz need none (default: no authentication)",
    )
    metrics.add_argument(
        "--admin-token-file",
        metavar="FILE",
        help="file with the bearer token of /admin/, which `vllm-slo flip` and `vllm-slo drain` use; it is valid for "
        "no other endpoint (default: /admin/ is disabled)",
    )
    metrics.add_argument(
        "--state", metavar="FILE", help="file that keeps the config changes across restarts of the sidecar"
    )

    collector_flags.add(parser)
    follow_flags.add(parser)
    add_logging_flags(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Check all flags and files, then run the supervisor."""
    if arguments.workers < 1:
        raise UsageError(f"--workers: {arguments.workers} is not a valid number of relays; use 1 or more")
    if arguments.max_models < 1:
        raise UsageError(f"--max-models: {arguments.max_models} is not a valid number of models; use 1 or more")
    followed = follow_flags.read(arguments)
    trust = _trust(arguments)
    origin(arguments.upstream, trust)
    named_targets(arguments.upstream, arguments.engine_metrics, arguments.engine_name)
    certificate = _certificate(arguments)
    if arguments.metrics_auth_file:
        Credentials(arguments.metrics_auth_file).read()
    if arguments.admin_token_file:
        read_admin_token(arguments.admin_token_file, "--admin-token-file")
    if arguments.engine_token_file:
        EngineToken(arguments.engine_token_file).read()
    salt = _prompt_salt(arguments.prompt_hash_salt_file)
    state = Path(arguments.state).absolute() if arguments.state else None
    if state is not None:
        ConfigChangeStore(state).check()
    slo_file = slos.load(arguments.slos)
    log = _request_log(arguments.request_log)
    config = SidecarConfig(
        upstream=arguments.upstream,
        trust=trust,
        slos=str(arguments.slos.absolute()),
        listen=arguments.listen,
        certificate=certificate,
        metrics=arguments.metrics,
        metrics_auth_file=arguments.metrics_auth_file,
        admin_token_file=arguments.admin_token_file,
        state=str(state) if state else None,
        workers=arguments.workers,
        request_log=log,
        log_rotation=RotationLimits(
            size=_size_or_never(arguments.request_log_max_size, "--request-log-max-size"),
            age=_duration_or_never(arguments.request_log_max_age, "--request-log-max-age"),
            total=_size_or_never(arguments.request_log_total, "--request-log-total"),
        ),
        engine_metrics=tuple(arguments.engine_metrics),
        engine_names=tuple(arguments.engine_name),
        engine_token_file=arguments.engine_token_file,
        roofline=read_ceilings(Path(arguments.roofline)) if arguments.roofline else None,
        allow_paths=tuple(arguments.allow_path),
        expose_engine_metrics=arguments.expose_engine_metrics,
        models=tuple(arguments.model),
        max_models=arguments.max_models,
        inject_usage=not arguments.no_inject_usage,
        check_structured_output=arguments.check_structured_output,
        log_content=_log_content(arguments),
        log_content_limit=_log_content_limit(arguments.log_content_limit),
        log_prefix_hashes=arguments.log_prefix_hashes,
        max_head=parse_flag("--max-head", arguments.max_head, parse_size),
        max_body=_size_or_never(arguments.max_body, "--max-body"),
        max_buffered=_max_buffered(arguments.max_buffered, arguments.workers),
        connect_timeout=parse_flag("--connect-timeout", arguments.connect_timeout, parse_duration),
        client_idle=_duration_or_never(arguments.client_idle, "--client-idle"),
        cut_stalled_client=_duration_or_never(arguments.cut_stalled_client, "--cut-stalled-client"),
        cut_first_token=_duration_or_never(arguments.cut_first_token, "--cut-first-token"),
        cut_idle=_duration_or_never(arguments.cut_idle, "--cut-idle"),
        drain_delay=_duration_or_zero(arguments.drain_delay, "--drain-delay"),
        drain=_duration_or_zero(arguments.drain, "--drain"),
        linger=_duration_or_zero(arguments.linger, "--linger"),
        otlp=collector_flags.read(arguments, os.environ) if followed is None else None,
        engine_spans=collector_flags.receivers(arguments.engine_spans),
        follow=followed,
        log_level=arguments.log_level,
        log_format=arguments.log_format,
    )
    config.check(slo_file)
    if followed is not None:
        FollowStateFile(followed).check()
    if log is not None and log != STANDARD_OUTPUT:
        check_writable(Path(log), private=config.log_content is LogContent.FULL)
    configure_logging(config.log_level, config.log_format, "supervisor")
    for warning in _warnings(arguments, config):
        logger.warning("%s", warning)
    if followed is None:
        collector_flags.log_environment(config.otlp, arguments, os.environ)
    return supervise(config, slo_file, salt)


def _prompt_salt(path: str | None) -> bytes:
    if not path:
        return secrets.token_bytes(16)
    return read_token(
        path, "--prompt-hash-salt-file", "; generate one with: openssl rand -hex 32", what="salt"
    ).encode()


def _log_content(arguments: argparse.Namespace) -> LogContent:
    try:
        content = LogContent(arguments.log_content)
    except ValueError as error:
        raise UsageError(f"--log-content: {arguments.log_content!r} is unknown; use off, hash or full") from error
    if content is LogContent.FULL and not arguments.request_log:
        raise UsageError("--log-content full: needs a request log; add --request-log FILE")
    if content is LogContent.OFF and arguments.log_prefix_hashes:
        raise UsageError("--log-prefix-hashes: conflicts with --log-content off; remove one of them")
    return content


def _log_content_limit(text: str) -> int:
    limit = parse_flag("--log-content-limit", text, parse_size)
    if limit > MAX_LOGGED_CONTENT:
        raise UsageError(
            f"--log-content-limit: {text} is above the maximum of 64KiB, so that programs can read each line"
        )
    return limit


def _max_buffered(text: str | None, workers: int) -> int:
    least = LEAST_BUFFERED * workers
    if text is None:
        return max(MAX_BUFFERED, least)
    size = parse_flag("--max-buffered", text, parse_size)
    if size < least:
        raise UsageError(
            f"--max-buffered: {text} is too small for --workers {workers}: each relay needs 16MiB, because it parses "
            f"bodies of up to 8MiB; use {least >> 20}MiB or more"
        )
    return size


def _request_log(text: str | None) -> str | None:
    if not text:
        return None
    if text != STANDARD_OUTPUT:
        return str(Path(text).absolute())
    if sys.stdout is None:
        raise UsageError("--request-log: standard output is closed; give a file")
    return text


def _trust(arguments: argparse.Namespace) -> Trust:
    ca = pem_file.read(arguments.upstream_ca, "--upstream-ca") if arguments.upstream_ca else None
    trust = Trust(ca=ca, insecure=arguments.upstream_insecure)
    if trust == SYSTEM:
        return trust
    flag = "--upstream-ca" if trust.ca else "--upstream-insecure"
    if trust.ca and trust.insecure:
        raise UsageError("--upstream-insecure: conflicts with --upstream-ca; remove one of them")
    if not any(url.lower().startswith("https:") for url in (arguments.upstream, *arguments.engine_metrics)):
        raise UsageError(f"{flag}: {arguments.upstream} does not use TLS; write https:// or remove {flag}")
    trust.context()
    return trust


def _certificate(arguments: argparse.Namespace) -> Certificate | None:
    cert, key = arguments.tls_cert, arguments.tls_key
    if not cert and not key:
        return None
    if not key:
        raise UsageError("--tls-cert: needs a private key; add --tls-key FILE")
    if not cert:
        raise UsageError("--tls-key: needs a certificate; add --tls-cert FILE")
    certificate = Certificate(cert=cert, key=key)
    certificate.read()
    return certificate


def _warnings(arguments: argparse.Namespace, config: SidecarConfig) -> Iterator[str]:
    if config.log_content is LogContent.FULL:
        yield "--log-content full: THE REQUEST LOG CONTAINS PROMPTS AND COMPLETIONS"
        log = config.request_log
        if (
            log is not None
            and log != STANDARD_OUTPUT
            and (mode := Path(log).stat().st_mode) & 0o077
            and stat.S_ISREG(mode)
        ):
            yield f"--log-content full: {log} is readable by other users; run: chmod 600 {log}"
    if arguments.upstream_insecure:
        yield "--upstream-insecure: THE ENGINE'S CERTIFICATE IS NOT VERIFIED; a man in the middle can read all traffic"
    secrets = {
        "--metrics-auth-file": arguments.metrics_auth_file,
        "--admin-token-file": arguments.admin_token_file,
        "--engine-token-file": arguments.engine_token_file,
        "--prompt-hash-salt-file": arguments.prompt_hash_salt_file,
        "--tls-key": arguments.tls_key,
    }
    for flag, path in secrets.items():
        if path and Path(path).stat().st_mode & stat.S_IROTH:
            yield f"{flag}: {path} is readable by all users; run: chmod o-r {path}"


def _size_or_never(text: str, flag: str) -> int | None:
    return None if text == "never" else parse_flag(flag, text, parse_size)


def _duration_or_zero(text: str, flag: str) -> float:
    return 0.0 if text == "0" else parse_flag(flag, text, partial(parse_duration, allow_zero=True))


def _duration_or_never(text: str | None, flag: str) -> float | None:
    return None if text is None or text == "never" else parse_flag(flag, text, parse_duration)
