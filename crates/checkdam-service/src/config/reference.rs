//! Generates the reference of `checkdam.toml` from the flags: every setting with its
//! meaning, default, flag and variable. All settings are commented out, so the file
//! can be used as it is.

use clap::{Arg, Args, Command};

use super::{ProxySettings, Settings};

const HEAD: &str = "\
# checkdam.toml: every setting, with its default. Made by `checkdam config reference`.
#
# checkdam reads ./checkdam.toml, or the file that --config or CHECKDAM_CONFIG names.
# Flags override environment variables, which override this file; this file overrides the defaults.
# Times have a unit: 500ms, 10s, 1m, 1h or 30d. Unknown keys are errors; see what is
# active with `checkdam config check`.
";

/// Values for settings whose default is no value.
const EXAMPLES: [(&str, &str); 43] = [
    ("allowed_hosts", "limits.example"),
    ("rules", "/etc/checkdam/rules.yaml"),
    ("admin_token", "at-least-16-characters"),
    ("admin_token_file", "/run/secrets/admin_token"),
    ("api_token", "at-least-16-characters"),
    ("api_token_file", "/run/secrets/api_token"),
    ("database", "postgres://checkdam@localhost/checkdam"),
    ("database_file", "/run/secrets/database_url"),
    ("data_dir", "checkdam-data"),
    ("trusted_proxies", "10.0.0.0/8,fd00::/8"),
    ("header_attributes", "X-API-Key=api_key"),
    ("cost_header", "X-Cost"),
    ("secret_attributes", "api_key,token"),
    ("store", "redis://127.0.0.1:6379"),
    ("store_file", "/run/secrets/store_url"),
    ("store_ca", "/etc/checkdam/redis-ca.pem"),
    ("store_deadline", "15ms"),
    ("key_secret", "the same on every node"),
    ("key_secret_file", "/run/secrets/key_secret"),
    ("key_prefix", "prod:"),
    ("connections_per_peer", "5000"),
    ("otlp_endpoint", "http://127.0.0.1:4317"),
    ("otlp_ca", "/etc/checkdam/collector-ca.pem"),
    ("store_client_cert", "/etc/checkdam/redis-client.pem"),
    ("store_client_key", "/etc/checkdam/redis-client.key"),
    ("tls_cert", "/etc/checkdam/tls.pem"),
    ("tls_key", "/etc/checkdam/tls.key"),
    ("tls_client_ca", "/etc/checkdam/tls-clients-ca.pem"),
    ("http_tls_cert", "/etc/checkdam/http.pem"),
    ("http_tls_key", "/etc/checkdam/http.key"),
    ("http_tls_client_ca", "/etc/checkdam/http-clients-ca.pem"),
    ("grpc_tls_cert", "/etc/checkdam/grpc.pem"),
    ("grpc_tls_key", "/etc/checkdam/grpc.key"),
    ("grpc_tls_client_ca", "/etc/checkdam/grpc-clients-ca.pem"),
    ("admin_tls_cert", "/etc/checkdam/admin.pem"),
    ("admin_tls_key", "/etc/checkdam/admin.key"),
    ("admin_tls_client_ca", "/etc/checkdam/admin-clients-ca.pem"),
    ("proxy_tls_cert", "/etc/checkdam/proxy.pem"),
    ("proxy_tls_key", "/etc/checkdam/proxy.key"),
    ("proxy_tls_client_ca", "/etc/checkdam/proxy-clients-ca.pem"),
    ("upstream", "http://127.0.0.1:3000"),
    ("upstream_ca", "/etc/checkdam/upstream-ca.pem"),
    ("health_path", "/healthz"),
];

/// The keys of `[[admin_tokens]]`: only the file has them.
const ADMIN_TOKEN: [(&str, &str, &str); 4] = [
    ("name", "Name of the operator or program, which the change log shows", "\"alice\""),
    ("role", "read (see everything, preview edits) or edit (also edit, refund and reset)", "\"edit\""),
    ("token", "The token; prefer the file", "\"at-least-16-characters\""),
    ("token_file", "File containing the token; it is read again when it changes", "\"/run/secrets/alice\""),
];

/// The keys of a `[[route]]`: only the file has them.
const ROUTE: [(&str, &str, &str); 6] = [
    ("path", "Path pattern, as in rules: /api/*, /users/{id} [default: all]", "\"/api/*\""),
    ("host", "Host name [default: all]", "\"api.example.com\""),
    (
        "upstream",
        "Upstream URLs; several are used round-robin [default: those of [proxy]]",
        "[\"http://127.0.0.1:3001\"]",
    ),
    ("domain", "Domain of the requests, for rules of that domain [default: none]", "\"shop\""),
    ("cost", "Cost of a request, by method or one for all [default: that of [proxy]]", "{ POST = 5, PUT = 5 }"),
    ("response_bytes", "As in [proxy], which is the default", "1000000"),
];

/// The reference, as it is printed and committed.
pub fn reference() -> String {
    let mut text = HEAD.to_owned();
    let mut heading = None;
    for argument in &arguments::<Settings>() {
        if let Some(new) = argument.get_help_heading().filter(|new| heading != Some(*new)) {
            text.push_str(&format!("\n# ---- {new} ----\n"));
            heading = Some(new);
        }
        text.push_str(&setting_entry(argument));
    }
    text.push_str("\n# ---- Only for `checkdam proxy` ----\n\n#[proxy]\n");
    for argument in arguments::<ProxySettings>() {
        text.push_str(&setting_entry(&argument));
    }
    text.push_str("\n# Routes of `checkdam proxy`: the first match is used; requests that match none go to the\n");
    text.push_str("# upstream of [proxy]. The table may be repeated.\n#[[route]]\n");
    push_table(&mut text, &ROUTE);
    text.push_str(
        "\n# ---- Operators ----\n\n# Further tokens of the admin API, with names and roles; admin_token is\n",
    );
    text.push_str("# named admin and has the role edit. The table may be repeated.\n#[[admin_tokens]]\n");
    push_table(&mut text, &ADMIN_TOKEN);
    text
}

