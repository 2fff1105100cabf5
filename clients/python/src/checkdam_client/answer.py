"""Answers of the server, in seconds where the wire has milliseconds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, Mapping, Optional, Tuple


@dataclass(frozen=True)
class Tier:
    """Where one limit stands."""

    #: the rule it belongs to
    rule: str
    #: what kind of subject it counts
    scope: str
    #: the subject that its bucket belongs to
    subject: str
    #: whether it lets the request pass
    allowed: bool
    #: the most that can pass at once
    limit: int
    #: what is left
    remaining: int
    #: how long until it would let the request pass, in seconds; None if it never will
    retry_after: Optional[float]
    #: how long until it owes nothing any more, in seconds
    reset_after: float
    #: true if the rule is in shadow mode: it never denies
    shadow: bool = False
    #: the limit as it is written, such as ``10/s burst 50``
    limit_name: str = ""
    #: what was used beyond the limit and is not paid back yet: until then nothing passes
    debt: int = 0

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Tier:
        return cls(
            rule=value["rule"],
            scope=value["scope"],
            subject=value["subject"],
            allowed=value["allowed"],
            limit=value["limit"],
            remaining=value["remaining"],
            retry_after=_seconds(value["retry_after_ms"]),
            reset_after=value["reset_after_ms"] / 1000,
            shadow=value.get("shadow", False),
            limit_name=value.get("limit_name", ""),
            debt=value.get("debt", 0),
        )


@dataclass(frozen=True)
class Ban:
    """A ban on a request."""

    #: the banned subject, such as ``ip:198.51.100.0/24``
    subject: str
    #: why
    reason: str
    #: when it ends, in RFC 3339; None if never
    until: Optional[str] = None


@dataclass(frozen=True)
class Answer:
    """Whether a request passes, and where its limits stand."""

    #: whether it passes
    allowed: bool
    #: 200, 429 (must wait), 422 (can never pass), 403 (banned), 503 (cannot be decided)
    status: int
    #: the limit of the governing tier; None if no rule applies
    limit: Optional[int] = None
    #: what is left of it
    remaining: Optional[int] = None
    #: how long until the same request would pass, in seconds; None if it never will
    retry_after: Optional[float] = 0.0
    #: how long until that limit owes nothing any more, in seconds
    reset_after: float = 0.0
    #: how long to hold the request back (leaky bucket), in seconds
    delay: float = 0.0
    #: the rule with the longest wait, if denied
    violated: Optional[str] = None
    #: the ban on the request, if it is banned
    ban: Optional[Ban] = None
    #: what decided: a store, a policy, or ``client`` if the server was unreachable
    decided_by: str = ""
    #: every tier of the request
    tiers: Tuple[Tier, ...] = ()
    #: the kind of problem, if denied
    kind: Optional[str] = None
    #: the same for people
    title: Optional[str] = None
    #: which rule denies it, and when it would pass
    detail: Optional[str] = None
    #: the policies that deny it, by their names in RateLimit-Policy
    violated_policies: Tuple[str, ...] = ()
    #: the rate-limit headers of the answer, in lower case, to be passed on
    headers: Mapping[str, str] = field(default_factory=dict)
    #: of a record, what was not charged because of a limit's ``max_debt``
    cut_off: int = 0

    @classmethod
    def from_json(cls, value: Mapping[str, Any], status: int, headers: Mapping[str, str]) -> Answer:
        ban = value.get("ban")
        return cls(
            allowed=value["allowed"],
            status=status,
            limit=value["limit"],
            remaining=value["remaining"],
            retry_after=_seconds(value["retry_after_ms"]),
            reset_after=value["reset_after_ms"] / 1000,
            delay=value.get("delay_ms", 0) / 1000,
            violated=value["violated"],
            ban=Ban(ban["subject"], ban["reason"], ban.get("until")) if ban else None,
            decided_by=value["decided_by"],
            tiers=tuple(Tier.from_json(tier) for tier in value["tiers"]),
            kind=value.get("type"),
            title=value.get("title"),
            detail=value.get("detail"),
            violated_policies=tuple(value.get("violated-policies", ())),
            headers=headers,
            cut_off=value.get("cut_off", 0),
        )

    def problem(self) -> Dict[str, Any]:
        """A denial as problem details (RFC 9457) for the client.

        Tiers and bans are left out: they may name other subjects.
        """
        return {
            "type": self.kind or "about:blank",
            "title": self.title or "Too Many Requests",
            "status": self.status,
            "detail": "the request is banned" if self.status == 403 else self.detail or "",
            "violated-policies": list(self.violated_policies),
            "retry_after_ms": None if self.retry_after is None else round(self.retry_after * 1000),
        }


def _seconds(milliseconds: Optional[int]) -> Optional[float]:
    return None if milliseconds is None else milliseconds / 1000
