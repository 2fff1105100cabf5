//! The index of rules and bans finds exactly what testing each one finds.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use checkdam::store::{MemoryOptions, MemoryStore};
use checkdam::time::ManualClock;
use checkdam::{Ban, BannedValue, Condition, Definitions, Limiter, Matcher, Request, Rule, RuleSet};
use pollster::block_on;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

/// Few bits vary, so that addresses and networks often meet.
fn address() -> impl Strategy<Value = IpAddr> {
    prop_oneof![
        (0..4_u32, 0..4_u32).prop_map(|(high, low)| Ipv4Addr::from(0x0A00_0000 | high << 22 | low).into()),
        (0..4_u128, 0..4_u128).prop_map(|(high, low)| Ipv6Addr::from(0xFD00 << 112 | high << 62 | low).into()),
        (0..4_u32).prop_map(|low| Ipv4Addr::from(0x0A00_0000 | low).to_ipv6_mapped().into()),
    ]
}

fn network() -> impl Strategy<Value = String> {
    (address(), 0..=128_u8).prop_map(|(address, length)| {
        let most = if address.is_ipv4() { 32 } else { 128 };
        format!("{address}/{}", length.min(most))
    })
}

fn value() -> impl Strategy<Value = String> {
    prop_oneof![4 => address().prop_map(|address| address.to_string()), 1 => "[ab]{0,3}", 1 => Just("/a/b".to_owned())]
}

fn matcher() -> impl Strategy<Value = Matcher> {
    let text = prop_oneof![4 => network(), 1 => value(), 1 => "[ab]{0,2}\\*", 1 => Just("/a/{id}".to_owned())];
    text.prop_map(|text| Matcher::parse(&text).unwrap())
}

fn condition() -> impl Strategy<Value = Condition> {
    prop_oneof![
        6 => vec(matcher(), 1..4).prop_map(Condition::In),
        1 => vec(matcher(), 1..4).prop_map(Condition::NotIn),
        1 => any::<bool>().prop_map(Condition::Present),
    ]
}

fn rules() -> impl Strategy<Value = Vec<Rule>> {
    let when = vec((prop::sample::select(vec!["ip", "other"]), condition()), 0..3);
    vec((when, prop::sample::select(vec!["", "edge"])), 1..40).prop_map(|rules| {
        let mut named = Vec::new();
        for (number, (when, domain)) in rules.into_iter().enumerate() {
            let mut rule = Rule::new(format!("r{number}"), "k".parse().unwrap(), vec!["1/s".parse().unwrap()]);
            rule.domain = domain.to_owned();
            named.push(when.into_iter().fold(rule, |rule, (name, condition)| rule.when(name, condition)));
        }
        named
    })
}

type Attributes = (Option<String>, Option<String>, &'static str);

fn requests() -> impl Strategy<Value = Vec<Attributes>> {
    let domain = prop::sample::select(vec!["", "edge", "elsewhere"]);
    vec((option::of(value()), option::of(value()), domain), 1..30)
}

fn request((ip, other, domain): &Attributes) -> Request<'_> {
    let mut request = Request::new().in_domain(*domain);
    for (name, value) in [("ip", ip), ("other", other)] {
        if let Some(value) = value {
            request.insert(name, value.as_str()).unwrap();
        }
    }
    request
}

proptest! {
    #[test]
    fn rules_are_found_as_by_trying_each(rules in rules(), requests in requests()) {
        let set = RuleSet::new(rules.clone()).unwrap();
        for attributes in &requests {
            let request = request(attributes);
            let found: Vec<&str> = set.explain(&request, 0).iter().map(|explained| explained.rule.name.as_str()).collect();
            let holds = |rule: &&Rule| rule.when.iter().all(|(name, condition)| condition.holds(request.get(name)));
            let tried: Vec<&str> = rules
                .iter()
                .filter(|rule| rule.domain == request.domain())
                .filter(holds)
                .map(|rule| rule.name.as_str())
                .collect();
            prop_assert_eq!(found, tried, "{:?}", request);
        }
    }

    #[test]
    fn bans_are_found_as_by_trying_each(values in vec(prop_oneof![network(), value(), "[ab]{0,2}\\*"], 1..20), requests in requests()) {
        let mut bans: Vec<Ban> = Vec::new();
        for (place, value) in values.iter().filter(|value| !value.is_empty()).enumerate() {
            let mut ban = Ban::new(&format!("ip:{value}")).unwrap();
            ban.until_unix_s = Some(10_000_000_000 + place as u64);
            if !bans.iter().any(|known| known.value == ban.value) {
                bans.push(ban);
            }
        }
        let set = RuleSet::compile(Definitions { bans: bans.clone(), ..Definitions::default() }).unwrap();
        let store = MemoryStore::with_clock(MemoryOptions { max_buckets: 100 }, Arc::new(ManualClock::at(1)));
        let limiter = Limiter::new(set, store);
        for attributes in &requests {
            let request = request(attributes);
            let outcome = block_on(limiter.check(&request));
            let is_banned = |ban: &&Ban| request.get("ip").is_some_and(|value| match &ban.value {
                BannedValue::Text(text) => text.matches(value),
                BannedValue::Network(network) => {
                    value.parse::<IpAddr>().is_ok_and(|address| network.contains(&address.to_canonical()))
                }
            });
            // Each ends later than those before it: the last one counts.
            prop_assert_eq!(outcome.ban(), bans.iter().rfind(is_banned), "{:?}", request);
        }
    }
}
