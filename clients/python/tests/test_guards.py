"""The decorator and the middlewares, in front of functions and applications that count their calls."""

import asyncio
import json
import threading
import unittest
import urllib.error
import urllib.request
from pathlib import Path
from wsgiref.simple_server import WSGIRequestHandler, make_server

from checkdam_client import (
    AmbiguousPath,
    AsyncClient,
    Client,
    Limited,
    PathForms,
    RateLimitMiddleware,
    Refused,
    WsgiRateLimitMiddleware,
    environ_attributes,
    limited,
    scope_attributes,
)
from checkdam_client.normalize import client_address, endpoint, has_dot_segments, host_name

from .server import server_url, silent_address


class Decorated(unittest.TestCase):
    def setUp(self):
        self.client = Client(server_url(), timeout=5)
        self.addCleanup(self.client.close)

    def test_a_function(self):
        calls = []

        @limited(self.client, lambda user, cost=1: {"user": user}, cost=lambda user, cost=1: cost)
        def work(user, cost=1):
            """Works."""
            calls.append(user)
            return user.upper()

        self.assertEqual((work.__name__, work.__doc__), ("work", "Works."))
        self.assertEqual(work("deco", cost=2), "DECO")
        self.assertEqual(work("deco"), "DECO")
        with self.assertRaises(Limited) as caught:
            work("deco")
        self.assertEqual((caught.exception.answer.violated, len(calls)), ("user", 2))
        self.assertEqual(work("deco-other"), "DECO-OTHER")

    def test_a_coroutine_function(self):
        async def scenario():
            async with AsyncClient(server_url(), timeout=5) as client:
                calls = []

                @limited(client, {"user": "deco-async"}, cost=3)
                async def work():
                    calls.append(1)

                await work()
                with self.assertRaises(Limited):
                    await work()
                self.assertEqual(len(calls), 1)

        asyncio.run(scenario())

    def test_the_wrong_client(self):
        with self.assertRaisesRegex(TypeError, "work needs an AsyncClient, not Client"):

            @limited(self.client, {"user": "x"})
            async def work(): ...

    def test_a_delay_is_waited_for_or_given_back(self):
        queue = {"queue": "deco"}
        work = limited(self.client, queue, delay_max=0.25)(lambda: True)
        self.assertTrue(work())
        self.assertTrue(work())
        self.client.check(queue, cost=10)
        before = self.client.peek(queue).remaining
        with self.assertRaises(Limited) as caught:
            work()
        answer = caught.exception.answer
        self.assertEqual((answer.status, answer.allowed), (429, False))
        self.assertTrue(0 < answer.retry_after <= 2 and int(answer.headers["retry-after"]) >= answer.retry_after)
        self.assertGreaterEqual(self.client.peek(queue).remaining, before)


class Normalization(unittest.TestCase):
    CASES = json.loads((Path(__file__).parents[2] / "normalize-cases.json").read_text("utf-8"))

    def test_paths_hosts_and_addresses(self):
        for kind, written in [("endpoints", endpoint), ("hosts", host_name), ("addresses", client_address)]:
            for sent, expected in self.CASES[kind]:
                with self.subTest(kind, sent=sent):
                    self.assertEqual(written(sent), expected)

    def test_forms_that_only_some_applications_read_alike(self):
        for forms, sent, expected in self.CASES["forms"]:
            with self.subTest(forms=forms, sent=sent):
                self.assertEqual(endpoint(sent, PathForms(**forms)), expected)
        for forms, sent, expected in self.CASES["dots"]:
            with self.subTest(forms=forms, sent=sent):
                self.assertEqual(has_dot_segments(sent, PathForms(**forms)), expected)
        for sent in self.CASES["refused"]:
            with self.subTest(sent=sent), self.assertRaises(AmbiguousPath):
                endpoint(sent)
        with self.assertRaisesRegex(ValueError, "slashes is 'allow': use one of refuse, keep, decode"):
            PathForms(slashes="allow")

    def test_paths_that_a_server_has_decoded(self):
        scope = {"path": "/caf\u00e9/a b", "headers": [], "client": None}
        self.assertEqual(scope_attributes(scope)["endpoint"], "/caf%C3%A9/a%20b")
        # Applications route by the decoded path.
        self.assertEqual(scope_attributes({**scope, "path": "/x/y", "raw_path": b"/x%2Fy"})["endpoint"], "/x/y")
        environ = {"REQUEST_METHOD": "get", "PATH_INFO": "/x"}
        self.assertEqual(environ_attributes(environ), {"method": "GET", "endpoint": "/x"})
        environ = {"REQUEST_METHOD": "GET", "PATH_INFO": "/caf\u00c3\u00a9/100%"}
        self.assertEqual(environ_attributes(environ), {"method": "GET", "endpoint": "/caf%C3%A9/100%25"})


