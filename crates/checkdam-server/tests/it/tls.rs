//! TLS on every listener: what clients accept and refuse, mutual TLS, reload, shutdown.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use checkdam_client::{Client, ClientTls, OnFailure, Request};
use checkdam_envoy_proto::RateLimitServiceClient;
use serde_json::Value;
use testkit::{Authority, Envoy, IssuedCertificate, Upstream, wait_until};
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};

use crate::echo_application::Application;
use crate::envoy_client::{RateLimitRequest, of};
use crate::http_client::Client as PlainClient;
use crate::server_process::{PATIENCE, Server, SetOnDrop, checkdam, folder, rule_file, text};

const NAMES: [&str; 2] = ["localhost", "127.0.0.1"];
const GET: &str = "GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n";
const LAST_GET: &str = "GET /livez HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
const RULES: &str = "rules:\n  - { name: all, key: \"user:{user}\", limits: [\"1000000/h\"] }\n";
/// Routes that make every kind of descriptor.
const ROUTES: &str = include_str!("envoy.yaml");

/// The files of a test: an authority, and the pair that the server reads.
struct Files {
    folder: PathBuf,
    authority: Authority,
}

impl Files {
    /// A server certificate with the serial number 1.
    fn new() -> Self {
        let (folder, authority) = (folder(), Authority::new("ca"));
        let files = Self { folder, authority };
        files.write("ca.crt", files.authority.pem());
        files.write_pair("server", &files.authority.issue(&NAMES, 1));
        files
    }

    /// And a client certificate of the same authority.
    fn with_client() -> Self {
        let files = Self::new();
        files.write_pair("client", &files.authority.issue(&[], 100));
        files
    }

    fn path(&self, name: &str) -> String {
        self.folder.join(name).to_str().unwrap().to_owned()
    }

    fn write(&self, name: &str, text: &str) {
        // By a rename, as those do who replace certificates.
        let new = self.folder.join(format!("{name}.new"));
        std::fs::write(&new, text).unwrap();
        std::fs::rename(new, self.folder.join(name)).unwrap();
    }

    fn write_pair(&self, name: &str, pair: &IssuedCertificate) {
        self.write(&format!("{name}.crt"), &pair.chain);
        self.write(&format!("{name}.key"), &pair.key);
    }

    fn serve(&self, arguments: &[&str]) -> Server {
        let (rules, certificate, key) = (rule_file(RULES), self.path("server.crt"), self.path("server.key"));
        let all = ["--rules", rules.to_str().unwrap(), "--tls-cert", &certificate, "--tls-key", &key];
        Server::with(&[&all, arguments].concat())
    }

    /// `curl` that trusts the authority: what it exits with, and what it prints.
    fn curl(&self, arguments: &[&str]) -> (Option<i32>, String) {
        self.curl_trusting("ca.crt", arguments)
    }

    fn curl_trusting(&self, ca: &str, arguments: &[&str]) -> (Option<i32>, String) {
        let mut command = Command::new(testkit::curl());
        command.args(["--silent", "--show-error", "--max-time", "20", "--cacert", &self.path(ca)]).args(arguments);
        let Output { status, stdout, stderr } = command.output().expect("curl runs");
        (status.code(), format!("{}{}", text(&stdout), text(&stderr)))
    }

