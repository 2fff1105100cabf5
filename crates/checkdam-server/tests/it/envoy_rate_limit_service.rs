//! Envoy's rate limit service, clause by clause, as its clients use it.

use checkdam::time::{Clock, EPOCH_UNIX_US, SECOND_US, SystemClock};
use serde_json::{Map, Value, json};
use tonic::Code;

use crate::envoy_client::{
    DescriptorStatus, RateLimitClient, RateLimitDescriptor, RateLimitRequest, RateLimitResponse, Verdict, costing,
    limited, of,
};
use crate::server_process::Server;

fn serve(rules: &str) -> (Server, RateLimitClient) {
    let server = Server::with_rules(rules);
    let client = RateLimitClient::of(&server);
    (server, client)
}

#[test]
fn a_status_tells_the_limit_its_unit_what_is_left_and_the_windows_end() {
    let units = [
        ("second", 1),
        ("minute", 60),
        ("hour", 3_600),
        ("day", 86_400),
        ("MONTH", 30 * 86_400),
        ("Year", 365 * 86_400),
        ("week", 7 * 86_400),
    ];
    let descriptor = |(unit, _): &(&str, i64)| {
        format!("  - {{key: {unit}, rate_limit: {{name: per-{unit}, unit: {unit}, requests_per_unit: 9}}}}\n")
    };
    let rules: String = units.iter().map(descriptor).collect();
    let (_server, mut client) = serve(&format!("domain: edge\ndescriptors:\n{rules}"));
    for (number, (unit, length_s)) in units.iter().enumerate() {
        let before = ((SystemClock::new().now_us() + EPOCH_UNIX_US) / SECOND_US) as i64;
        let status = client.one(&of(&[(unit, "")]));
        let limit = status.current_limit.as_ref().unwrap();
        assert_eq!(
            (limit.requests_per_unit, limit.unit, limit.name.as_str()),
            (9, number as i32 + 1, &*format!("per-{unit}"))
        );
        assert_eq!((status.code(), status.limit_remaining), (Verdict::Ok, 8), "{unit}");
        let until = status.duration_until_reset.unwrap();
        assert_eq!(until.nanos, 0, "whole seconds");
        let left = length_s - before % length_s;
        assert!([left, left - 1, left + length_s - 1].contains(&until.seconds), "{unit}: {} of {left}", until.seconds);
    }
}

#[test]
fn the_cost_is_the_descriptors_own_or_else_the_requests_and_at_least_one() {
    let (_server, mut client) =
        serve("domain: edge\ndescriptors: [{key: user, rate_limit: {unit: day, requests_per_unit: 10}}]");
    let user = [("user", "42")];
    let mut remaining = |hits_addend: u32, descriptor: RateLimitDescriptor| {
        let request = RateLimitRequest { domain: "edge".to_owned(), descriptors: vec![descriptor], hits_addend };
        client.send(request).unwrap().statuses[0].limit_remaining
    };
    assert_eq!(remaining(0, of(&user)), 9);
    assert_eq!(remaining(3, of(&user)), 6);
    assert_eq!(remaining(3, costing(2, &user)), 4);
    assert_eq!(remaining(3, costing(0, &user)), 4, "0 only asks");
    assert_eq!(remaining(u32::MAX, of(&user)), 0, "over");
    assert_eq!(remaining(0, costing(4, &user)), 0, "what was over was not charged");
    assert_eq!(client.one(&costing(0, &user)).code(), Verdict::Ok, "nothing asked, nothing over");
    assert_eq!(client.one(&of(&user)).code(), Verdict::OverLimit);
    assert_eq!(client.one(&costing(0, &user)).code(), Verdict::Ok, "what was over was not charged");
}

