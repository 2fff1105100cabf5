"""Runs every Python example of the README with the installed package, against a real server.

`clients/test` runs it in a virtual environment that holds the built wheel, Flask,
FastAPI and requests: `python -m unittest tests.readme_examples`.
"""

import asyncio
import contextlib
import io
import json
import re
import sys
import threading
import unittest
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib import metadata
from pathlib import Path

import checkdam_client
from checkdam_client import Client
from flask import Flask

from .server import Server, certificates, tls_url

RULES = """
rules:
  - { name: user-free, key: "user:{user}", when: { plan: free }, limits: ["1/m burst 6"] }
  - { name: items, key: "endpoint:{endpoint}", when: { endpoint: /items }, limits: ["2/m"] }
"""

ROOT = Path(__file__).parents[3]


def examples(path):
    """The Python blocks of a Markdown file."""
    return re.findall(r"^```python\n(.*?)^```$", (ROOT / path).read_text("utf-8"), re.DOTALL | re.MULTILINE)


def asgi_statuses(app, paths, **headers):
    """Asks an ASGI application for each path; returns the statuses and the last body."""
    sent = []

    async def send(message):
        sent.append(message)

    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}

    async def ask():
        for path in paths:
            scope = {
                "type": "http",
                "asgi": {"version": "3.0"},
                "http_version": "1.1",
                "method": "GET",
                "scheme": "http",
                "path": path,
                "raw_path": path.encode(),
                "query_string": b"",
                "root_path": "",
                "headers": [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()],
                "client": ("203.0.113.9", 50000),
                "server": ("127.0.0.1", 80),
            }
            await app(scope, receive, send)

    asyncio.run(ask())
    body = [message["body"] for message in sent if message["type"] == "http.response.body"][-1]
    return [message["status"] for message in sent if message["type"] == "http.response.start"], body


class LimitedApi(BaseHTTPRequestHandler):
    """An API that denies its first request."""

    statuses = []

    def do_GET(self):
        self.statuses.append(429 if not self.statuses else 200)
        self.send_response(self.statuses[-1])
        self.send_header("Content-Length", "0")
        if self.statuses[-1] == 429:
            self.send_header("Retry-After", "1")
        self.end_headers()

    def log_message(self, *_):
        pass