    /// What `openssl s_client` says of a connection to this address.
    fn s_client(&self, address: &str, arguments: &[&str]) -> String {
        let mut command = Command::new(testkit::openssl());
        command.args(["s_client", "-connect", address, "-servername", "localhost", "-CAfile", &self.path("ca.crt")]);
        let done = command.args(arguments).stdin(Stdio::null()).output().expect("openssl runs");
        format!("{}{}", String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr))
    }

    /// What `openssl s_client` says of a connection on which this is sent, once the server has
    /// closed it.
    fn s_client_sending(&self, address: &str, arguments: &[&str], request: &str) -> String {
        let mut connection = OpenConnection::new(self, address, arguments);
        connection.send(request);
        connection.said_until_closed()
    }

    /// The serial number of the certificate that a new connection sees.
    fn serial(&self, address: &str) -> String {
        let connection = self.s_client(address, &[]);
        let mut command = Command::new(testkit::openssl());
        command.args(["x509", "-noout", "-serial"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut parsing = command.spawn().expect("openssl runs");
        parsing.stdin.take().unwrap().write_all(connection.as_bytes()).unwrap();
        text(&parsing.wait_with_output().unwrap().stdout).trim().to_owned()
    }

    fn client_tls(&self) -> ClientTls {
        ClientTls::with_ca(self.authority.pem().as_bytes()).unwrap()
    }
}

/// A connection of `openssl s_client`, killed with the test.
struct OpenConnection {
    client: Child,
    said: Arc<Mutex<String>>,
    reader: Option<JoinHandle<()>>,
}

impl OpenConnection {
    fn new(files: &Files, address: &str, arguments: &[&str]) -> Self {
        let mut command = Command::new(testkit::openssl());
        command.args(["s_client", "-connect", address, "-servername", "localhost", "-CAfile", &files.path("ca.crt")]);
        command.args(["-ign_eof"]).args(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut client = command.spawn().expect("openssl runs");
        let (mut stdout, said) = (client.stdout.take().unwrap(), Arc::new(Mutex::new(String::new())));
        let written = Arc::clone(&said);
        let reader = std::thread::spawn(move || {
            let mut part = [0; 4096];
            while let Ok(length @ 1..) = stdout.read(&mut part) {
                written.lock().unwrap().push_str(&String::from_utf8_lossy(&part[..length]));
            }
        });
        Self { client, said, reader: Some(reader) }
    }

    fn send(&mut self, text: &str) {
        self.client.stdin.as_mut().unwrap().write_all(text.as_bytes()).unwrap();
    }

    /// Waits until so many responses with status 200 have arrived.
    fn wait_for_responses(&self, count: usize) {
        let is_there = || self.said.lock().unwrap().matches("HTTP/1.1 200 OK").count() >= count;
        wait_until("a response", PATIENCE, is_there);
    }

    fn is_open(&mut self) -> bool {
        self.client.try_wait().unwrap().is_none()
    }

    /// What it has said, once the server has closed the connection.
    fn said_until_closed(mut self) -> String {
        wait_until("the server closes the connection", PATIENCE, || !self.is_open());
        self.reader.take().map(JoinHandle::join);
        self.said.lock().unwrap().clone()
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        let _ = self.client.kill();
        let _ = self.client.wait();
    }
}

/// A URL of the server by the name in its certificate.
fn url(address: &str, path: &str) -> String {
    format!("https://localhost:{}{path}", address.rsplit_once(':').unwrap().1)
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// The value of a metric, by the beginning of its line.
fn metric(files: &Files, server: &Server, sample: &str) -> String {
    let (_, scraped) = files.curl(&[&url(server.address(), "/metrics")]);
    let line = scraped.lines().find(|line| line.starts_with(sample));
    line.unwrap_or_else(|| panic!("no {sample} in {scraped}")).rsplit_once(' ').unwrap().1.to_owned()
}

#[test]
fn clients_accept_the_right_certificate_and_refuse_all_others() {
    let files = Files::new();
    let server = files.serve(&[]);
    assert!(server.log().contains("listening  https://"), "{}", server.log());
    assert!(server.log().contains("grpc       https://") && server.log().contains("admin      https://"));
    let livez = url(server.address(), "/livez");
    assert_eq!(files.curl(&["--fail", &livez]).0, Some(0));
    files.write("other-ca.crt", Authority::new("other").pem());
    let (code, said) = files.curl_trusting("other-ca.crt", &[&livez]);
    assert_eq!(code, Some(60), "another CA: {said}");
    let elsewhere = Files::new();
    elsewhere.write_pair("server", &elsewhere.authority.issue(&["elsewhere.invalid"], 1));
    let server = elsewhere.serve(&[]);
    let (code, said) = elsewhere.curl(&[&url(server.address(), "/livez")]);
    assert_eq!(code, Some(60), "another name: {said}");
    let expired = Files::new();
    expired.write_pair("server", &expired.authority.issue_expired(&NAMES, 1));
    let mut server = expired.serve(&[]);
    let (code, said) = expired.curl(&[&url(server.address(), "/livez")]);
    assert_eq!(code, Some(60), "expired: {said}");
    server.wait_for_log("has expired: replace the file");
}

#[test]
fn versions_and_protocols_are_negotiated() {
    let files = Files::new();
    let server = files.serve(&[]);
    for (flag, version) in [("-tls1_2", "TLSv1.2"), ("-tls1_3", "TLSv1.3")] {
        let said = files.s_client(server.address(), &[flag, "-verify_return_error"]);
        assert!(said.contains(&format!("New, {version}")) && said.contains("Verify return code: 0 (ok)"), "{said}");
    }
    let old = files.s_client(server.address(), &["-tls1_1", "-cipher", "DEFAULT@SECLEVEL=0"]);
    assert!(old.contains("New, (NONE)") && old.contains("SSL alert number"), "refused by the server: {old}");
    for (address, offered, chosen) in [
        (server.address(), "h2,http/1.1", Some("h2")),
        (server.address(), "http/1.1", Some("http/1.1")),
        (server.address(), "spdy/3", None),
        (server.grpc_address(), "h2", Some("h2")),
        (server.grpc_address(), "http/1.1", None),
        (server.admin_address(), "http/1.1,h2", Some("h2")),
    ] {
        let said = files.s_client(address, &["-alpn", offered]);
        match chosen {
            Some(chosen) => assert!(said.contains(&format!("ALPN protocol: {chosen}\n")), "{offered}: {said}"),
            None => assert!(said.contains("alert no application protocol"), "{offered}: {said}"),
        }
    }
    let check = url(server.address(), "/v1/check");
    for (flag, version) in [("--http1.1", "1.1"), ("--http2", "2")] {
        let body = r#"{"attributes": {"user": "1"}}"#;
        let format = "%{http_version} %{http_code}";
        let (_, said) = files.curl(&[flag, "--data", body, "--output", "/dev/null", "--write-out", format, &check]);
        assert_eq!(said, format!("{version} 200"));
    }
}

#[test]
fn a_chain_and_other_kinds_of_keys_are_served() {
    let files = Files::new();
    let intermediate = files.authority.intermediate("intermediate");
    let issued = intermediate.issue(&NAMES, 7);
    // One file for everything, and the key as SEC1.
    let key_file = files.path("pkcs8.key");
    files.write("pkcs8.key", &issued.key);
    let converted = Command::new(testkit::openssl()).args(["ec", "-in", &key_file]).output().unwrap();
    let sec1 = text(&converted.stdout);
    assert!(sec1.contains("BEGIN EC PRIVATE KEY"), "{sec1}");
    files.write("both.pem", &format!("{}{}{sec1}", issued.chain, intermediate.pem()));
    let rules = rule_file(RULES);
    let server = Server::with(&["--rules", rules.to_str().unwrap(), "--http-tls-cert", &files.path("both.pem")]);
    assert_eq!(files.curl(&["--fail", &url(server.address(), "/livez")]).0, Some(0));
    assert!(server.log().contains("grpc       http://"), "only one listener has TLS: {}", server.log());
    // RSA, as PKCS#1.
    let (rsa, certificate) = (files.path("rsa.key"), files.path("rsa.crt"));
    let mut generate = Command::new(testkit::openssl());
    generate.args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]);
    generate.args(["-addext", "subjectAltName=DNS:localhost", "-keyout", &rsa, "-out", &certificate]);
    assert!(generate.output().unwrap().status.success());
    let traditional = Command::new(testkit::openssl())
        .args(["rsa", "-traditional", "-in", &rsa, "-out", &files.path("pkcs1.key")])
        .output();
    assert!(traditional.unwrap().status.success());
    let server = Server::with(&[
        "--rules",
        rules.to_str().unwrap(),
        "--http-tls-cert",
        &certificate,
        "--http-tls-key",
        &files.path("pkcs1.key"),
    ]);
    assert_eq!(files.curl_trusting("rsa.crt", &["--fail", &url(server.address(), "/livez")]).0, Some(0));
}

#[test]
fn mutual_tls_requires_a_certificate_of_the_right_ca() {
    let files = Files::with_client();
    let (client, key, ca) = (files.path("client.crt"), files.path("client.key"), files.path("ca.crt"));
    let server = files.serve(&["--tls-client-ca", &ca, "--http-tls-client-ca", &ca, "--admin-tls-client-ca", "off"]);
    files.write_pair("stranger", &Authority::new("stranger").issue(&[], 1));
    let (stranger, strange_key) = (files.path("stranger.crt"), files.path("stranger.key"));
    for version in ["--tls-max", "--tlsv1.3"] {
        let version: &[&str] = if version == "--tls-max" { &["--tls-max", "1.2"] } else { &["--tlsv1.3"] };
        for (certificate, passes) in [
            (&[][..], false),
            (&["--cert", &stranger, "--key", &strange_key], false),
            (&["--cert", &client, "--key", &key], true),
        ] {
            let livez = url(server.address(), "/livez");
            let (code, said) = files.curl(&[version, certificate, &["--fail", &livez]].concat());
            assert_eq!(code == Some(0), passes, "{version:?} {certificate:?}: {said}");
        }
    }
    let (_, scraped) = files.curl(&["--cert", &client, "--key", &key, &url(server.address(), "/metrics")]);
    let counted = "rate_limiter_tls_handshake_failures_total{listener=\"http\",reason=\"client_certificate\"} 4";
    assert!(scraped.contains(counted), "{scraped}");
    assert_eq!(files.curl(&["--fail", &url(server.admin_address(), "/livez")]).0, Some(0), "off for this listener");
    // gRPC, by tonic.
    let runtime = runtime();
    let call = |identity: Option<Identity>, ca: &str, name: &str| {
        let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(ca)).domain_name(name);
        let tls = match identity {
            Some(identity) => tls.identity(identity),
            None => tls,
        };
        runtime.block_on(async {
            let endpoint = Endpoint::new(url(server.grpc_address(), "")).unwrap().timeout(PATIENCE);
            let channel = endpoint.tls_config(tls).unwrap().connect().await.map_err(|error| format!("{error:?}"))?;
            let request =
                RateLimitRequest { domain: "edge".to_owned(), descriptors: vec![of(&[("user", "1")])], hits_addend: 0 };
            let mut client = RateLimitServiceClient::new(channel);
            client.should_rate_limit(request).await.map(drop).map_err(|error| format!("{error:?}"))
        })
    };
    let identity = |name: &str| {
        let read = |end: &str| std::fs::read_to_string(files.path(&format!("{name}.{end}"))).unwrap();
        Some(Identity::from_pem(read("crt"), read("key")))
    };
    let ca = files.authority.pem();
    assert_eq!(call(identity("client"), ca, "localhost"), Ok(()));
    assert!(call(None, ca, "localhost").is_err());
    assert!(call(identity("stranger"), ca, "localhost").is_err());
    assert!(call(identity("client"), Authority::new("other").pem(), "localhost").is_err());
    assert!(call(identity("client"), ca, "elsewhere.invalid").is_err());
}