#[test]
fn a_descriptor_with_its_own_cost_is_charged_whether_it_fits_or_not() {
    let (server, mut client) = serve(
        r#"
domain: edge
descriptors:
  - { key: tokens, rate_limit: { name: tokens, unit: day, requests_per_unit: 10 } }
  - { key: calls, rate_limit: { unit: day, requests_per_unit: 3 } }
  - { key: shadow, shadow_mode: true, rate_limit: { unit: day, requests_per_unit: 10 } }
  - { key: nothing, rate_limit: { unit: day, requests_per_unit: 0 } }
"#,
    );
    let debt = |key: &str| {
        let body = json!({"domain": "edge", "attributes": {key: "1"}}).to_string();
        let answer = server.client().ok("/v1/peek", &body);
        (answer["tiers"][0]["remaining"].as_u64().unwrap(), answer["tiers"][0]["debt"].as_u64().unwrap_or(0))
    };
    let (tokens, call) = (|cost| costing(cost, &[("tokens", "1")]), of(&[("calls", "1")]));
    assert_eq!(client.ask(&[tokens(0), call.clone()]).overall_code(), Verdict::Ok, "on arrival");
    let over = client.ask(&[tokens(25), call.clone()]);
    assert_eq!(over.overall_code(), Verdict::OverLimit);
    assert_eq!(over.statuses.iter().map(DescriptorStatus::code).collect::<Vec<_>>(), [Verdict::OverLimit, Verdict::Ok]);
    assert_eq!((debt("tokens"), debt("calls")), ((0, 15), (2, 0)), "only its own cost is charged");
    assert_eq!(client.one(&tokens(0)).code(), Verdict::OverLimit, "in debt");
    assert_eq!(client.one(&tokens(5)).code(), Verdict::OverLimit);
    assert_eq!(debt("tokens"), (0, 20));
    // The limit of a request that is denied by another one.
    let other = |cost| costing(cost, &[("tokens", "2")]);
    assert_eq!(client.ask(&[other(4), of(&[("nothing", "1")])]).overall_code(), Verdict::OverLimit);
    assert_eq!(client.ask(&[other(4), tokens(0)]).overall_code(), Verdict::OverLimit);
    assert_eq!(client.one(&other(0)).limit_remaining, 2);
    let shadow = client.one(&costing(12, &[("shadow", "1")]));
    assert_eq!((shadow.code(), shadow.limit_remaining, debt("shadow")), (Verdict::Ok, 0, (0, 2)));
    let metrics = server.client().get("/metrics").body;
    assert!(metrics.contains("rate_limiter_recorded_cost_total{rule=\"edge.tokens\"} 38\n"), "{metrics}");
}

#[test]
fn descriptors_are_matched_exactly_then_by_wildcards_in_order_then_by_key() {
    let (_server, mut client) = serve(
        r#"
domain: edge
descriptors:
  - { key: user, rate_limit: { name: any, unit: day, requests_per_unit: 5 } }
  - { key: user, value: "b*", rate_limit: { name: first, unit: day, requests_per_unit: 5 } }
  - { key: user, value: "b*t", rate_limit: { name: second, unit: day, requests_per_unit: 5 } }
  - { key: user, value: bot, rate_limit: { name: exact, unit: day, requests_per_unit: 5 } }
  - { key: user, value: friend }
  - key: plan
    value: free
    descriptors:
      - { key: user, rate_limit: { name: free-user, unit: day, requests_per_unit: 5 } }
"#,
    );
    for (entries, name) in [
        (&[("user", "bot")][..], Some("exact")),
        (&[("user", "boat")], Some("first")),
        (&[("user", "b")], Some("first")),
        (&[("user", "rabbit")], Some("any")),
        (&[("user", "")], Some("any")),
        (&[("user", "friend")], None),
        (&[("plan", "free"), ("user", "1")], Some("free-user")),
        (&[("plan", "free")], None),
        (&[("plan", "free"), ("user", "1"), ("user", "2")], None),
        (&[("plan", "pro"), ("user", "1")], None),
        (&[("other", "1")], None),
    ] {
        let status = client.one(&of(entries));
        assert_eq!(status.code(), Verdict::Ok);
        assert_eq!(status.current_limit.map(|limit| limit.name).as_deref(), name, "{entries:?}");
    }
    let unknown = RateLimitRequest {
        domain: "other".to_owned(),
        descriptors: vec![limited(1, 1, &[("user", "1")])],
        hits_addend: 0,
    };
    for _ in 0..3 {
        let answer = client.send(unknown.clone()).unwrap();
        assert_eq!((answer.overall_code(), answer.statuses[0].current_limit.clone()), (Verdict::Ok, None));
    }
}

