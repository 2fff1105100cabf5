//! Names, types and help texts of all metrics.

/// How a family behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MetricType {
    Counter,
    Gauge,
    Histogram,
    Info,
}

/// A name, and what it means.
#[derive(Debug, Clone, Copy)]
pub(super) struct MetricDefinition {
    pub(super) name: &'static str,
    pub(super) kind: MetricType,
    pub(super) help: &'static str,
}

impl MetricDefinition {
    pub(super) const fn counter(name: &'static str, help: &'static str) -> Self {
        Self { name, kind: MetricType::Counter, help }
    }

    pub(super) const fn gauge(name: &'static str, help: &'static str) -> Self {
        Self { name, kind: MetricType::Gauge, help }
    }

    pub(super) const fn info(name: &'static str, help: &'static str) -> Self {
        Self { name, kind: MetricType::Info, help }
    }

    const fn histogram(name: &'static str, help: &'static str) -> Self {
        Self { name, kind: MetricType::Histogram, help }
    }
}

pub(super) const REQUESTS: MetricDefinition = MetricDefinition::counter(
    "rate_limiter_requests_total",
    "Requests decided, each once, by governing rule (empty if none), decision and decider.",
);
pub(super) const ALLOWED: MetricDefinition =
    MetricDefinition::counter("rate_limiter_allowed_total", "Allowed requests, each once, by governing rule.");
pub(super) const REJECTED: MetricDefinition =
    MetricDefinition::counter("rate_limiter_rejected_total", "Denied requests, each once, by governing rule.");
pub(super) const RULE_DECISIONS: MetricDefinition = MetricDefinition::counter(
    "rate_limiter_rule_decisions_total",
    "Decisions of each rule on the requests that it matched; shadow_denied would have been denied.",
);
pub(super) const LATENCY: MetricDefinition =
    MetricDefinition::histogram("rate_limiter_latency_seconds", "How long decisions took, the store included.");

pub(super) const READY: MetricDefinition = MetricDefinition::gauge(
    "rate_limiter_ready",
    "1 while the server is ready, 0 during startup and shutdown and while every rule is closed.",
);
pub(super) const CONNECTIONS: MetricDefinition =
    MetricDefinition::gauge("rate_limiter_connections", "Open client connections, by listener.");
pub(super) const SHED: MetricDefinition =
    MetricDefinition::counter("rate_limiter_shed_total", "Requests shed because of overload, by listener.");
pub(super) const IN_FLIGHT: MetricDefinition =
    MetricDefinition::gauge("rate_limiter_in_flight", "Requests that are being decided.");
pub(super) const LATENESS: MetricDefinition = MetricDefinition::gauge(
    "rate_limiter_lateness_seconds",
    "Longest scheduling delay of a request in the last second.",
);
pub(super) const STORE_REQUESTS: MetricDefinition = MetricDefinition::counter(
    "rate_limiter_store_requests_total",
    "Requests to Redis by result; all but answered were decided by the rules' failure policy.",
);
pub(super) const LOCAL_CHARGES: MetricDefinition = MetricDefinition::counter(
    "rate_limiter_local_charges_total",
    "Cost admitted by this node while Redis did not answer: charged to Redis since, or dropped.",
);
pub(super) const BREAKER_OPEN: MetricDefinition = MetricDefinition::gauge(
    "rate_limiter_breaker_open",
    "1 while the circuit breaker of a Redis server is open, 0 if all are closed.",
);
pub(super) const STORE_ROUND_TRIP: MetricDefinition = MetricDefinition::gauge(
    "rate_limiter_store_round_trip_seconds",
    "Shortest recent round trip to the most distant Redis server.",
);
pub(super) const STORE_DEADLINE: MetricDefinition = MetricDefinition::gauge(
    "rate_limiter_store_deadline_seconds",
    "How long a decision may wait for Redis. With less than 1.5 round trips most are decided by failure policy.",
);
pub(super) const MEMORY_BUCKETS: MetricDefinition =
    MetricDefinition::gauge("rate_limiter_memory_buckets", "Buckets in memory that owe something.");
pub(super) const MEMORY_BUCKETS_MAX: MetricDefinition = MetricDefinition::gauge(
    "rate_limiter_memory_buckets_max",
    "The most buckets in memory, once for token and leaky buckets and once for windows.",
);
pub(super) const MEMORY_EVICTIONS: MetricDefinition = MetricDefinition::counter(
    "rate_limiter_memory_evictions_total",
    "Evicted buckets; their debt is still held against their subjects.",
);