class ReadmeExamples(unittest.TestCase):
    EXAMPLES = examples("clients/python/README.md")
    used = set()

    @classmethod
    def setUpClass(cls):
        cls.server = Server(RULES)
        cls.addClassCleanup(cls.server.stop)
        cls.api = HTTPServer(("127.0.0.1", 0), LimitedApi)
        cls.addClassCleanup(cls.api.server_close)
        cls.addClassCleanup(cls.api.shutdown)
        threading.Thread(target=cls.api.serve_forever, args=(0.02,), daemon=True).start()
        cls.client = Client(cls.server.url, timeout=5)
        cls.addClassCleanup(cls.client.close)

    @classmethod
    def tearDownClass(cls):
        unused = [text for text in cls.EXAMPLES if text not in cls.used]
        assert not unused, "examples of the README without a test:\n" + "\n".join(unused)

    def setUp(self):
        for user in ("42", "43", "key"):
            self.client.reset({"user": user, "plan": "free"})
        self.client.reset({"endpoint": "/items"})

    def example(self, marker):
        """The only example that contains `marker`."""
        found = [text for text in self.EXAMPLES if marker in text]
        self.assertEqual(len(found), 1, f"examples of the README with {marker!r}")
        self.used.add(found[0])
        return found[0]

    def run_example(self, marker):
        """Runs an example; returns its variables and what it printed."""
        text = self.example(marker)
        text = text.replace("http://127.0.0.1:8080", self.server.url)
        text = text.replace("https://limits.example:8443", tls_url(is_mutual=True))
        for name in ("ca.crt", "client.crt", "client.key"):
            text = text.replace(f'"{name}"', repr(certificates().path(name)))
        text = text.replace("https://api.example.com", f"http://127.0.0.1:{self.api.server_port}")
        # The examples' timeouts suit production, not a machine that compiles beside the tests.
        text = text.replace("timeout=0.2", "timeout=5")
        variables, printed = {"__name__": "example"}, io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(text, f"README.md: {marker}", "exec"), variables)
        return variables, printed.getvalue()

    def exhaust(self):
        self.assertTrue(self.client.check({"user": "42", "plan": "free"}, cost=6).allowed)

    def test_the_installed_package_is_used(self):
        self.assertTrue(Path(checkdam_client.__file__).is_relative_to(sys.prefix), checkdam_client.__file__)
        about = metadata.metadata("checkdam-client")
        self.assertEqual(about["Version"], checkdam_client.__version__)
        self.assertEqual(about["License-Expression"], "Apache-2.0")
        files = {Path(str(file)).name for file in metadata.files("checkdam-client")}
        self.assertLessEqual({"LICENSE", "py.typed"}, files)
        self.assertEqual((ROOT / "LICENSE").read_text(), (ROOT / "clients/python/LICENSE").read_text())

    def test_the_book_shows_the_same_examples(self):
        for text in examples("docs/integrations/clients.md"):
            self.assertIn(text, self.EXAMPLES)

    def test_check(self):
        variables, printed = self.run_example('on_unreachable="open"')
        answer = variables["answer"]
        self.assertEqual((answer.allowed, answer.decided_by, printed), (True, "memory", ""))
        self.client.check({"user": "42", "plan": "free"}, cost=5)
        variables, printed = self.run_example('on_unreachable="open"')
        self.assertFalse(variables["answer"].allowed)
        self.assertRegex(printed, r"^user-free denies it: .*try again in \d")

    def test_batch(self):
        self.assertEqual(self.run_example("check_batch")[1], "[True, True]\n")

    def test_record(self):
        self.assertEqual(self.run_example("client.record")[1], "False 14\n")

    def test_async_client(self):
        self.assertEqual(self.run_example("asyncio.run(main())")[1], "True 5\n")

    def test_tls(self):
        self.assertEqual(self.run_example("ca_file")[1], "True\n")

    def test_limited_function(self):
        self.assertEqual(self.run_example("@limited")[1], "results for dams\n")
        self.client.reset({"user": "42", "plan": "free"})
        self.exhaust()
        self.assertRegex(self.run_example("@limited")[1], r"try again in \d")

    def test_flask(self):
        app = self.run_example("Flask(__name__)")[0]["app"]
        self.assertIsInstance(app, Flask)
        http = app.test_client()
        passed = http.get("/items")
        self.assertEqual((passed.status_code, passed.json), (200, ["one", "two"]))
        self.assertEqual((passed.headers["x-ratelimit-remaining"], http.get("/items").status_code), ("1", 200))
        denied = http.get("/items")
        self.assertEqual((denied.status_code, denied.json["violated-policies"]), (429, ["items"]))
        self.assertIn("retry-after", denied.headers)

    def test_fastapi(self):
        app = self.run_example("FastAPI()")[0]["app"]
        statuses, body = asgi_statuses(app, ["/items", "/items"])
        self.assertEqual((statuses, json.loads(body)), ([200, 200], ["one", "two"]))
        statuses, body = asgi_statuses(app, ["/items"])
        self.assertEqual((statuses, json.loads(body)["violated-policies"]), ([429], ["items"]))

    def test_asgi_with_attributes(self):
        app = self.run_example("async def application")[0]["app"]
        self.assertEqual(asgi_statuses(app, ["/"] * 7, x_api_key="key")[0], [200] * 6 + [429])
        self.assertEqual(asgi_statuses(app, ["/health"], x_api_key="key"), ([200], b"hello"))

    def test_polite(self):
        self.assertEqual(self.run_example("requests.get")[1], "200\n")
        self.assertEqual(LimitedApi.statuses, [429, 200])