#[test]
fn values_are_counted_apart_unless_a_threshold_is_shared() {
    let (_server, mut client) = serve(
        r#"
domain: edge
descriptors:
  - { key: apart, value: "x*", rate_limit: { unit: day, requests_per_unit: 2 } }
  - { key: shared, value: "x*", share_threshold: true, rate_limit: { unit: day, requests_per_unit: 2 } }
"#,
    );
    assert_eq!([("apart", "x1"), ("apart", "x2")].map(|entry| client.passing(&of(&[entry]), 3)), [2, 2]);
    assert_eq!([("shared", "x1"), ("shared", "x2")].map(|entry| client.passing(&of(&[entry]), 3)), [2, 0]);
}

#[test]
fn a_limit_of_nothing_bans_and_unlimited_is_never_counted() {
    let (_server, mut client) = serve(
        r#"
domain: edge
descriptors:
  - { key: user, value: banned, rate_limit: { unit: day, requests_per_unit: 0 } }
  - { key: user, value: vip, rate_limit: { unlimited: true } }
"#,
    );
    let banned = client.one(&of(&[("user", "banned")]));
    assert_eq!((banned.code(), banned.limit_remaining), (Verdict::OverLimit, 0));
    assert_eq!(banned.current_limit.map(|limit| (limit.requests_per_unit, limit.unit)), Some((0, 4)));
    let vip = client.one(&costing(1_000_000, &[("user", "vip")]));
    assert_eq!((vip.code(), vip.limit_remaining, vip.current_limit), (Verdict::Ok, u32::MAX, None));
    assert_eq!(vip.duration_until_reset, None);
}

#[test]
fn all_descriptors_are_charged_or_none() {
    let (_server, mut client) = serve(
        r#"
domain: edge
descriptors:
  - { key: user, rate_limit: { unit: day, requests_per_unit: 2 } }
  - { key: all, rate_limit: { unit: day, requests_per_unit: 10 } }
"#,
    );
    let both = [of(&[("user", "42")]), of(&[("all", "")])];
    let codes: Vec<_> = (0..5).map(|_| client.ask(&both)).map(|answer| answer.overall_code()).collect();
    assert_eq!(codes, [Verdict::Ok, Verdict::Ok, Verdict::OverLimit, Verdict::OverLimit, Verdict::OverLimit]);
    let answer = client.ask(&both);
    assert_eq!(
        answer.statuses.iter().map(DescriptorStatus::code).collect::<Vec<_>>(),
        [Verdict::OverLimit, Verdict::Ok]
    );
    assert_eq!(client.one(&costing(0, &[("all", "")])).limit_remaining, 8, "what was denied charged nobody");
    let twice = client.ask(&[costing(5, &[("all", "")]), costing(5, &[("all", "")])]);
    assert_eq!(twice.overall_code(), Verdict::OverLimit, "the same limit twice is charged with both");
}

#[test]
fn a_limit_that_is_replaced_is_neither_counted_nor_told() {
    let (_server, mut client) = serve(
        r#"
domain: edge
descriptors:
  - { key: base, rate_limit: { name: base, unit: day, requests_per_unit: 1 } }
  - { key: premium, rate_limit: { unit: day, requests_per_unit: 3, replaces: [{ name: base }] } }
  - { key: staff, rate_limit: { unlimited: true, replaces: [{ name: base }] } }
"#,
    );
    let (base, premium, staff) = (of(&[("base", "")]), of(&[("premium", "")]), of(&[("staff", "")]));
    for _ in 0..3 {
        let answer = client.ask(&[base.clone(), premium.clone()]);
        assert_eq!((answer.overall_code(), answer.statuses[0].current_limit.clone()), (Verdict::Ok, None));
    }
    assert_eq!(client.ask(&[base.clone(), premium]).overall_code(), Verdict::OverLimit);
    assert_eq!(client.ask(&[staff, base.clone()]).overall_code(), Verdict::Ok);
    assert_eq!(client.passing(&base, 2), 1, "it was not charged before");
}

