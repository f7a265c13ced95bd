"""Converts lines of a sidecar's request log to records, with the verdicts that the sidecar has given."""

from exporters.records.messages import Finished
from exporters.requestlog.reader import parse_line
from exporters.sidecar.ingest.logged_records import record_of
from exporters.vocabulary.signals import OTHER, WARM_UP
from exporters.vocabulary.slo_file import SloFile
from exporters.vocabulary.verdicts import goodput


class RequestLogLines:
    """Reads lines of the format `vllm-slo`.

    The SLO file may have changed since: a class or tenant that it does not have becomes `other`, and a verdict of an
    SLO that does not apply to the class is not counted.
    """

    def __init__(self, slos: SloFile) -> None:
        self._slos = slos
        self._names = {name: frozenset(slo.name for slo in slos.slos_of(name)) for name in (*slos.class_names, WARM_UP)}

    def record(self, line: bytes) -> Finished:
        """The record of a line; raises BadLineError if it is not an entry."""
        entry = parse_line(line)
        record = record_of(entry)
        record.request_id, record.route, record.prompt_sha256 = entry.request_id, entry.route, entry.prompt_sha256
        if record.request_class not in self._names:
            record.request_class = OTHER
        record.tenant = self._slos.tenants.bounded(entry.tenant)
        names = self._names[record.request_class]
        record.slo = {name: verdict for name, verdict in entry.slo.items() if name in names}
        record.goodput = goodput(record.slo.values())
        return record
