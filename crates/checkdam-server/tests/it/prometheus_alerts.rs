//! The shipped Prometheus alert rules and dashboard.

use std::collections::BTreeSet;

use serde_json::Value;
use testkit::run_promtool;

use crate::server_process::Server;

const CONFIGURATION: &str = include_str!("../../../../deploy/prometheus/prometheus.yml");
const ALERTS: &str = include_str!("../../../../deploy/prometheus/checkdam.rules.yml");
const TESTS: &str = include_str!("../../../../deploy/prometheus/checkdam.tests.yml");
const DASHBOARD: &str = include_str!("../../../../deploy/grafana/checkdam.json");

const FILES: [(&str, &str); 3] =
    [("prometheus.yml", CONFIGURATION), ("checkdam.rules.yml", ALERTS), ("checkdam.tests.yml", TESTS)];

/// Names of metrics of ours in a text, without what a histogram's series end with.
fn names(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !(c.is_ascii_lowercase() || c == '_'));
    let ours = words.filter(|word| word.starts_with("rate_limiter_") || word.starts_with("process_"));
    let bare = |word| ["_bucket", "_sum", "_count"].into_iter().find_map(|end| str::strip_suffix(word, end));
    ours.map(|word| bare(word).unwrap_or(word)).collect()
}

#[test]
fn the_alerts_fire_when_they_should() {
    run_promtool(&["check", "config", "prometheus.yml"], &FILES, "");
    run_promtool(&["test", "rules", "checkdam.tests.yml"], &FILES, "");
}

#[test]
fn alerts_and_dashboard_name_what_there_is() {
    let server = Server::start();
    let text = server.client().get("/metrics").body;
    let there: BTreeSet<&str> =
        text.lines().filter_map(|line| line.strip_prefix("# HELP ")?.split(' ').next()).collect();
    for (file, content) in [("alerts", ALERTS), ("dashboard", DASHBOARD)] {
        let named = names(content);
        assert!(named.len() > 5, "{file}: {named:?}");
        assert_eq!(named.difference(&there).collect::<Vec<_>>(), Vec::<&&str>::new(), "{file}");
    }
}

#[test]
fn the_dashboard_is_whole() {
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let ids: BTreeSet<_> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
    assert_eq!(ids.len(), panels.len(), "every panel has a number of its own");
    let mut places = BTreeSet::new();
    for panel in panels {
        let place = &panel["gridPos"];
        let [x, y, w] = ["x", "y", "w"].map(|name| place[name].as_u64().unwrap());
        assert!(x + w <= 24 && places.insert((x, y)), "{}", panel["title"]);
        for target in panel["targets"].as_array().into_iter().flatten() {
            let expression = target["expr"].as_str().unwrap();
            assert!(!names(expression).is_empty(), "{expression}");
        }
    }
    assert!(dashboard["schemaVersion"].as_u64().unwrap() >= 39);
}
