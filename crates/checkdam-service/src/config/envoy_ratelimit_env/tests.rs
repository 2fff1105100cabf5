//! Tests of the mapping of envoyproxy/ratelimit's variables.

use super::super::Settings;
use super::*;

type Read = (Settings, Vec<EnvoyVariableReport>);

fn read_with(variables: &[(&str, &str)], given: Settings, has_rules: bool, host: &str) -> Result<Read, String> {
    let get = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
    let mut layers = Layers::new(given);
    let added = EnvoyEnvironment(get).add_to(&mut layers, has_rules, host);
    added.and_then(|told| Ok((layers.merge()?, told))).map_err(|error| error.to_string())
}

fn read(variables: &[(&str, &str)]) -> Result<Read, String> {
    read_with(variables, Settings::default(), false, "127.0.0.1")
}

fn became(told: &[EnvoyVariableReport], name: &str) -> VariableEffect {
    told.iter().find(|variable| variable.name == name).unwrap_or_else(|| panic!("{name} is unnamed")).became.clone()
}

#[test]
fn general_names_mean_nothing_by_themselves_and_are_named() {
    let variables = [("PORT", "1"), ("HOST", "0.0.0.0"), ("SHADOW_MODE", "true"), ("LOG_LEVEL", "warn")];
    let (settings, told) = read(&variables).unwrap();
    assert_eq!((settings.http_listen, settings.grpc_shadow), (None, None));
    assert_eq!(told.iter().map(|variable| variable.name).collect::<Vec<_>>(), ["HOST", "PORT", "SHADOW_MODE"]);
    assert_eq!(became(&told, "PORT"), VariableEffect::NotMeant);
}

#[test]
fn a_set_up_of_the_incumbent_is_understood() {
    let (settings, told) = read(&[
        ("RUNTIME_ROOT", "/data"),
        ("RUNTIME_SUBDIRECTORY", "ratelimit"),
        ("PORT", "9080"),
        ("GRPC_HOST", "::"),
        ("SHADOW_MODE", "TRUE"),
        ("QUOTA_MODE", "true"),
        ("CACHE_KEY_PREFIX", "prod:"),
        ("MERGE_DOMAIN_CONFIG", "1"),
        ("LIMIT_RESPONSE_HEADERS_ENABLED", "true"),
        ("LIMIT_RESET_HEADER", "X-Reset"),
        ("USE_STATSD", "false"),
        ("STATSD_HOST", "stats"),
        ("NEAR_LIMIT_RATIO", "0.8"),
    ])
    .unwrap();
    assert_eq!(settings.rules, Some(PathBuf::from("/data/ratelimit/config")));
    assert_eq!(settings.http_listen.as_deref(), Some("127.0.0.1:9080"), "loopback unless opened");
    assert_eq!(settings.grpc_listen.as_deref(), Some("[::]:8081"));
    assert_eq!((settings.grpc_shadow, settings.grpc_quota, settings.grpc_metadata), (Some(true), Some(true), None));
    assert_eq!(settings.key_prefix.as_deref(), Some("prod:"));
    assert_eq!(settings.merge_domains, Some(true));
    assert_eq!(settings.grpc_headers.as_deref(), Some("RateLimit-Limit,RateLimit-Remaining,X-Reset"));
    assert_eq!(told.len(), 13);
    let ignored = told.iter().filter(|variable| matches!(variable.became, VariableEffect::Ignored(_)));
    assert_eq!(ignored.map(|variable| variable.name).collect::<Vec<_>>(), ["NEAR_LIMIT_RATIO", "STATSD_HOST"]);
    assert_eq!(became(&told, "USE_STATSD"), VariableEffect::AsHere);
    assert_eq!(became(&told, "PORT"), VariableEffect::Setting("http_listen"));
}

