"""Runs a child of the sidecar with a twentieth of its limits of records and lines, which a soak reaches in seconds.

The supervisor starts it in place of the interpreter, with the same words: `-P -m MODULE`.
"""

import runpy
import sys

OUTBOX_RECORDS, PENDING_RECORDS = 2_500, 1_000


def main() -> None:
    module = sys.argv[sys.argv.index("-m") + 1]
    if module == "exporters.relay.process":
        from exporters.relay.record_sender import Outbox  # noqa: PLC0415 - only the relay has it

        Outbox.__init__.__defaults__ = (OUTBOX_RECORDS,)
    else:
        from exporters.sidecar.ingest import receiver  # noqa: PLC0415 - only the exporter has it

        receiver.MAX_PENDING_RECORDS = PENDING_RECORDS
    sys.argv = [module]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
