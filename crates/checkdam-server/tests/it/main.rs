//! The binary as its users meet it: real processes, real sockets, each test on
//! a port of its own.
//!
//! - `responses`: what a decision looks like
//! - `batch_peek_refund`: batch, peek, refund, reset, explain
//! - `bad_input`: what is refused, and how
//! - `overrides_and_bans`: overrides and bans
//! - `never_over_admit`: many clients at once, and clients that obey
//! - `auth`: proxies that ask about their clients' requests
//! - `forward_auth`: real proxies with the shipped configurations
//! - `connections`: slow and idle clients
//! - `overload`: more than can be done
//! - `envoy_rate_limit_service`: Envoy's rate limit service, clause by clause
//! - `grpc`: its door: health, reflection, limits, leaving
//! - `envoy_json`: the same service over HTTP
//! - `envoy`: a real Envoy that asks it
//! - `envoy_ratelimit_env`: set up by the variables of envoyproxy/ratelimit
//! - `redis_nodes`: several nodes that share their limits
//! - `readiness`: when a node wants requests
//! - `leases`: limits of theirs that each of them prepays
//! - `redis_cluster`: and whose buckets are on several servers
//! - `admin`: rules, overrides and bans that are edited while requests flow
//! - `preview`: what an edit would have done to the last requests
//! - `audit`: the record of who was denied
//! - `shared_rulebook`: several nodes that share their rules
//! - `top_subjects`: who asks most and who is limited most
//! - `traffic_history`: what passes, over time and live
//! - `reload`: rules that change under load
//! - `shutdown`: leaving without cutting anybody off
//! - `settings`: flags, variables and the file
//! - `settings_and_manual`: the settings' reference, the manual, probes
//! - `storm`: faults of every kind at once, under an oracle
//! - `systemd`: what systemd is told
//! - `deploy`: the files to run it with, judged by the programs they are for
//! - `documents`: the README and the book: links, examples, references
//! - `envoy_rule_files`: envoyproxy/ratelimit's own rule files
//! - `invalid_rule_files`: which files are refused
//! - `cli`: the commands
//! - `cli_rules`: those that see and change rules, on a server and on databases
//! - `simulate`: logs replayed through rule files
//! - `bench`: `checkdam bench`, beside what the server counts
//! - `cli_top`: who is limited most, in a terminal
//! - `doctor`: what is found out about a store
//! - `proxy`: what is forwarded, and what it costs
//! - `proxy_bad_responses`: answers that could be read in two ways
//! - `proxy_upstream_failures`: upstreams that are down, slow or ill
//! - `proxy_streaming`: long bodies, WebSocket, HTTP/2, slow clients
//! - `proxy_smuggling`: requests that could be read in two ways
//! - `rust_client`: the Rust client, with a server and without
//! - `polite_client`: a polite caller beside a naive one
//! - `dashboard`: the page for operators, in a real browser
//! - `metrics`: what Prometheus sees, and a real one that counts as clients do
//! - `prometheus_alerts`: the alert rules and the dashboard that we ship
//! - `traces`: spans that reach a collector
//! - `denial_log`: denials in the log
//! - `same_origin`: pages of other sites that a browser asks for
//! - `api_explorer`: the API's description and the page to try it
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail loudly")]
#![allow(clippy::print_stderr, clippy::print_stdout, reason = "tests tell what they measured")]

mod admin;
mod api_explorer;
mod audit;
mod auth;
mod bad_input;
mod batch_peek_refund;
mod bench;
mod cli;
mod cli_rules;
mod cli_top;
mod connections;
mod dashboard;
mod denial_log;
mod deploy;
mod doctor;
mod documents;
mod echo_application;
mod envoy;
mod envoy_client;
mod envoy_json;
mod envoy_rate_limit_service;
mod envoy_ratelimit_env;
mod envoy_rule_files;
mod forward_auth;
mod grpc;
mod http_client;
mod invalid_rule_files;
mod leases;
mod metrics;
mod never_over_admit;
#[cfg(feature = "otlp")]
mod otlp_collector;
mod overload;
mod overrides_and_bans;
mod path_normalization;
mod polite_client;
mod preview;
mod prometheus_alerts;
mod proxy;
mod proxy_bad_responses;
mod proxy_smuggling;
mod proxy_streaming;
mod proxy_upstream_failures;
mod readiness;
mod redis_cluster;
mod redis_nodes;
mod reload;
mod responses;
mod rust_client;
mod same_origin;
mod server_process;
mod settings;
mod settings_and_manual;
mod shared_rulebook;
mod shutdown;
mod simulate;
mod storm;
mod systemd;
mod test_upstream;
mod top_subjects;
#[cfg(feature = "otlp")]
mod traces;
mod traffic_history;