#[test]
fn every_variable_is_told_or_refused() {
    assert!(TABLE.is_sorted_by_key(|known| known.name), "in the order of their names");
    for known in &TABLE {
        for value in ["true", "false", "7"] {
            match read(&[("RUNTIME_ROOT", "/data"), (known.name, value)]) {
                Ok((_, told)) => drop(became(&told, known.name)),
                Err(said) => assert!(said.contains(known.name), "{}={value}: {said}", known.name),
            }
        }
    }
}

#[test]
fn without_a_runtime_root_its_own_names_tell_and_its_default_is_looked_for() {
    for name in ["USE_STATSD", "RUNTIME_SUBDIRECTORY", "REDIS_SOCKET_TYPE", "QUOTA_MODE"] {
        let said = read(&[(name, "0"), ("PORT", "9080")]).unwrap_err();
        assert!(
            said.contains(name) && said.contains("/srv/runtime_data/current") && said.contains("--rules"),
            "{said}"
        );
    }
    let variables = [("USE_STATSD", "0"), ("PORT", "9")];
    let (settings, told) = read_with(&variables, Settings::default(), true, "127.0.0.1").unwrap();
    assert_eq!(
        (settings.rules, settings.http_listen.as_deref()),
        (None, Some("127.0.0.1:9")),
        "rules of our own count"
    );
    assert_eq!(became(&told, "PORT"), VariableEffect::Setting("http_listen"));
}

#[test]
fn a_host_that_is_not_given_is_that_of_our_own_listeners() {
    let variables = [("RUNTIME_ROOT", "/data"), ("PORT", "9080"), ("GRPC_HOST", "10.0.0.1")];
    let (settings, _) = read_with(&variables, Settings::default(), false, "0.0.0.0").unwrap();
    assert_eq!(settings.http_listen.as_deref(), Some("0.0.0.0:9080"));
    assert_eq!(settings.grpc_listen.as_deref(), Some("10.0.0.1:8081"));
}

#[test]
fn redis_becomes_one_url_with_its_login_and_its_tls() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "me:from file\n").unwrap();
    let path = file.path().to_str().unwrap();
    for (variables, url) in [
        (&[("REDIS_URL", "redis://h:1"), ("REDIS_TLS", "true"), ("REDIS_AUTH", "pw")][..], "rediss://:pw@h:1"),
        (&[("REDIS_URL", "h:1"), ("REDIS_AUTH_FILE", path)], "redis://me:from%20file@h:1"),
        (&[("REDIS_URL", "main,a:1"), ("REDIS_TYPE", "SENTINEL")], "redis-sentinel://a:1/main"),
    ] {
        let variables: Vec<_> = variables.iter().copied().chain([("RUNTIME_ROOT", "/data")]).collect();
        assert_eq!(read(&variables).unwrap().0.store.as_deref(), Some(url), "{variables:?}");
    }
    let (settings, told) = read(&[("RUNTIME_ROOT", "/data"), ("REDIS_TLS", "true")]).unwrap();
    assert_eq!(settings.store, None);
    assert!(matches!(became(&told, "REDIS_TLS"), VariableEffect::Ignored(reason) if reason.contains("memory")));
}

#[test]
fn tls_files_become_those_of_the_grpc_listener_and_of_the_store() {
    let files = [
        ("RUNTIME_ROOT", "/data"),
        ("GRPC_SERVER_TLS_CERT", "/tls/server.crt"),
        ("GRPC_SERVER_TLS_KEY", "/tls/server.key"),
        ("GRPC_CLIENT_TLS_CACERT", "/tls/ca.crt"),
        ("REDIS_TLS_CLIENT_CERT", "/tls/redis.crt"),
        ("REDIS_TLS_CLIENT_KEY", "/tls/redis.key"),
    ];
    let (off, told) = read(&files).unwrap();
    assert_eq!((off.grpc_tls_cert, off.grpc_tls_key, off.grpc_tls_client_ca), (None, None, None));
    assert!(matches!(became(&told, "GRPC_SERVER_TLS_CERT"), VariableEffect::Ignored(_)));
    let on: Vec<_> = files.into_iter().chain([("GRPC_SERVER_USE_TLS", "true")]).collect();
    let (on, told) = read(&on).unwrap();
    assert_eq!(on.grpc_tls_cert, Some("/tls/server.crt".into()));
    assert_eq!(on.grpc_tls_key, Some("/tls/server.key".into()));
    assert_eq!(on.grpc_tls_client_ca, Some("/tls/ca.crt".into()));
    assert_eq!(on.store_client_cert, Some("/tls/redis.crt".into()));
    assert_eq!(on.store_client_key, Some("/tls/redis.key".into()));
    assert_eq!(became(&told, "GRPC_SERVER_USE_TLS"), VariableEffect::Setting("grpc_tls_cert"));
}

