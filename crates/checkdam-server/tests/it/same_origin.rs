//! Requests that web pages of other origins make a browser send to the HTTP and admin
//! listeners: none is decided or edits anything. Those of programs, and of proxies that pass
//! on a browser's headers, are and do.

use crate::http_client::{Client, Reply};
use crate::server_process::Server;

const RULES: &str = "rules: [{name: all, key: \"{user}\", limits: [1000/h]}]";
const VICTIM: &str = r#"{"attributes": {"user": "victim"}}"#;
const JSON: (&str, &str) = ("content-type", "application/json");
const TEXT: (&str, &str) = ("content-type", "text/plain;charset=UTF-8");
const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded");
const CROSS_SITE: (&str, &str) = ("sec-fetch-site", "cross-site");
const FOREIGN: (&str, &str) = ("origin", "https://elsewhere.example");
const BROWSER: (&str, &str) = ("user-agent", "Mozilla/5.0 (X11; Linux x86_64) Gecko/20100101 Firefox/130.0");

/// The paths that decide or change something, each with a body that is understood.
const POSTS: [(&str, &str); 7] = [
    ("/v1/check", r#"{"attributes": {"user": "victim"}, "cost": 100}"#),
    ("/v1/check/batch", r#"{"requests": [{"attributes": {"user": "victim"}, "cost": 100}]}"#),
    ("/v1/peek", VICTIM),
    ("/v1/refund", VICTIM),
    ("/v1/reset", VICTIM),
    ("/v1/explain", VICTIM),
    ("/json", r#"{"domain": "x", "descriptors": [{"entries": [{"key": "user", "value": "victim"}]}]}"#),
];

fn ask(client: &mut Client, request: (&str, &str, &str), headers: &[(&str, &str)]) -> Reply {
    let (method, path, body) = request;
    client.send_with(method, path, headers, body).unwrap()
}

fn remaining(client: &mut Client) -> u64 {
    client.ok("/v1/peek", VICTIM)["remaining"].as_u64().unwrap()
}

fn refused(reply: &Reply, status: u16, about: &str) {
    assert_eq!(reply.status, status, "{about}: {reply:?}");
    assert_eq!(reply.header("content-type"), Some("application/problem+json"), "{about}");
}

#[test]
fn pages_of_other_sites_charge_refund_and_reset_nothing() {
    let server = Server::with_rules(RULES);
    let mut client = server.client();
    client.ok("/v1/check", r#"{"attributes": {"user": "victim"}, "cost": 500}"#);
    let port = server.address().rsplit(':').next().unwrap();
    let (own, rebound) = (format!("127.0.0.1:{port}"), format!("rebound.example:{port}"));
    let (own_origin, rebound_origin) = (format!("http://{own}"), format!("http://{rebound}"));
    for (path, body) in POSTS {
        let post = ("POST", path, body);
        for (headers, status) in [
            (&[CROSS_SITE, TEXT][..], 403),
            (&[("sec-fetch-site", "same-site"), JSON], 403),
            (&[FOREIGN, TEXT], 403),
            (&[("origin", "null"), FORM], 403),
            (&[("host", &own), ("origin", &own_origin), TEXT], 415),
            (
                &[
                    ("host", &own),
                    ("sec-fetch-site", "same-origin"),
                    ("content-type", "multipart/form-data; boundary=x"),
                ],
                415,
            ),
            // DNS rebinding: the page's own name leads here, so the browser takes it for the same origin.
            (&[("host", &rebound), ("origin", &rebound_origin), JSON], 403),
            (&[("host", &rebound), JSON], 403),
        ] {
            refused(&ask(&mut client, post, headers), status, &format!("{path} {headers:?}"));
        }
    }
    let image = ("GET", "/v1/auth/cost=100&attr.user=victim", "");
    let preflight = ("OPTIONS", image.1, "");
    let wanted = [CROSS_SITE, FOREIGN, ("access-control-request-headers", "x-forwarded-uri")];
    for (request, headers) in [
        (image, &[CROSS_SITE, BROWSER, ("sec-fetch-dest", "image")][..]),
        // Browsers leave Sec-Fetch-Site out where the address is neither HTTPS nor local.
        (image, &[BROWSER, ("accept", "image/webp,*/*")]),
        (("POST", image.1, ""), &[FOREIGN]),
        (preflight, &wanted),
        (image, &[("host", &rebound)]),
        (image, &[("host", &rebound), ("x-forwarded-uri", "/"), ("x-forwarded-host", "localhost")]),
    ] {
        refused(&ask(&mut client, request, headers), 403, &format!("{request:?} {headers:?}"));
    }
    let for_nginx = ask(&mut client, ("GET", "/v1/auth/denied=403&attr.user=victim", ""), &[CROSS_SITE]);
    assert_eq!((for_nginx.status, for_nginx.header("x-checkdam-status")), (403, Some("403")));
    assert_eq!(remaining(&mut client), 500);
    for path in ["/livez", "/docs"] {
        let reply = ask(&mut client, ("GET", path, ""), &[CROSS_SITE, ("host", "anything.example")]);
        assert_eq!(reply.status, 200, "{path} decides and reveals nothing");
    }
}

#[test]
fn pages_of_other_sites_edit_nothing() {
    let server = Server::start();
    let mut admin = server.admin();
    let port = server.admin_address().rsplit(':').next().unwrap();
    let (own, rebound) = (format!("127.0.0.1:{port}"), format!("rebound.example:{port}"));
    let (own_origin, rebound_origin) = (format!("http://{own}"), format!("http://{rebound}"));
    let export = |admin: &mut Client| ask(admin, ("GET", "/admin/v1/rules/export", ""), &[]).body;
    let before = export(&mut admin);
    let rule = r#"{"name": "mine", "key": "all", "limits": ["1/h"]}"#;
    for edit in [
        ("POST", "/admin/v1/rules", rule),
        ("POST", "/admin/v1/rules/import?replace=true", "rules: []"),
        ("PUT", "/admin/v1/bans", r#"{"subject": "user:1"}"#),
        ("POST", "/admin/v1/reset", VICTIM),
    ] {
        for (headers, status) in [
            (&[CROSS_SITE, TEXT][..], 403),
            (&[CROSS_SITE, JSON], 403),
            (&[("sec-fetch-site", "same-site"), JSON], 403),
            (&[FOREIGN, JSON], 403),
            (&[("origin", "null"), FORM], 403),
            (&[("host", &own), ("origin", &own_origin), TEXT], 415),
            (&[("host", &own), ("sec-fetch-site", "same-origin"), FORM], 415),
            (&[("host", &own), ("origin", &own_origin), ("content-type", "multipart/form-data; boundary=x")], 415),
            (&[("host", &rebound), ("origin", &rebound_origin), JSON], 403),
        ] {
            refused(&ask(&mut admin, edit, headers), status, &format!("{edit:?} {headers:?}"));
        }
    }
    assert_eq!(export(&mut admin), before);
    // Programs send what they like, as curl does, and the dashboard is of the same origin.
    for (headers, status) in
        [(&[FORM][..], 201), (&[("host", &own), ("origin", &own_origin), ("sec-fetch-site", "same-origin"), JSON], 409)]
    {
        assert_eq!(ask(&mut admin, ("POST", "/admin/v1/rules", rule), headers).status, status, "{headers:?}");
    }
}

/// A page that was loaded from its own name, which leads here by now, may read responses.
#[test]
fn metrics_on_loopback_are_not_for_other_hosts() {
    let server = Server::with(&["--allowed-hosts", "limits.example"]);
    for (mut client, named) in [(server.client(), 200), (server.admin(), 403)] {
        for (host, status) in
            [("localhost:8080", 200), ("127.0.0.1", 200), ("limits.example", named), ("rebound.example:8080", 403)]
        {
            let reply = ask(&mut client, ("GET", "/metrics", ""), &[("host", host)]);
            assert_eq!(reply.status, status, "{host}: {reply:?}");
        }
        let reply = ask(&mut client, ("GET", "/metrics", ""), &[CROSS_SITE]);
        assert_eq!(reply.status, 200, "a link from elsewhere may lead here");
    }
}

#[test]
fn programs_the_own_page_and_proxies_are_answered() {
    let server = Server::with_rules(RULES);
    let mut client = server.client();
    let port = server.address().rsplit(':').next().unwrap();
    let own = format!("localhost:{port}");
    let own_origin = format!("http://{own}");
    let check = ("POST", "/v1/check", VICTIM);
    for headers in [
        // curl -d, and fetch of Node.js.
        &[FORM][..],
        &[TEXT, ("sec-fetch-mode", "cors")],
        &[("host", &own), ("origin", &own_origin), ("sec-fetch-site", "same-origin"), JSON],
        &[("host", "[::1]:8080"), JSON],
        &[("host", "127.0.0.2"), JSON],
    ] {
        assert_eq!(ask(&mut client, check, headers).status, 200, "{headers:?}");
    }
    let auth = ("GET", "/v1/auth/attr.user=victim", "");
    for headers in [
        &[("x-forwarded-uri", "/a"), CROSS_SITE, FOREIGN, BROWSER, ("host", "shop.example")][..],
        &[("x-original-uri", "/a"), CROSS_SITE, BROWSER, ("host", "checkdam")],
        &[("x-forwarded-for", "203.0.113.9"), CROSS_SITE, ("host", "shop.example:443")],
        // A person who opens it, and a script.
        &[BROWSER, ("sec-fetch-site", "none")],
        &[],
    ] {
        assert_eq!(ask(&mut client, auth, headers).status, 200, "{headers:?}");
    }
    assert_eq!(remaining(&mut client), 990);
}

#[test]
fn a_loopback_listener_answers_to_the_hosts_that_it_is_told() {
    let server = Server::with(&["--allowed-hosts", "Limits.example"]);
    let mut client = server.client();
    for (host, status) in
        [("limits.example:8080", 200), ("LIMITS.EXAMPLE", 200), ("localhost", 200), ("other.example", 403)]
    {
        let reply = ask(&mut client, ("POST", "/v1/peek", VICTIM), &[("host", host)]);
        assert_eq!(reply.status, status, "{host}: {reply:?}");
    }
    let refused = ask(&mut client, ("POST", "/v1/peek", VICTIM), &[("host", "other.example")]);
    assert!(refused.json()["detail"].as_str().unwrap().contains("--allowed-hosts"), "{refused:?}");
    let any = Server::with(&["--allowed-hosts", "*"]);
    assert_eq!(ask(&mut any.client(), ("POST", "/v1/peek", VICTIM), &[("host", "other.example")]).status, 200);
}
