//! Metrics of components: listeners, store, audit log, rules.

use checkdam::lease::LeaseStats;

use super::text_writer::TextWriter;
use crate::app::App;
use crate::audit::AuditCounts;
use crate::store::ConfiguredStore;

pub(super) fn write(text: &mut TextWriter, app: &App) {
    let version = [("version", env!("CARGO_PKG_VERSION"))];
    text.family("rate_limiter_build_info", "The program's version.").sample(&version, 1);
    listeners(text, app);
    store(text, app.limiter().store());
    audit(text, app);
    rules(text, app);
}

fn listeners(text: &mut TextWriter, app: &App) {
    let help = "1 while the server is ready, 0 during startup and shutdown and while every rule is closed.";
    text.family("rate_limiter_ready", help).sample(&[], u8::from(app.readiness().is_ready()));
    text.family("rate_limiter_connections", "Open client connections, by listener.");
    for (listener, count) in app.server().connections() {
        text.sample(&[("listener", listener)], count);
    }
    let tls = app.server().tls();
    let help = "When the TLS certificate of a listener expires, in Unix time.";
    text.family("rate_limiter_tls_certificate_expiry_timestamp_seconds", help);
    for (tls, expires) in tls.iter().filter_map(|tls| Some((tls, tls.expires_unix_s()?))) {
        text.sample(&[("listener", tls.listener())], expires);
    }
    let help = "1 if newer TLS files of a listener cannot be used and the old certificate stays active, 0 if not.";
    text.family("rate_limiter_tls_reload_failed", help);
    for tls in &tls {
        text.sample(&[("listener", tls.listener())], u8::from(tls.reload_error().is_some()));
    }
    text.family("rate_limiter_tls_handshake_failures_total", "Failed TLS handshakes, by listener and reason.");
    for tls in &tls {
        for (reason, count) in tls.failures() {
            text.sample(&[("listener", tls.listener()), ("reason", reason.name())], count);
        }
    }
    let overload = app.overload();
    text.family("rate_limiter_shed_total", "Requests shed because of overload, by listener.");
    for (listener, count) in overload.shed_by_listener() {
        text.sample(&[("listener", listener)], count);
    }
    text.family("rate_limiter_in_flight", "Requests that are being decided.").sample(&[], overload.in_flight());
    let help = "Longest scheduling delay of a request in the last second.";
    text.family("rate_limiter_lateness_seconds", help).sample(&[], overload.max_wait_ms() as f64 / 1e3);
}

fn store(text: &mut TextWriter, store: &ConfiguredStore) {
    let (stats, is_open) = store.request_stats();
    let help = "Requests to Redis by result; all but answered were decided by the rules' failure policy.";
    text.family("rate_limiter_store_requests_total", help);
    let (answered, unknown) = (("answered", stats.answered), ("unknown", stats.unknown));
    for (result, count) in [answered, unknown, ("refused", stats.refused), ("not_asked", stats.not_asked)] {
        text.sample(&[("result", result)], count);
    }
    let help = "Cost admitted by this node while Redis did not answer: charged to Redis since, or dropped.";
    text.family("rate_limiter_local_charges_total", help);
    for (result, count) in [("charged", stats.charged), ("dropped", stats.not_charged)] {
        text.sample(&[("result", result)], count);
    }
    let help = "1 while the circuit breaker of a Redis server is open, 0 if all are closed.";
    text.family("rate_limiter_breaker_open", help).sample(&[], u8::from(is_open));
    let help = "Shortest recent round trip to the most distant Redis server.";
    text.family("rate_limiter_store_round_trip_seconds", help)
        .optional(store.round_trip().map(|time| time.as_secs_f64()));
    let help =
        "How long a decision may wait for Redis. With less than 1.5 round trips most are decided by failure policy.";
    text.family("rate_limiter_store_deadline_seconds", help).optional(store.deadline().map(|time| time.as_secs_f64()));
    let memory = match store {
        ConfiguredStore::Memory(memory) => Some(memory.stats()),
        ConfiguredStore::Redis(_) => None,
    };
    let max_help = "The most buckets in memory, once for token and leaky buckets and once for windows.";
    let families = [
        ("rate_limiter_memory_buckets", "Buckets in memory that owe something."),
        ("rate_limiter_memory_buckets_max", max_help),
        ("rate_limiter_memory_evictions_total", "Evicted buckets; their debt is still held against their subjects."),
    ];
    text.families(families, memory.map(|stats| [stats.buckets as u64, stats.buckets_max as u64, stats.evicted]));
    leases(text, store);
}

