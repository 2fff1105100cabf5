//! Definitions as text: everything that can be built is written so that it parses to
//! the same, as YAML and as JSON.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use checkdam::rule_file::{self, parse_ban, parse_definitions, parse_definitions_within, parse_override, parse_rule};
use checkdam::time::Zone;
use checkdam::{
    Algorithm, Align, Allowance, Ban, BanSpec, BannedValue, CalendarOptions, Condition, Definitions, FailurePolicy,
    Lease, Matcher, Mode, Override, OverrideSpec, Pattern, Quota, QuotaSpec, Rule, RuleSet, RuleSpec, Scale,
    SubjectPattern, Weekday,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use serde_json::json;

/// Text of all kinds: plain, telling, and hostile to YAML.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z]{1,8}",
        "[a-z0-9:/.*{}-]{0,12}",
        any::<String>().prop_map(|text| text.chars().take(20).collect()),
        prop::sample::select(vec![
            "true",
            "null",
            "~",
            "yes",
            "off",
            "42",
            "1.5",
            "0x1f",
            "1e3",
            ".inf",
            "-",
            "- a",
            "a: b",
            "#",
            "a #b",
            "&a",
            "*a",
            "!t",
            "|",
            ">",
            "'",
            "\"",
            "%",
            "@",
            "`",
            "?",
            ",",
            "[",
            "]",
            "{",
            "}",
            "\\",
            "\u{feff}",
            "\u{2028}",
            "\u{85}",
            "\t",
            "\r\n",
            " a ",
            "",
            "10.0.0.0/8",
            "10.0.0.1",
            "a*",
            "/users/{id}",
            "\u{1f600}",
            "=",
            "<<",
            "2026-01-01",
            "\u{fffe}",
            "\u{0}",
            "12:30:45",
        ])
        .prop_map(str::to_owned),
    ]
}

fn attribute() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z_.-]{1,4}", Just("user".to_owned()), Just("true".to_owned()), Just("1".to_owned())]
}

fn matcher() -> impl Strategy<Value = Matcher> {
    prop_oneof![
        text().prop_map(Matcher::Exact),
        text().prop_filter_map("a pattern", |text| {
            Pattern::new(&text).ok().filter(|_| Pattern::is_pattern(&text)).map(Matcher::Pattern)
        }),
        (any::<u32>(), 0..=32_u8).prop_map(|(bits, length)| Matcher::parse(&format!(
            "{}/{length}",
            std::net::Ipv4Addr::from(bits)
        ))
        .unwrap()),
        (any::<u128>(), 0..=128_u8).prop_map(|(bits, length)| Matcher::parse(&format!(
            "{}/{length}",
            std::net::Ipv6Addr::from(bits)
        ))
        .unwrap()),
    ]
}

fn condition() -> impl Strategy<Value = Condition> {
    prop_oneof![
        3 => vec(matcher(), 1..4).prop_map(Condition::In),
        2 => vec(matcher(), 1..4).prop_map(Condition::NotIn),
        1 => any::<bool>().prop_map(Condition::Present),
    ]
}

fn spec(is_bucket: bool) -> impl Strategy<Value = QuotaSpec> {
    let period = prop_oneof![Just(1_000_000), Just(60_000_000), Just(86_400_000_000), 1..90_000_000_u64];
    let extras = (option::of(1..10_000_u64), option::of(0..2_u64))
        .prop_map(move |extras| if is_bucket { extras } else { (None, None) });
    (1..1_000_u64, period, extras).prop_map(|(amount, period_us, (burst, initial))| QuotaSpec {
        burst,
        initial,
        ..QuotaSpec::new(amount, period_us)
    })
}

fn calendar_options() -> impl Strategy<Value = CalendarOptions> {
    let zones = prop::sample::select(vec!["UTC", "Europe/Berlin", "Etc/GMT+5", "America/Argentina/Ushuaia"]);
    let zone = zones.prop_map(|name| Zone::by_name(name).unwrap());
    let week_starts = prop::sample::select(Weekday::ALL.to_vec());
    (option::of(zone), option::of(1..=31_u8), option::of(week_starts))
        .prop_map(|(zone, anchor, week_starts)| CalendarOptions { zone, anchor, week_starts })
}

