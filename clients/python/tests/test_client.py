"""Both clients against a real server: the same tests for each."""

import asyncio
import gc
import json
import socket
import ssl
import threading
import unittest
import urllib.request
import warnings
from dataclasses import fields
from unittest import mock

from checkdam_client import Answer, AsyncClient, Ban, Client, Refused, Tier, Unreachable

from .server import TOKEN, certificates, guarded_url, openssl, server_url, silent_address, tls_url


class Awaited:
    """An AsyncClient whose methods are run to their end, so that one test serves both."""

    def __init__(self, *args, **kwargs):
        self._client = AsyncClient(*args, **kwargs)
        self._loop = asyncio.new_event_loop()

    def __getattr__(self, name):
        method = getattr(self._client, name)
        return lambda *args, **kwargs: self._loop.run_until_complete(method(*args, **kwargs))

    def end(self):
        self.close()
        self._loop.close()


class ClientTests:
    """What both clients do. `make` makes one."""

    def client(self, url=None, **settings):
        client = self.make(url or server_url(), **{"timeout": 5, **settings})
        self.addCleanup(client.end if isinstance(client, Awaited) else client.close)
        return client

    def user(self, name):
        return {"user": f"{self.make.__name__}-{name}"}

    def test_the_token_is_sent(self):
        user = self.user("token")
        client = self.client(guarded_url(), token=TOKEN)
        self.assertEqual(client.check(user).remaining, 2)
        self.assertEqual(client.reset(user).remaining, 3)
        self.assertEqual([answer.allowed for answer in client.check_batch([{"attributes": user}])], [True])
        for settings in ({}, {"token": "a-wrong-token-of-tests"}):
            stranger = self.client(guarded_url(), on_unreachable="open", **settings)
            with self.assertRaises(Refused) as refused:
                stranger.check(user)
            self.assertEqual(refused.exception.status, 401)
        for token in ("", "two words", "a\r\nHost: b", "\u00e4"):
            with self.assertRaises(ValueError) as refused:
                self.make(guarded_url(), token=token)
            self.assertNotIn(token or " two", str(refused.exception))

    def test_a_server_with_a_ca_of_its_own(self):
        client = self.client(tls_url(), ca_file=certificates().path("ca.crt"))
        self.assertEqual([client.check(self.user("tls")).remaining for _ in range(3)], [2, 1, 0])
        for settings in ({}, {"ca_file": certificates().path("other-ca.crt")}):
            with self.assertRaises(Unreachable) as failed:
                self.client(tls_url(), **settings).check(self.user("tls"))
            self.assertRegex(str(failed.exception), "certificate is not accepted: .*; see ca_file$")
        with self.assertRaisesRegex(Unreachable, "write its address as http://"):
            self.client(server_url().replace("http:", "https:")).check(self.user("tls"))
        # The certificate is for 127.0.0.1.
        with self.assertRaisesRegex(Unreachable, "mismatch|not valid for"):
            url = tls_url().replace("127.0.0.1", "localhost")
            self.client(url, ca_file=certificates().path("ca.crt")).check(self.user("tls"))

    def test_a_server_that_requires_a_certificate(self):
        path = certificates().path
        pair = {"client_certificate": path("client.crt"), "client_key": path("client.key")}
        client = self.client(tls_url(is_mutual=True), ca_file=path("ca.crt"), **pair)
        self.assertEqual([client.check(self.user("mutual")).remaining for _ in range(3)], [2, 1, 0])
        context = ssl.create_default_context(cafile=path("ca.crt"))
        context.load_cert_chain(path("client.crt"), path("client.key"))
        self.assertFalse(self.client(tls_url(is_mutual=True), ssl_context=context).check(self.user("mutual")).allowed)
        with self.assertRaisesRegex(Unreachable, "requires a client certificate: see client_certificate"):
            self.client(tls_url(is_mutual=True), ca_file=path("ca.crt")).check(self.user("mutual"))
        wrong = {"client_certificate": path("other.crt"), "client_key": path("other.key")}
        with self.assertRaisesRegex(Unreachable, "does not accept the client certificate"):
            self.client(tls_url(is_mutual=True), ca_file=path("ca.crt"), **wrong).check(self.user("mutual"))

    def test_tls_files_that_cannot_be_used(self):
        path = certificates().path
        openssl("ec", "-in", path("client.key"), "-aes128", "-passout", "pass:secret", "-out", path("encrypted.key"))
        missing, client = path("missing.crt"), path("client.crt")
        for url, settings, kind, part in (
            ("https://h", {"ca_file": missing}, FileNotFoundError, "ca_file.*missing.crt"),
            ("https://h", {"ca_file": path("ca.key")}, ValueError, "ca_file: .*ca.key' has no CA certificate"),
            ("https://h", {"client_certificate": missing}, FileNotFoundError, "client_certificate.*missing.crt"),
            ("https://h", {"client_certificate": client}, ValueError, "not a pair"),
            ("https://h", {"client_certificate": client, "client_key": missing}, FileNotFoundError, "client_key"),
            ("https://h", {"client_certificate": client, "client_key": path("ca.key")}, ValueError, "not a pair"),
            ("https://h", {"client_certificate": client, "client_key": path("encrypted.key")}, ValueError, "encrypted"),
            ("https://h", {"client_key": path("client.key")}, ValueError, "without client_certificate"),
            ("https://h", {"ca_file": client, "ssl_context": ssl.create_default_context()}, ValueError, "ssl_context"),
            ("http://h", {"ca_file": path("ca.crt")}, ValueError, "https://"),
        ):
            with self.subTest(settings=settings), self.assertRaisesRegex(kind, part):
                self.make(url, **settings)

    def test_check_until_denied(self):
        client, user = self.client(), self.user("check")
        answers = [client.check(user) for _ in range(4)]
        self.assertEqual([answer.allowed for answer in answers], [True, True, True, False])
        self.assertEqual([answer.remaining for answer in answers], [2, 1, 0, 0])
        first, denied = answers[0], answers[-1]
        self.assertEqual((first.status, first.limit, first.violated, first.decided_by), (200, 3, None, "memory"))
        self.assertEqual((first.retry_after, first.delay), (0, 0))
        self.assertTrue(0 < first.reset_after <= 60)
        self.assertEqual(
            [(tier.rule, tier.limit_name, tier.limit, tier.shadow) for tier in first.tiers],
            [("user", "1/m burst 3", 3, False), ("user", "1000/h", 1000, False)],
        )
        self.assertEqual(first.tiers[0].subject, f"user:{user['user']}")
        self.assertNotIn("retry-after", first.headers)
        self.assertEqual(first.headers["x-ratelimit-limit"], "3")
        self.assertEqual((denied.status, denied.violated), (429, "user"))
        self.assertTrue(50 < denied.retry_after <= 60)
        self.assertEqual(denied.violated_policies, ("user 1/m",))
        self.assertIn("is exceeded", denied.detail)
        never = client.check(user, cost=4)
        self.assertEqual((never.status, never.retry_after, never.problem()["retry_after_ms"]), (422, None, None))
        self.assertTrue(50 < int(denied.headers["retry-after"]) <= 60)
        self.assertEqual(denied.problem()["violated-policies"], ["user 1/m"])
        self.assertNotIn("tiers", denied.problem())

    def test_peek_refund_reset(self):
        client, user = self.client(), self.user("state")
        self.assertEqual(client.peek(user).remaining, 3)
        self.assertTrue(client.check(user, cost=3).allowed)
        peeked = client.peek(user)
        self.assertEqual((peeked.allowed, peeked.status, peeked.remaining), (False, 200, 0))
        self.assertEqual(client.refund(user, cost=2).remaining, 2)
        self.assertEqual(client.reset(user).remaining, 3)

    def test_record(self):
        client, user = self.client(), self.user("record")
        self.assertEqual(client.check(user).tiers[0].debt, 0)
        recorded = client.record(user, 9)
        self.assertEqual((recorded.status, recorded.allowed, recorded.remaining), (200, False, 0))
        self.assertEqual([tier.debt for tier in recorded.tiers], [7, 0])
        self.assertTrue(400 < recorded.retry_after <= 420)
        self.assertEqual(client.check(user).tiers[0].debt, 7)
        self.assertEqual((recorded.cut_off, client.record(user, 0).cut_off), (0, 0))
        # At most 100 times the limit may be owed beyond it.
        self.assertEqual(client.record(user, 300).cut_off, 7)
        self.assertEqual(client.record({"user": "evil"}, 1).status, 200)
        with self.assertRaisesRegex(Refused, "cost is -1"):
            client.record(user, -1)
        client.reset(user)
        self.assertEqual(client.record(user, 2, domain="elsewhere").remaining, 5)

    def test_domain(self):
        answer = self.client().check(self.user("domain"), domain="elsewhere")
        self.assertEqual([tier.rule for tier in answer.tiers], ["elsewhere"])

    def test_no_rule_applies(self):
        answer = self.client().check({"colour": "red"})
        self.assertEqual((answer.allowed, answer.limit, answer.remaining, answer.tiers), (True, None, None, ()))

    def test_numbers_are_text(self):
        answer = self.client().check({"watched": 42})
        self.assertEqual((answer.tiers[0].subject, answer.tiers[0].shadow), ("watched:42", True))

    def test_cost_that_can_never_pass(self):
        answer = self.client().check(self.user("cost"), cost=4)
        self.assertEqual((answer.allowed, answer.status, answer.violated), (False, 422, "user"))
        self.assertEqual(answer.kind, "urn:checkdam:problem:cost_exceeds_burst")

    def test_ban(self):
        answer = self.client().check({"user": "evil"})
        self.assertEqual((answer.allowed, answer.status), (False, 403))
        self.assertEqual(answer.ban, Ban("user:evil", "scraping", "2099-01-01T00:00:00Z"))

    def test_delay(self):
        answers = self.client().check_batch([{"attributes": {"queue": self.make.__name__}}] * 3)
        delays = [answer.delay for answer in answers]
        self.assertEqual(delays[0], 0)
        self.assertTrue(0 < delays[1] <= 0.2 < delays[2] <= 0.4, delays)

    def test_batch(self):
        client, user = self.client(), self.user("batch")
        requests = [{"attributes": user, "cost": 3}, {"attributes": user}, {"attributes": {"user": "evil"}}]
        answers = client.check_batch(requests)
        self.assertEqual([answer.status for answer in answers], [200, 429, 403])
        self.assertEqual(answers[1].violated_policies, ("user 1/m",))
        self.assertEqual(client.check_batch([]), [])

    def test_bad_values_are_named_and_charge_nothing(self):
        client, user = self.client(), self.user("bad")
        for attributes, cost, field, words in [
            (user, 0, "cost", "cost is 0"),
            (user, -1, "cost", "cost is -1"),
            ({**user, "plan": ""}, 1, "attributes.plan", '"plan" is empty'),
            ({**user, "plan": "x" * 513}, 1, "attributes.plan", "513 bytes"),
        ]:
            with self.subTest(words), self.assertRaises(Refused) as caught:
                client.check(attributes, cost=cost)
            self.assertEqual((caught.exception.status, caught.exception.field), (422, field))
            self.assertIn(words, str(caught.exception))
        with self.assertRaises(Refused) as caught:
            client.check_batch([{"attributes": user}, {"attributes": user, "cost": 0}])
        self.assertEqual(caught.exception.field, "requests[1].cost")
        self.assertEqual(client.peek(user).remaining, 3)

    def test_bad_types_are_named_and_not_sent(self):
        client = self.client(silent_address())
        for attributes, cost, words in [
            ({"user": None}, 1, "'user' is None"),
            ({"user": 1.5}, 1, "'user' is 1.5"),
            ({"user": True}, 1, "'user' is True"),
            ({7: "x"}, 1, "attribute 7"),
            ("user", 1, "attributes is 'user'"),
            ({"user": "a"}, "5", "cost is '5'"),
            ({"user": "a"}, 1.5, "cost is 1.5"),
        ]:
            with self.subTest(words), self.assertRaisesRegex(TypeError, words):
                client.check(attributes, cost=cost)
        with self.assertRaisesRegex(TypeError, r"requests\[1\].*'costs'"):
            client.check_batch([{"attributes": {"user": "a"}}, {"attributes": {"user": "a"}, "costs": 2}])
        for url in ("127.0.0.1:8080", "ftp://x", "http://"):
            with self.subTest(url), self.assertRaisesRegex(ValueError, "no address of a server"):
                self.client(url)
        with self.assertRaisesRegex(ValueError, "on_unreachable is 'opn'"):
            self.client(on_unreachable="opn")

    def test_unreachable(self):
        url, user = silent_address(), self.user("unreachable")
        with self.assertRaisesRegex(Unreachable, "did not answer"):
            self.client(url).check(user)
        opened = self.client(url, on_unreachable="open").check(user)
        self.assertEqual((opened.allowed, opened.decided_by), (True, "client"))
        closed = self.client(url, on_unreachable="closed").check(user)
        self.assertEqual((closed.allowed, closed.status, closed.headers["retry-after"]), (False, 503, "1"))
        self.assertEqual(len(self.client(url, on_unreachable="open").check_batch([{"attributes": user}] * 3)), 3)

    def test_silent_server(self):
        with socket.create_server(("127.0.0.1", 0)) as silent:
            client = self.client(f"http://127.0.0.1:{silent.getsockname()[1]}", timeout=0.05)
            with self.assertRaises(Unreachable):
                client.check(self.user("silent"))

    def test_another_program_listens(self):
        for answer, error in [
            (b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello", Unreachable),
            (b'HTTP/1.1 200 OK\r\ncontent-length: 16\r\n\r\n{"allowed":true}', Unreachable),
            (b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 2\r\n\r\n{}", Unreachable),
            (b"HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\n\r\n{}", Refused),
            (b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{}", Unreachable),
            (b"SSH-2.0-OpenSSH\r\n\r\n", Unreachable),
            (b"", Unreachable),
        ]:
            with self.subTest(answer), Canned(answer) as canned, self.assertRaises(error):
                self.client(canned.url).check(self.user("else"))
        for body in (b'{"results": []}', b'{"results": [1]}', b'{"results": [{"status": 200}]}', b"[]"):
            answer = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)
            with self.subTest(body), Canned(answer) as canned, self.assertRaises(Unreachable):
                self.client(canned.url).check_batch([{"attributes": self.user("else")}])

    def test_chunked_answer(self):
        body = json.dumps(
            {**Answer(True, 200).__dict__, "retry_after_ms": 0, "reset_after_ms": 1500}, default=str
        ).encode()
        chunks = b"%x;a=b\r\n%s\r\n%x\r\n%s\r\n0\r\nx: y\r\n\r\n" % (9, body[:9], len(body) - 9, body[9:])
        with Canned(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks) as canned:
            self.assertEqual(self.client(canned.url).check(self.user("chunked")).reset_after, 1.5)

    def test_connections_are_kept_and_replaced(self):
        body = json.dumps(
            {**Answer(True, 200).__dict__, "retry_after_ms": 0, "reset_after_ms": 0}, default=str
        ).encode()
        answer = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)
        with Canned(answer, answers_each=2) as canned:
            client = self.client(canned.url)
            for _ in range(6):
                self.assertTrue(client.check(self.user("kept")).allowed)
                canned.settle()
            self.assertEqual(canned.connections, 3)


class Canned:
    """Gives one answer to every request, whatever it is, and closes a connection after some."""

    def __init__(self, answer, answers_each=1):
        self._answer, self._answers_each = answer, answers_each
        self._closed = threading.Event()
        self.connections = 0

    def __enter__(self):
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(self, *_):
        self._listener.close()

    def settle(self):
        """Waits until a connection that is to be closed is closed."""
        self._closed.wait(5)

    def _serve(self):
        while True:
            try:
                peer, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            with peer:
                for answered in range(self._answers_each):
                    self._read_request(peer)
                    self._closed.clear()
                    peer.sendall(self._answer)
                    if answered + 1 < self._answers_each:
                        self._closed.set()
            self._closed.set()

    @staticmethod
    def _read_request(peer):
        text = b""
        while b"}}" not in text and b'"cost": 1}' not in text:
            got = peer.recv(65536)
            if not got:
                return
            text += got


class SyncClient(ClientTests, unittest.TestCase):
    make = Client

    def test_a_forked_process_opens_connections_of_its_own(self):
        body = json.dumps(
            {**Answer(True, 200).__dict__, "retry_after_ms": 0, "reset_after_ms": 0}, default=str
        ).encode()
        with Canned(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body), answers_each=2) as canned:
            client = self.client(canned.url)
            client.check(self.user("fork"))
            (_, connection) = client._idle[0]
            with mock.patch("os.getpid", return_value=-1):
                idle = client._take()
            self.assertIsNot(idle, connection)
            connection.close()

    def test_threads_share_a_client(self):
        client, allowed = self.client(), []
        user = self.user("threads")

        def ask():
            allowed.extend(client.check(user).allowed for _ in range(10))

        threads = [threading.Thread(target=ask) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual((len(allowed), sum(allowed)), (80, 3))


class AsynchronousClient(ClientTests, unittest.TestCase):
    make = Awaited

    def test_tasks_share_a_client(self):
        async def ask():
            async with AsyncClient(server_url(), timeout=5) as client:
                return await asyncio.gather(*(client.check(self.user("tasks")) for _ in range(80)))

        self.assertEqual(sum(answer.allowed for answer in asyncio.run(ask())), 3)

    def test_a_client_outlives_a_loop(self):
        client = AsyncClient(server_url(), timeout=5)
        with warnings.catch_warnings():
            # asyncio complains of the connection that is left to the first loop.
            warnings.simplefilter("ignore", ResourceWarning)
            for _ in range(2):
                self.assertTrue(asyncio.run(client.peek(self.user("loops"))).allowed)
            asyncio.run(client.close())
            gc.collect()

    def test_an_abandoned_call_spoils_no_other(self):
        async def ask():
            async with AsyncClient(server_url(), timeout=5) as client:
                for _ in range(20):
                    call = asyncio.ensure_future(client.check({"user": "evil"}))
                    await asyncio.sleep(0)
                    call.cancel()
                return await client.check({"colour": "red"})

        self.assertEqual(asyncio.run(ask()).status, 200)


class Schema(unittest.TestCase):
    """What the server says of its answers is what the client reads, to the field."""

    #: Names on the wire of fields that are called otherwise here.
    WIRE = {
        "retry_after": "retry_after_ms",
        "reset_after": "reset_after_ms",
        "delay": "delay_ms",
        "kind": "type",
        "violated_policies": "violated-policies",
    }

    def wire_names(self, kind, without=()):
        return {self.WIRE.get(field.name, field.name) for field in fields(kind)} - set(without)

    def test_fields(self):
        """Follows the schemas from the operation, since their names are the server's own."""
        with urllib.request.urlopen(server_url() + "/openapi.json") as response:
            document = json.load(response)

        def properties(schema):
            if "$ref" in schema:
                return properties(document["components"]["schemas"][schema["$ref"].split("/")[-1]])
            own = dict(schema.get("properties", {}))
            for part in [*schema.get("allOf", ()), *schema.get("oneOf", ())]:
                own.update(properties(part))
            return own

        denied = document["paths"]["/v1/check"]["post"]["responses"]["429"]["content"]["application/problem+json"]
        answer = properties(denied["schema"])
        self.assertEqual(self.wire_names(Answer, without=["headers"]), set(answer))
        self.assertEqual(self.wire_names(Tier), set(properties(answer["tiers"]["items"])))
        self.assertEqual(self.wire_names(Ban), set(properties(answer["ban"])))


if __name__ == "__main__":
    unittest.main()