pub(super) const LEASE_SUBJECTS: MetricDefinition =
    MetricDefinition::gauge("rate_limiter_lease_subjects", "Subjects whose shared limit is spent on this node.");
pub(super) const LEASE_HELD: MetricDefinition =
    MetricDefinition::gauge("rate_limiter_lease_held_tokens", "Prepaid tokens that this node can spend.");
pub(super) const LEASE_ASKS: MetricDefinition =
    MetricDefinition::counter("rate_limiter_lease_asks_total", "Calls that asked Redis for tokens to spend here.");
pub(super) const LEASE_GRANTED: MetricDefinition = MetricDefinition::counter(
    "rate_limiter_lease_granted_total",
    "Tokens that Redis granted; a lease's size is this divided by the asks.",
);
pub(super) const LEASE_SPENT: MetricDefinition =
    MetricDefinition::counter("rate_limiter_lease_spent_total", "Prepaid tokens spent on allowed requests.");
pub(super) const LEASE_RETURNED: MetricDefinition =
    MetricDefinition::counter("rate_limiter_lease_returned_total", "Prepaid tokens returned in time.");
pub(super) const LEASE_LOST: MetricDefinition = MetricDefinition::counter(
    "rate_limiter_lease_lost_total",
    "Prepaid tokens neither spent nor returned in time; they admitted no requests.",
);
pub(super) const LEASE_CACHED_DENIALS: MetricDefinition =
    MetricDefinition::counter("rate_limiter_lease_cached_denials_total", "Requests denied without asking Redis.");

pub(super) const AUDIT_DENIED: MetricDefinition =
    MetricDefinition::counter("rate_limiter_audit_denied_total", "Violations: denials by a limit or a ban.");
pub(super) const AUDIT_WRITTEN: MetricDefinition =
    MetricDefinition::counter("rate_limiter_audit_written_total", "Violations written to the database.");
pub(super) const AUDIT_SAMPLED_OUT: MetricDefinition =
    MetricDefinition::counter("rate_limiter_audit_sampled_out_total", "Violations not recorded because of audit_rate.");
pub(super) const AUDIT_DROPPED: MetricDefinition = MetricDefinition::counter(
    "rate_limiter_audit_dropped_total",
    "Violations dropped because the queue was full or the database was unavailable for too long.",
);
pub(super) const AUDIT_WAITING: MetricDefinition =
    MetricDefinition::gauge("rate_limiter_audit_waiting", "Violations waiting to be written.");
pub(super) const SPANS_DROPPED: MetricDefinition = MetricDefinition::counter(
    "rate_limiter_spans_dropped_total",
    "Spans dropped because the collector was unavailable or slow.",
);

pub(super) const RULES: MetricDefinition = MetricDefinition::gauge("rate_limiter_rules", "Active rules.");
pub(super) const OVERRIDES: MetricDefinition = MetricDefinition::gauge("rate_limiter_overrides", "Active overrides.");
pub(super) const BANS: MetricDefinition = MetricDefinition::gauge("rate_limiter_bans", "Active bans.");
pub(super) const RULES_VERSION: MetricDefinition =
    MetricDefinition::gauge("rate_limiter_rules_version", "Version of the active rulebook; 0 for a rule file.");
pub(super) const RULES_LOADED: MetricDefinition = MetricDefinition::gauge(
    "rate_limiter_rules_loaded_timestamp_seconds",
    "When the active rules were loaded, in Unix time.",
);
pub(super) const RULES_LOAD_FAILED: MetricDefinition = MetricDefinition::gauge(
    "rate_limiter_rules_load_failed",
    "1 if newer rules are invalid or cannot be read and the old ones stay active, 0 if not.",
);
pub(super) const BUILD: MetricDefinition = MetricDefinition::info("rate_limiter_build_info", "The program's version.");

pub(super) const CPU: MetricDefinition =
    MetricDefinition::counter("process_cpu_seconds_total", "Processor time of the process, user and system.");
pub(super) const MEMORY: MetricDefinition =
    MetricDefinition::gauge("process_resident_memory_bytes", "Memory that the process holds.");
pub(super) const OPEN_FDS: MetricDefinition = MetricDefinition::gauge("process_open_fds", "Open file descriptors.");
pub(super) const MAX_FDS: MetricDefinition = MetricDefinition::gauge("process_max_fds", "The most file descriptors.");
pub(super) const START: MetricDefinition =
    MetricDefinition::gauge("process_start_time_seconds", "When the process started, in Unix time.");