/// A resumed session does not verify the client's certificate again, which may have expired
/// since.
#[test]
fn sessions_are_resumed_only_without_client_certificates() {
    let files = Files::with_client();
    let (client, key, ca) = (files.path("client.crt"), files.path("client.key"), files.path("ca.crt"));
    for (client_ca, is_resumed) in [("off", true), (ca.as_str(), false)] {
        let server = files.serve(&["--tls-client-ca", client_ca]);
        for version in ["-tls1_2", "-tls1_3"] {
            let session = files.path(&format!("session{version}-{is_resumed}"));
            let connect = |more: [&str; 2]| {
                let arguments = [&[version, "-cert", &client, "-key", &key][..], &more].concat();
                files.s_client_sending(server.address(), &arguments, LAST_GET)
            };
            let first = connect(["-sess_out", &session]);
            assert!(first.contains("New, TLSv1.") && first.contains("HTTP/1.1 200 OK"), "{version}: {first}");
            // Without a ticket OpenSSL writes no session of TLS 1.3, and one of no use of TLS 1.2.
            if is_resumed || std::fs::exists(&session).unwrap() {
                let second = connect(["-sess_in", &session]);
                assert!(second.contains("HTTP/1.1 200 OK"), "{version}: {second}");
                assert_eq!(second.contains("Reused, TLSv1."), is_resumed, "{version} {client_ca}: {second}");
            }
            let tickets = if version == "-tls1_3" { "New Session Ticket" } else { "TLS session ticket:" };
            assert_eq!(first.contains(tickets), is_resumed, "{version} {client_ca}: {first}");
        }
    }
}