async def hello(scope, receive, send):
    scope["state"]["calls"] += 1
    if scope["type"] == "websocket":
        await send({"type": "websocket.accept"})
        return
    await send({"type": "http.response.start", "status": 201, "headers": [(b"X-RateLimit-Limit", b"own")]})
    await send({"type": "http.response.body", "body": b"hello"})


class Asgi(unittest.TestCase):
    """Drives the middleware as an ASGI server does, in front of a real checkdam server."""

    def drive(self, scenario, url=None, **settings):
        async def run():
            async with AsyncClient(url or server_url(), timeout=5) as client:
                return await scenario(RateLimitMiddleware(hello, client=client, **settings))

        return asyncio.run(run())

    async def request(self, app, path="/limited", peer="198.51.100.1", **more):
        state = {"calls": 0}
        scope = {
            "type": "http",
            "method": "GET",
            "path": path,
            "headers": [(b"host", b"Example.com:80")],
            "client": (peer, 1234),
            "state": state,
            **more,
        }
        sent = []

        async def send(message):
            sent.append(message)

        async def receive():
            return {"type": "websocket.connect"}

        await app(scope, receive, send)
        return state["calls"], sent

    @staticmethod
    def headers(message):
        return {name.decode().lower(): value.decode() for name, value in message["headers"]}

    def test_denied_requests_do_not_reach_the_application(self):
        async def scenario(app):
            return [await self.request(app, path) for path in ("/limited", "//limited", "/x/../limited")]

        passed, _, denied = self.drive(scenario, attributes=lambda scope: {"endpoint": endpoint(scope["path"])})
        calls, (start, body) = passed
        self.assertEqual((calls, start["status"], body["body"]), (1, 201, b"hello"))
        headers = self.headers(start)
        self.assertEqual((headers["x-ratelimit-limit"], headers["x-ratelimit-remaining"]), ("own", "1"))
        self.assertIn("ratelimit-policy", headers)
        calls, (start, body) = denied
        self.assertEqual((calls, start["status"]), (0, 429))
        headers, problem = self.headers(start), json.loads(body["body"])
        self.assertEqual(headers["content-type"], "application/problem+json")
        self.assertTrue(0 < int(headers["retry-after"]) <= 60)
        self.assertEqual((problem["status"], problem["violated-policies"]), (429, ["endpoint"]))

    def test_the_address_of_the_connection_counts(self):
        async def scenario(app):
            peers = ["2001:db8::1", "2001:db8::2", "2001:db8::3", "2001:db8:1::3"]
            return [(await self.request(app, "/", peer))[0] for peer in peers]

        self.assertEqual(self.drive(scenario), [1, 1, 0, 1])

    def test_web_sockets(self):
        async def scenario(app):
            await self.request(app)
            await self.request(app)
            plain = await self.request(app, type="websocket")
            extended = await self.request(app, type="websocket", extensions={"websocket.http.response": {}})
            return plain, extended

        plain, extended = self.drive(scenario, attributes=lambda scope: {"ip": "203.0.113.200"})
        self.assertEqual((plain[0], plain[1][0]["type"], plain[1][0]["code"]), (0, "websocket.close", 1013))
        self.assertEqual((extended[1][0]["type"], extended[1][0]["status"]), ("websocket.http.response.start", 429))

    def test_requests_that_are_not_limited(self):
        async def scenario(app):
            lifespan = await self.request(app, type="lifespan")
            return [lifespan[0]] + [(await self.request(app))[0] for _ in range(4)]

        self.assertEqual(self.drive(scenario, attributes=lambda scope: None), [1] * 5)

    def test_a_delay_is_waited_for_or_answered_with_429(self):
        async def scenario(app):
            first, second = await self.request(app), await self.request(app)
            return first, second, await asyncio.gather(*(self.request(app) for _ in range(10)))

        first, second, rest = self.drive(scenario, attributes=lambda scope: {"queue": "asgi"}, delay_max=0.5)
        self.assertEqual((first[0], second[0]), (1, 1))
        refused = [sent[0] for calls, sent in rest if not calls]
        self.assertTrue(1 <= len(refused) <= 9, len(refused))
        self.assertEqual({start["status"] for start in refused}, {429})
        self.assertTrue(all(int(self.headers(start)["retry-after"]) >= 1 for start in refused))

    def test_an_unreachable_server_is_a_503(self):
        calls, (start, _) = self.drive(self.request, url=silent_address())
        self.assertEqual((calls, start["status"], self.headers(start)["retry-after"]), (0, 503, "1"))

    def test_a_path_that_is_too_long_does_not_pass(self):
        calls, (start, body) = self.drive(lambda app: self.request(app, "/" + "x" * 600, "203.0.113.77"))
        self.assertEqual((calls, start["status"]), (0, 400))
        self.assertIn("601 bytes", json.loads(body["body"])["detail"])

    def test_a_path_that_can_be_read_in_two_ways_does_not_pass(self):
        for path in ("/x/../limited", "/x\\limited"):
            calls, (start, _) = self.drive(lambda app: self.request(app, path, "203.0.113.78"))
            self.assertEqual((calls, start["status"]), (0, 400), path)
        keep = PathForms(slashes="keep")
        calls, (start, _) = self.drive(lambda app: self.request(app, "/x\\y", "203.0.113.78"), paths=keep)
        self.assertEqual((calls, start["status"]), (1, 201))

    def test_a_mistake_of_the_application_is_an_error(self):
        with self.assertRaisesRegex(Refused, "cost is 0"):
            self.drive(self.request, cost=lambda scope: 0)


