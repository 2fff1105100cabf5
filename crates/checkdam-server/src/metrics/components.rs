//! Metrics of components: listeners, store, audit log, rules.

use super::definitions::{
    AUDIT_DENIED, AUDIT_DROPPED, AUDIT_SAMPLED_OUT, AUDIT_WAITING, AUDIT_WRITTEN, BANS, BREAKER_OPEN, BUILD,
    CONNECTIONS, IN_FLIGHT, LATENESS, LEASE_ASKS, LEASE_CACHED_DENIALS, LEASE_GRANTED, LEASE_HELD, LEASE_LOST,
    LEASE_RETURNED, LEASE_SPENT, LEASE_SUBJECTS, LOCAL_CHARGES, MEMORY_BUCKETS, MEMORY_BUCKETS_MAX, MEMORY_EVICTIONS,
    MetricDefinition, OVERRIDES, READY, RULES, RULES_LOAD_FAILED, RULES_LOADED, RULES_VERSION, SHED, SPANS_DROPPED,
    STORE_DEADLINE, STORE_REQUESTS, STORE_ROUND_TRIP,
};
use super::text_writer::TextWriter;
use crate::app::App;
use crate::audit::Audit;
use crate::store::ConfiguredStore;

pub(super) fn write(text: &mut TextWriter, app: &App) {
    text.family(&BUILD).sample(&[("version", env!("CARGO_PKG_VERSION"))], 1);
    listeners(text, app);
    store(text, app.limiter().store());
    audit(text, app);
    rules(text, app);
}

fn listeners(text: &mut TextWriter, app: &App) {
    text.family(&READY).sample(&[], u8::from(app.readiness().is_ready()));
    text.family(&CONNECTIONS);
    for (listener, count) in app.server().connections() {
        text.sample(&[("door", listener)], count);
    }
    let overload = app.overload();
    text.family(&SHED);
    for (listener, count) in overload.shed_by_listener() {
        text.sample(&[("door", listener)], count);
    }
    text.family(&IN_FLIGHT).sample(&[], overload.in_flight());
    text.family(&LATENESS).sample(&[], overload.max_wait_ms() as f64 / 1e3);
}

fn store(text: &mut TextWriter, store: &ConfiguredStore) {
    let (stats, is_open) = store.request_stats();
    text.family(&STORE_REQUESTS);
    let results = [
        ("answered", stats.answered),
        ("unknown", stats.unknown),
        ("refused", stats.refused),
        ("not_asked", stats.not_asked),
    ];
    for (result, count) in results {
        text.sample(&[("result", result)], count);
    }
    text.family(&LOCAL_CHARGES);
    for (result, count) in [("charged", stats.charged), ("dropped", stats.not_charged)] {
        text.sample(&[("result", result)], count);
    }
    text.family(&BREAKER_OPEN).sample(&[], u8::from(is_open));
    for (family, time) in [(STORE_ROUND_TRIP, store.round_trip()), (STORE_DEADLINE, store.deadline())] {
        text.family(&family);
        if let Some(time) = time {
            text.sample(&[], time.as_secs_f64());
        }
    }
    let memory = match store {
        ConfiguredStore::Memory(memory) => Some(memory.stats()),
        ConfiguredStore::Redis(_) => None,
    };
    for (family, value) in [
        (MEMORY_BUCKETS, memory.map(|memory| memory.buckets as u64)),
        (MEMORY_BUCKETS_MAX, memory.map(|memory| memory.buckets_max as u64)),
        (MEMORY_EVICTIONS, memory.map(|memory| memory.evicted)),
    ] {
        write_optional(text, &family, value);
    }
    leases(text, store);
}

fn leases(text: &mut TextWriter, store: &ConfiguredStore) {
    let stats = store.leases();
    for (family, value) in [
        (LEASE_SUBJECTS, stats.map(|stats| stats.subjects)),
        (LEASE_HELD, stats.map(|stats| stats.held)),
        (LEASE_ASKS, stats.map(|stats| stats.asks)),
        (LEASE_GRANTED, stats.map(|stats| stats.granted)),
        (LEASE_SPENT, stats.map(|stats| stats.spent)),
        (LEASE_RETURNED, stats.map(|stats| stats.returned)),
        (LEASE_LOST, stats.map(|stats| stats.lost)),
        (LEASE_CACHED_DENIALS, stats.map(|stats| stats.cached_denials)),
    ] {
        write_optional(text, &family, value);
    }
}

fn audit(text: &mut TextWriter, app: &App) {
    let counts = app.audit().map(Audit::counts);
    for (family, value) in [
        (AUDIT_DENIED, counts.map(|counts| counts.denied)),
        (AUDIT_WRITTEN, counts.map(|counts| counts.written)),
        (AUDIT_SAMPLED_OUT, counts.map(|counts| counts.sampled_out)),
        (AUDIT_DROPPED, counts.map(|counts| counts.dropped)),
        (AUDIT_WAITING, counts.map(|counts| counts.waiting)),
        (SPANS_DROPPED, app.tracer().dropped()),
    ] {
        write_optional(text, &family, value);
    }
}

fn rules(text: &mut TextWriter, app: &App) {
    let (snapshot, loading) = (app.rule_snapshot(), app.reload_status());
    text.family(&RULES).sample(&[], snapshot.listed_rules().count());
    text.family(&OVERRIDES).sample(&[], snapshot.overrides.len());
    text.family(&BANS).sample(&[], snapshot.bans.len());
    text.family(&RULES_VERSION).sample(&[], snapshot.revision.version);
    text.family(&RULES_LOADED).sample(&[], loading.loaded_unix_ms() as f64 / 1e3);
    text.family(&RULES_LOAD_FAILED).sample(&[], u8::from(loading.error().is_some()));
}

/// A number that there is only where the part is.
fn write_optional(text: &mut TextWriter, family: &MetricDefinition, value: Option<u64>) {
    text.family(family);
    if let Some(value) = value {
        text.sample(&[], value);
    }
}
