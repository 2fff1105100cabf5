//! The Rust client, against a real server and against none.

use std::time::Duration;

use checkdam_client::{CallError, Client, OnFailure, Request};
use tokio::net::TcpListener;

use crate::server_process::{PATIENCE, Server};

const RULES: &str = r#"
rules:
  - { name: per-user, key: "user:{user}", limits: ["1/h burst 3"] }
  - { name: queue, key: "job:{job}", limits: ["10/s burst 5"], algorithm: leaky_bucket }
  - { name: edge, key: all, domain: edge, limits: ["1/h burst 1"] }
bans: [{ subject: "user:mallory", reason: scraping }]
"#;

fn client(server: &Server) -> Client {
    Client::new(&server.url(), OnFailure::Error).unwrap().deadline(PATIENCE)
}

#[tokio::test]
async fn every_operation_is_answered_with_what_it_did() {
    let server = Server::with_rules(RULES);
    let client = client(&server);
    let user = Request::new().with("user", "42");
    let first = client.check(&user.clone().costing(2)).await.unwrap();
    assert_eq!((first.allowed, first.limit, first.remaining), (true, Some(3), Some(1)));
    assert_eq!((first.decided_by.as_str(), first.tiers[0].subject.as_str()), ("memory", "user:42"));
    assert_eq!(client.peek(&user).await.unwrap().remaining, Some(1), "a look changes nothing");
    client.check(&user).await.unwrap();
    let denied = client.check(&user).await.unwrap();
    assert_eq!((denied.allowed, denied.violated.as_deref()), (false, Some("per-user")));
    assert!(denied.retry_after() > Some(Duration::from_secs(3_000)), "{denied:?}");
    assert_eq!(client.refund(&user).await.unwrap().remaining, Some(1));
    let recorded = client.record(&user, 6).await.unwrap();
    assert_eq!((recorded.allowed, recorded.tiers[0].debt, recorded.cut_off), (false, 5, 0));
    assert_eq!(client.record(&user, 300).await.unwrap().cut_off, 5, "at most 100 times the limit is owed beyond it");
    assert_eq!(client.reset(&user).await.unwrap().remaining, Some(3));

    let edge = Request::new().in_domain("edge");
    let banned = Request::new().with("user", "mallory");
    let answers = client.check_batch(&[edge.clone(), edge, banned]).await.unwrap();
    assert_eq!(answers.iter().map(|answer| answer.allowed).collect::<Vec<_>>(), [true, false, false]);
    assert_eq!(answers[2].ban.as_ref().unwrap().reason, "scraping");
    let job = Request::new().with("job", "1");
    client.check(&job).await.unwrap();
    assert!(client.check(&job).await.unwrap().delay() > Duration::ZERO, "a leaky bucket asks to wait");
}

#[tokio::test]
async fn the_token_is_sent() {
    let token = "the-api-token-of-tests";
    let rules = crate::server_process::rule_file(RULES);
    let server = Server::with(&["--rules", rules.to_str().unwrap(), "--api-token", token]);
    let user = Request::new().with("user", "42");
    let known = client(&server).token(token).unwrap();
    assert_eq!(known.check(&user).await.unwrap().remaining, Some(2));
    assert_eq!(known.reset(&user).await.unwrap().remaining, Some(3));
    assert!(!format!("{known:?}").contains(token), "{known:?}");
    for stranger in [client(&server), client(&server).token("a-wrong-token-of-tests").unwrap()] {
        let error = stranger.check(&user).await.unwrap_err();
        assert!(matches!(&error, CallError::Refused { status, .. } if status.as_u16() == 401), "{error}");
    }
    for wrong in ["", "two words", "a\r\nHost: b", "ä"] {
        assert!(client(&server).token(wrong).is_err(), "{wrong:?}");
    }
}

#[tokio::test]
async fn what_the_server_refuses_is_an_error_whatever_the_policy() {
    let server = Server::with_rules(RULES);
    for policy in [OnFailure::Open, OnFailure::Closed, OnFailure::Error] {
        let client = Client::new(&server.url(), policy).unwrap().deadline(PATIENCE);
        let error = client.check(&Request::new().with("user", "42").costing(0)).await.unwrap_err();
        let CallError::Refused { status, field, .. } = &error else { panic!("{error}") };
        assert_eq!((status.as_u16(), field.as_deref()), (422, Some("cost")), "{policy:?}: {error}");
    }
}

#[tokio::test]
async fn without_a_server_the_caller_has_said_what_happens() {
    let mut server = Server::with_rules(RULES);
    let user = Request::new().with("user", "42");
    let clients = [OnFailure::Open, OnFailure::Closed, OnFailure::Error]
        .map(|policy| Client::new(&server.url(), policy).unwrap().deadline(PATIENCE));
    for client in &clients {
        client.check(&user).await.unwrap();
    }
    server.signal("TERM");
    server.wait();
    for (client, allowed) in clients.iter().zip([Some(true), Some(false), None]) {
        match (client.check(&user).await, allowed) {
            (Ok(answer), Some(allowed)) => assert!(answer.is_by_client() && answer.allowed == allowed, "{answer:?}"),
            (Err(CallError::Unreachable { .. }), None) => {}
            (answer, _) => panic!("{answer:?}"),
        }
        assert!(client.refund(&user).await.is_err(), "only checks are answered by policy");
    }
    assert_eq!(clients[0].check_batch(&[user.clone(), user]).await.unwrap().len(), 2);
}

#[tokio::test]
async fn a_server_that_does_not_answer_costs_no_more_than_the_deadline() {
    // It accepts by its backlog, and never reads.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let client = Client::new(&url, OnFailure::Error).unwrap().deadline(Duration::from_millis(30));
    let error = client.check(&Request::new()).await.unwrap_err();
    assert!(matches!(error, CallError::DeadlinePassed { .. }), "{error}");
    assert!(Client::new("ftp://127.0.0.1", OnFailure::Open).is_err());
    assert!(Client::new("http://127.0.0.1/?a=1", OnFailure::Open).is_err());
}