#[test]
fn a_limit_in_shadow_is_told_and_denies_nothing() {
    let (_server, mut client) = serve(
        "domain: edge\ndescriptors: [{key: k, shadow_mode: true, rate_limit: {unit: day, requests_per_unit: 1}}]",
    );
    for remaining in [0, 0, 0] {
        let status = client.one(&of(&[("k", "")]));
        assert_eq!((status.code(), status.limit_remaining), (Verdict::Ok, remaining));
        assert_eq!(status.current_limit.unwrap().requests_per_unit, 1);
    }
}

#[test]
fn quotas_deny_only_when_all_of_them_are_over() {
    let (_server, mut client) = serve(
        r#"
domain: edge
descriptors:
  - { key: a, quota_mode: true, rate_limit: { unit: day, requests_per_unit: 1 } }
  - { key: b, quota_mode: true, rate_limit: { unit: day, requests_per_unit: 2 } }
"#,
    );
    let both = [of(&[("a", "")]), of(&[("b", "")])];
    let mut codes = || {
        let answer = client.ask(&both);
        (answer.overall_code(), answer.statuses[0].code(), answer.statuses[1].code())
    };
    let (ok, over) = (Verdict::Ok, Verdict::OverLimit);
    assert_eq!([codes(), codes(), codes()], [(ok, ok, ok), (ok, over, ok), (over, over, over)]);
}

/// `QUOTA_MODE` of envoyproxy/ratelimit.
#[test]
fn all_descriptors_may_be_quotas() {
    let rules = crate::server_process::rule_file(
        r#"
domain: edge
descriptors:
  - { key: a, rate_limit: { unit: day, requests_per_unit: 1 }, metadata: { service: a } }
  - { key: b, rate_limit: { unit: day, requests_per_unit: 2 }, metadata: { service: b } }
"#,
    );
    let server = Server::with(&["--rules", rules.to_str().unwrap(), "--grpc-quota", "--grpc-metadata"]);
    let mut client = RateLimitClient::of(&server);
    let both = [of(&[("a", "")]), of(&[("b", "")])];
    let mut answer = || {
        let answer = client.ask(&both);
        let service = json_of(answer.dynamic_metadata.as_ref().unwrap())["metadata"]["service"].clone();
        (answer.overall_code(), answer.statuses[0].code(), answer.statuses[1].code(), service)
    };
    let (ok, over) = (Verdict::Ok, Verdict::OverLimit);
    assert_eq!(answer(), (ok, ok, ok, json!("a")));
    assert_eq!(answer(), (ok, over, ok, json!("b")), "routed to the one that has room");
    assert_eq!(answer(), (over, over, over, Value::Null));
}

#[test]
fn a_descriptor_without_entries_matches_nothing_and_the_others_count() {
    let (server, mut client) =
        serve("domain: edge\ndescriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: 1}}]");
    let both = [of(&[]), of(&[("k", "")])];
    assert_eq!(client.ask(&both).overall_code(), Verdict::Ok);
    let answer = client.ask(&both);
    assert_eq!((answer.overall_code(), answer.statuses[0].code()), (Verdict::OverLimit, Verdict::Ok));
    assert_eq!(answer.statuses[0].current_limit, None);
    let body = r#"{"domain": "edge", "descriptors": [{}, {"entries": [{"key": "k"}]}]}"#;
    assert_eq!(server.client().post("/json", body).status, 429);
}

