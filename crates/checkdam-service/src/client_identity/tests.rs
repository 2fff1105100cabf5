//! Tables of requests and the attributes derived from them.

use axum::http::header::{HeaderMap, HeaderName, HeaderValue};
use checkdam::normalize::PathNormalization;

use super::{ClientIdentity, DescribedRequest, IdentityError, RequestTarget};

fn identity(trusted: &[&str]) -> ClientIdentity {
    ClientIdentity {
        trusted: trusted.iter().map(|network| network.parse().unwrap()).collect(),
        headers: vec![(HeaderName::from_static("x-api-key"), "api_key".to_owned())],
        cost_header: Some(HeaderName::from_static("x-cost")),
        paths: PathNormalization::AS_WRITTEN,
    }
}

fn headers(list: &[(&'static str, &str)]) -> HeaderMap {
    let pair = |(name, value): &(&'static str, &str)| {
        (HeaderName::from_static(name), HeaderValue::from_bytes(value.as_bytes()).unwrap())
    };
    list.iter().map(pair).collect()
}

fn asked(headers: &HeaderMap) -> DescribedRequest<'_> {
    DescribedRequest { method: "GET", target: "/", host: None, headers, peer: "10.0.0.1".parse().unwrap() }
}

#[test]
fn addresses_are_believed_from_the_right_and_from_trusted_networks_only() {
    const NONE: &[&str] = &[];
    const OURS: &[&str] = &["10.0.0.0/8", "fd00::/8"];
    #[rustfmt::skip]
    let cases: &[(&[&str], &str, &[&str], &str)] = &[
        // Nothing is trusted: the header is ignored.
        (NONE, "198.51.100.7", &[], "198.51.100.7"),
        (NONE, "10.0.0.1", &["203.0.113.9"], "10.0.0.1"),
        // An untrusted peer may claim any address.
        (OURS, "198.51.100.7", &["203.0.113.9"], "198.51.100.7"),
        (OURS, "10.0.0.1", &[], "10.0.0.1"),
        (OURS, "10.0.0.1", &["203.0.113.9"], "203.0.113.9"),
        // The client's own entries are left of the one that our proxy added.
        (OURS, "10.0.0.1", &["1.2.3.4, 203.0.113.9"], "203.0.113.9"),
        (OURS, "10.0.0.1", &["10.0.0.9, 203.0.113.9"], "203.0.113.9"),
        (OURS, "10.0.0.1", &["1.2.3.4, 203.0.113.9, 10.0.0.2"], "203.0.113.9"),
        // Several headers are one list.
        (OURS, "10.0.0.1", &["1.2.3.4", "203.0.113.9"], "203.0.113.9"),
        (OURS, "10.0.0.1", &["203.0.113.9", "10.0.0.2, 10.0.0.3"], "203.0.113.9"),
        // All hops are trusted.
        (OURS, "10.0.0.1", &["10.0.0.3, 10.0.0.2"], "10.0.0.3"),
        // An entry that is not an address ends the search: entries further left may be
        // anyone's.
        (OURS, "10.0.0.1", &["203.0.113.9, unknown"], "10.0.0.1"),
        (OURS, "10.0.0.1", &["203.0.113.9, _hidden, 10.0.0.2"], "10.0.0.2"),
        (OURS, "10.0.0.1", &["203.0.113.9, 300.1.1.1"], "10.0.0.1"),
        (OURS, "10.0.0.1", &["203.0.113.9, 1.2.3.4.5"], "10.0.0.1"),
        (OURS, "10.0.0.1", &["203.0.113.9, fe80::1%eth0"], "10.0.0.1"),
        (OURS, "10.0.0.1", &["203.0.113.9, é"], "10.0.0.1"),
        (OURS, "10.0.0.1", &["203.0.113.9, , ,"], "203.0.113.9"),
        // Ports and brackets.
        (OURS, "10.0.0.1", &["203.0.113.9:4711"], "203.0.113.9"),
        (OURS, "10.0.0.1", &["[2001:db8:1:2:3:4:5:6]:4711"], "2001:db8:1:2::"),
        (OURS, "10.0.0.1", &["[2001:db8:1:2:3:4:5:6]"], "2001:db8:1:2::"),
        (OURS, "10.0.0.1", &["2001:DB8:1:2:3:4:5:6"], "2001:db8:1:2::"),
        // IPv4 in the clothes of IPv6 is IPv4.
        (OURS, "::ffff:10.0.0.1", &["::ffff:203.0.113.9"], "203.0.113.9"),
        (NONE, "::ffff:198.51.100.7", &[], "198.51.100.7"),
        // IPv6 by /64, the peer's too.
        (NONE, "2001:db8:1:2:aaaa::1", &[], "2001:db8:1:2::"),
        (OURS, "fd00::1", &["2001:db8::1"], "2001:db8::"),
    ];
    for (trusted, peer, lists, expected) in cases {
        let list: Vec<_> = lists.iter().map(|list| ("x-forwarded-for", *list)).collect();
        let client = identity(trusted).client_ip(peer.parse().unwrap(), &headers(&list));
        assert_eq!(client.to_string(), *expected, "{peer} saying {lists:?}, trusted {trusted:?}");
    }
}

#[test]
fn a_path_has_one_form() {
    #[rustfmt::skip]
    let cases = [
        ("/", "/"), ("", "/"), ("?a=b", "/"), ("*", "*"),
        ("/api/search?q=/x", "/api/search"), ("/api/search#top", "/api/search"),
        ("/api/search/", "/api/search/"), ("api", "/api"),
        // Slashes and dots.
        ("//api///search", "/api/search"), ("/api/search//", "/api/search/"),
        ("/api/./search", "/api/search"), ("/api/x/../search", "/api/search"), ("/a//../b", "/b"),
        ("/../../api", "/api"), ("/api/.", "/api/"), ("/api/..", "/"), ("/..", "/"), ("/...", "/..."),
        // Percents.
        ("/%61pi/se%61rch", "/api/search"), ("/api/%7euser", "/api/~user"), ("/api/x%3Ay", "/api/x:y"),
        ("/api/%2e%2E/search", "/search"), ("/api/%2e/search", "/api/search"),
        ("/api%2fsearch", "/api%2Fsearch"), ("/api%2Fsearch", "/api%2Fsearch"), ("/api%5csearch", "/api%5Csearch"),
        ("/a%20b", "/a%20b"), ("/a b", "/a%20b"), ("/caf%c3%a9", "/caf%C3%A9"), ("/café", "/caf%C3%A9"),
        ("/a%3Fb", "/a%3Fb"), ("/a%23b", "/a%23b"), ("/a%00", "/a%00"), ("/a\\b", "/a%5Cb"),
        // A percent that encodes nothing is one, and nothing is decoded twice.
        ("/100%", "/100%25"), ("/100%25", "/100%25"), ("/%zz", "/%25zz"), ("/%6", "/%256"), ("/%+1", "/%25+1"),
        ("/%2561", "/%2561"), ("/%252e%252e/a", "/%252e%252e/a"),
        // With a host.
        ("http://example.com/api?q", "/api"), ("HTTPS://example.com", "/"), ("http://example.com?q", "/"),
        ("/http://example.com/api", "/http:/example.com/api"),
    ];
    for (target, expected) in cases {
        let endpoint = RequestTarget::parse(target).endpoint(&PathNormalization::AS_WRITTEN).unwrap();
        assert_eq!(endpoint, expected, "{target:?}");
        let again = RequestTarget::parse(&endpoint).endpoint(&PathNormalization::AS_WRITTEN).unwrap();
        assert_eq!(again, expected, "the form of {target:?} is not stable");
    }
}

#[test]
fn a_host_has_one_form_and_the_targets_own_wins() {
    #[rustfmt::skip]
    let cases = [
        ("/", Some("Example.COM:8080"), Some("example.com")), ("/", Some("example.com."), Some("example.com")),
        ("/", Some("[2001:DB8::1]:80"), Some("2001:db8::1")), ("/", Some(" a.example "), Some("a.example")),
        ("/", Some("2001:db8::1"), Some("2001:db8::1")), ("/", Some(""), None), ("/", Some(":80"), None), ("/", None, None),
        ("http://Own.example:80/", Some("other.example"), Some("own.example")),
        ("http://user:secret@own.example/x", None, Some("own.example")),
    ];
    let none = HeaderMap::new();
    for (target, host, expected) in cases {
        let request = identity(&[]).request(DescribedRequest { target, host, ..asked(&none) }).unwrap();
        assert_eq!(request.get("host"), expected, "{target:?} for {host:?}");
    }
}

#[test]
fn mapped_headers_become_attributes_and_no_others() {
    let headers = headers(&[("x-api-key", " k1 "), ("x-user", "42")]);
    let request =
        identity(&[]).request(DescribedRequest { target: "/a?b", host: Some("h"), ..asked(&headers) }).unwrap();
    let attributes: Vec<_> = request.attributes().collect();
    let expected = [("method", "GET"), ("endpoint", "/a"), ("ip", "10.0.0.1"), ("host", "h"), ("api_key", "k1")];
    assert_eq!(attributes, expected);
    let empty = self::headers(&[("x-api-key", "")]);
    assert_eq!(identity(&[]).request(asked(&empty)).unwrap().get("api_key"), None);
}

#[test]
fn only_trusted_peers_name_a_cost() {
    let headers = headers(&[("x-cost", "5")]);
    assert_eq!(identity(&[]).request(asked(&headers)).unwrap().cost(), 1);
    assert_eq!(identity(&["10.0.0.1/32"]).request(asked(&headers)).unwrap().cost(), 5);
    for bad in ["0", "-1", "1.5", "many", "", "1000000000001", "99999999999999999999"] {
        let refused = identity(&["10.0.0.1/32"]).request(asked(&self::headers(&[("x-cost", bad)])));
        assert!(matches!(refused, Err(IdentityError::NotACost { .. })), "{bad:?} is a cost");
    }
}

#[test]
fn long_values_are_compared_whole() {
    let target = format!("/files/{}/download", "a".repeat(5_000));
    let none = HeaderMap::new();
    let request = identity(&[]).request(DescribedRequest { target: &target, ..asked(&none) }).unwrap();
    assert_eq!(request.get("endpoint"), Some(target.as_str()));
    let key = "k".repeat(5_000);
    let request = identity(&[]).request(asked(&headers(&[("x-api-key", &key)]))).unwrap();
    assert_eq!(request.get("api_key"), Some(key.as_str()));
}

#[test]
fn what_can_be_read_in_two_ways_is_refused() {
    let twice = headers(&[("x-api-key", "k1"), ("x-api-key", "k2")]);
    let header = HeaderName::from_static("x-api-key");
    let refused = identity(&[]).request(asked(&twice)).unwrap_err();
    assert_eq!(refused, IdentityError::Repeated { header: header.clone(), count: 2 });
    let mut strange = HeaderMap::new();
    strange.insert(header.clone(), HeaderValue::from_bytes(b"\xff").unwrap());
    assert_eq!(identity(&[]).request(asked(&strange)).unwrap_err(), IdentityError::NotText { header });
    let none = HeaderMap::new();
    for method in ["", "GET POST", "GÉT", "get", "Get", &"G".repeat(33)] {
        let refused = identity(&[]).request(DescribedRequest { method, ..asked(&none) });
        assert!(matches!(refused, Err(IdentityError::NotAMethod { .. })), "{method:?} is a method");
    }
}
