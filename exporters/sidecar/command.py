"""`vllm-slo sidecar`: declares and checks the flags, then starts the supervisor."""

import argparse
import logging
import os
import secrets
import stat
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

from exporters.configuration import config_file, flags
from exporters.configuration.origin import origin
from exporters.configuration.sidecar import LEAST_BUFFERED, LogContent, SidecarConfig, SidecarFlags, TlsPort
from exporters.configuration.tls import SYSTEM, Certificate, Trust
from exporters.engines.bearer_token import EngineToken
from exporters.engines.changes.store import ConfigChangeStore
from exporters.engines.names import named_targets
from exporters.requestlog.standard_output import STANDARD_OUTPUT
from exporters.requestlog.writer import check_writable
from exporters.sidecar.follow.flags import read_followed
from exporters.sidecar.http_api.admin_messages import read_admin_token
from exporters.sidecar.http_api.credentials import Credentials
from exporters.sidecar.supervision.supervisor import supervise
from exporters.sidecar.tracing import collector_flags
from exporters.text import pem_file
from exporters.text.errors import UsageError
from exporters.text.logs import configure_logging
from exporters.text.token_file import read_token
from exporters.text.units import shortest_size
from exporters.vocabulary import slo_file as slos
from exporters.vocabulary.ceilings import read_ceilings

