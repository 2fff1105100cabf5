#!/usr/bin/env python3
"""An independent implementation of the five algorithms of README.md.

    python3 reference.py --check       recompute every expectation, exit 1 on a mismatch
    python3 reference.py --write       fill in or refresh every expectation in place
    python3 reference.py --calendar    write calendar.json: where calendar windows begin

Plain and slow on purpose: integers and exact fractions of a microsecond, no
floats, and searches in place of formulas wherever a formula could hide a mistake.
Time zones are those of Python's zoneinfo, which reads the system's database or that
of the package tzdata.
"""
import bisect
import copy
import datetime
import functools
import json
import math
import os
import sys
import zoneinfo
from fractions import Fraction

EPOCH = 1767225600 * 10**6          # 2026-01-01T00:00Z in microseconds since 1970
HORIZON = 536457600000000           # 2043-01-01T00:00Z in microseconds since 2026
HOLD = 5 * 10**6                    # a clock that steps back by no more is waited for
DAY = 86400 * 10**6
SAFE = 2**53


class Limiter:
    """One bucket: the steps, which all algorithms share.

    The state None is the bucket of which nothing is stored. Times are microseconds
    since 1970. settle() gives the state as it is seen now (moved, rebased);
    fits(), charge(), lower() (a refund) and until_reset() take a settled state.
    """
    def __init__(self, quota):
        self.state = None
        self.set_quota(quota)

    def set_quota(self, quota):
        self.quota = quota
        self.limit = quota["limit"]
        self.period = quota["period_us"]
        self.most = self.limit      # the largest cost that can ever pass
        self.max_debt = quota.get("max_debt", 100 * quota.get("burst", self.limit))
        # Quotas that differ in this have buckets of their own.
        self.arithmetic = (self.period, quota.get("align", "epoch"), quota.get("strict", False),
                           quota.get("zone", "UTC"), quota.get("anchor", 1), quota.get("week_starts", "monday"))

    def step(self, op, cost, at_us):
        now = EPOCH + at_us
        expect = {"allowed": True, "remaining": 0, "retry_after_us": 0, "reset_after_us": 0, "delay_us": 0}
        if op == "reset":
            self.state = None
        elif op == "refund":
            if self.state is not None and not self.forgotten(self.state, now):
                self.state = self.lower(self.settle(self.state, now), cost, now)
        elif op == "charge":
            if cost > 0:
                self.state = self.charge_left(self.settle(self.state, now), cost, now)
        elif op == "record":
            cut_off = 0
            if cost > 0:
                self.state, cut_off = self.record(self.settle(self.state, now), cost, now)
            seen = self.settle(self.state, now)
            if not self.fits(seen, 0, now):
                expect["allowed"] = False
                expect["retry_after_us"] = self.wait(seen, 0, now)
            if cut_off:
                expect["cut_off"] = cut_off
        else:
            seen = self.settle(self.state, now)
            if self.fits(seen, cost, now):
                expect["delay_us"] = self.delay(seen, now)
            else:
                expect["allowed"] = False
                expect["retry_after_us"] = self.wait(seen, cost, now) if cost <= self.most else None
            # A denied take keeps the rebase, or its retry would not hold; a peek
            # and a take of cost 0 that passes write nothing at all.
            if op == "take" and (cost > 0 or not expect["allowed"]):
                self.state = self.charge(seen, cost, now) if expect["allowed"] else seen
        seen = self.settle(self.state, now)
        expect["remaining"] = self.left(seen, now)
        expect["reset_after_us"] = self.until_reset(seen, now)
        if not self.fits(seen, 0, now):
            expect["debt"] = self.debt(seen, now)
        if expect["retry_after_us"] is None:
            expect["cost_exceeds_burst"] = True
        return expect

    def hold(self, newest, now):
        """(t, rebased) for a state whose newest time is `newest`."""
        return (max(now, newest), False) if newest - now <= HOLD else (now, True)

    def wait(self, seen, cost, now):
        """Microseconds until the take passes: while nothing happens, room only grows."""
        latest = now + self.until_reset(seen, now)
        return first_true(lambda at: self.fits(self.settle(seen, at), cost, at), now, latest) - now

    def left(self, seen, now):
        """The largest cost that would pass now."""
        if self.fits(seen, self.most, now):
            return self.most
        return first_true(lambda cost: cost > 0 and not self.fits(seen, cost, now), 0, self.most) - 1

    def charge_left(self, seen, cost, now):
        """The state after a charge of the cost, or of what is left if that is less."""
        left = min(cost, self.left(seen, now))
        return self.charge(seen, left, now) if left > 0 else seen

    def record(self, seen, cost, now):
        """The state after a charge whatever is left, and what was not charged."""
        counted = min(cost, max(self.limit + self.max_debt - self.recorded(seen), 0))
        return self.charge(seen, counted, now) if counted > 0 else seen, cost - counted

    def debt(self, seen, now):
        """By how much the limit would have to be higher for a take of nothing to pass."""
        return self.recorded(seen) - self.limit

    def delay(self, seen, now):
        return 0

    def forgotten(self, state, now):
        return False


