//! TLS: a real client accepts the right certificate and rejects the wrong ones.

use std::path::Path;
use std::process::{Command, Stdio};

use testkit::{Engine, Redis, redis_cli};

/// Whether OpenSSL's own client, trusting only `ca`, completes a handshake with a server it calls `localhost`.
fn handshakes(server: &Redis, ca: &Path) -> bool {
    let output = Command::new("openssl")
        .args(["s_client", "-connect", &server.addr().to_string(), "-verify_return_error"])
        .args(["-verify_hostname", "localhost", "-CAfile"])
        .arg(ca)
        .stdin(Stdio::null())
        .output()
        .expect("install openssl: this test needs its s_client");
    output.status.success()
}

#[test]
fn only_the_right_authority_and_host_name_are_accepted() {
    let server = Redis::builder().tls(true).start();
    assert!(server.url().starts_with("rediss://127.0.0.1:"));
    assert!(handshakes(&server, &server.tls().ca_path()));
    assert!(!handshakes(&server, &server.tls().unrelated_ca_path()));

    let elsewhere = Redis::builder().tls_wrong_host().start();
    assert!(!handshakes(&elsewhere, &elsewhere.tls().ca_path()));
}

#[test]
fn commands_travel_over_tls() {
    let server = Redis::builder().tls(true).start();
    let output = Command::new(redis_cli())
        .args(["--tls", "--cacert"])
        .arg(server.tls().ca_path())
        .args(["-h", "127.0.0.1", "-p", &server.addr().port().to_string(), "SET", "key", "value"])
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "OK", "{output:?}");
    assert_eq!(server.command(&["GET", "key"]).text(), "value");
}

#[test]
#[should_panic(expected = "has no TLS")]
fn valkey_without_tls_says_so() {
    drop(Redis::builder().engine(Engine::Valkey).tls(true).start());
}
