"""Serve a folder of shards on this machine, and count what is asked for.

python examples/make_dataset.py digits
python examples/serve.py digits        # then, elsewhere, open http://127.0.0.1:8000/train.json
"""

import http.server
import sys
import threading
from collections import Counter
from pathlib import Path


class CountingServer(http.server.ThreadingHTTPServer):
    """Serves one folder to this machine only, from threads of its own; port 0 is any free one."""

    daemon_threads = True

    def __init__(self, folder: Path, port: int = 0) -> None:
        self.requests: Counter[str] = Counter()
        server = self

        class Handler(http.server.SimpleHTTPRequestHandler):
            def __init__(self, *arguments: object) -> None:
                super().__init__(*arguments, directory=str(folder))

            def log_message(self, *_: object) -> None:
                server.requests[f"{self.command} {self.path}"] += 1

        super().__init__(("127.0.0.1", port), Handler)
        self._thread = threading.Thread(target=self.serve_forever, daemon=True)
        self._thread.start()

    def url(self, name: str) -> str:
        """Return the URL of a file in the folder."""
        return f"http://127.0.0.1:{self.server_port}/{name}"


if __name__ == "__main__":
    server = CountingServer(Path(sys.argv[1] if len(sys.argv) > 1 else "digits"), 8000)
    print(f"serving at {server.url('')}; Enter ends it")
    input()
    for request, count in sorted(server.requests.items()):
        print(f"{count:4} {request}")