/// A calendar period, and options that apply to it.
fn calendar_period() -> impl Strategy<Value = (Align, u64, CalendarOptions)> {
    const DAY_US: u64 = 86_400_000_000;
    let periods = [(Align::Day, 1), (Align::Week, 7), (Align::Month, 30), (Align::Year, 365)];
    (prop::sample::select(periods.to_vec()), calendar_options()).prop_map(|((align, days), options)| {
        let anchor = options.anchor.filter(|_| align == Align::Month);
        let week_starts = options.week_starts.filter(|_| align == Align::Week);
        (align, days * DAY_US, CalendarOptions { anchor, week_starts, ..options })
    })
}

fn algorithm() -> impl Strategy<Value = Algorithm> {
    prop::sample::select(Algorithm::ALL.to_vec())
}

/// Limits of one rule: of its algorithm, of one that they name, or of the calendar; and the rule's
/// options for the latter.
fn quotas() -> impl Strategy<Value = (Vec<Quota>, CalendarOptions)> {
    (algorithm(), calendar_options()).prop_flat_map(|(usual, options)| {
        let of_the_calendar = option::weighted(0.3, calendar_period());
        let quota = (option::weighted(0.3, algorithm()), of_the_calendar).prop_flat_map(move |(named, calendar)| {
            let (named, algorithm) = match calendar {
                Some(_) => (named.map(|_| Algorithm::FixedWindow), Algorithm::FixedWindow),
                None => (named, named.unwrap_or(usual)),
            };
            let is_bucket = matches!(algorithm, Algorithm::TokenBucket | Algorithm::LeakyBucket);
            spec(is_bucket).prop_filter_map("countable", move |spec| {
                let (align, period_us, calendar) = calendar.unwrap_or((spec.align, spec.period_us, spec.calendar));
                let spec = QuotaSpec { algorithm: named, align, period_us, calendar, ..spec };
                Quota::with_calendar(spec, usual, options).ok()
            })
        });
        vec(quota, 1..4).prop_map(move |quotas| {
            // A rule has no option that none of its limits can use.
            let has = |align| quotas.iter().any(|quota: &Quota| quota.spec().align == align);
            let options = CalendarOptions {
                zone: options.zone.filter(|_| quotas.iter().any(|quota| quota.spec().align != Align::Epoch)),
                anchor: options.anchor.filter(|_| has(Align::Month)),
                week_starts: options.week_starts.filter(|_| has(Align::Week)),
            };
            (quotas, options)
        })
    })
}

fn rule() -> impl Strategy<Value = Rule> {
    let key = prop::sample::select(vec!["global", "user:{user}", "{a}*{b}", "corp\\{user}", "tenant:{tenant}:{user}"]);
    let when = vec((attribute(), vec(condition(), 1..4)), 0..4).prop_map(|groups| {
        let mut when: Vec<(String, Condition)> = Vec::new();
        for (attribute, conditions) in groups {
            if !when.iter().any(|(known, _)| *known == attribute) {
                when.extend(conditions.into_iter().map(|condition| (attribute.clone(), condition)));
            }
        }
        when
    });
    let modes = prop::sample::select(vec![Mode::Enforce, Mode::Shadow, Mode::Off]);
    let policies = prop::sample::select(vec![FailurePolicy::Open, FailurePolicy::Closed, FailurePolicy::Local]);
    let leases = prop_oneof![Just(Lease::Off), Just(Lease::Auto), (1..10_000_000_u64).prop_map(Lease::For)];
    let choices = (modes, policies, leases, any::<i32>());
    (text(), key, quotas(), when, (text(), option::of(text()), text()), choices).prop_map(
        |(name, key, (quotas, calendar), when, (domain, scope, description), choices)| {
            let (mode, on_store_failure, lease, priority) = choices;
            let mut rule = Rule::new(name, key.parse().unwrap(), quotas);
            rule.scope = scope.unwrap_or(rule.scope);
            Rule { when, domain, description, calendar, mode, on_store_failure, lease, priority, ..rule }
        },
    )
}

