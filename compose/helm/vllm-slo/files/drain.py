"""The preStop hook of the engine: drains the sidecar, and returns when no request is open or time is out.

Usage: python3 drain.py SECONDS [URL] [TOKEN_FILE]. It runs in the engine's image, with any Python 3 and no package.
"""

import ssl
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

RETRY_SECONDS = 0.2
DEFAULTS = ("http://127.0.0.1:9464", "/etc/vllm-slo-admin/token")


def main(seconds: str, url: str = DEFAULTS[0], token_file: str = DEFAULTS[1]) -> int:
    """0 after a drain, 1 if it failed; a request that is lost with the exporter, which is restarted, is repeated."""
    deadline = time.monotonic() + float(seconds)
    token = Path(token_file).read_text(encoding="ascii").strip()
    headers = {"authorization": f"Bearer {token}"}
    # Not through a proxy of the environment, which would receive the token. No certificate has the loopback address.
    tls = urllib.request.HTTPSHandler(context=ssl._create_unverified_context())  # noqa: S323, SLF001
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), tls)
    failure = "no response"
    while (left := deadline - time.monotonic()) > 0:
        request = urllib.request.Request(f"{url}/admin/drain", method="POST", headers=headers)  # noqa: S310
        try:
            with opener.open(request, timeout=left) as response:
                print(response.read().decode().strip())
                return 0
        except urllib.error.HTTPError as error:
            print(f"drain: {url} responded {error.code}: {error.read(200).decode(errors='replace')}", file=sys.stderr)
            return 1
        except OSError as error:
            failure = str(error)
        time.sleep(RETRY_SECONDS)
    print(f"drain: not finished after {seconds} s: {failure}; the drain continues", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