#[test]
fn connections_end_gracefully_once_their_client_ca_is_removed() {
    let files = Files::with_client();
    let (client, key, ca) = (files.path("client.crt"), files.path("client.key"), files.path("client-ca.crt"));
    let (old, new) = (files.authority.pem(), Authority::new("new"));
    files.write("client-ca.crt", old);
    files.write_pair("new", &new.issue(&[], 200));
    let mut server = files.serve(&["--http-tls-client-ca", &ca, "--admin-tls-client-ca", &ca]);
    let certificate = ["-cert", &client, "-key", &key];
    let of_http = || OpenConnection::new(&files, server.address(), &certificate);
    let (mut idle, mut busy) = (of_http(), of_http());
    let mut live = OpenConnection::new(&files, server.admin_address(), &certificate);
    for connection in [&mut idle, &mut busy] {
        connection.send(GET);
        connection.wait_for_responses(1);
    }
    live.send("GET /admin/v1/live HTTP/1.1\r\nhost: localhost\r\n\r\n");
    live.wait_for_responses(1);

    // One more CA ends nothing.
    files.write("client-ca.crt", &format!("{old}{}", new.pem()));
    wait_until("both listeners follow", PATIENCE, || {
        server.log().matches("a new TLS certificate is active").count() >= 2
    });
    for connection in [&mut idle, &mut busy] {
        connection.send(GET);
        connection.wait_for_responses(2);
    }

    let body = r#"{"attributes": {"user": "1"}}"#;
    let length = body.len();
    busy.send(&format!("POST /v1/check HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n\r\n{}", &body[..9]));
    files.write("client-ca.crt", new.pem());
    server.wait_for_log("a client CA was removed");
    drop(idle.said_until_closed());
    assert!(busy.is_open(), "its request is under way");
    busy.send(&body[9..]);
    let said = busy.said_until_closed();
    assert_eq!(said.matches("HTTP/1.1 200 OK").count(), 3, "{said}");
    assert!(said.contains("connection: close"), "{said}");
    let (code, said) = files.curl(&["--cert", &client, "--key", &key, "--fail", &url(server.address(), "/livez")]);
    assert_ne!(code, Some(0), "no new connection: {said}");
    let (client, key) = (files.path("new.crt"), files.path("new.key"));
    let (code, said) = files.curl(&["--cert", &client, "--key", &key, "--fail", &url(server.address(), "/livez")]);
    assert_eq!(code, Some(0), "{said}");
    // A request without end has the time of a shutdown.
    wait_until("the live traffic ends", 2 * PATIENCE, || !live.is_open());
}