#[test]
fn a_request_may_bring_a_limit_of_its_own() {
    let (_server, mut client) = serve(
        "domain: edge\ndescriptors: [{key: user, shadow_mode: true, rate_limit: {unit: day, requests_per_unit: 1}}]",
    );
    // Also where the tree has none; and what it has is in shadow, which this is not.
    for entries in [&[("user", "42")][..], &[("other", "1"), ("path", "/")]] {
        let own = limited(3, 4, entries);
        assert_eq!(client.passing(&own, 5), 3, "{entries:?}");
        let status = client.one(&own);
        assert_eq!(status.current_limit.map(|limit| (limit.requests_per_unit, limit.unit)), Some((3, 4)));
    }
    for unit in [0, 8, -1] {
        let request = RateLimitRequest {
            domain: "edge".to_owned(),
            descriptors: vec![limited(3, unit, &[("user", "1")])],
            hits_addend: 0,
        };
        let status = client.send(request).unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        assert!(status.message().starts_with("descriptors[0].limit.unit"), "{status:?}");
    }
}

#[test]
fn a_token_bucket_tells_when_the_next_request_would_pass() {
    let (_server, mut client) = serve(
        "domain: edge\ndescriptors: [{key: k, rate_limit: {unit: hour, requests_per_unit: 6, algorithm: token_bucket}}]",
    );
    let status = client.one(&of(&[("k", "")]));
    assert_eq!(status.duration_until_reset.unwrap().seconds, 600, "one token takes ten minutes");
    assert_eq!(client.passing(&of(&[("k", "")]), 8), 5);
    let status = client.one(&of(&[("k", "")]));
    assert_eq!((status.code(), status.limit_remaining), (Verdict::OverLimit, 0));
    assert!((598..=600).contains(&status.duration_until_reset.unwrap().seconds), "{status:?}");
    assert_eq!(status.current_limit.map(|limit| (limit.requests_per_unit, limit.unit)), Some((6, 3)));
}

#[test]
fn hits_may_be_given_back() {
    let (_server, mut client) =
        serve("domain: edge\ndescriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: 10}}]");
    assert_eq!(client.one(&costing(8, &[("k", "")])).limit_remaining, 2);
    let back = RateLimitDescriptor { is_negative_hits: true, ..costing(5, &[("k", "")]) };
    assert_eq!(client.one(&back).limit_remaining, 7);
    let answer = client.ask(&[of(&[("other", "")]), back, of(&[("k", "more")])]);
    assert_eq!(answer.statuses.iter().map(|status| status.limit_remaining).collect::<Vec<_>>(), [0, 10, 9]);
}

#[test]
fn our_own_rules_and_bans_concern_descriptors_too() {
    let (_server, mut client) = serve(
        r#"
rules:
  - { name: per-user, key: "user:{user}", domain: edge, limits: ["2/d burst 2"] }
bans: [{ subject: "user:bad" }]
"#,
    );
    let status = client.one(&of(&[("user", "42"), ("path", "/")]));
    assert_eq!(status.current_limit.map(|limit| (limit.name, limit.unit)), Some(("per-user".to_owned(), 4)));
    assert_eq!(client.passing(&of(&[("user", "42"), ("path", "/")]), 3), 1);
    let banned = client.one(&of(&[("user", "bad")]));
    assert_eq!((banned.code(), banned.current_limit), (Verdict::OverLimit, None));
}