fn leases(text: &mut TextWriter, store: &ConfiguredStore) {
    let granted_help = "Tokens that Redis granted; a lease's size is this divided by the asks.";
    let lost_help = "Prepaid tokens neither spent nor returned in time; they admitted no requests.";
    let families = [
        ("rate_limiter_lease_subjects", "Subjects whose shared limit is spent on this node."),
        ("rate_limiter_lease_held_tokens", "Prepaid tokens that this node can spend."),
        ("rate_limiter_lease_asks_total", "Calls that asked Redis for tokens to spend here."),
        ("rate_limiter_lease_granted_total", granted_help),
        ("rate_limiter_lease_spent_total", "Prepaid tokens spent on allowed requests."),
        ("rate_limiter_lease_returned_total", "Prepaid tokens returned in time."),
        ("rate_limiter_lease_lost_total", lost_help),
        ("rate_limiter_lease_cached_denials_total", "Requests denied without asking Redis."),
    ];
    let values = store.leases().map(|stats| {
        let LeaseStats { subjects, held, asks, granted, spent, returned, lost, cached_denials } = stats;
        [subjects, held, asks, granted, spent, returned, lost, cached_denials]
    });
    text.families(families, values);
}

fn audit(text: &mut TextWriter, app: &App) {
    let dropped_help = "Violations dropped because the queue was full or the database was unavailable for too long.";
    let families = [
        ("rate_limiter_audit_denied_total", "Violations: denials by a limit or a ban."),
        ("rate_limiter_audit_written_total", "Violations written to the database."),
        ("rate_limiter_audit_sampled_out_total", "Violations not recorded because of audit_rate."),
        ("rate_limiter_audit_dropped_total", dropped_help),
        ("rate_limiter_audit_waiting", "Violations waiting to be written."),
    ];
    let values = app.audit().map(|audit| {
        let AuditCounts { denied, written, sampled_out, dropped, waiting } = audit.counts();
        [denied, written, sampled_out, dropped, waiting]
    });
    text.families(families, values);
    let help = "Spans dropped because the collector was unavailable or slow.";
    text.family("rate_limiter_spans_dropped_total", help).optional(app.tracer().dropped());
}

fn rules(text: &mut TextWriter, app: &App) {
    let (snapshot, loading) = (app.rule_snapshot(), app.reload_status());
    text.family("rate_limiter_rules", "Active rules.").sample(&[], snapshot.listed_rules().count());
    text.family("rate_limiter_overrides", "Active overrides.").sample(&[], snapshot.overrides.len());
    text.family("rate_limiter_bans", "Active bans.").sample(&[], snapshot.bans.len());
    let help = "Version of the active rulebook; 0 for a rule file.";
    text.family("rate_limiter_rules_version", help).sample(&[], snapshot.revision.version);
    let help = "When the active rules were loaded, in Unix time.";
    text.family("rate_limiter_rules_loaded_timestamp_seconds", help).sample(&[], loading.loaded_unix_ms() as f64 / 1e3);
    let help = "1 if newer rules are invalid or cannot be read and the old ones stay active, 0 if not.";
    text.family("rate_limiter_rules_load_failed", help).sample(&[], u8::from(loading.error().is_some()));
}