/// Checks over new and kept connections, and calls over gRPC, while the certificate is
/// replaced: none fails, and new connections see the new one.
#[test]
fn a_certificate_is_replaced_under_load() {
    let files = Files::new();
    let mut server = files.serve(&[]);
    assert_eq!(files.serial(server.address()), "serial=01");
    let (is_over, checks, calls) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let _over = SetOnDrop(&is_over);
        let (http, grpc) = (url(server.address(), ""), url(server.grpc_address(), ""));
        let (files, is_over, checks, calls) = (&files, &is_over, &checks, &calls);
        scope.spawn(move || {
            let tls = files.client_tls();
            runtime().block_on(async {
                for _ in 0..2_000 {
                    let client = Client::with_tls(&http, OnFailure::Error, &tls).unwrap().deadline(PATIENCE);
                    for _ in 0..5 {
                        let answer = client.check(&Request::new().with("user", "1")).await.expect("no request fails");
                        assert!(answer.allowed);
                        checks.fetch_add(1, Ordering::Relaxed);
                    }
                    if is_over.load(Ordering::Relaxed) {
                        return;
                    }
                }
            });
        });
        scope.spawn(move || {
            let ca = Certificate::from_pem(files.authority.pem());
            runtime().block_on(async {
                for _ in 0..2_000 {
                    let tls = ClientTlsConfig::new().ca_certificate(ca.clone());
                    let endpoint = Endpoint::new(grpc.clone()).unwrap().timeout(PATIENCE).tls_config(tls).unwrap();
                    let mut client = RateLimitServiceClient::new(endpoint.connect().await.expect("it connects"));
                    for _ in 0..5 {
                        let request = RateLimitRequest { domain: "edge".to_owned(), ..RateLimitRequest::default() };
                        let answered = client.should_rate_limit(request).await;
                        // Without descriptors a request is invalid, and that is an answer.
                        assert!(answered.is_ok() || answered.unwrap_err().code() == tonic::Code::InvalidArgument);
                        calls.fetch_add(1, Ordering::Relaxed);
                    }
                    if is_over.load(Ordering::Relaxed) {
                        return;
                    }
                }
            });
        });
        for serial in 2..5 {
            files.write_pair("server", &files.authority.issue(&NAMES, serial));
            for address in [server.address(), server.grpc_address(), server.admin_address()] {
                wait_until("the new certificate", PATIENCE, || files.serial(address) == format!("serial={serial:02}"));
            }
        }
    });
    assert!(checks.into_inner() > 0 && calls.into_inner() > 0);
    server.signal("TERM");
    assert_eq!(server.wait().code(), Some(0));
}

#[test]
fn a_pair_that_does_not_fit_leaves_the_old_one_active() {
    let files = Files::new();
    let mut server = files.serve(&[]);
    let second = files.authority.issue(&NAMES, 2);
    files.write("server.crt", &second.chain);
    server.wait_for_log("the new TLS files cannot be used");
    assert!(server.log().contains("does not fit the certificate"), "{}", server.log());
    assert_eq!(files.serial(server.address()), "serial=01");
    let status = || {
        let (_, status) = files.curl(&[&url(server.admin_address(), "/admin/v1/status")]);
        serde_json::from_str::<Value>(&status).unwrap()
    };
    wait_until("the status says it of all listeners", PATIENCE, || {
        let status = status();
        let tls = status["tls"].as_array().unwrap();
        let is_said = |tls: &Value| tls["error"].as_str().is_some_and(|error| error.contains("does not fit"));
        tls.len() == 3 && tls.iter().all(is_said) && status["warnings"].to_string().contains("tls_files")
    });
    assert_eq!(metric(&files, &server, "rate_limiter_tls_reload_failed{listener=\"http\"}"), "1");
    for tls in status()["tls"].as_array().unwrap() {
        assert!(tls["days_left"].as_i64().unwrap() > 1_000, "{tls}");
    }
    files.write("server.key", &second.key);
    server.signal("HUP");
    wait_until("the new certificate", PATIENCE, || files.serial(server.address()) == "serial=02");
    assert_eq!(server.log().matches("listener=\"http\" error=").count(), 1, "once: {}", server.log());
    assert_eq!(metric(&files, &server, "rate_limiter_tls_reload_failed{listener=\"http\"}"), "0");
    let expiry = metric(&files, &server, "rate_limiter_tls_certificate_expiry_timestamp_seconds{listener=\"http\"}");
    assert!(expiry.parse::<f64>().unwrap() > 4e9, "{expiry}");
}