fn one_override() -> impl Strategy<Value = Override> {
    let allowance = prop_oneof![
        vec(spec(true), 1..4).prop_map(Allowance::Limits),
        calendar_period().prop_map(|(align, period_us, calendar)| {
            Allowance::Limits(vec![QuotaSpec { align, calendar, ..QuotaSpec::new(7, period_us) }])
        }),
        (1..=1_000_000_000_u64).prop_map(|thousandths| Allowance::Scale(Scale::from_thousandths(thousandths).unwrap())),
        Just(Allowance::Unlimited),
    ];
    let subject = prop_oneof![
        text().prop_map(|text| SubjectPattern::parse(&text)),
        text().prop_map(|text| SubjectPattern::exact(&text))
    ];
    (text(), subject, allowance, text()).prop_map(|(rule, subject, allowance, description)| Override {
        rule,
        subject,
        allowance,
        description,
    })
}

fn ban() -> impl Strategy<Value = Ban> {
    let value = prop_oneof![
        text().prop_filter_map("a value", |text| BannedValue::parse(&text).ok().filter(|_| !text.is_empty())),
        text().prop_filter_map("no network", |text| {
            Some(BannedValue::exact(&text)).filter(|value| BannedValue::parse(&value.to_string()).as_ref() == Ok(value))
        })
    ];
    let value = value.prop_filter("something", |value| !value.to_string().is_empty());
    (attribute(), value, option::of(0..=253_402_300_799_u64), text())
        .prop_map(|(attribute, value, until_unix_s, reason)| Ban { attribute, value, until_unix_s, reason })
}

fn definitions() -> impl Strategy<Value = Definitions> {
    (vec(rule(), 0..4), vec(one_override(), 0..4), vec(ban(), 0..4)).prop_map(|(rules, overrides, bans)| Definitions {
        rules,
        overrides,
        bans,
        trees: Vec::new(),
    })
}

proptest! {
    #[test]
    fn what_is_written_reads_the_same_again(definitions in definitions()) {
        let text = rule_file::write(&definitions);
        prop_assert_eq!(parse_definitions(&text).map_err(|error| TestCaseError::fail(format!("{error}\n{text}")))?, definitions);
    }

    #[test]
    fn the_same_as_json(definitions in definitions()) {
        for rule in &definitions.rules {
            let text = serde_json::to_string(&RuleSpec::from(rule)).unwrap();
            let spec: RuleSpec = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(&Rule::try_from(spec).unwrap(), rule);
            prop_assert_eq!(&parse_rule(&text).map_err(|error| TestCaseError::fail(format!("{error}\n{text}")))?, rule);
        }
        for one in &definitions.overrides {
            let text = serde_json::to_string(&OverrideSpec::from(one)).unwrap();
            let spec: OverrideSpec = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(&Override::try_from(spec).unwrap(), one);
            prop_assert_eq!(&parse_override(&text).map_err(|error| TestCaseError::fail(format!("{error}\n{text}")))?, one);
        }
        for ban in &definitions.bans {
            let text = serde_json::to_string(&BanSpec::from(ban)).unwrap();
            prop_assert_eq!(&parse_ban(&text).map_err(|error| TestCaseError::fail(format!("{error}\n{text}")))?, ban);
        }
    }
}

const WRITTEN: &str = r#"rules:
  - name: user-free
    description: "The free plan, per user"
    priority: 10
    key: "user:{user}"
    when: { plan: free, method: [GET, POST], ip: { not_in: ["10.0.0.0/8", "fd00::/8"] } }
    limits: ["10/s burst 50", "5000/h"]
    on_store_failure: closed
    lease: "100ms"
  - name: search
    domain: edge
    key: "endpoint:{endpoint}"
    scope: path
    when: { endpoint: "/users/{id}", api_key: { present: true } }
    limits: ["1000/m"]
    algorithm: sliding_window
    strict: true
    mode: shadow
