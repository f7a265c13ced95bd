"""`python -m compose.rolling_update.command`: replaces replicas one by one under load; checks that nothing is lost."""

import argparse
import sys
from pathlib import Path

from compose.demo import report
from compose.lab.console import LabConsole, terminal
from compose.lab.run_directory import RunDirectory
from compose.processes import interrupt
from compose.processes.child_processes import ServiceFailedError
from compose.programs.haproxy import find_haproxy
from compose.programs.tools import find_tools
from compose.rolling_update.balancer import Balancing
from compose.rolling_update.update_checks import checks
from compose.rolling_update.update_run import UpdateConfig, run
from exporters.text.errors import UsageError


def main() -> int:
    """Exit status 0 when every check passed, 1 when a check or a process failed, 2 when a program is missing."""
    parser = argparse.ArgumentParser(prog="python -m compose.rolling_update.command", description=__doc__)
    parser.add_argument("--out", default=".lab/rolling-update", help="folder of the run (default: %(default)s)")
    parser.add_argument("--replicas", type=int, default=3, metavar="N", help="default: %(default)s")
    parser.add_argument(
        "--balancing",
        type=Balancing,
        choices=list(Balancing),
        default=Balancing.HTTP,
        help="http: per request, as a gateway; tcp: per connection, as a Service (default: %(default)s)",
    )
    parser.add_argument("--without-hook", action="store_true", help="no preStop hook: shows what is lost without it")
    arguments = parser.parse_args()
    config = UpdateConfig(
        directory=RunDirectory(Path(arguments.out).absolute()),
        replicas=arguments.replicas,
        balancing=arguments.balancing,
        hook=not arguments.without_hook,
    )
    console = LabConsole(terminal())
    try:
        result = interrupt.run(run(config, find_tools(), find_haproxy(), console.print_line))
    except interrupt.InterruptedBySignalError as stopped:
        console.print_line(f"{stopped}: all processes have been stopped")
        return stopped.exit_code
    except ServiceFailedError as error:
        print(error, file=sys.stderr)
        return 1
    except UsageError as error:
        print(error, file=sys.stderr)
        return 2
    done = checks(result)
    console.console.print(report.check_table(done))
    return 0 if all(check.passed for check in done) else 1


if __name__ == "__main__":
    sys.exit(main())