class TokenBucket(Limiter):
    """The state is full_at, a Fraction of a microsecond, always a multiple of 1/k.

    marked says that what it owes beyond the burst was recorded.
    """
    marked = False

    def step(self, op, cost, at_us):
        before, now = self.state, EPOCH + at_us
        is_new = before is None or self.forgotten(before, now)
        expect = super().step(op, cost, at_us)
        if self.state is None or (is_new and op != "record"):
            self.marked = False
        elif self.state != before:
            self.marked = (self.marked or op == "record") and self.state - now > self.capacity
        return expect

    def set_quota(self, quota):
        super().set_quota(quota)
        self.burst = self.most = quota.get("burst", self.limit)
        self.initial = quota.get("initial", self.burst)
        k = self.choose_k()
        self.interval = Fraction(self.ticks(k), k)
        self.capacity = self.burst * self.interval
        if 1 - Fraction(self.period, self.limit) / self.interval > Fraction(1, 1000):
            raise ValueError("refused: loses more than 1/1000 of its rate")
        self.arithmetic = (k, self.interval, self.burst, self.initial, quota.get("max_debt"))

    def ticks(self, k):
        return -(-self.period * k // self.limit)

    def choose_k(self):
        fitting = [k for k in range(1, 17) if k * HORIZON + 2 * self.burst * self.ticks(k) < SAFE]
        if not fitting:
            raise ValueError("refused: does not fit")
        for k in fitting:
            if self.period * k % self.limit == 0:
                return k
        return min(fitting, key=lambda k: (Fraction(self.ticks(k) * self.limit, self.period * k), k))

    def forgotten(self, full_at, now):
        return self.initial < self.burst and now - full_at >= max(self.capacity, 1)

    def settle(self, full_at, now):
        if full_at is None or self.forgotten(full_at, now):
            return now + (self.burst - self.initial) * self.interval
        # More is owed than ever was: the clock has stepped back.
        most = self.capacity + (self.max_debt * self.interval if self.marked else 0)
        return full_at if full_at - now <= most + HOLD else now + most

    def fits(self, full_at, cost, now):
        return max(full_at - now, 0) + cost * self.interval <= self.capacity

    def charge(self, full_at, cost, now):
        return now + max(full_at - now, 0) + cost * self.interval

    def charge_left(self, full_at, cost, now):
        # To the last part of a token.
        return max(full_at, min(self.charge(full_at, cost, now), now + self.capacity))

    def record(self, full_at, cost, now):
        room = max(now + self.capacity + self.max_debt * self.interval - max(full_at, now), 0)
        charge = min(cost * self.interval, room)
        self.marked = True
        return max(full_at, now) + charge if charge > 0 else full_at, cost - math.floor(charge / self.interval)

    def debt(self, full_at, now):
        return math.ceil((full_at - now - self.capacity) / self.interval)

    def lower(self, full_at, cost, now):
        return max(full_at - cost * self.interval, now) if full_at > now else full_at

    def wait(self, full_at, cost, now):
        return math.ceil(max(full_at - now, 0) + cost * self.interval - self.capacity)

    def left(self, full_at, now):
        return max(math.floor((self.capacity - max(full_at - now, 0)) / self.interval), 0)

    def until_reset(self, full_at, now):
        return math.ceil(max(full_at - now, 0))


class LeakyBucket(TokenBucket):
    delay = TokenBucket.until_reset


class FixedWindow(Limiter):
    """The state is (start, count)."""
    def window(self, t):
        """The first microsecond of the window that contains t, and that of the next."""
        align = self.quota.get("align", "epoch")
        if align == "epoch":
            return t - t % self.period, t - t % self.period + self.period
        starts = calendar_starts(align, self.quota.get("zone", "UTC"), self.quota.get("anchor", 1),
                                 self.quota.get("week_starts", "monday"))
        place = bisect.bisect_right(starts, t // 10**6) - 1
        return starts[place] * 10**6, starts[place + 1] * 10**6

    def settle(self, state, now):
        start, count = state or (now, 0)
        t, rebased = self.hold(start, now)
        first = self.window(t)[0]
        return first, count if rebased or start >= first else 0

    def fits(self, state, cost, now):
        return state[1] + cost <= self.limit

    def recorded(self, state):
        return state[1]

    def charge(self, state, cost, now):
        return state[0], state[1] + cost

    def lower(self, state, cost, now):
        return state[0], max(state[1] - cost, 0)

    def until_reset(self, state, now):
        return self.window(state[0])[1] - now


class SlidingWindow(Limiter):
    """The state is (start, current, previous); a settled one has t as well."""
    def set_quota(self, quota):
        super().set_quota(quota)

        def fine(grain):
            return 3 * self.limit * -(-self.period // grain) < SAFE
        self.grain = 1 if fine(1) else first_true(fine, 1, self.period)
        self.parts = -(-self.period // self.grain)

    def settle(self, state, now):
        start, current, previous, _ = state or (now, 0, 0, now)
        t, rebased = self.hold(start, now)
        first = t - t % self.period
        if rebased or start >= first:
            return first, current, previous, t
        return first, 0, current if start >= first - self.period else 0, t

    def fits(self, state, cost, now):
        start, current, previous, t = state
        passed = (t - start) // self.grain
        return (current + cost) * self.parts + previous * (self.parts - passed) <= self.limit * self.parts

    def recorded(self, state):
        return state[1]

    def debt(self, state, now):
        start, current, previous, t = state
        passed = (t - start) // self.grain
        return math.ceil(current + Fraction(previous * (self.parts - passed), self.parts) - self.limit)

    def charge(self, state, cost, now):
        start, current, previous, t = state
        return start, current + cost, previous, t

    def lower(self, state, cost, now):
        start, current, previous, t = state
        return (start, *take_away([current, previous], cost), t)

    def until_reset(self, state, now):
        start, current, previous, _ = state
        if current > 0:
            return start + 2 * self.period - now
        return start + self.period - now if previous > 0 else 0


class StrictWindow(Limiter):
    """The state is (start of the newest part, the counts of 11 parts, newest first)."""
    def set_quota(self, quota):
        super().set_quota(quota)
        self.part = -(-self.period // 10)

    def settle(self, state, now):
        start, counts = state or (now, [0] * 11)
        t, rebased = self.hold(start, now)
        first = t - t % self.part
        if not rebased and start < first:
            counts = ([0] * min((first - start) // self.part, 11) + counts)[:11]
        return first, counts

    def fits(self, state, cost, now):
        return sum(state[1]) + cost <= self.limit

    def recorded(self, state):
        return sum(state[1])

    def charge(self, state, cost, now):
        return state[0], [state[1][0] + cost] + state[1][1:]

    def lower(self, state, cost, now):
        return state[0], take_away(state[1], cost)

    def until_reset(self, state, now):
        begins = [state[0] - i * self.part for i in range(11)]
        return max([p + 11 * self.part - now for p, count in zip(begins, state[1]) if count], default=0)


class SlidingLog(Limiter):
    """The state is a list of (time, cost), oldest first."""
    def set_quota(self, quota):
        super().set_quota(quota)
        self.max_debt = min(self.max_debt, 10000)

    def settle(self, state, now):
        newest = state[-1][0] if state else now
        t, rebased = self.hold(newest, now)
        back = newest - now if rebased else 0
        return [(time - back, cost) for time, cost in state or [] if t < time - back + self.period]

    def fits(self, log, cost, now):
        return sum(cost for _, cost in log) + cost <= self.limit

    def recorded(self, log):
        return sum(cost for _, cost in log)

    def charge(self, log, cost, now):
        return log + [(max(now, log[-1][0]) if log else now, cost)]

    def lower(self, log, cost, now):
        costs = take_away([cost for _, cost in reversed(log)], cost)
        return [(time, rest) for (time, _), rest in zip(log, reversed(costs)) if rest > 0]

    def until_reset(self, log, now):
        return log[-1][0] + self.period - now if log else 0


# The calendar: dates are walked one by one, and windows are looked up in the list of all.
FIRST_YEAR, LAST_YEAR = 1996, 2046
WEEKDAYS = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]


@functools.cache
def date_starts(name):
    """(date, the first second since 1970 at which it is the date in the zone or already over)."""
    zone, utc = zoneinfo.ZoneInfo(name), datetime.timezone.utc

    def date_at(second):
        return datetime.datetime.fromtimestamp(second, utc).astimezone(zone).date()
    starts, date = [], datetime.date(FIRST_YEAR, 1, 1)
    while date.year <= LAST_YEAR:
        midnight = datetime.datetime(date.year, date.month, date.day)
        # The first midnight, if there are two.
        start = midnight.replace(tzinfo=zone, fold=0).astimezone(utc)
        second = int(start.timestamp())
        if start.astimezone(zone).replace(tzinfo=None) != midnight:
            # The clocks skip midnight. They are changed at whole minutes, by a day at most.
            second -= 25 * 3600
            while date_at(second) < date:
                second += 60
        starts.append((date, second))
        date += datetime.timedelta(days=1)
    return starts


def begins(date, align, anchor, week_starts):
    """Whether a window begins with the date."""
    if align == "day":
        return True
    if align == "week":
        return date.weekday() == WEEKDAYS.index(week_starts)
    is_last = (date + datetime.timedelta(days=1)).month != date.month
    if align == "month":
        return date.day == anchor or (is_last and date.day < anchor)
    return (date.month, date.day) == (1, 1)


@functools.cache
def calendar_starts(align, zone, anchor, week_starts):
    """Where all windows begin, in seconds since 1970, without windows of no length."""
    starts = [start for date, start in date_starts(zone) if begins(date, align, anchor, week_starts)]
    return [start for start, after in zip(starts, starts[1:]) if start < after]


# Clocks are changed at midnight (Cairo, Sao Paulo, Beirut, Havana), at a minute past it
# (St. John's until 2011), by half an hour (Lord Howe), by a whole day (Apia), never (Kolkata).
ZONES = ["UTC", "Africa/Cairo", "America/Havana", "America/New_York", "America/Sao_Paulo", "America/St_Johns",
         "Asia/Beirut", "Asia/Kolkata", "Australia/Lord_Howe", "Europe/Berlin", "Pacific/Apia"]


def calendars():
    """The text of a limit, and the calendar that it means."""
    for zone in ZONES:
        yield "1 per calendar day zone %s" % zone, ("day", zone, 1, "monday")
        for day in ["monday", "sunday", "thursday"]:
            yield "1 per calendar week zone %s week_starts %s" % (zone, day), ("week", zone, 1, day)
        for anchor in [1, 15, 29, 30, 31]:
            yield "1 per calendar month zone %s anchor %d" % (zone, anchor), ("month", zone, anchor, "monday")
        yield "1 per calendar year zone %s" % zone, ("year", zone, 1, "monday")


def render_calendar():
    """calendar.json: of each calendar the first start in seconds since 1970 and the lengths of the
    windows from there in minutes; [n, length] is n windows of one length."""
    lines = []
    for limit, calendar in calendars():
        starts = calendar_starts(*calendar)
        runs = []
        for start, after in zip(starts, starts[1:]):
            length, rest = divmod(after - start, 60)
            assert rest == 0
            if runs and runs[-1][1] == length:
                runs[-1][0] += 1
            else:
                runs.append([1, length])
        lengths = [length if count == 1 else [count, length] for count, length in runs]
        lines.append('{"limit": %s, "start_s": %d, "lengths_min": %s}' % (
            json.dumps(limit), starts[0], json.dumps(lengths, separators=(",", ":"))))
    return '{"calendars": [\n%s\n]}\n' % ",\n".join(lines)


def calendar_path():
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), "calendar.json")


def check_calendar():
    """How many calendars of calendar.json differ from what is computed here."""
    with open(calendar_path(), encoding="utf-8") as file:
        committed = file.read().splitlines()
    bad = [line for line in render_calendar().splitlines() if line not in committed]
    for line in bad:
        print("calendar.json: differs from zoneinfo: %s" % line[:80])
    return len(bad)


def first_true(true_at, low, high):
    """The smallest n in low+1..high with true_at(n), which stays true from there on."""
    assert not true_at(low) and true_at(high)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if true_at(middle) else (middle, high)
    return high


def take_away(counts, cost):
    """The counts after taking `cost` away from the first ones, none below 0."""
    rest = []
    for count in counts:
        rest.append(max(count - cost, 0))
        cost = max(cost - count, 0)
    return rest


ALGORITHMS = {
    "token_bucket": TokenBucket, "leaky_bucket": LeakyBucket, "fixed_window": FixedWindow,
    "sliding_window": lambda quota: (StrictWindow if quota.get("strict") else SlidingWindow)(quota),
    "sliding_log": SlidingLog,
}


def answers(algorithm, case):
    """(step, answer, complaint) for each step; a complaint says that a retry is not tight."""
    bucket = ALGORITHMS[algorithm](case["quota"])
    buckets = {bucket.arithmetic: bucket}
    for step in case["steps"]:
        if "quota" in step:
            changed = ALGORITHMS[algorithm](step["quota"])
            bucket = buckets.setdefault(changed.arithmetic, changed)
            bucket.set_quota(step["quota"])
        answer = bucket.step(step["op"], step.get("cost"), step["at_us"])
        complaint = None
        if step["op"] == "take" and answer["retry_after_us"]:
            at = step["at_us"] + answer["retry_after_us"]
            for instant, passes in ((at - 1, False), (at, True)):
                if copy.deepcopy(bucket).step("take", step["cost"], instant)["allowed"] != passes:
                    complaint = "retry_after_us %d is not tight" % answer["retry_after_us"]
        yield step, answer, complaint


def render(document):
    """The text of a file: one step per line."""
    cases = []
    for case in document["cases"]:
        steps = ",\n  ".join(json.dumps(step) for step in case["steps"])
        cases.append('{"name": %s,\n "quota": %s,\n "steps": [\n  %s\n ]}' % (
            json.dumps(case["name"]), json.dumps(case["quota"]), steps))
    return '{"algorithm": %s,\n"cases": [\n%s\n]}\n' % (json.dumps(document["algorithm"]), ",\n".join(cases))


def main(write):
    cases = steps = bad = 0
    for algorithm in ALGORITHMS:
        name = algorithm + ".json"
        path = os.path.join(os.path.dirname(os.path.abspath(__file__)), name)
        with open(path, encoding="utf-8") as file:
            document = json.load(file)
        for case in document["cases"]:
            cases += 1
            for number, (step, answer, complaint) in enumerate(answers(algorithm, case), 1):
                steps += 1
                if write:
                    step["expect"] = answer
                elif step.get("expect") != answer:
                    complaint = "expected %s, is %s" % (json.dumps(step.get("expect")), json.dumps(answer))
                if complaint:
                    bad += 1
                    print("%s: %s: step %d: %s" % (name, case["name"], number, complaint))
        if write:
            with open(path, "w", encoding="utf-8") as file:
                file.write(render(document))
    if not write:
        bad += check_calendar()
    print("%d cases, %d steps, %d calendars, %d mismatches" % (cases, steps, len(list(calendars())), bad))
    return 1 if bad else 0


if __name__ == "__main__":
    if sys.argv[1:] not in (["--check"], ["--write"], ["--calendar"]):
        sys.exit(__doc__)
    try:
        if sys.argv[1] == "--calendar":
            with open(calendar_path(), "w", encoding="utf-8") as file:
                file.write(render_calendar())
        else:
            sys.exit(main(sys.argv[1] == "--write"))
    except zoneinfo.ZoneInfoNotFoundError as error:
        sys.exit("%s: install the time zone database (apt-get install tzdata) or the package (pip install tzdata)" % error)