overrides:
  - { rule: user-free, subject: "user:42", limits: ["100/s burst 500"] }
  - { rule: user-free, subject: "user:bot-*", description: ours, scale: 0.5 }
  - { rule: user-free, subject: "user:root", unlimited: true }
bans:
  - { subject: "ip:198.51.100.0/24", until: "2026-12-01T00:00:00Z", reason: scraping }
  - { subject: "user:13" }
"#;

#[test]
fn a_file_is_written_as_people_write_it() {
    let definitions = parse_definitions(WRITTEN).unwrap();
    assert_eq!(rule_file::write(&definitions), WRITTEN);
    RuleSet::compile(definitions).unwrap();
    assert_eq!(rule_file::write(&Definitions::default()), "rules: []\n");
}

#[test]
fn items_have_the_same_shape_as_json() {
    let definitions = parse_definitions(WRITTEN).unwrap();
    assert_eq!(
        json!(RuleSpec::from(&definitions.rules[1])),
        json!({
            "name": "search", "domain": "edge", "key": "endpoint:{endpoint}", "scope": "path",
            "when": {"endpoint": "/users/{id}", "api_key": {"present": true}},
            "limits": ["1000/m"], "algorithm": "sliding_window", "strict": true, "mode": "shadow",
        })
    );
    assert_eq!(
        json!(OverrideSpec::from(&definitions.overrides[1])),
        json!({"rule": "user-free", "subject": "user:bot-*", "description": "ours", "scale": 0.5})
    );
    assert_eq!(
        json!(BanSpec::from(&definitions.bans[0])),
        json!({"subject": "ip:198.51.100.0/24", "until": "2026-12-01T00:00:00Z", "reason": "scraping"})
    );
}

/// What other programs write as JSON must be understood too.
#[test]
fn json_of_other_programs_is_read() {
    let tabbed =
        "{\n\t\"subject\": \"user:42\",\n\t\"until\": null,\n\t\"reason\": \"a\\/b \\u00e9 \\ud83d\\ude00\"\n}";
    let ban = parse_ban(tabbed).unwrap();
    assert_eq!((ban.subject().as_str(), ban.reason.as_str()), ("user:42", "a/b \u{e9} \u{1f600}"));
    let ban = parse_ban("{\"subject\": \"user:\\\\\u{80}\", \"reason\": \"\\\"\u{fffe}\u{7f}\\\\\"}").unwrap();
    assert_eq!((ban.subject().as_str(), ban.reason.as_str()), ("user:\\\u{80}", "\"\u{fffe}\u{7f}\\"));
    let one = parse_override(r#"{"rule":"a","subject":"user:1","scale":10,"limits":null,"unlimited":false}"#).unwrap();
    assert_eq!(one.allowance, Allowance::Scale(Scale::from_thousandths(10_000).unwrap()));
    let rule =
        parse_rule(r#"{"name":"a","key":"k","limits":["1/s"],"priority":-5,"when":{"n":[1,true,"x"]}}"#).unwrap();
    assert_eq!(rule.priority, -5);
}

#[test]
fn one_item_is_refused_with_its_place() {
    for (text, words) in [
        ("", ""),
        ("[]", ""),
        ("a", ""),
        ("{name: a, key: k, limits: [1/s], extra: 1}", "extra"),
        ("{name: a, key: k}", "no limits"),
        ("{name: a, key: k, limits: [1/s], priority: high}", ""),
    ] {
        let error = parse_rule(text).expect_err(text);
        assert!(error.reason.contains(words), "{text}: {error}");
    }
}

#[test]
fn a_long_file_is_read_by_whoever_allows_it() {
    let mut definitions = parse_definitions(WRITTEN).unwrap();
    let ban = definitions.bans[1].clone();
    definitions
        .bans
        .extend((0..60_000).map(|number| Ban { value: BannedValue::exact(&format!("u{number}")), ..ban.clone() }));
    let text = rule_file::write(&definitions);
    assert!(text.len() > rule_file::FILE_MAX);
    assert!(parse_definitions(&text).unwrap_err().reason.contains("longer than 1048576 bytes"));
    assert_eq!(parse_definitions_within(&text, 64 << 20).unwrap(), definitions);
}