#[test]
fn headers_metadata_and_a_shadow_over_all_are_answered_when_asked_for() {
    let rules = crate::server_process::rule_file(
        r#"
domain: edge
descriptors:
  - { key: user, rate_limit: { unit: day, requests_per_unit: 2 }, metadata: { team: { name: a, size: 3 } } }
  - { key: all, rate_limit: { unit: day, requests_per_unit: 100 }, metadata: { team: { name: b, floor: 1 } } }
"#,
    );
    let rules = rules.to_str().unwrap();
    let server = Server::with(&["--rules", rules, "--grpc-shadow", "--grpc-headers", "on", "--grpc-metadata"]);
    let mut client = RateLimitClient::of(&server);
    let both = [of(&[("all", "")]), of(&[("user", "42")])];
    let answers: Vec<_> = (0..3).map(|_| client.ask(&both)).collect();
    let header = |answer: &RateLimitResponse, index: usize| {
        let header = &answer.response_headers_to_add[index];
        (header.key.clone(), header.value.clone())
    };
    for (answer, remaining, code) in [(&answers[0], "1", Verdict::Ok), (&answers[2], "0", Verdict::OverLimit)] {
        assert_eq!(answer.overall_code(), Verdict::Ok, "in shadow");
        assert_eq!(answer.statuses[1].code(), code, "and told");
        assert_eq!(header(answer, 0), ("RateLimit-Limit".to_owned(), "2".to_owned()));
        assert_eq!(header(answer, 1), ("RateLimit-Remaining".to_owned(), remaining.to_owned()));
        assert_eq!(header(answer, 2).0, "RateLimit-Reset");
    }
    let told = |answer: &RateLimitResponse| json_of(answer.dynamic_metadata.as_ref().unwrap());
    let asked = json!([{"entries": ["all="]}, {"entries": ["user=42"]}]);
    assert_eq!(
        told(&answers[0]),
        json!({"domain": "edge", "descriptors": asked, "metadata": {"team": {"name": "b", "floor": 1.0, "size": 3.0}}})
    );
    let passing = json!({"team": {"name": "b", "floor": 1.0}});
    assert_eq!(told(&answers[2])["metadata"], passing, "of those that have room");
}

fn json_of(fields: &prost_types::Struct) -> Value {
    fields.fields.iter().map(|(name, field)| (name.clone(), json_of_value(field))).collect::<Map<_, _>>().into()
}

fn json_of_value(value: &prost_types::Value) -> Value {
    use prost_types::value::Kind;
    match value.kind.as_ref().unwrap() {
        Kind::NullValue(_) => Value::Null,
        Kind::BoolValue(truth) => (*truth).into(),
        Kind::NumberValue(number) => (*number).into(),
        Kind::StringValue(text) => text.clone().into(),
        Kind::ListValue(list) => list.values.iter().map(json_of_value).collect(),
        Kind::StructValue(fields) => json_of(fields),
    }
}

#[test]
fn what_cannot_be_decided_is_an_error_that_says_why() {
    let (_server, mut client) =
        serve("domain: edge\ndescriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: 1}}]");
    let request = |domain: &str, descriptors: Vec<RateLimitDescriptor>| RateLimitRequest {
        domain: domain.to_owned(),
        descriptors,
        hits_addend: 0,
    };
    for (asked, part) in [
        (request("", vec![of(&[("k", "")])]), "domain"),
        (request("edge", vec![]), "descriptors"),
        (request("edge", vec![of(&[("", "v")])]), "descriptors[0].entries"),
        (request("edge", vec![of(&[("k", "")]); 257]), "at most 256"),
    ] {
        let status = client.send(asked).unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
        assert!(status.message().contains(part), "{status:?}");
    }
    assert_eq!(client.passing(&of(&[("k", "")]), 2), 1, "what is refused is not charged");
    let (_server, mut client) = serve("rules: []");
    let status = client.send(request("edge", vec![of(&[("k", "")])])).unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status:?}");
}

#[test]
fn long_values_are_limited_like_others() {
    let (_server, mut client) =
        serve("domain: edge\ndescriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: 2}}]");
    // As much as Envoy takes of one client, in each of several descriptors.
    let long = "x".repeat(60 << 10);
    assert_eq!(client.passing(&of(&[("k", &long)]), 4), 2);
    let several: Vec<_> = (0..10).map(|_| of(&[("k", &long)])).collect();
    assert_eq!(client.ask(&several).overall_code(), Verdict::OverLimit);
    assert_eq!(client.passing(&of(&[("k", &long[1..])]), 4), 2, "others count by themselves");
}