/// The keys of a table.
fn push_table(text: &mut String, keys: &[(&str, &str, &str)]) {
    for (name, help, value) in keys {
        let (meaning, default) = split_default(help);
        text.push_str(&format!("\n{}#{name} = {value}\n", comment(&meaning, default)));
    }
}

/// The settings, as flags.
pub(super) fn arguments<T: Args>() -> Vec<Arg> {
    T::augment_args(Command::new("checkdam")).get_arguments().cloned().collect()
}

/// What a setting means, and its default.
pub(super) fn help(argument: &Arg) -> (String, Option<String>) {
    split_default(&argument.get_help().map(ToString::to_string).unwrap_or_default())
}

/// Help without its default, and the default.
fn split_default(help: &str) -> (String, Option<String>) {
    match help.rsplit_once(" [default: ") {
        Some((meaning, default)) => (meaning.to_owned(), default.strip_suffix(']').map(str::to_owned)),
        None => (help.to_owned(), None),
    }
}

fn setting_entry(argument: &Arg) -> String {
    let (meaning, default) = help(argument);
    let mut text = format!("\n{}", comment(&meaning, default.clone()));
    let choices = argument.get_possible_values();
    if choices.iter().any(|choice| choice.get_help().is_some()) {
        let choices = choices.iter().map(|choice| match choice.get_help() {
            Some(help) => format!("{} ({help})", choice.get_name()),
            None => choice.get_name().to_owned(),
        });
        text.push_str(&wrap(&format!("One of: {}", choices.collect::<Vec<_>>().join(", "))));
    }
    let flag = argument.get_long().map(|flag| format!("--{flag}"));
    let variable = argument.get_env().map(|name| name.to_string_lossy().into_owned());
    text.push_str(&wrap(&[flag, variable].into_iter().flatten().collect::<Vec<_>>().join(", ")));
    let id = argument.get_id().as_str();
    let example = EXAMPLES.iter().find(|(name, _)| *name == id).map(|(_, example)| (*example).to_owned());
    let value = example.or(default).unwrap_or_default();
    text.push_str(&format!("#{id} = {}\n", toml_value(argument, &value)));
    text
}

/// A value as TOML writes it.
fn toml_value(argument: &Arg, value: &str) -> String {
    // TOML reads JSON's quotes.
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    if argument.get_value_delimiter().is_some() {
        return format!("[{}]", value.split(',').map(quoted).collect::<Vec<_>>().join(", "));
    }
    let kind = argument.get_value_names().and_then(|names| names.first()).map(|name| name.as_str());
    match kind {
        Some("BOOL" | "COST" | "COUNT" | "SHARE") => value.to_owned(),
        // What has no default is as large as a reader can imagine.
        Some("BYTES") => "1000000".to_owned(),
        _ => quoted(value),
    }
}

fn comment(meaning: &str, default: Option<String>) -> String {
    let default = default.map(|default| wrap(&format!("Default: {default}"))).unwrap_or_default();
    format!("{}{default}", wrap(meaning))
}

/// Lines of a comment, none too long.
fn wrap(text: &str) -> String {
    const WIDTH: usize = 100;
    let mut lines = vec![String::from("#")];
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= WIDTH => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(format!("# {word}")),
        }
    }
    lines.iter().map(|line| format!("{line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_stands_there_and_its_line_is_read() {
        let text = reference();
        assert!(toml::from_str::<Settings>(&text).is_ok(), "all of it is commented out");
        let mut table = "";
        for line in text.lines() {
            let Some(bare) = line.strip_prefix('#').filter(|rest| !rest.is_empty() && !rest.starts_with(' ')) else {
                continue;
            };
            if bare.starts_with('[') {
                table = bare;
                continue;
            }
            let read = toml::from_str::<Settings>(&format!("{table}\n{bare}\n"));
            assert!(read.is_ok(), "{table} {bare}: {}", read.unwrap_err());
        }
        for argument in arguments::<Settings>().iter().chain(&arguments::<ProxySettings>()) {
            assert!(text.contains(&format!("\n#{} = ", argument.get_id())), "{}", argument.get_id());
        }
    }

    #[test]
    fn every_heading_appears_once_and_every_key_of_a_route_is_described() {
        let known = arguments::<Settings>();
        let mut headings: Vec<_> = known.iter().map(|argument| argument.get_help_heading().unwrap()).collect();
        headings.dedup();
        let distinct: std::collections::BTreeSet<_> = headings.iter().collect();
        assert_eq!(distinct.len(), headings.len(), "{headings:?}");
        // The reader names every key when it meets one that it does not know.
        let keys = |table: &str| {
            let refused = toml::from_str::<Settings>(&format!("[[{table}]]\nnonsense = 1\n")).unwrap_err().to_string();
            let expected = refused.split("expected one of ").nth(1).unwrap().lines().next().unwrap();
            expected.split(", ").map(|key| key.trim_matches('`').to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(keys("route"), ROUTE.map(|(name, _, _)| name));
        assert_eq!(keys("admin_tokens"), ADMIN_TOKEN.map(|(name, _, _)| name));
    }
}
