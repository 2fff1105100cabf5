"""The rules of politeness, in virtual time: the cases that every language shares."""

import json
import unittest
from pathlib import Path

from checkdam_client import Pace

from . import simulated
from .simulated import FixedWindow, SlidingLog, TokenBucket

CASES = json.loads((Path(__file__).parents[2] / "polite-cases.json").read_text())


class Cases(unittest.TestCase):
    def test_every_case(self):
        self.assertGreater(len(CASES["cases"]), 30)
        for case in CASES["cases"]:
            with self.subTest(case["name"]):
                self.follow(case)

    def follow(self, case):
        pace = Pace(random=lambda: case["chance"])
        for number, step in enumerate(case["steps"]):
            at = step["at"]
            if "wait" in step:
                wait = pace.wait(at)
                if step["wait"] is None or wait is None:
                    self.assertEqual(wait, step["wait"], f"step {number}")
                else:
                    self.assertAlmostEqual(wait, step["wait"], places=6, msg=f"step {number}")
            elif "send" in step:
                pace.sent(at)
            elif "fail" in step:
                pace.failed()
            else:
                refused = pace.answered(at, CASES["unix_at_zero"] + at, step["status"], step["headers"])
                self.assertEqual(refused, step["status"] in (429, 503), f"step {number}")


class Simulations(unittest.TestCase):
    """A caller by itself gets what there is, whatever the algorithm, and is hardly ever refused."""

    SERVERS = {
        "10/s burst 50": lambda: TokenBucket(10, 50),
        "20/s": lambda: TokenBucket(20, 20),
        "7/s burst 10": lambda: TokenBucket(7, 10),
        "1/s": lambda: TokenBucket(1, 1),
        "100/m": lambda: TokenBucket(100 / 60, 100),
        "2/m": lambda: TokenBucket(2 / 60, 2),
        "100 a minute, at its beginning": lambda: FixedWindow(100, 60, 0),
        "100 a minute, in its midst": lambda: FixedWindow(100, 60, 31.3),
        "50 in 5 s": lambda: FixedWindow(50, 5, 0.3),
        "100 in any minute": lambda: SlidingLog(100, 60),
    }

    def test_every_algorithm(self):
        for name, server in self.SERVERS.items():
            with self.subTest(name):
                server, seconds = server(), 600
                passed, refused = simulated.run(server, Pace(random=lambda: 0.5), seconds, seed=7)
                self.assertGreaterEqual(passed, 0.95 * server.rate * seconds)
                self.assertLess(refused, 0.01 * passed)


if __name__ == "__main__":
    unittest.main()