/// The variables describe one listener's TLS: a certificate of our own replaces theirs, and
/// their client CA still applies to it.
#[test]
fn a_certificate_of_our_own_keeps_the_client_ca_of_the_variables() {
    let variables = [
        ("RUNTIME_ROOT", "/data"),
        ("GRPC_SERVER_USE_TLS", "true"),
        ("GRPC_SERVER_TLS_CERT", "/tls/server.crt"),
        ("GRPC_SERVER_TLS_KEY", "/tls/server.key"),
        ("GRPC_CLIENT_TLS_CACERT", "/tls/ca.crt"),
    ];
    let given = Settings { grpc_tls_cert: Some("/own/both.pem".into()), ..Settings::default() };
    let (settings, _) = read_with(&variables, given, false, "127.0.0.1").unwrap();
    assert_eq!(settings.grpc_tls_cert, Some("/own/both.pem".into()));
    assert_eq!(settings.grpc_tls_key, None, "a key of theirs does not fit our certificate");
    assert_eq!(settings.grpc_tls_client_ca, Some("/tls/ca.crt".into()));
    let given = Settings { grpc_tls_client_ca: Some("/own/ca.crt".into()), ..Settings::default() };
    let (settings, _) = read_with(&variables, given, false, "127.0.0.1").unwrap();
    assert_eq!(settings.grpc_tls_client_ca, Some("/own/ca.crt".into()));
    assert_eq!(settings.grpc_tls_cert, Some("/tls/server.crt".into()));
}

#[test]
fn what_cannot_be_is_refused_with_its_name() {
    for (name, value, part) in [
        ("BACKEND_TYPE", "memcache", "redis"),
        ("CONFIG_TYPE", "GRPC_XDS_SOTW", "FILE"),
        ("GRPC_SERVER_USE_TLS", "true", "GRPC_SERVER_TLS_CERT"),
        ("GRPC_CLIENT_TLS_SAN", "ratelimit.example", "GRPC_CLIENT_TLS_CACERT"),
        ("GRPC_UDS", "/run/ratelimit.sock", "GRPC_PORT"),
        ("REDIS_SENTINEL_AUTH", "x", "Sentinel"),
        ("REDIS_TLS_SKIP_HOSTNAME_VERIFICATION", "1", "verified"),
        ("REDIS_AWS_IAM_AUTH", "true", "REDIS_AUTH"),
        ("USE_CALENDAR_MONTH_RATE_LIMIT", "true", "30 days"),
        ("SHADOW_MODE", "perhaps", "true, false"),
    ] {
        let said = read(&[("RUNTIME_ROOT", "/data"), (name, value)]).unwrap_err();
        assert!(said.contains(name) && said.contains(part), "{said}");
    }
}

#[test]
fn what_is_given_otherwise_wins() {
    let given = Settings {
        store: Some("memory".to_owned()),
        http_listen: Some("127.0.0.1:7".to_owned()),
        ..Settings::default()
    };
    let variables = [("RUNTIME_ROOT", "1"), ("PORT", "1"), ("REDIS_URL", "1")];
    let (settings, told) = read_with(&variables, given, false, "127.0.0.1").unwrap();
    assert_eq!((settings.store.as_deref(), settings.http_listen.as_deref()), (Some("memory"), Some("127.0.0.1:7")));
    assert_eq!(became(&told, "REDIS_URL"), VariableEffect::Overridden("store"));
}
