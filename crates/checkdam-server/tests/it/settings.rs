//! Precedence of settings: flags over variables, variables over the file, the file
//! over defaults.

use crate::server_process::{Server, checkdam, folder, rule_file, run, text};

fn refused(output: &std::process::Output, parts: &[&str]) {
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(output.stdout.is_empty(), "standard output is for data");
    let said = text(&output.stderr);
    for part in parts {
        assert!(said.contains(part), "{part:?} is missing: {said}");
    }
}

#[test]
fn flags_win_over_variables_and_variables_over_the_file() {
    let folder = folder();
    let bad = |name: &str| {
        let path = folder.join(name);
        std::fs::write(&path, "rules: 5").unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (by_flag, by_variable, by_file) = (bad("flag.yaml"), bad("variable.yaml"), bad("file.yaml"));
    std::fs::write(folder.join("checkdam.toml"), format!("rules = {by_file:?}\n")).unwrap();
    let serve = || {
        let mut command = checkdam();
        command.arg("serve").current_dir(&folder);
        command
    };
    // Each file is invalid, so the complaint tells which one was read.
    refused(&serve().output().unwrap(), &["file.yaml:1:"]);
    refused(&serve().env("CHECKDAM_RULES", &by_variable).output().unwrap(), &["variable.yaml:1:"]);
    refused(
        &serve().env("CHECKDAM_RULES", &by_variable).args(["--rules", &by_flag]).output().unwrap(),
        &["flag.yaml:1:"],
    );
}

#[test]
fn every_setting_may_stand_in_the_file() {
    let rules = rule_file("rules: [{name: only, key: k, limits: [7/h]}]");
    let file = folder().join("settings.toml");
    let settings = format!(
        "rules = {rules:?}\nheaders = \"x\"\nmax_buckets = 5000\ndrain_timeout = \"1s\"\nlog_level = \"debug\"\n\
         log_format = \"text\"\nhttp_listen = \"127.0.0.1:1\"\ntrusted_proxies = [\"10.0.0.0/8\", \"::1\"]\n\
         header_attributes = [\"X-User=user\"]\ncost_header = \"X-Cost\"\n"
    );
    std::fs::write(&file, settings).unwrap();
    let mut server = Server::with(&["--config", file.to_str().unwrap()]);
    let reply = server.client().post("/v1/check", r#"{"attributes": {}}"#);
    assert_eq!(reply.json()["limit"], 7);
    assert_eq!((reply.header("x-ratelimit-limit"), reply.header("ratelimit")), (Some("7"), None));
    assert!(server.log().contains("at most 5000 buckets"), "{}", server.log());
    server.wait_for_log("decided");
}

#[test]
fn what_is_not_a_setting_is_an_error_that_names_it() {
    let file = folder().join("settings.toml");
    for (text, parts) in [
        ("redis = \"redis://localhost\"", ["redis", "settings.toml:1:1:"]),
        ("http_listen = \"127.0.0.1:0\"\n[proxies]\nkind = 1", ["proxies", "settings.toml:2:"]),
        ("http_listen = \"127.0.0.1:0\"\n[proxy]\nkind = 1", ["kind", "settings.toml:3:"]),
        ("max_buckets = \"many\"", ["max_buckets", "many"]),
        ("drain_timeout = \"10\"", ["drain_timeout", "500ms"]),
        ("headers = \"all\"", ["all", "both"]),
        ("http_listen =", ["http_listen", "settings.toml:1:"]),
    ] {
        std::fs::write(&file, text).unwrap();
        refused(&run(&["serve", "--config", file.to_str().unwrap()]), &parts);
    }
    refused(&run(&["serve", "--config", "/does/not/exist.toml"]), &["/does/not/exist.toml"]);
    refused(&run(&["serve", "--nonsense", "x"]), &["--nonsense"]);
    for (arguments, parts) in [
        (["--max-buckets", "0"], ["max_buckets", "0"]),
        (["--store", "x"], ["\"x\" is not understood", "redis://host:port"]),
        (["--store", "http://u:secret@h"], ["http://…@h", "is unknown"]),
        (["--drain-timeout", "soon"], ["soon", "500ms"]),
        (["--headers", "all"], ["all", "ietf"]),
        (["--http-listen", "off"], ["off", "nothing to serve"]),
        (["--allowed-hosts", "limits.example:8080"], ["limits.example:8080", "without scheme, port or path"]),
        (["--http-listen", "nonsense"], ["nonsense", "--http-listen"]),
        (["--grpc-listen", "nonsense"], ["nonsense", "--grpc-listen"]),
        (["--grpc-headers", "a,b"], ["a,b", "three names"]),
        (["--log-level", "loud"], ["loud", "debug"]),
        (["--trusted-proxies", "10.0.0.0/8,nobody"], ["nobody", "10.0.0.0/8"]),
        (["--trusted-proxies", "10.0.0.0/33"], ["10.0.0.0/33", "no network"]),
        (["--header-attributes", "X-User"], ["X-User", "X-API-Key=api_key"]),
        (["--header-attributes", "X User=user"], ["X User", "name of a header"]),
        (["--header-attributes", "X-User="], ["X-User=", "1 to 64 bytes"]),
        (["--header-attributes", "X-Ip=ip"], ["header_attributes", "\"ip\""]),
        (["--header-attributes", "X-A=user,X-B=user"], ["header_attributes", "\"user\""]),
        (["--cost-header", "a b"], ["a b", "name of a header"]),
    ] {
        refused(&run(&["serve", arguments[0], arguments[1]]), &parts);
    }
    std::fs::write(&file, "no certificate").unwrap();
    let ca = ["--store-ca", file.to_str().unwrap(), "--store"];
    for (store, parts) in [
        ("rediss://127.0.0.1:1", ["--store-ca", "-----BEGIN CERTIFICATE-----"]),
        ("redis://127.0.0.1:1", ["redis:// is not TLS", "write rediss"]),
        ("redis-sentinel://127.0.0.1:1/m", ["redis-sentinel:// is not TLS", "write rediss-sentinel"]),
    ] {
        for command in ["serve", "doctor"] {
            refused(&run(&[&[command], &ca[..], &[store]].concat()), &parts);
        }
    }
    refused(&checkdam().arg("serve").env("LOG_LEVEL", "loud").output().unwrap(), &["LOG_LEVEL", "loud", "debug"]);
}

#[test]
fn an_address_in_use_is_an_error_that_says_what_to_do() {
    let server = Server::start();
    refused(&run(&["serve", "--http-listen", server.address()]), &[server.address(), "--http-listen"]);
}

#[test]
fn logs_are_json_when_asked_and_decisions_name_no_client() {
    let mut command = checkdam();
    command.args(["serve", "--http-listen", "127.0.0.1:0", "--drain-timeout", "1s"]);
    let mut child = command
        .env("LOG_FORMAT", "JSON")
        .env("LOG_LEVEL", "DEBUG")
        .env("CHECKDAM_REDIS_URL", "redis://x")
        .env("CHECKDAM_SERVICE_HOST", "10.0.0.1")
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stderr.take().unwrap()));
    let mut next = || serde_json::from_str::<serde_json::Value>(&lines.next().unwrap().unwrap()).unwrap();
    let warning = next();
    assert_eq!((&warning["level"], &warning["name"]), (&"WARN".into(), &"CHECKDAM_REDIS_URL".into()));
    let started = next();
    assert_eq!(started["message"], "started");
    let mut client = crate::http_client::Client::connect(started["listen"].as_str().unwrap());
    client.ok("/v1/check", r#"{"attributes": {"user": "a-secret-name", "plan": "free"}}"#);
    let decided = next();
    assert_eq!((&decided["message"], &decided["allowed"]), (&"decided".into(), &true.into()));
    assert!(!decided.to_string().contains("a-secret-name"));
    child.kill().unwrap();
    child.wait().unwrap();
}

#[cfg(not(feature = "otlp"))]
#[test]
fn a_build_that_sends_no_spans_says_how_to_make_one_that_does() {
    let output = run(&["serve", "--otlp-endpoint", "http://127.0.0.1:4317"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("--features otlp"), "{}", text(&output.stderr));
}
