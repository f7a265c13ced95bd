"""The values of the labels of alerts: the severities of the SLO file, and the class of an alert on several classes."""

from alerts.tiers import Severity
from exporters.vocabulary.slo_file import Severities

POOL = "low-traffic classes"
"""The value of `class`. No class of an SLO file can have this name, as it contains a space."""


def severity_value(severities: Severities, severity: Severity) -> str:
    """The value of the label `severity`."""
    match severity:
        case Severity.PAGE:
            return severities.page
        case Severity.TICKET:
            return severities.ticket
        case Severity.NONE:
            return str(severity)
