"""The liveness probe of the engine: it fails if the sidecar says that the engine has been wedged or down for a while.

Usage: python3 livez.py [URL]. Without a response of the sidecar it succeeds: a missing one must not restart the engine.
"""

import ssl
import sys
import urllib.error
import urllib.request

TIMEOUT_SECONDS = 3.0


def main(url: str = "http://127.0.0.1:9464") -> int:
    """0 unless the engine should be restarted; the kubelet shows standard error as the reason."""
    # No certificate has the loopback address.
    tls = urllib.request.HTTPSHandler(context=ssl._create_unverified_context())  # noqa: S323, SLF001
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), tls)
    try:
        opener.open(f"{url}/engine/livez", timeout=TIMEOUT_SECONDS).close()
    except urllib.error.HTTPError as error:
        if error.code == 503:
            print(error.read(500).decode(errors="replace").strip(), file=sys.stderr)
            return 1
    except OSError:
        pass
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