#[test]
fn unfit_files_end_the_start_with_their_name_and_the_reason() {
    let files = Files::with_client();
    files.write("empty.pem", "");
    files.write("text.pem", "no certificate\n");
    // Opening it would wait for ever.
    assert!(Command::new("mkfifo").arg(files.path("pipe")).status().unwrap().success());
    let at = |name: &str| files.path(name);
    for (certificate, key, client_ca, named, reason) in [
        ("missing.crt", "server.key", None, "missing.crt", "No such file"),
        ("server.crt", "client.key", None, "client.key", "does not fit the certificate"),
        ("server.key", "server.key", None, "server.key", "contains no certificate"),
        ("text.pem", "server.key", None, "text.pem", "is not PEM"),
        ("server.crt", "server.key", Some("empty.pem"), "empty.pem", "client CA"),
        ("server.crt", "pipe", None, "pipe", "not a regular file"),
    ] {
        let mut command = checkdam();
        command.args(["serve", "--http-listen", "127.0.0.1:0", "--tls-cert", &at(certificate), "--tls-key", &at(key)]);
        if let Some(client_ca) = client_ca {
            command.args(["--tls-client-ca", &at(client_ca)]);
        }
        let ended = command.output().unwrap();
        let said = text(&ended.stderr);
        assert!(!ended.status.success(), "{said}");
        assert!(said.contains(&at(named)) && said.contains(reason), "{named}, {reason}: {said}");
    }
    let mut command = checkdam();
    let ended =
        command.args(["config", "check", "--tls-cert", &at("server.crt"), "--tls-key", &at("client.key")]).output();
    let said = text(&ended.unwrap().stderr);
    assert!(said.contains("does not fit the certificate"), "{said}");
}

/// Resets, refunds and request limits are for callers that are known.
#[test]
fn client_certificates_permit_privileged_requests_beyond_loopback() {
    let files = Files::with_client();
    let (client, key, ca) = (files.path("client.crt"), files.path("client.key"), files.path("ca.crt"));
    for (client_ca, permitted) in [("off", false), (ca.as_str(), true)] {
        let (rules, data) = (rule_file(RULES), folder());
        let mut command = checkdam();
        command.args(["serve", "--http-listen", "0.0.0.0:0", "--grpc-listen", "0.0.0.0:0"]);
        command.args(["--rules", rules.to_str().unwrap(), "--data-dir", data.to_str().unwrap()]);
        command.args(["--tls-cert", &files.path("server.crt"), "--tls-key", &files.path("server.key")]);
        command.args(["--tls-client-ca", client_ca]);
        let server = Server::of(command);
        let port = server.address().rsplit(':').next().unwrap().to_owned();
        let reset = format!("https://localhost:{port}/v1/reset");
        let body = r#"{"attributes": {"user": "1"}}"#;
        let (_, said) = files.curl(&["--cert", &client, "--key", &key, "--data", body, &reset]);
        assert_eq!(said.contains("\"allowed\":true"), permitted, "{said}");
        assert_eq!(said.contains("--privileged-requests"), !permitted, "{said}");
        assert_eq!(server.log().contains("resets, refunds and request limits are off"), !permitted, "{}", server.log());
    }
}

#[test]
fn requests_without_tls_and_silent_clients_are_closed() {
    let files = Files::new();
    let server = files.serve(&[]);
    for address in [server.address(), server.grpc_address(), server.admin_address()] {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
        let mut said = String::new();
        stream.read_to_string(&mut said).unwrap();
        assert!(said.starts_with("HTTP/1.1 400 ") && said.contains("https://"), "{said}");
    }
    let counted = "rate_limiter_tls_handshake_failures_total{listener=\"http\",reason=\"plaintext\"}";
    assert_eq!(metric(&files, &server, counted), "1");
    // Neither says hello to the end.
    for hello in [&b""[..], b"\x16\x03\x01\x02\x00"] {
        let mut silent = TcpStream::connect(server.address()).unwrap();
        silent.set_read_timeout(Some(2 * PATIENCE)).unwrap();
        silent.write_all(hello).unwrap();
        assert_eq!(silent.read(&mut [0; 64]).unwrap(), 0, "closed");
    }
    // A ClientHello of one byte.
    let garbage = b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00";
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(garbage).unwrap();
    let mut alert = Vec::new();
    stream.read_to_end(&mut alert).unwrap();
    assert_eq!(alert.first(), Some(&0x15), "an alert, and the end: {alert:?}");
    assert_eq!(files.curl(&["--fail", &url(server.address(), "/livez")]).0, Some(0));
}

