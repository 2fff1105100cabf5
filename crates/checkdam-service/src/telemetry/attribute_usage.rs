//! Compares the attributes that rules name with those that requests have. A rule on an
//! attribute that no request has never applies, and a request whose attributes no rule
//! names is not limited. Nothing else would reveal either case.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};

use crate::lock;
use arc_swap::ArcSwap;
use checkdam::normalize::{PathNormalization, Slashes};
use checkdam::{Condition, Matcher, Request, Rule, RuleSet};

/// More warnings would not be readable.
const WARNINGS_MAX: usize = 20;
/// How long an attribute counts as seen.
const SEEN_FOR_S: u64 = 3_600;
/// The maximum number of requests sampled per second: a busy node need not read all.
const LOOKS_PER_S: i32 = 1_000;

/// Attributes that rules name, and when requests last had them.
#[derive(Debug)]
pub struct AttributeUsage {
    known: ArcSwap<NamedAttributes>,
    /// How many requests of this second may still be sampled.
    looks: AtomicI32,
    now_s: AtomicU64,
    has_warned: AtomicBool,
    /// What was logged of rules: once each.
    logged: Mutex<HashSet<Unseen>>,
}

/// A rule that needs an attribute which no request had.
#[derive(Debug, Clone, PartialEq, Eq, Hash, serde::Serialize, utoipa::ToSchema)]
pub struct Unseen {
    /// The rule.
    pub rule: String,
    /// The attribute.
    pub attribute: String,
}

/// What the active rules name.
#[derive(Debug, Default)]
struct NamedAttributes {
    since_s: u64,
    /// When a request was last sampled; 0 if none was.
    last_request_s: AtomicU64,
    /// When a request last had the attribute; 0 if none had.
    names: HashMap<String, AtomicU64, foldhash::fast::RandomState>,
    /// What each rule needs.
    needs: Vec<Unseen>,
    /// Requests of these domains are decided by trees of descriptors.
    trees: HashSet<String>,
}

impl AttributeUsage {
    pub(super) fn new() -> Self {
        Self {
            known: ArcSwap::default(),
            looks: AtomicI32::new(LOOKS_PER_S),
            now_s: AtomicU64::new(checkdam::time::unix_us() / 1_000_000),
            has_warned: AtomicBool::new(false),
            logged: Mutex::default(),
        }
    }

    /// Other rules are active; `trees` are the domains that have trees of descriptors.
    pub(super) fn set_rules(&self, rules: &RuleSet, trees: HashSet<String>) {
        let before = self.known.load();
        let mut known =
            NamedAttributes { since_s: self.now_s.load(Ordering::Relaxed), trees, ..NamedAttributes::default() };
        known.last_request_s = AtomicU64::new(before.last_request_s.load(Ordering::Relaxed));
        for rule in rules.rules() {
            for name in named_attributes(rule) {
                let seen_s = before.names.get(name).map_or(0, |seen_s| seen_s.load(Ordering::Relaxed));
                known.names.entry(name.to_owned()).or_insert_with(|| AtomicU64::new(seen_s));
            }
            let needs = required_attributes(rule).into_iter().map(str::to_owned);
            known.needs.extend(needs.map(|attribute| Unseen { rule: rule.name.clone(), attribute }));
        }
        self.known.store(known.into());
    }

