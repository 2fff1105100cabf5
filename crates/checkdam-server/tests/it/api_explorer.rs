//! The OpenAPI document and the API explorer.

use std::collections::HashSet;

use serde_json::{Value, json};
use testkit::Browser;

use crate::server_process::Server;

#[test]
fn the_page_loads_nothing_from_elsewhere() {
    let server = Server::start();
    let mut client = server.client();
    for (path, kind) in [
        ("/", "text/html; charset=utf-8"),
        ("/docs", "text/html; charset=utf-8"),
        ("/docs/icon.svg", "image/svg+xml"),
        ("/docs/swagger-initializer.js", "text/javascript"),
    ] {
        let reply = client.get(path);
        assert_eq!(reply.status, 200, "{path}");
        assert_eq!(reply.header("content-type"), Some(kind), "{path}");
        assert!(reply.header("content-security-policy").unwrap().starts_with("default-src 'self'"), "{path}");
        assert_eq!(reply.header("x-content-type-options"), Some("nosniff"), "{path}");
        let body = reply.body.replace("http://www.w3.org/", "");
        for foreign in ["http://", "https://", "<script>", " style=", "onclick"] {
            assert!(!body.contains(foreign), "{path} contains {foreign}");
        }
    }
    assert_eq!(client.get("/docs/no-such-file").status, 404);
}

#[test]
fn a_check_can_be_tried_on_the_page_in_a_browser() {
    let server = Server::start();
    let browser = Browser::start();
    browser.goto(&format!("{}/docs", server.url()));
    browser.find("#operations-decisions-check .opblock-summary-control").click();
    browser.find("#operations-decisions-check .execute").click();
    browser.find_with("#operations-decisions-check .live-responses-table", "\"allowed\": true");
    let loaded = browser.run("return performance.getEntriesByType('resource').map((entry) => entry.name)", &json!([]));
    let loaded: Vec<&str> = loaded.as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert!(loaded.len() > 4 && loaded.iter().all(|url| url.starts_with(&server.url())), "{loaded:?}");
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

#[test]
fn the_description_covers_every_endpoint_with_examples_and_errors() {
    let server = Server::start();
    let reply = server.client().get("/openapi.json");
    assert_eq!(reply.header("content-type"), Some("application/json"));
    let api = reply.json();
    assert!(api["openapi"].as_str().unwrap().starts_with("3.1"), "{}", api["openapi"]);
    for path in ["/v1/check", "/v1/check/batch", "/v1/peek", "/v1/refund", "/v1/reset", "/v1/explain"] {
        let operation = &api["paths"][path]["post"];
        let content = &operation["requestBody"]["content"]["application/json"];
        assert!(content["example"].is_object() || content["examples"].is_object(), "{path} has no example");
        for status in ["200", "400", "408", "413", "422"] {
            assert!(operation["responses"][status].is_object(), "{path} does not describe {status}");
        }
        assert!(operation["responses"]["200"]["content"]["application/json"]["example"].is_object(), "{path}");
    }
    let denied = &api["paths"]["/v1/check"]["post"]["responses"]["429"];
    assert!(denied["content"]["application/problem+json"].is_object(), "{denied}");
    assert!(denied["headers"]["Retry-After"].is_object(), "{denied}");
    for path in ["/livez", "/readyz"] {
        assert!(api["paths"][path]["get"]["responses"]["200"].is_object(), "{path}");
    }
    let mut ids = HashSet::new();
    for operation in api["paths"].as_object().unwrap().values().flat_map(|item| item.as_object().unwrap().values()) {
        assert!(
            ids.insert(operation["operationId"].as_str().unwrap()),
            "two operations are {}",
            operation["operationId"]
        );
    }
}

#[test]
fn every_reference_of_the_description_leads_somewhere() {
    fn references<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
        match value {
            Value::Object(members) => {
                found.extend(members.get("$ref").and_then(Value::as_str));
                members.values().for_each(|member| references(member, found));
            }
            Value::Array(members) => members.iter().for_each(|member| references(member, found)),
            _ => {}
        }
    }
    let server = Server::start();
    let api = server.client().get("/openapi.json").json();
    let mut found = Vec::new();
    references(&api, &mut found);
    assert!(!found.is_empty());
    for reference in found {
        assert!(api.pointer(reference.trim_start_matches('#')).is_some(), "{reference} leads nowhere");
    }
}

#[test]
fn every_example_is_answered_as_described() {
    let server = Server::start();
    let (mut client, mut admin) = (server.client(), server.admin());
    let api = client.get("/openapi.json").json();
    for (path, item) in api["paths"].as_object().unwrap() {
        let listener = if path.starts_with("/admin/") { &mut admin } else { &mut client };
        let Some(content) = item["post"]["requestBody"]["content"].get("application/json") else { continue };
        let named = content["examples"].as_object().into_iter().flatten().map(|(_, example)| &example["value"]);
        for example in named.chain(content.get("example")) {
            let answer = listener.ok(path, &example.to_string());
            let described = &item["post"]["responses"]["200"]["content"]["application/json"]["example"];
            for member in described.as_object().unwrap().keys() {
                assert!(answer.get(member).is_some(), "{path} lacks {member}: {answer}");
            }
        }
    }
}
