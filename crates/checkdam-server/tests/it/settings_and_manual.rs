//! The settings' reference, the manual and probes.

use std::path::Path;

use crate::server_process::{Server, checkdam, folder, run, text};

/// A file of the repository.
fn repository(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn the_reference_of_the_settings_is_the_committed_one_and_loads() {
    let printed = run(&["config", "reference"]);
    assert_eq!(printed.status.code(), Some(0), "{printed:?}");
    let printed = text(&printed.stdout);
    let regenerate = "cargo run -p checkdam-server -- config reference > docs/checkdam.toml";
    assert!(printed == repository("docs/checkdam.toml"), "docs/checkdam.toml is not what the code says: {regenerate}");
    let file = folder().join("checkdam.toml");
    std::fs::write(&file, printed).unwrap();
    let server = Server::with(&["--config", file.to_str().unwrap()]);
    assert_eq!(server.client().get("/readyz").status, 200);
}

#[test]
fn a_check_of_the_settings_tells_what_is_in_force_and_keeps_secrets() {
    let folder = folder();
    let (file, secret) = (folder.join("settings.toml"), folder.join("secret"));
    std::fs::write(&secret, "redis://app:pass-word@cache:6379/2\n").unwrap();
    std::fs::write(
        &file,
        format!("store_file = {secret:?}\ndrain_timeout = \"3s\"\ntrusted_proxies = [\"10.0.0.0/8\"]\n"),
    )
    .unwrap();
    let check = |arguments: &[&str]| {
        let mut command = checkdam();
        command.args(["config", "check", file.to_str().unwrap()]).args(arguments);
        command
            .env("CHECKDAM_ADMIN_TOKEN", "an-admin-token-of-length")
            .env("DATABASE_URL", "postgres://u:pass-word@db/x")
            .env("CHECKDAM_OTLP_ENDPOINT", "http://u:pass-word@collector:4317");
        command.output().unwrap()
    };
    let checked = check(&["--json", "--max-buckets", "77"]);
    assert_eq!(checked.status.code(), Some(0), "{checked:?}");
    let printed = text(&checked.stdout);
    assert!(!printed.contains("pass-word") && !printed.contains("an-admin-token"), "{printed}");
    let printed: serde_json::Value = serde_json::from_str(&printed).unwrap();
    let file_name = file.to_str().unwrap();
    for (name, value, from) in [
        ("max_buckets", "77", "flag"),
        ("drain_timeout", "3s", file_name),
        ("trusted_proxies", "10.0.0.0/8", file_name),
        ("admin_token", "…", "CHECKDAM_ADMIN_TOKEN"),
        ("database", "postgres://db:5432/x", "DATABASE_URL"),
        ("store", "redis://…@cache:6379/2", file_name),
        ("otlp_endpoint", "http://…@collector:4317", "CHECKDAM_OTLP_ENDPOINT"),
        ("http_listen", "127.0.0.1:8080", "default"),
        ("store_file", secret.to_str().unwrap(), file_name),
    ] {
        let found = printed["settings"].as_array().unwrap().iter().find(|setting| setting["name"] == name).unwrap();
        assert_eq!((found["value"].as_str(), found["from"].as_str()), (Some(value), Some(from)), "{name}");
    }
    let table = text(&check(&[]).stdout);
    assert!(table.starts_with("SETTING ") && table.contains("redis"), "{table}");
    for (arguments, part) in [
        (&["--nodes", "0"][..], "nodes is 0"),
        (&["--max-buckets", "0"], "max_buckets"),
        (&["--proxy"], "no upstream"),
        (&["--key-secret-file", "/does/not/exist"], "/does/not/exist"),
        (&["--key-secret", "fifteen bytes.."], "the key secret has 15 bytes"),
        (&["--key-secret-file", "/dev/zero"], "/dev/zero: it is longer than 1 MiB"),
    ] {
        let refused = check(arguments);
        assert_eq!((refused.status.code(), refused.stdout.len()), (Some(1), 0), "{refused:?}");
        assert!(text(&refused.stderr).contains(part), "{refused:?}");
    }
    let both = check(&["--store", "memory", "--store-file", "x"]);
    assert_eq!(both.status.code(), Some(2), "a value and a file of it: {both:?}");
}

#[test]
fn a_check_refuses_what_serve_would_refuse_and_repeats_no_secret() {
    let file = folder().join("settings.toml");
    for (settings, told) in [
        ("http_listen = \"127.0.0.1:99999\"", "http_listen is \"127.0.0.1:99999\""),
        ("http_listen = \"abc\"", "http_listen is \"abc\""),
        ("store = \"redsi://:S3CRET@h\"", "redsi"),
        ("store = \"redis://:S3CRET@host:notaport\"", "host:notaport"),
        ("nodes = 0", "nodes is 0"),
        ("rules = \"nope.yaml\"", "nope.yaml"),
        ("admin_token = \"S3CRETS3CRETS3CRET", "settings.toml:1:"),
        ("\nadmin_tokne = \"S3CRETS3CRETS3CRET\"", "settings.toml:2:1: unknown field `admin_tokne`"),
        ("admin_token = [\"S3CRETS3CRETS3CRET\"]", "settings.toml:1:15: admin_token: invalid type: sequence"),
    ] {
        std::fs::write(&file, settings).unwrap();
        let checked = run(&["config", "check", file.to_str().unwrap()]);
        let said = text(&checked.stderr);
        assert_eq!(checked.status.code(), Some(1), "{settings}: {said}");
        assert!(said.contains(told) && !said.contains("S3CRET"), "{settings}: {said}");
    }
}

#[test]
fn a_check_of_the_settings_tells_what_the_incumbents_variables_set() {
    let folder = folder();
    let (file, secret) = (folder.join("settings.toml"), folder.join("secret"));
    let (root, rules) = (folder.to_str().unwrap(), folder.join("config"));
    std::fs::create_dir(&rules).unwrap();
    std::fs::write(rules.join("edge.yaml"), "domain: edge\ndescriptors: []\n").unwrap();
    std::fs::write(&secret, "redis://cache:6379\n").unwrap();
    std::fs::write(&file, "store = \"memory\"\nhttp_listen = \"127.0.0.1:1\"\n").unwrap();
    let check = |variables: &[(&str, &str)]| {
        let mut command = checkdam();
        command.args(["config", "check", "--json", file.to_str().unwrap()]).env_remove("CHECKDAM_GRPC_LISTEN");
        let checked = command.envs(variables.iter().copied()).output().unwrap();
        assert_eq!(checked.status.code(), Some(0), "{checked:?}");
        let printed: serde_json::Value = serde_json::from_slice(&checked.stdout).unwrap();
        move |name: &str| {
            let found = printed["settings"].as_array().unwrap().iter().find(|setting| setting["name"] == name).unwrap();
            [&found["value"], &found["from"]].map(|text| text.as_str().unwrap().to_owned())
        }
    };
    let set_up = [("RUNTIME_ROOT", root), ("REDIS_URL", "r:6379"), ("PORT", "9"), ("SHADOW_MODE", "true")];
    let told = check(&set_up);
    assert_eq!(told("store"), ["redis://r:6379", "REDIS_URL"], "before the file");
    assert_eq!(told("rules"), [rules.to_str().unwrap(), "RUNTIME_ROOT"]);
    assert_eq!(told("http_listen"), ["127.0.0.1:9", "PORT"]);
    assert_eq!(told("grpc_listen"), ["127.0.0.1:8081", "default"]);
    assert_eq!(told("grpc_shadow"), ["true", "SHADOW_MODE"]);
    let told = check(&[&set_up[..], &[("CHECKDAM_STORE_FILE", secret.to_str().unwrap())]].concat());
    assert_eq!(told("store"), ["redis://cache:6379", "CHECKDAM_STORE_FILE"]);
    let told = check(&[("REDIS_URL", "tcp://10.0.0.1:6379"), ("PORT", "9")]);
    assert_eq!(told("store"), ["memory, at most 1000000 buckets", file.to_str().unwrap()], "nothing without a root");
    assert_eq!(told("http_listen"), ["127.0.0.1:1", file.to_str().unwrap()]);
}

#[test]
fn the_manual_has_a_page_for_each_command() {
    let main = run(&["man"]);
    assert!(main.status.success() && text(&main.stdout).contains(".TH checkdam 1"), "{main:?}");
    let folder = folder().join("man1");
    let written = run(&["man", folder.to_str().unwrap()]);
    assert!(written.status.success() && written.stdout.is_empty(), "{written:?}");
    for (page, part) in [
        ("checkdam", "checkdam\\-serve"),
        ("checkdam-serve", "CHECKDAM_HTTP_LISTEN"),
        ("checkdam-rules-check", "SYNOPSIS"),
        ("checkdam-bench", "target"),
    ] {
        let read = std::fs::read_to_string(folder.join(format!("{page}.1"))).unwrap();
        assert!(read.contains(part) && read.contains(".TH"), "{page}");
    }
    let in_the_way = folder.join("checkdam.1/below");
    let refused = run(&["man", in_the_way.to_str().unwrap()]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
}

#[test]
fn a_probe_exits_by_readiness() {
    let mut server = Server::start();
    for url in [server.url(), format!("http://{}", server.admin_address())] {
        assert_eq!(run(&["health", &url]).status.code(), Some(0), "{url}");
    }
    let mut slow = server.client();
    slow.write("POST /v1/check HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n{").unwrap();
    assert_eq!(server.client().get("/livez").status, 200);
    let admin = format!("http://{}", server.admin_address());
    server.signal("TERM");
    server.wait_for_log("shutdown: not ready");
    let leaving = run(&["health", &admin]);
    assert_eq!(leaving.status.code(), Some(1), "{leaving:?}");
    drop(slow);
    server.wait();
    let gone = run(&["health", &admin]);
    assert_eq!(gone.status.code(), Some(2), "{gone:?}");
}
