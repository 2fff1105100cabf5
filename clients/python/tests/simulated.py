"""Limited servers in virtual time, as each algorithm is defined."""

import random
from math import ceil, floor

#: The longest that a request or an answer is under way, in seconds.
TRANSIT_MAX_S = 0.002


class TokenBucket:
    def __init__(self, rate, burst):
        self.rate, self.burst = rate, burst
        self.window = ceil(burst / rate)
        self.tokens, self.at = burst, 0.0

    def take(self, now):
        self.tokens = min(self.burst, self.tokens + (now - self.at) * self.rate)
        self.at = now
        if self.tokens < 1:
            return False, 0, (1 - self.tokens) / self.rate
        self.tokens -= 1
        return True, floor(self.tokens), (self.burst - self.tokens) / self.rate


class FixedWindow:
    def __init__(self, limit, window, begun):
        self.rate, self.burst, self.window = limit / window, limit, window
        self.begun, self.number, self.used = begun, -1, 0

    def take(self, now):
        number = (now + self.begun) // self.window
        if number != self.number:
            self.number, self.used = number, 0
        reset_after = (number + 1) * self.window - now - self.begun
        if self.used == self.burst:
            return False, 0, reset_after
        self.used += 1
        return True, self.burst - self.used, reset_after


class SlidingLog:
    def __init__(self, limit, window):
        self.rate, self.burst, self.window = limit / window, limit, window
        self.log = []

    def take(self, now):
        self.log = [at for at in self.log if at > now - self.window]
        if len(self.log) == self.burst:
            return False, 0, self.log[0] + self.window - now
        self.log.append(now)
        return True, self.burst - len(self.log), self.window


def run(server, pace, seconds, seed):
    """Sends one request after the other, each as soon as the pace allows it; how many pass, how many are refused."""
    chance = random.Random(seed)
    now, passed, refused = 0.0, 0, 0
    while now < seconds:
        wait = pace.wait(now)
        if wait:
            # Timers fire up to a millisecond late.
            now += wait + chance.random() * 0.001
            continue
        pace.sent(now)
        now += chance.random() * TRANSIT_MAX_S
        allowed, remaining, after = server.take(now)
        headers = {
            "RateLimit-Policy": f'"simulated";q={server.burst};w={server.window}',
            "RateLimit": f'"simulated";r={remaining};t={ceil(after)}',
        }
        if not allowed:
            headers["Retry-After"] = str(ceil(after))
        passed, refused = passed + allowed, refused + (not allowed)
        now += chance.random() * TRANSIT_MAX_S
        pace.answered(now, now, 200 if allowed else 429, headers)
    return passed, refused
