"""The `OTEL_*` variables as defaults of the flags about spans."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from compose.cli import main
from exporters.configuration import otel_environment as otel
from exporters.configuration import otlp_endpoints
from exporters.configuration.collector_tls import CollectorTls
from exporters.configuration.otlp_endpoints import Semconv
from exporters.configuration.sidecar import SidecarFlags
from exporters.sidecar.tracing import collector_flags
from exporters.text import pem_file
from exporters.text.errors import UsageError
from tests.exporters.configuration.certificates import authority, needs_openssl

BASE = "OTEL_EXPORTER_OTLP_ENDPOINT"
TRACES = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
PROTOCOL = "OTEL_EXPORTER_OTLP_PROTOCOL"
TRACES_PROTOCOL = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"
SUFFIXES = "COMPRESSION", "TIMEOUT", "HEADERS"
SAMPLERS = (
    "always_on, parentbased_always_on, always_off, parentbased_always_off, traceidratio, parentbased_traceidratio"
)
UPSTREAM = ("sidecar", "--upstream", "http://127.0.0.1:1")


@pytest.mark.parametrize(
    "environment,url",
    [
        pytest.param({BASE: "http://c"}, "http://c:4318/v1/traces", id="base URL"),
        pytest.param({BASE: "https://c:443/otlp/"}, "https://c:443/otlp/v1/traces", id="base URL with a path"),
        pytest.param({BASE: "HTTPS://c:443"}, "https://c:443/v1/traces", id="scheme in upper case"),
        pytest.param({BASE: "Http://c", PROTOCOL: "grpc"}, "grpc://c:4317", id="gRPC, scheme in another case"),
        pytest.param({TRACES: "http://c:80/here"}, "http://c:80/here", id="URL for traces"),
        pytest.param({TRACES: "http://c:80"}, "http://c:80/", id="URL for traces without a path"),
        pytest.param({BASE: "http://c:4317", PROTOCOL: "grpc"}, "grpc://c:4317", id="gRPC"),
        pytest.param({TRACES: "https://c", PROTOCOL: "gRPC"}, "grpcs://c:4317", id="gRPC with TLS"),
        pytest.param({BASE: "grpc://c"}, "grpc://c:4317", id="gRPC by its own scheme"),
        pytest.param(
            {BASE: "http://c", PROTOCOL: "grpc", TRACES_PROTOCOL: "http/protobuf"},
            "http://c:4318/v1/traces",
            id="protocol for traces",
        ),
    ],
)
def test_the_collector_is_that_of_the_variables(environment: dict[str, str], url: str) -> None:
    (variable,) = environment.keys() & {BASE, TRACES}
    assert otel.endpoint(environment) == (variable, url)


def test_the_variable_for_traces_takes_precedence_over_the_one_for_all_signals() -> None:
    assert otel.endpoint({BASE: "http://a", TRACES: "http://b/v1/traces"}) == (TRACES, "http://b:4318/v1/traces")
    assert otel.timeout({"OTEL_EXPORTER_OTLP_TIMEOUT": "1", "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT": "250"}) == 0.25


@pytest.mark.parametrize(
    "environment",
    [
        pytest.param({}, id="unset"),
        pytest.param({BASE: " ", TRACES: ""}, id="empty"),
        pytest.param({BASE: "http://c", "OTEL_TRACES_EXPORTER": "none"}, id="no exporter of traces"),
    ],
)
def test_without_an_endpoint_there_is_no_collector(environment: dict[str, str]) -> None:
    assert otel.endpoint(environment) is None


def test_only_true_disables_all_spans() -> None:
    texts = ("true", " True ", "false", "", "1")
    assert [text for text in texts if otel.disabled({"OTEL_SDK_DISABLED": text})] == ["true", " True "]


@pytest.mark.parametrize(
    "sampler,ratio,share",
    [
        pytest.param("", "", None, id="unset"),
        pytest.param("always_on", "0.5", 1.0, id="always_on"),
        pytest.param("parentbased_always_on", "", 1.0, id="parentbased_always_on"),
        pytest.param("always_off", "", 0.0, id="always_off"),
        pytest.param("parentbased_always_off", "", 0.0, id="parentbased_always_off"),
        pytest.param("traceidratio", "0.25", 0.25, id="traceidratio"),
        pytest.param("ParentBased_TraceIdRatio", "0", 0.0, id="parentbased_traceidratio"),
        pytest.param("traceidratio", "", 1.0, id="a ratio without argument"),
        pytest.param("jaeger_remote", "0.25", None, id="not supported"),
    ],
)
def test_a_sampler_gives_the_share_of_good_requests(sampler: str, ratio: str, share: float | None) -> None:
    assert otel.good_share({"OTEL_TRACES_SAMPLER": sampler, "OTEL_TRACES_SAMPLER_ARG": ratio}) == share


@pytest.mark.parametrize(
    "text,flag,version",
    [
        pytest.param("", None, Semconv.V1_44, id="unset"),
        pytest.param("gen_ai_latest_experimental", None, Semconv.V1_44, id="the latest version"),
        pytest.param("http/dup, gen_ai_latest_experimental", None, Semconv.V1_44, id="one of a list"),
        pytest.param("http/dup", None, Semconv.V1_36, id="a list without it"),
        pytest.param("http/dup", "1.44", Semconv.V1_44, id="the flag takes precedence"),
        pytest.param("gen_ai_latest_experimental", "1.36", Semconv.V1_36, id="also for the older version"),
    ],
)
def test_the_version_of_the_attribute_names_is_that_of_the_flag_or_of_the_variable(
    text: str, flag: str | None, version: Semconv
) -> None:
    given = SidecarFlags(upstream="http://e", collector="http://c", otlp_semconv=flag)
    collector = collector_flags.read(given, {"OTEL_SEMCONV_STABILITY_OPT_IN": text})
    assert collector is not None
    assert collector.semconv is version


def test_the_older_version_by_the_variable_is_logged_at_start(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    collector = otlp_endpoints.Collector(url="http://c:4318/v1/traces", semconv=Semconv.V1_36)
    variable = {"OTEL_SEMCONV_STABILITY_OPT_IN": "http"}
    given = SidecarFlags(upstream="http://e", collector="http://c")
    collector_flags.log_environment(collector, given, variable)
    assert caplog.messages == [
        "OTEL_SEMCONV_STABILITY_OPT_IN has no gen_ai_latest_experimental: spans have the GenAI attribute names of 1.36"
    ]
    caplog.clear()
    collector_flags.log_environment(collector, replace(given, otlp_semconv="1.36"), variable)
    collector_flags.log_environment(collector, given, {})
    assert caplog.messages == []


@pytest.mark.parametrize(
    "environment,warnings",
    [
        pytest.param({}, [], id="unset"),
        pytest.param({"OTEL_SDK_DISABLED": "TRUE", "OTEL_TRACES_SAMPLER": "always_on"}, [], id="valid"),
        pytest.param(
            {"OTEL_SDK_DISABLED": "yes"},
            ["OTEL_SDK_DISABLED: 'yes' is neither true nor false; it counts as false"],
            id="OTEL_SDK_DISABLED",
        ),
        pytest.param(
            {"OTEL_TRACES_SAMPLER": "xray"},
            [f"OTEL_TRACES_SAMPLER: 'xray' is not supported and has no effect; use {SAMPLERS}"],
            id="OTEL_TRACES_SAMPLER",
        ),
    ],
)
def test_a_value_without_effect_is_named_in_a_warning(environment: dict[str, str], warnings: list[str]) -> None:
    assert list(otel.warnings(environment)) == warnings


def test_headers_are_decoded_and_their_names_are_lower_case() -> None:
    text = "Authorization=Basic YTpi==, x-list=a%2Cb,"
    assert otel.headers({"OTEL_EXPORTER_OTLP_HEADERS": text}) == {"authorization": "Basic YTpi==", "x-list": "a,b"}
    assert otel.headers({}) == {}


def test_delivery_has_defaults_and_empty_variables_count_as_unset() -> None:
    for environment in ({}, {f"OTEL_EXPORTER_OTLP_{suffix}": "" for suffix in SUFFIXES}):
        assert (otel.timeout(environment), otel.gzip(environment)) == (3.0, False)
    assert otel.gzip({"OTEL_EXPORTER_OTLP_COMPRESSION": "gzip"})
    assert not otel.gzip({"OTEL_EXPORTER_OTLP_COMPRESSION": "gzip", "OTEL_EXPORTER_OTLP_TRACES_COMPRESSION": "none"})
    assert otel.timeout({"OTEL_EXPORTER_OTLP_TIMEOUT": "10000"}) == 10.0


@pytest.mark.parametrize(
    "variable,value,message",
    [
        pytest.param(
            BASE,
            "c:4317",
            "'c:4317' is not a valid URL; write http://127.0.0.1:4318 or grpc://127.0.0.1:4317",
            id="endpoint",
        ),
        pytest.param(
            TRACES,
            "http://user:secret@c",
            "the URL contains credentials; use --otlp-header 'authorization=Basic ...' instead",
            id="endpoint with credentials",
        ),
        pytest.param(PROTOCOL, "http/json", "'http/json' is not supported; use grpc or http/protobuf", id="protocol"),
        pytest.param(
            "OTEL_EXPORTER_OTLP_TRACES_HEADERS",
            "a=b,secret",
            "header number 2 is invalid (its value is not shown); "
            "write name=value,name=value in printable ASCII, with %2C for a comma in a value",
            id="headers",
        ),
        *(
            pytest.param(
                "OTEL_EXPORTER_OTLP_TIMEOUT",
                value,
                f"{value!r} is not a valid timeout; write milliseconds as an integer, such as 3000",
                id=f"timeout {value}",
            )
            for value in ("3s", "0", "-1", "1.5")
        ),
        pytest.param(
            "OTEL_EXPORTER_OTLP_COMPRESSION",
            "deflate",
            "'deflate' is not supported; use gzip or none",
            id="compression",
        ),
        pytest.param(
            "OTEL_RESOURCE_ATTRIBUTES",
            "a=b,c",
            "'c' is not a valid attribute; write name=value,name=value",
            id="resource",
        ),
        *(
            pytest.param(
                "OTEL_TRACES_SAMPLER_ARG",
                value,
                f"{value!r} is not a valid ratio; write a number from 0 to 1, such as 0.01",
                id=f"ratio {value}",
            )
            for value in ("1%", "1.5", "-0.1", "nan")
        ),
    ],
)
def test_the_command_reports_an_invalid_variable_by_name_and_exits_with_2(
    variable: str, value: str, message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, text in {BASE: "http://c", "OTEL_TRACES_SAMPLER": "traceidratio", variable: value}.items():
        monkeypatch.setenv(name, text)
    assert main([*UPSTREAM]) == 2
    assert capsys.readouterr().err == f"vllm-slo: {variable}: {message}\n"


@needs_openssl
def test_certificates_are_checked_by_variable(tmp_path: Path) -> None:
    signer = authority(tmp_path / "ca")
    ours, other = signer.issue("ours"), signer.issue("other")
    locked = str(tmp_path / "locked.key")
    subprocess.run(
        ["openssl", "pkey", "-in", ours.key, "-aes256", "-passout", "pass:word", "-out", locked], check=True, timeout=60
    )
    ca, cert, key = (f"OTEL_EXPORTER_OTLP_{name}" for name in ("CERTIFICATE", "CLIENT_CERTIFICATE", "CLIENT_KEY"))
    of_traces = "OTEL_EXPORTER_OTLP_TRACES_CLIENT_CERTIFICATE"
    valid = {ca: signer.ca, cert: ours.cert, key: ours.key}
    ca_file, cert_file, key_file = (pem_file.read(path, "") for path in valid.values())
    assert otel.tls(valid) == CollectorTls(ca=ca_file, certificate=cert_file, key=key_file)
    assert otel.tls({}) == CollectorTls()
    missing = str(tmp_path / "missing")
    for environment, message in (
        ({ca: missing}, f"{ca}: {missing} cannot be read: no such file or directory"),
        ({ca: ours.key}, f"{ca}: {ours.key} cannot be used: no certificate or crl found"),
        ({of_traces: ours.cert}, f"{of_traces}: needs a private key; set OTEL_EXPORTER_OTLP_TRACES_CLIENT_KEY"),
        ({key: ours.key}, f"{key}: needs a certificate; set {cert}"),
        ({**valid, key: missing}, f"{key}: {missing} cannot be read: no such file or directory"),
        ({**valid, key: other.key}, f"{cert}: {ours.cert} cannot be used: key values mismatch"),
        ({**valid, key: locked}, f"{key}: {locked} has a passphrase; remove it with: openssl pkey -in {locked}"),
    ):
        with pytest.raises(UsageError) as caught:
            otel.tls(environment)
        assert str(caught.value) == message