logger = logging.getLogger("vllm_slo.sidecar")


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    where = parser.add_argument_group("configuration file")
    where.add_argument(
        "--config",
        metavar="FILE",
        help="YAML file in which every flag is a key; the command line and the environment take precedence "
        "(default: no file)",
    )
    where.add_argument(
        "--print-config", action="store_true", help="print the result with the origin of each value, and exit"
    )
    flags.add(parser, SidecarFlags)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the supervisor with the configuration of the command line, the environment and the file."""
    file = config_file.read(Path(arguments.config), SidecarFlags) if arguments.config else {}
    given = flags.given(SidecarFlags, arguments, os.environ, file)
    if arguments.print_config:
        print("\n".join(config_file.described(SidecarFlags, given)))
        return 0
    try:
        return _start(flags.read(SidecarFlags, given))
    except UsageError as error:
        raise UsageError(flags.located(str(error), SidecarFlags, given)) from error


def _start(given: SidecarFlags) -> int:
    """Check all flags and files, then run the supervisor."""
    followed = read_followed(given)
    _check_together(given)
    trust = _trust(given)
    origin(given.upstream, trust)
    named_targets(given.upstream, given.engine_metrics, given.engine_names)
    certificate = _certificate(given)
    if given.metrics_auth_file:
        Credentials(given.metrics_auth_file).read()
    if given.admin_token_file:
        read_admin_token(given.admin_token_file, "--admin-token-file")
    if given.engine_token_file:
        EngineToken(given.engine_token_file).read()
    salt = _prompt_salt(given.prompt_hash_salt_file)
    if given.state is not None:
        ConfigChangeStore(Path(given.state)).check()
    slo_file = slos.load(Path(given.slos))
    collector_flags.check_receivers(given.engine_spans)
    config = SidecarConfig(
        **{field.name: getattr(given, field.name) for field in fields(given)},
        trust=trust,
        certificate=certificate,
        roofline=read_ceilings(Path(given.roofline_file)) if given.roofline_file else None,
        otlp=collector_flags.read(given, os.environ) if followed is None else None,
        follow=followed,
    )
    config.check(slo_file)
    if followed is not None:
        from exporters.sidecar.follow.state import FollowStateFile  # noqa: PLC0415 - a third of the time of all imports

        FollowStateFile(followed).check()
    log = given.request_log
    if log is not None and log != STANDARD_OUTPUT:
        check_writable(Path(log), private=given.log_content is LogContent.FULL)
    configure_logging(given.log_level, given.log_format, "supervisor")
    for warning in _warnings(given):
        logger.warning("%s", warning)
    if followed is None:
        collector_flags.log_environment(config.otlp, given, os.environ)
    return supervise(config, slo_file, salt)


def _check_together(given: SidecarFlags) -> None:
    """Check what flags require of each other."""
    least = LEAST_BUFFERED * given.workers
    if given.max_buffered is not None and given.max_buffered < least:
        raise UsageError(
            f"--max-buffered: {shortest_size(given.max_buffered)} is too small for --workers {given.workers}: each "
            f"relay needs 16MiB, because it parses bodies of up to 6MiB; use {least >> 20}MiB or more"
        )
    if given.request_log == STANDARD_OUTPUT and sys.stdout is None:
        raise UsageError("--request-log: standard output is closed; give a file")
    if given.ready_when_warm and not given.admin_token_file:
        raise UsageError(
            "--ready-when-warm: needs the token by which vllm-slo load warm-up --ready reports; add "
            "--admin-token-file FILE"
        )
    if given.log_content is LogContent.FULL and not given.request_log:
        raise UsageError("--log-content full: needs a request log; add --request-log FILE")
    if given.log_content is LogContent.OFF and given.log_prefix_hashes:
        raise UsageError("--log-prefix-hashes: conflicts with --log-content off; remove one of them")


def _prompt_salt(path: str | None) -> bytes:
    if not path:
        return secrets.token_bytes(16)
    return read_token(
        path, "--prompt-hash-salt-file", "; generate one with: openssl rand -hex 32", what="salt"
    ).encode()


def _trust(given: SidecarFlags) -> Trust:
    ca = pem_file.read(given.upstream_ca, "--upstream-ca") if given.upstream_ca else None
    trust = Trust(ca=ca, insecure=given.upstream_insecure)
    if trust == SYSTEM:
        return trust
    flag = "--upstream-ca" if trust.ca else "--upstream-insecure"
    if trust.ca and trust.insecure:
        raise UsageError("--upstream-insecure: conflicts with --upstream-ca; remove one of them")
    if not any(url.lower().startswith("https:") for url in (given.upstream, *given.engine_metrics)):
        raise UsageError(f"{flag}: {given.upstream} does not use TLS; write https:// or remove {flag}")
    trust.context()
    return trust


def _certificate(given: SidecarFlags) -> Certificate | None:
    cert, key = given.tls_cert, given.tls_key
    if not cert and not key:
        if given.tls_port is not TlsPort.CLIENTS:
            raise UsageError(
                f"--tls-port {given.tls_port}: needs a certificate; add --tls-cert FILE and --tls-key FILE"
            )
        return None
    if not key:
        raise UsageError("--tls-cert: needs a private key; add --tls-key FILE")
    if not cert:
        raise UsageError("--tls-key: needs a certificate; add --tls-cert FILE")
    certificate = Certificate(cert=cert, key=key)
    certificate.read()
    return certificate


def _warnings(given: SidecarFlags) -> Iterator[str]:
    if given.log_content is LogContent.FULL:
        yield "--log-content full: THE REQUEST LOG CONTAINS PROMPTS AND COMPLETIONS"
        log = given.request_log
        if (
            log is not None
            and log != STANDARD_OUTPUT
            and (mode := Path(log).stat().st_mode) & 0o077
            and stat.S_ISREG(mode)
        ):
            yield f"--log-content full: {log} is readable by other users; run: chmod 600 {log}"
    if given.upstream_insecure:
        yield "--upstream-insecure: THE ENGINE'S CERTIFICATE IS NOT VERIFIED; a man in the middle can read all traffic"
    secrets = {
        "--metrics-auth-file": given.metrics_auth_file,
        "--admin-token-file": given.admin_token_file,
        "--engine-token-file": given.engine_token_file,
        "--prompt-hash-salt-file": given.prompt_hash_salt_file,
        "--tls-key": given.tls_key,
    }
    for flag, path in secrets.items():
        if path and Path(path).stat().st_mode & stat.S_IROTH:
            yield f"{flag}: {path} is readable by all users; run: chmod o-r {path}"