    pub(super) fn record(&self, requests: &[Request<'_>]) {
        if self.looks.load(Ordering::Relaxed) <= 0 {
            return;
        }
        self.looks.fetch_sub(1, Ordering::Relaxed);
        let (known, now_s) = (self.known.load(), self.now_s.load(Ordering::Relaxed));
        refresh(&known.last_request_s, now_s);
        for request in requests {
            let mut is_known = false;
            for (name, _) in request.attributes() {
                if let Some(seen_s) = known.names.get(name) {
                    refresh(seen_s, now_s);
                    is_known = true;
                }
            }
            if !is_known && known.expects_attribute(request) {
                self.warn_of_unknown(&known, request);
            }
        }
    }

    /// To be called once a second.
    pub(super) fn tick(&self) {
        self.tick_at(checkdam::time::unix_us() / 1_000_000);
    }

    fn tick_at(&self, now_s: u64) {
        self.now_s.store(now_s, Ordering::Relaxed);
        self.looks.store(LOOKS_PER_S, Ordering::Relaxed);
        // Within the first hour other requests may still come.
        if now_s < self.known.load().since_s + SEEN_FOR_S {
            return;
        }
        let mut logged = lock(&self.logged);
        for unseen in self.unseen() {
            if logged.len() < WARNINGS_MAX && logged.insert(unseen.clone()) {
                let Unseen { rule, attribute } = unseen;
                tracing::warn!(
                    rule,
                    attribute,
                    "no request of the last hour had this attribute: the rule matches nothing"
                );
            }
        }
    }

    pub fn is_named(&self, attribute: &str) -> bool {
        self.known.load().names.contains_key(attribute)
    }

    /// Rules that need an attribute which no request had in the last hour, or since
    /// the start; none while there are no requests at all.
    pub fn unseen(&self) -> Vec<Unseen> {
        let (known, now_s) = (self.known.load(), self.now_s.load(Ordering::Relaxed));
        let is_recent = |seen_s: &AtomicU64| {
            let seen_s = seen_s.load(Ordering::Relaxed);
            seen_s > 0 && seen_s + SEEN_FOR_S > now_s
        };
        if !is_recent(&known.last_request_s) {
            return Vec::new();
        }
        let is_unseen = |need: &&Unseen| known.names.get(&need.attribute).is_some_and(|seen_s| !is_recent(seen_s));
        known.needs.iter().filter(is_unseen).cloned().collect()
    }

    #[cold]
    fn warn_of_unknown(&self, known: &NamedAttributes, request: &Request<'_>) {
        if !self.has_warned.swap(true, Ordering::Relaxed) {
            let names = request.attributes().map(|(name, _)| checkdam::shortened(name).into_owned());
            let attributes = names.take(WARNINGS_MAX).collect::<Vec<_>>().join(", ");
            let known = known.names.keys().map(String::as_str).collect::<BTreeSet<_>>();
            let rules_name = known.into_iter().take(WARNINGS_MAX).collect::<Vec<_>>().join(", ");
            tracing::warn!(attributes, rules_name, "no rule names any attribute of a request");
        }
    }
}

impl NamedAttributes {
    /// Whether a request without any known attribute should have had one.
    fn expects_attribute(&self, request: &Request<'_>) -> bool {
        !self.names.is_empty() && request.attributes().next().is_some() && !self.trees.contains(request.domain())
    }
}

/// Every attribute that a rule names.
fn named_attributes(rule: &Rule) -> impl Iterator<Item = &str> {
    rule.key.attributes().chain(rule.when.iter().map(|(name, _)| name.as_str()))
}

/// The attributes that a rule needs to apply to a request.
fn required_attributes(rule: &Rule) -> BTreeSet<&str> {
    let conditions = rule.when.iter().filter(|(_, condition)| !condition.holds(None));
    rule.key.attributes().chain(conditions.map(|(name, _)| name.as_str())).collect()
}

/// What rules name, if they name none of the request's attributes.
pub fn unknown_attributes<'a>(rules: &'a RuleSet, request: &Request<'_>) -> Option<BTreeSet<&'a str>> {
    let names: BTreeSet<&str> = rules.rules().flat_map(named_attributes).collect();
    let mut attributes = request.attributes().peekable();
    let is_unknown =
        attributes.peek().is_some() && !names.is_empty() && !{ attributes }.any(|(name, _)| names.contains(name));
    is_unknown.then_some(names)
}

/// Writes a time that is not there yet: most often it is, and nothing is written.
fn refresh(time_s: &AtomicU64, now_s: u64) {
    if time_s.load(Ordering::Relaxed) != now_s {
        time_s.store(now_s, Ordering::Relaxed);
    }
}

/// Warns of paths in conditions that no path of a proxied request is written as.
pub(super) fn warn_of_unmatched_paths(rules: &RuleSet, paths: &PathNormalization) {
    let unmatched = rules.rules().flat_map(|rule| unmatched_paths(rule, *paths).map(move |found| (rule, found)));
    for (rule, (written, meant)) in unmatched.take(WARNINGS_MAX) {
        tracing::warn!(
            rule = rule.name,
            endpoint = written,
            "no proxied request can have this endpoint with the current path settings: write {meant:?}"
        );
    }
}

/// Exact endpoints of a rule that are written otherwise, and how they would be.
fn unmatched_paths(rule: &Rule, paths: PathNormalization) -> impl Iterator<Item = (&str, String)> {
    let conditions = rule.when.iter().filter(|(attribute, _)| attribute == "endpoint");
    let matchers = conditions.flat_map(|(_, condition)| match condition {
        Condition::In(matchers) | Condition::NotIn(matchers) => matchers.as_slice(),
        Condition::Present(_) => &[],
    });
    matchers.filter_map(move |matcher| {
        let Matcher::Exact(text) = matcher else { return None };
        // Rejected paths reach no rule; decoded, it is how the rule should be written.
        let decoding = PathNormalization { slashes: Slashes::Decode, ..paths };
        let meant = paths.endpoint(text).or_else(|_| decoding.endpoint(text)).ok()?;
        (text.starts_with('/') && meant != text.as_str()).then(|| (text.as_str(), meant.into_owned()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unseen(attributes: &AttributeUsage) -> Vec<String> {
        attributes.unseen().into_iter().map(|Unseen { rule, attribute }| format!("{rule}: {attribute}")).collect()
    }

    #[test]
    fn a_rule_is_reported_whose_attribute_no_request_had_in_the_last_hour() {
        let per_user = Rule::new("per-user", "user:{user_id}".parse().unwrap(), vec!["1/s".parse().unwrap()])
            .when("plan", Condition::is("free"))
            .when("bot", Condition::Present(false));
        let global = Rule::new("global", "global".parse().unwrap(), vec!["1/s".parse().unwrap()]);
        let rules = RuleSet::new(vec![per_user, global]).unwrap();
        let attributes = AttributeUsage::new();
        attributes.tick_at(10_000);
        attributes.set_rules(&rules, HashSet::new());
        assert!(unseen(&attributes).is_empty(), "without requests nothing is missing");
        attributes.record(&[Request::new().with("plan", "free").unwrap()]);
        assert_eq!(unseen(&attributes), ["per-user: user_id"]);
        attributes.tick_at(10_000 + 1_800);
        attributes.record(&[Request::new().with("user_id", "42").unwrap()]);
        assert!(unseen(&attributes).is_empty());
        attributes.set_rules(&rules, HashSet::new());
        assert!(unseen(&attributes).is_empty(), "an edit forgets nothing");
        attributes.tick_at(10_000 + 3_600);
        assert_eq!(unseen(&attributes), ["per-user: plan"]);
        assert_eq!(attributes.logged.lock().unwrap().len(), 0, "the rules are not active for an hour yet");
        attributes.tick_at(10_000 + 5_399);
        attributes.record(&[Request::new().with("user_id", "42").unwrap()]);
        attributes.tick_at(10_000 + 5_401);
        attributes.tick_at(10_000 + 5_402);
        assert_eq!(attributes.logged.lock().unwrap().len(), 1, "it is logged once");
        attributes.tick_at(100_000);
        assert!(unseen(&attributes).is_empty(), "without requests nothing is missing");
    }

    #[test]
    fn a_request_is_told_of_whose_attributes_no_rule_names_any() {
        let per_user = Rule::new("per-user", "user:{user}".parse().unwrap(), vec!["1/s".parse().unwrap()]);
        let rules = RuleSet::new(vec![per_user]).unwrap();
        let attributes = AttributeUsage::new();
        attributes.set_rules(&rules, HashSet::from(["envoy".to_owned()]));
        let request = |name: &'static str| Request::new().with(name, "42").unwrap();
        attributes.record(&[request("user"), Request::new(), request("usr").in_domain("envoy")]);
        assert!(!attributes.has_warned.load(Ordering::Relaxed));
        attributes.record(&[request("usr")]);
        assert!(attributes.has_warned.load(Ordering::Relaxed));
        assert_eq!(unknown_attributes(&rules, &request("usr")), Some(BTreeSet::from(["user"])));
        assert_eq!(unknown_attributes(&rules, &request("user")), None);
    }
}
