//! End-to-end tests of the binary: real processes, real sockets, each test on its own
//! port.
//!
//! - `responses`: responses to checks
//! - `batch_peek_refund`: batch, peek, refund, reset, explain
//! - `record`: usage that is charged afterwards, and debt
//! - `bad_input`: invalid requests
//! - `overrides_and_bans`: overrides and bans
//! - `never_over_admit`: many concurrent clients, and clients that obey `Retry-After`
//! - `access`: API tokens, privileged requests, roles of operators, the change log
//! - `auth`: forward authentication for proxies
//! - `forward_auth`: real proxies with the shipped configurations
//! - `connections`: slow and idle clients
//! - `overload`: load shedding
//! - `envoy_rate_limit_service`: Envoy's rate limit service, clause by clause
//! - `grpc`: its listener: health, reflection, limits, shutdown
//! - `envoy_json`: the same service over HTTP
//! - `envoy`: a real Envoy that calls it
//! - `envoy_tokens`: a real Envoy that charges what answers used
//! - `envoy_ratelimit_env`: configuration by the variables of envoyproxy/ratelimit
//! - `redis_nodes`: several nodes that share their limits
//! - `readiness`: when a node is ready
//! - `leases`: limits that each node prepays
//! - `redis_cluster`: several nodes on a Redis Cluster
//! - `admin`: rules, overrides and bans edited under load
//! - `preview`: previews of edits on the last requests
//! - `audit`: the audit log of violations
//! - `shared_rulebook`: several nodes that share their rules
//! - `top_subjects`: the top subjects by requests and by denials
//! - `traffic_history`: traffic over time and live
//! - `reload`: rules that change under load
//! - `shutdown`: graceful shutdown without reset connections
//! - `tls`: TLS on every listener, with curl, openssl, Envoy and our own clients
//! - `settings`: flags, variables and the file
//! - `settings_and_manual`: the settings' reference, the manual, probes
//! - `storm`: faults of every kind at once, under an oracle
//! - `systemd`: notifications of systemd
//! - `deploy`: the shipped deployment files, validated by the programs they are for
//! - `documents`: the README and the book: links, examples, references
//! - `envoy_rule_files`: envoyproxy/ratelimit's own rule files
//! - `invalid_rule_files`: rule files that are rejected
//! - `cli`: the commands
//! - `cli_rules`: those that show and edit rules, on a server and on databases
//! - `simulate`: logs replayed through rule files
//! - `bench`: `checkdam bench`, compared with the server's counts
//! - `cli_top`: `checkdam top`, once and in a terminal
//! - `doctor`: findings on a store
//! - `proxy`: what is forwarded, and what it costs
//! - `proxy_bad_responses`: ambiguous responses
//! - `proxy_upstream_failures`: upstreams that are down, slow or unhealthy
//! - `proxy_streaming`: long bodies, WebSocket, HTTP/2, slow clients
//! - `proxy_smuggling`: ambiguous requests
//! - `rust_client`: the Rust client, with a server and without
//! - `polite_client`: a polite client beside a naive one
//! - `dashboard`: the page for operators, in a real browser
//! - `metrics`: metrics, and a real Prometheus that scrapes them
//! - `prometheus_alerts`: the shipped alert rules and dashboard
//! - `traces`: spans that reach a collector
//! - `denial_log`: denials in the log
//! - `same_origin`: requests of web pages of other origins
//! - `api_explorer`: the OpenAPI document and the API explorer
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail loudly")]
#![allow(clippy::print_stderr, clippy::print_stdout, reason = "tests tell what they measured")]

mod access;
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
mod envoy_tokens;
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
mod record;
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
mod tls;
mod top_subjects;
#[cfg(feature = "otlp")]
mod traces;
mod traffic_history;