/// More connections a second than the threads for health make handshakes.
#[test]
fn health_is_answered_beside_many_handshakes() {
    let files = Files::new();
    let server = files.serve(&[]);
    let (livez, check) = (url(server.address(), "/livez"), url(server.address(), "/v1/check"));
    let mut urls = String::new();
    for number in 0..300 {
        urls.push_str(&format!(
            "url = \"{}?{number}\"\noutput = \"/dev/null\"\n",
            if number % 3 == 0 { &check } else { &livez }
        ));
    }
    files.write("urls", &urls);
    let all =
        ["--http1.1", "--header", "Connection: close", "--parallel", "--parallel-max", "50", "--no-progress-meter"];
    let format = ["--write-out", "%{http_code} ", "--config"];
    let (code, said) = files.curl(&[&all[..], &format[..], &[&files.path("urls")]].concat());
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(said.matches("200 ").count(), 200, "{said}");
    assert_eq!(said.matches("405 ").count(), 100, "{said}");
}

#[test]
fn no_request_is_cut_by_a_shutdown() {
    let files = Files::new();
    let mut server = files.serve(&[]);
    let http = url(server.address(), "");
    let answered = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for number in 0..8 {
            let (files, http, answered) = (&files, &http, &answered);
            scope.spawn(move || {
                let tls = files.client_tls();
                runtime().block_on(async {
                    let mut client = Client::with_tls(http, OnFailure::Error, &tls).unwrap().deadline(PATIENCE);
                    for _ in 0..100_000 {
                        match client.check(&Request::new().with("user", "1")).await {
                            Ok(_) => answered.fetch_add(1, Ordering::Relaxed),
                            Err(error) if error.to_string().contains("Connection refused") => return,
                            Err(error) => panic!("{error}"),
                        };
                        if number % 2 == 0 {
                            client = Client::with_tls(http, OnFailure::Error, &tls).unwrap().deadline(PATIENCE);
                        }
                    }
                });
            });
        }
        wait_until("requests", PATIENCE, || answered.load(Ordering::Relaxed) > 50);
        server.signal("TERM");
    });
    assert_eq!(server.wait().code(), Some(0));
    assert!(!server.log().contains("drain timeout"), "{}", server.log());
}

#[test]
fn an_idle_tls_connection_and_a_half_done_handshake_do_not_hold_the_exit_up() {
    let files = Files::new();
    let mut server = files.serve(&["--drain-timeout", "60s"]);
    let _silent = TcpStream::connect(server.address()).unwrap();
    let client = Client::with_tls(&url(server.address(), ""), OnFailure::Error, &files.client_tls()).unwrap();
    let runtime = runtime();
    runtime.block_on(client.deadline(PATIENCE).check(&Request::new().with("user", "1"))).unwrap();
    server.signal("TERM");
    assert_eq!(server.wait().code(), Some(0));
}

#[test]
fn envoy_calls_the_grpc_listener_with_a_client_certificate() {
    let files = Files::with_client();
    let rules = rule_file(
        "domain: edge\ndescriptors: [{key: kind, value: load, rate_limit: {unit: day, requests_per_unit: 2}}]\n",
    );
    let (certificate, key, ca) = (files.path("server.crt"), files.path("server.key"), files.path("ca.crt"));
    let tls = ["--grpc-tls-cert", &certificate, "--grpc-tls-key", &key, "--grpc-tls-client-ca", &ca];
    let server = Server::with(&[&["--rules", rules.to_str().unwrap()][..], &tls].concat());
    let upstream = Upstream::start();
    let secure = format!(
        r#"connect_timeout: 5s
      transport_socket:
        name: envoy.transport_sockets.tls
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext
          sni: localhost
          common_tls_context:
            tls_certificates: [{{ certificate_chain: {{ filename: {} }}, private_key: {{ filename: {} }} }}]
            validation_context:
              trusted_ca: {{ filename: {ca} }}
              match_typed_subject_alt_names: [{{ san_type: DNS, matcher: {{ exact: localhost }} }}]"#,
        files.path("client.crt"),
        files.path("client.key"),
    );
    let configuration = ROUTES.replace("connect_timeout: 0.25s", &secure);
    let configuration = configuration.replace(
        "grpc_service: { envoy_grpc: { cluster_name: checkdam } }",
        "grpc_service: { envoy_grpc: { cluster_name: checkdam }, timeout: 5s }",
    );
    let configuration = configuration.replace("domain: edge\n", "domain: edge\n                      timeout: 5s\n");
    let service = server.grpc_address().rsplit_once(':').unwrap().1;
    let envoy = Envoy::start(|ports| {
        [
            ("10000", ports.listener.to_string()),
            ("9901", ports.admin.to_string()),
            ("3000", upstream.addr().port().to_string()),
            ("8081", service.to_owned()),
        ]
        .iter()
        .fold(configuration.clone(), |text, (written, port)| {
            text.replace(&format!("port_value: {written} "), &format!("port_value: {port} "))
        })
    });
    let mut client = PlainClient::connect(&envoy.addr().to_string());
    let statuses: Vec<_> = (0..4).map(|_| client.send_with("GET", "/", &[], "").expect("an answer").status).collect();
    assert_eq!(statuses, [200, 200, 429, 429], "{}", envoy.log());
    assert_eq!(envoy.counter("ratelimit.error"), 0);
}

