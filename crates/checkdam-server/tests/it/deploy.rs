//! The shipped deployment files, validated by the programs they are for.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::server_process::{checkdam, folder, run, text};

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path).canonicalize().unwrap()
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn yaml(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("{error}:\n{text}"))
}

fn succeeds(output: &Output) -> String {
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

/// Every variable of ours that a text names.
fn variables(text: &str) -> BTreeSet<String> {
    let is_part = |character: char| character.is_ascii_uppercase() || character.is_ascii_digit() || character == '_';
    let names = text.match_indices("CHECKDAM_").map(|(start, _)| {
        let end = text[start..].find(|character| !is_part(character)).map_or(text.len(), |length| start + length);
        text[start..end].to_owned()
    });
    // What ends so is a beginning of names, in prose.
    names.filter(|name| !name.ends_with('_')).collect()
}

#[test]
fn every_variable_that_the_files_set_is_a_setting() {
    let mut known = variables(&succeeds(&run(&["config", "reference"])));
    known.insert("CHECKDAM_SERVER".to_owned());
    let mut unseen = vec![repository("deploy"), repository("Dockerfile")];
    let mut files = 0;
    while let Some(path) = unseen.pop() {
        if path.is_dir() {
            unseen.extend(std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
            continue;
        }
        files += 1;
        let used = variables(&read(&path));
        let unknown: Vec<_> = used.difference(&known).collect();
        assert!(unknown.is_empty(), "{} names {unknown:?}", path.display());
    }
    assert!(files > 20, "only {files} files were found");
}

#[test]
fn the_unit_is_valid_and_leaves_the_service_little() {
    let unit = read(&repository("deploy/systemd/checkdam.service"));
    let arguments: Vec<_> = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap().split(' ').collect();
    assert_eq!(arguments[1..3], ["serve", "--config"]);
    assert!(unit.contains("\nLimitCORE=0\n"), "no secret ends in a core dump");
    let path = folder().join("checkdam.service");
    std::fs::write(&path, unit.replace("/usr/bin/checkdam", env!("CARGO_BIN_EXE_checkdam"))).unwrap();
    let analyze =
        |arguments: &[&str]| Command::new(testkit::systemd_analyze()).args(arguments).arg(&path).output().unwrap();
    let verified = analyze(&["verify", "--man=no"]);
    let said = text(&verified.stderr);
    assert!(verified.status.success() && !said.contains("checkdam.service"), "{said}");
    // Beyond this exposure, of 10, it fails. In tenths.
    let judged = succeeds(&analyze(&["security", "--offline=true", "--threshold=20", "--no-pager"]));
    println!("{}", judged.lines().last().unwrap_or_default());
}

#[test]
fn the_dockerfile_has_no_fault() {
    succeeds(&Command::new(testkit::hadolint()).arg(repository("Dockerfile")).output().unwrap());
    let dockerfile = read(&repository("Dockerfile"));
    for wanted in ["\nUSER 65532:65532\n", "\nSTOPSIGNAL SIGTERM\n", "\nEXPOSE 8080 8081 8082\n", "\"health\"]\n"] {
        assert!(dockerfile.contains(wanted), "{wanted:?}");
    }
}

/// Every file that is compiled into the program besides Rust sources.
fn compiled_in() -> BTreeSet<PathBuf> {
    let root = repository(".");
    let crates = std::fs::read_dir(root.join("crates")).unwrap().map(|entry| entry.unwrap().path());
    let mut unseen: Vec<_> = crates.filter(|folder| !folder.ends_with("testkit")).map(|it| it.join("src")).collect();
    let mut found = BTreeSet::new();
    while let Some(path) = unseen.pop() {
        if path.is_dir() {
            unseen.extend(std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
            continue;
        }
        if path.extension().is_none_or(|extension| extension != "rs") {
            continue;
        }
        let source = read(&path);
        // Tests are compiled elsewhere.
        let source = source.split("#[cfg(test)]\nmod tests {").next().unwrap();
        let included = ["include_str!(\"", "include_bytes!(\""].map(|call| source.split(call).skip(1));
        for rest in included.into_iter().flatten() {
            let named = rest.split('"').next().unwrap();
            let file = path.with_file_name(named).canonicalize().unwrap();
            let file = file.strip_prefix(&root).unwrap().to_owned();
            found.insert(file);
        }
    }
    found
}

#[test]
fn the_image_is_built_from_all_that_is_compiled_in() {
    let (dockerfile, ignored) = (read(&repository("Dockerfile")), read(&repository(".dockerignore")));
    let copied: Vec<_> = dockerfile.lines().filter_map(|line| line.strip_prefix("COPY ")).collect();
    let copied: Vec<_> = copied.iter().flat_map(|line| line.split(' ')).collect();
    let let_in: Vec<_> = ignored.lines().filter_map(|line| line.strip_prefix('!')).collect();
    let files = compiled_in();
    assert!(files.contains(Path::new("crates/checkdam-service/starter-rules.yaml")), "{files:?}");
    let members = ["Cargo.toml", "Cargo.lock", "crates", "bench"].map(PathBuf::from);
    for file in files.iter().chain(&members) {
        assert!(copied.iter().any(|name| file.starts_with(name)), "the Dockerfile does not copy {}", file.display());
        assert!(let_in.iter().any(|name| file.starts_with(name)), ".dockerignore keeps {} out", file.display());
    }
}

/// The crate has a copy, because a published crate cannot include files outside of it.
#[test]
fn the_starter_rules_of_the_examples_are_those_of_the_program() {
    let own = read(&repository("crates/checkdam-service/starter-rules.yaml"));
    assert_eq!(read(&repository("examples/starter-rules.yaml")), own);
}

/// The secrets are made, every one that is used is declared, and the program
/// takes the settings as the container would see them.
#[test]
fn compose_hands_out_secrets_that_the_program_takes() {
    let (source, copy) = (repository("deploy/compose"), folder());
    for name in ["compose.yaml", "make-secrets"] {
        std::fs::copy(source.join(name), copy.join(name)).unwrap();
    }
    let make = || Command::new("sh").arg(copy.join("make-secrets")).output().unwrap();
    succeeds(&make());
    let token = read(&copy.join("secrets/admin_token"));
    succeeds(&make());
    assert_eq!(read(&copy.join("secrets/admin_token")), token, "what exists stays");
    let compose = yaml(&read(&copy.join("compose.yaml")));
    let declared = compose["secrets"].as_object().unwrap();
    for (service, settings) in compose["services"].as_object().unwrap() {
        for secret in settings["secrets"].as_array().unwrap() {
            let file = declared[secret.as_str().unwrap()]["file"].as_str().unwrap();
            assert!(!read(&copy.join(file)).is_empty(), "{service}: {file}");
        }
    }
    let mut check = checkdam();
    check.args(["config", "check", "--json"]);
    for (name, value) in compose["services"]["checkdam"]["environment"].as_object().unwrap() {
        let secrets = copy.join("secrets").display().to_string();
        check.env(name, value.as_str().unwrap().replace("/run/secrets", &secrets));
    }
    let checked = succeeds(&check.output().unwrap());
    let checked: Value = serde_json::from_str(&checked).unwrap();
    assert_eq!(checked["valid"], true);
}

fn template(values: &str) -> Vec<Value> {
    let file = folder().join("values.yaml");
    std::fs::write(&file, values).unwrap();
    let chart = repository("deploy/helm/checkdam");
    let mut helm = Command::new(testkit::helm());
    helm.args(["template", "test"]).arg(&chart).arg("--values").arg(&file);
    let printed = succeeds(&helm.output().unwrap());
    printed.split("\n---\n").map(|document| yaml(document.trim_start_matches("---\n"))).collect()
}

fn kinds(documents: &[Value]) -> Vec<&str> {
    let mut kinds: Vec<_> = documents.iter().map(|document| document["kind"].as_str().unwrap()).collect();
    kinds.sort_unstable();
    kinds
}

#[test]
fn the_chart_is_valid_with_everything_off_and_everything_on() {
    let chart = repository("deploy/helm/checkdam");
    let helm = || Command::new(testkit::helm());
    succeeds(&helm().args(["lint", "--strict"]).arg(&chart).output().unwrap());
    let plain = template("{}");
    assert_eq!(kinds(&plain), ["Deployment", "PodDisruptionBudget", "Service", "ServiceAccount"]);
    let all = template(
        "rules: 'rules: [{name: all, key: all, limits: [1/s]}]'\nenv: {CHECKDAM_HEADERS: ietf, CHECKDAM_MAX_BUCKETS: 2000000, CHECKDAM_TRACE_SHARE: 0.25,\n\
         CHECKDAM_GRPC_SHADOW: true}\ndrainSeconds: 40\n\
         secret: {name: s, storeKey: store, databaseKey: db, keySecretKey: key, adminTokenKey: token, apiTokenKey: api}\n\
         tls: {secretName: t, grpcClientCaKey: ca.crt}\nprivilegedRequests: auto\nserviceMonitor: {enabled: true, tokenKey: scrape}\nautoscaling: {enabled: true}\nnetworkPolicy: {enabled: true,\n\
         metricsFrom: [{namespaceSelector: {}}]}\n",
    );
    let expected = [
        "ConfigMap",
        "Deployment",
        "HorizontalPodAutoscaler",
        "NetworkPolicy",
        "PodDisruptionBudget",
        "Service",
        "ServiceAccount",
        "ServiceMonitor",
    ];
    assert_eq!(kinds(&all), expected);
    let deployment = all.iter().find(|document| document["kind"] == "Deployment").unwrap();
    let pod = &deployment["spec"]["template"]["spec"];
    assert_eq!(pod["terminationGracePeriodSeconds"], 60, "longer than notice and drain");
    let data = pod["volumes"].as_array().unwrap().iter().find(|volume| volume["name"] == "data").unwrap();
    assert_eq!(data["emptyDir"]["sizeLimit"], "1Gi", "a node's disk is not filled");
    let variables = pod["containers"][0]["env"].as_array().unwrap();
    let value = |name: &str| variables.iter().find(|variable| variable["name"] == name).map(|it| it["value"].clone());
    assert_eq!(value("CHECKDAM_DRAIN_TIMEOUT"), Some("40s".into()));
    assert_eq!(value("CHECKDAM_LEAVE_NOTICE"), Some("5s".into()));
    assert_eq!(value("CHECKDAM_MAX_BUCKETS"), Some("2000000".into()), "as it was written");
    assert_eq!(value("CHECKDAM_TRACE_SHARE"), Some("0.25".into()));
    assert_eq!(value("CHECKDAM_GRPC_SHADOW"), Some("true".into()));
    assert_eq!(value("CHECKDAM_STORE_FILE"), Some("/run/secrets/checkdam/store".into()));
    assert_eq!(value("CHECKDAM_TLS_CERT"), Some("/run/secrets/checkdam-tls/tls.crt".into()));
    assert_eq!(value("CHECKDAM_GRPC_TLS_CLIENT_CA"), Some("/run/secrets/checkdam-tls/ca.crt".into()));
    assert_eq!(pod["containers"][0]["livenessProbe"]["httpGet"]["scheme"], "HTTPS");
    assert_eq!(value("CHECKDAM_API_TOKEN_FILE"), Some("/run/secrets/checkdam/api".into()));
    assert_eq!(value("CHECKDAM_PRIVILEGED_REQUESTS"), Some("auto".into()));
    let find = |kind: &str| all.iter().find(|document| document["kind"] == kind).unwrap();
    let (monitor, service) = (find("ServiceMonitor"), find("Service"));
    let credentials = &monitor["spec"]["endpoints"][0]["authorization"]["credentials"];
    assert_eq!(credentials, &json!({"name": "s", "key": "scrape"}));
    let job = &service["metadata"]["labels"][monitor["spec"]["jobLabel"].as_str().unwrap()];
    assert_eq!(job, "checkdam", "alerts ask for it");
    let scrapers = &find("NetworkPolicy")["spec"]["ingress"][1];
    assert_eq!(
        (&scrapers["from"][0]["namespaceSelector"], &scrapers["ports"][0]["port"]),
        (&json!({}), &json!("http"))
    );
    let rules = find("ConfigMap");
    let file = folder().join("rules.yaml");
    std::fs::write(&file, rules["data"]["rules.yaml"].as_str().unwrap()).unwrap();
    succeeds(&run(&["rules", "check", file.to_str().unwrap()]));
    for wrong in [
        "replicas=0",
        "dataSizeLimit=much",
        "drainSeconds=0",
        "nonsense=1",
        "service.type=Other",
        "env.lower=1",
        "privilegedRequests=some",
    ] {
        let refused = helm().args(["template", "test"]).arg(&chart).args(["--set", wrong]).output().unwrap();
        assert!(!refused.status.success(), "{wrong} was taken");
    }
}