class Quiet(WSGIRequestHandler):
    def log_message(self, *_):
        pass


class Wsgi(unittest.TestCase):
    """Behind the server of the standard library, over HTTP."""

    def test_over_http(self):
        calls = []

        def application(environ, start_response):
            calls.append(environ["PATH_INFO"])
            start_response("200 OK", [("Content-Type", "text/plain")])
            return [b"hello"]

        client = Client(server_url(), timeout=5)
        self.addCleanup(client.close)
        guarded = WsgiRateLimitMiddleware(application, client=client)
        with make_server("127.0.0.1", 0, guarded, handler_class=Quiet) as server:
            threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
            url = f"http://127.0.0.1:{server.server_port}/some/path"
            for _ in range(2):
                with urllib.request.urlopen(url) as response:
                    self.assertEqual((response.read(), response.headers["x-ratelimit-limit"]), (b"hello", "2"))
            with self.assertRaises(urllib.error.HTTPError) as caught:
                urllib.request.urlopen(url)
            server.shutdown()
        with caught.exception as denied:
            self.assertEqual((denied.code, json.load(denied)["violated-policies"]), (429, ["address"]))
            self.assertTrue(0 < int(denied.headers["retry-after"]) <= 60)
        self.assertEqual(calls, ["/some/path"] * 2)


if __name__ == "__main__":
    unittest.main()