#[test]
fn the_proxy_serves_tls_and_says_so_to_its_upstream() {
    let files = Files::new();
    let application = Application::start();
    let rules = rule_file(RULES);
    let (certificate, key) = (files.path("server.crt"), files.path("server.key"));
    let proxy = Server::proxy(&[
        "--rules",
        rules.to_str().unwrap(),
        "--upstream",
        &format!("http://{}", application.address()),
        "--proxy-tls-cert",
        &certificate,
        "--proxy-tls-key",
        &key,
    ]);
    for version in ["--http1.1", "--http2"] {
        let (code, said) = files.curl(&["--fail", version, &url(proxy.address(), "/")]);
        assert_eq!(code, Some(0), "{said}");
        assert!(said.to_lowercase().contains("x-forwarded-proto: https"), "{said}");
    }
}

#[test]
fn commands_speak_https() {
    let files = Files::with_client();
    let (client, key, ca) = (files.path("client.crt"), files.path("client.key"), files.path("ca.crt"));
    let server = files.serve(&["--admin-tls-client-ca", &ca, "--admin-listen", "0.0.0.0:0"]);
    let (http, admin) = (url(server.address(), ""), url(server.admin_address(), ""));
    let run = |arguments: &[&str]| {
        let done = checkdam().args(arguments).output().unwrap();
        (done.status.success(), format!("{}{}", text(&done.stdout), text(&done.stderr)))
    };
    assert_eq!(run(&["health", &http, "--ca-file", &ca]), (true, "ready\n".to_owned()));
    let (is_ok, said) = run(&["health", &http]);
    assert!(!is_ok && said.contains("--ca-file"), "{said}");
    let (is_ok, said) = run(&["check", "user=1", "--server", &http, "--ca-file", &ca]);
    assert!(is_ok && said.contains("allowed"), "{said}");
    let own = ["--ca-file", &ca, "--client-cert", &client, "--client-key", &key];
    let (is_ok, said) = run(&[&["rules", "list", "--server", &admin][..], &own].concat());
    assert!(is_ok && said.contains("all"), "a certificate replaces the token: {said}");
    let (is_ok, said) = run(&["rules", "list", "--server", &admin, "--ca-file", &ca]);
    assert!(!is_ok, "{said}");
    let (is_ok, said) = run(&[&["top", "--once", "--server", &admin][..], &own].concat());
    assert!(is_ok, "{said}");
}

#[test]
fn bench_loads_https() {
    let files = Files::with_client();
    let (client, key, ca) = (files.path("client.crt"), files.path("client.key"), files.path("ca.crt"));
    let server = files.serve(&["--grpc-tls-client-ca", &ca]);
    let (http, grpc) = (url(server.address(), ""), url(server.grpc_address(), ""));
    let run = |target: &str, arguments: &[&str]| {
        let load =
            ["--requests", "300", "--connections", "4", "--warmup", "0s", "--timeout", "30s", "--json", "--quiet"];
        let done = checkdam().args(["bench", target]).args(load).args(arguments).output().unwrap();
        (serde_json::from_slice::<Value>(&done.stdout).unwrap_or_default(), text(&done.stderr))
    };
    let (report, said) = run(&http, &["--ca-file", &ca]);
    assert_eq!((&report["requests"], &report["allowed"]), (&300.into(), &300.into()), "{report} {said}");
    let (_, said) = run(&http, &[]);
    assert!(said.contains("--ca-file"), "{said}");
    let edge = ["--grpc", "--domain", "edge", "--ca-file", &ca];
    let own = ["--client-cert", &client, "--client-key", &key];
    let (report, said) = run(&grpc, &[&edge[..], &own].concat());
    assert_eq!((&report["requests"], &report["allowed"]), (&300.into(), &300.into()), "{report} {said}");
    let (_, said) = run(&grpc, &edge);
    assert!(said.contains("CertificateRequired"), "the listener wants a certificate: {said}");
}

#[test]
fn an_admin_listener_for_others_needs_a_token_or_a_ca_of_its_own() {
    let files = Files::new();
    let (certificate, key, ca) = (files.path("server.crt"), files.path("server.key"), files.path("ca.crt"));
    let all = ["serve", "--admin-listen", "0.0.0.0:0", "--tls-cert", &certificate, "--tls-key", &key];
    let ended = checkdam().args(all).args(["--tls-client-ca", &ca]).output().unwrap();
    assert!(!ended.status.success());
    let said = text(&ended.stderr);
    assert!(said.contains("--admin-token") && said.contains("--admin-tls-client-ca"), "{said}");
}
