//! Spans that reach a collector.

use testkit::{Authority, free_port};
use tonic::metadata::MetadataValue;

use crate::envoy_client::{RateLimitClient, RateLimitRequest, of};
use crate::otlp_collector::{Collector, Span, attribute};
use crate::server_process::{Server, folder, rule_file, run, text};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const SAMPLED: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const UNSAMPLED: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b8-00";
const BODY: &str = r#"{"attributes": {"user": "1"}}"#;
const RULES: &str = "rules:\n- { name: one, key: 'user:{user}', limits: ['1/h'] }\n\
     - { name: edge, domain: edge, key: 'user:{user}', limits: ['5/h'] }\n";

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn of_span(span: &Span, name: &str) -> String {
    attribute(&span.attributes, name).unwrap_or_else(|| panic!("{name} in {span:?}"))
}

#[test]
fn spans_are_children_of_their_callers() {
    let collector = Collector::start();
    let path = rule_file(RULES);
    let (rules, endpoint) = (path.to_str().unwrap(), collector.url());
    let server = Server::with(&["--rules", rules, "--otlp-endpoint", &endpoint, "--trace-share", "0"]);
    let mut client = server.client();
    for parent in [SAMPLED, SAMPLED, UNSAMPLED, "nonsense"] {
        client.send_with("POST", "/v1/check", &[("traceparent", parent)], BODY).unwrap();
    }
    client.post("/v1/check", BODY);
    let message = RateLimitRequest { domain: "edge".into(), descriptors: vec![of(&[("user", "7")])], hits_addend: 0 };
    let mut request = tonic::Request::new(message);
    request.metadata_mut().insert("traceparent", MetadataValue::from_static(SAMPLED));
    RateLimitClient::of(&server).send(request).unwrap();
    let spans = collector.wait_for(3);
    assert_eq!(spans.len(), 3, "one a request that its caller records: {spans:?}");
    for span in &spans {
        assert_eq!((span.name.as_str(), hexadecimal(&span.trace_id).as_str()), ("ratelimit.check", TRACE));
        assert_eq!(hexadecimal(&span.parent_span_id), "00f067aa0ba902b7");
        assert!(
            span.start_time_unix_nano <= span.end_time_unix_nano && span.end_time_unix_nano > 1_700_000_000_000_000_000
        );
        assert_eq!(of_span(span, "checkdam.store"), "memory");
        of_span(span, "checkdam.latency_us").parse::<u64>().unwrap();
    }
    let told = |span: &Span| (of_span(span, "checkdam.rule"), of_span(span, "checkdam.decision"));
    let expected = [("one", "allowed"), ("one", "denied"), ("edge", "allowed")];
    assert_eq!(spans.iter().map(told).collect::<Vec<_>>(), expected.map(|(rule, said)| (rule.into(), said.into())));
    assert_eq!(collector.resource("service.name").as_deref(), Some("checkdam"));
}

#[test]
fn what_is_not_sent_yet_is_sent_at_the_end() {
    let collector = Collector::start();
    let mut command = crate::server_process::checkdam();
    command.args(["serve", "--http-listen", "127.0.0.1:0", "--trace-share", "1"]);
    command.env("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url()).env("OTEL_SERVICE_NAME", "gate");
    let mut server = Server::of(command);
    for _ in 0..700 {
        server.client().post("/v1/check", BODY);
    }
    server.signal("TERM");
    assert!(server.wait().success());
    assert_eq!(collector.spans().len(), 700);
    assert!(collector.spans().iter().all(|span| span.parent_span_id.is_empty()), "nobody asked for them");
    assert_eq!(collector.resource("service.name").as_deref(), Some("gate"));
}

#[test]
fn what_is_set_for_every_program_stops_none() {
    let cases = [("ftp://collector.example:4317", "grpc"), ("http://127.0.0.1:4318", "http/protobuf")];
    for (endpoint, protocol) in cases {
        let mut command = crate::server_process::checkdam();
        command.args(["serve", "--http-listen", "127.0.0.1:0"]);
        command.env("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint).env("OTEL_EXPORTER_OTLP_PROTOCOL", protocol);
        let mut server = Server::of(command);
        assert!(!server.client().get("/metrics").body.contains("\nrate_limiter_spans_dropped_total "), "{endpoint}");
        server.wait_for_log("no spans are sent");
    }
}

#[test]
fn spans_reach_a_collector_over_tls_with_a_ca_of_ones_own() {
    let (authority, other) = (Authority::new("ca"), Authority::new("other"));
    let collector = Collector::start_with(Some(&authority.issue(&["127.0.0.1"], 1)));
    let files = folder();
    for (name, ca, arrives) in [("other.crt", &other, false), ("ca.crt", &authority, true)] {
        let path = files.join(name);
        std::fs::write(&path, ca.pem()).unwrap();
        let endpoint = collector.url();
        let mut server =
            Server::with(&["--otlp-endpoint", &endpoint, "--otlp-ca", path.to_str().unwrap(), "--trace-share", "1"]);
        assert_eq!(server.client().post("/v1/check", BODY).status, 200);
        if arrives {
            assert_eq!(collector.wait_for(1).len(), 1);
        } else {
            server.wait_for_log("dropping spans");
        }
    }
}

#[test]
fn a_collector_that_is_away_holds_nobody_up() {
    let endpoint = format!("http://127.0.0.1:{}", free_port());
    let mut server = Server::with(&["--otlp-endpoint", &endpoint, "--trace-share", "1"]);
    let mut client = server.client();
    assert_eq!(client.post("/v1/check", BODY).status, 200);
    server.wait_for_log("dropping spans");
    assert!(client.get("/metrics").body.contains("\nrate_limiter_spans_dropped_total 1\n"));
    drop(client);
    server.signal("TERM");
    assert!(server.wait().success());
}

#[test]
fn an_endpoint_that_cannot_be_one_is_refused() {
    for endpoint in ["ftp://collector.example:4317", "localhost:4317", "http://"] {
        let output = run(&["serve", "--otlp-endpoint", endpoint]);
        assert_eq!(output.status.code(), Some(2), "{endpoint}");
        let said = text(&output.stderr);
        assert!(said.contains(endpoint) && said.contains("http://127.0.0.1:4317"), "{said}");
    }
}
