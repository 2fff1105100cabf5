"""The polite caller against a real server, whose /v1/check answers as any limited API does."""

import asyncio
import http.client
import json
import threading
import time
import unittest
import urllib.error
import urllib.request
from collections import Counter

from checkdam_client import AsyncClient, AsyncPolite, Pace, Polite, QueueFull, WaitTooLong

from .server import server_url


class Response:
    def __init__(self, status, **headers):
        self.status = status
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


def ask(attributes, seen):
    """One request, over a connection of the thread's own."""
    host = server_url().split("//")[1]
    connection = getattr(ask.local, "connection", None)
    if connection is None:
        connection = ask.local.connection = http.client.HTTPConnection(host, timeout=5)
    connection.request("POST", "/v1/check", json.dumps({"attributes": attributes}))
    response = connection.getresponse()
    response.read()
    seen[response.status] += 1
    return response


ask.local = threading.local()


class RealServer(unittest.TestCase):
    RATE, SECONDS, WORKERS = 20, 5, 4

    def test_polite_beside_naive(self):
        """A polite caller gets what is allowed and is hardly ever refused; a naive one beside it gets no more."""
        polite, naive, caller = Counter(), Counter(), Polite()
        ask({"polite": "python-warm-up"}, Counter())
        end = time.monotonic() + self.SECONDS

        def call_politely():
            while time.monotonic() < end:
                caller.call(ask, {"polite": "python"}, polite)
            ask.local.connection.close()

        def call_naively():
            while time.monotonic() < end:
                ask({"polite": "python-naive"}, naive)
                time.sleep(0.01)
            ask.local.connection.close()

        threads = [threading.Thread(target=call_politely) for _ in range(self.WORKERS)]
        threads.append(threading.Thread(target=call_naively))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        ask.local.connection.close()
        by_rate = self.RATE * self.SECONDS
        share = polite[200] / by_rate
        print(
            f"polite: {polite[200]} pass ({by_rate} by the rate, {by_rate + self.RATE} with the burst), "
            f"{polite[429]} refused; naive: {naive[200]} pass, {naive[429]} refused"
        )
        self.assertGreaterEqual(share, 0.95)
        self.assertLess(polite[429], 0.02 * sum(polite.values()))
        self.assertGreater(naive[429], 0.1 * sum(naive.values()))

    def test_many_at_once(self):
        """A crowd of threads with one caller: all pass, none is refused, in the order they came."""
        caller, seen = Polite(), Counter()

        def call():
            caller.call(ask, {"polite": "python-crowd"}, seen)
            ask.local.connection.close()

        threads = [threading.Thread(target=call) for _ in range(40)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(seen, {200: 40})

    def test_many_tasks_at_once(self):
        """Answers of a client are responses too, so that a client can be called politely."""

        async def scenario():
            async with AsyncClient(server_url(), timeout=5) as client:
                caller = AsyncPolite()
                return await asyncio.gather(*(caller.call(client.check, {"polite": "python-tasks"}) for _ in range(30)))

        self.assertEqual([answer.allowed for answer in asyncio.run(scenario())], [True] * 30)

    def test_urllib(self):
        """urllib raises what others return."""
        request = urllib.request.Request(
            server_url() + "/v1/check", json.dumps({"attributes": {"user": "urllib"}}).encode()
        )
        caller = Polite(wait_max=1)
        with self.assertRaises((urllib.error.HTTPError, WaitTooLong)) as caught:
            for _ in range(10):
                caller.call(urllib.request.urlopen, request).close()
        if isinstance(caught.exception, urllib.error.HTTPError):
            caught.exception.close()


class Shell(unittest.TestCase):
    """Turns, bounds and retries, with pauses of no length."""

    def caller(self, kind=Polite, **settings):
        return kind(pace=Pace(backoff_first=0.001, random=lambda: 0.5), **settings)

    def test_a_refused_call_is_repeated(self):
        responses = iter([Response(429), Response(503), Response(200)])
        self.assertEqual(self.caller().call(lambda: next(responses)).status, 200)

    def test_attempts_have_a_bound(self):
        calls = []
        response = self.caller(attempts_max=3).call(lambda: calls.append(1) or Response(429))
        self.assertEqual((response.status, len(calls)), (429, 3))

    def test_a_long_pause_is_not_waited_for(self):
        caller, calls = self.caller(wait_max=2), []
        response = caller.call(lambda: calls.append(1) or Response(429, retry_after="100"))
        self.assertEqual((response.status, len(calls)), (429, 1))
        with self.assertRaisesRegex(WaitTooLong, "at most 2 s"):
            caller.call(lambda: calls.append(1))
        self.assertEqual(len(calls), 1)

    def test_exceptions_are_passed_on_and_not_repeated(self):
        caller, calls = self.caller(), []

        def fail():
            calls.append(1)
            raise OSError("broken")

        with self.assertRaisesRegex(OSError, "broken"):
            caller.call(fail)
        self.assertEqual((caller.call(lambda: Response(200)).status, len(calls)), (200, 1))

    def test_the_queue_has_a_bound(self):
        caller = self.caller(queue_max=2)
        first_is_called, go_on = threading.Event(), threading.Event()

        def hold():
            first_is_called.set()
            go_on.wait(10)
            return Response(200)

        threads = [threading.Thread(target=caller.call, args=(hold,))]
        threads[0].start()
        first_is_called.wait(10)
        # Two may wait for the first answer; of three one is turned away.
        turned_away = []

        def try_call():
            try:
                caller.call(lambda: Response(200))
            except QueueFull as error:
                turned_away.append(str(error))
                go_on.set()

        threads += [threading.Thread(target=try_call) for _ in range(3)]
        for thread in threads[1:]:
            thread.start()
        for thread in threads:
            thread.join(10)
        self.assertEqual(turned_away, ["2 calls wait already: at most 2 may"])

    def test_turns_are_taken_in_order_and_kept_when_refused(self):
        async def scenario():
            caller, sent = self.caller(AsyncPolite), []

            async def send(name):
                sent.append(name)
                await asyncio.sleep(0)
                return Response(429 if len(sent) < 3 else 200)

            await asyncio.gather(*(caller.call(send, name) for name in "abcd"))
            return "".join(sent)

        self.assertEqual(asyncio.run(scenario()), "aaabcd")

    def test_a_caller_that_gives_up_leaves_the_queue(self):
        async def scenario():
            caller, go_on = self.caller(AsyncPolite), asyncio.Event()

            async def hold():
                await go_on.wait()
                return Response(200)

            async def answer():
                return Response(200)

            first = asyncio.ensure_future(caller.call(hold))
            await asyncio.sleep(0)
            waiting, last = (asyncio.ensure_future(caller.call(answer)) for _ in range(2))
            await asyncio.sleep(0)
            waiting.cancel()
            go_on.set()
            return (await first).status, (await last).status

        self.assertEqual(asyncio.run(scenario()), (200, 200))


if __name__ == "__main__":
    unittest.main()
