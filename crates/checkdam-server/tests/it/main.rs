//! The binary as its users meet it: real processes, real sockets, each test on
//! a port of its own.
//!
//! - `answers`: what a decision looks like
//! - `operations`: batch, peek, refund, reset, explain
//! - `bad_input`: what is refused, and how
//! - `bans`: overrides and bans
//! - `exactness`: many clients at once, and clients that obey
//! - `auth`: proxies that ask about their clients' requests
//! - `forward_auth`: real proxies with the shipped configurations
//! - `connections`: slow and idle clients
//! - `overload`: more than can be done
//! - `rate_limits`: Envoy's rate limit service, clause by clause
//! - `grpc`: its door: health, reflection, limits, leaving
//! - `json`: the same service over HTTP
//! - `envoy`: a real Envoy that asks it
//! - `incumbent`: set up by the variables of envoyproxy/ratelimit
//! - `redis`: several nodes that share their limits
//! - `readiness`: when a node wants requests
//! - `leases`: limits of theirs that each of them prepays
//! - `cluster`: and whose buckets are on several servers
//! - `admin`: rules, overrides and bans that are edited while requests flow
//! - `preview`: what an edit would have done to the last requests
//! - `audit`: the record of who was denied
//! - `nodes`: several nodes that share their rules
//! - `top`: who asks most and who is limited most
//! - `traffic`: what passes, over time and live
//! - `reload`: rules that change under load
//! - `shutdown`: leaving without cutting anybody off
//! - `settings`: flags, variables and the file
//! - `production`: the settings' reference, the manual, probes
//! - `storm`: faults of every kind at once, under an oracle
//! - `supervisor`: what systemd is told
//! - `deploy`: the files to run it with, judged by the programs they are for
//! - `descriptors`: envoyproxy/ratelimit's own rule files
//! - `rule_files`: which files are refused
//! - `cli`: the commands
//! - `cli_rules`: those that see and change rules, on a server and on databases
//! - `simulate`: logs replayed through rule files
//! - `load`: `checkdam bench`, beside what the server counts
//! - `cli_top`: who is limited most, in a terminal
//! - `doctor`: what is found out about a store
//! - `proxy`: what is forwarded, and what it costs
//! - `proxy_answers`: answers that could be read in two ways
//! - `proxy_faults`: upstreams that are down, slow or ill
//! - `proxy_streams`: long bodies, WebSocket, HTTP/2, slow clients
//! - `proxy_smuggling`: requests that could be read in two ways
//! - `rust_client`: the Rust client, with a server and without
//! - `polite`: a polite caller beside a naive one
//! - `dashboard`: the page for operators, in a real browser
//! - `metrics`: what Prometheus sees, and a real one that counts as clients do
//! - `alerts`: the alert rules and the dashboard that we ship
//! - `traces`: spans that reach a collector
//! - `denials`: denials in the log
//! - `web_pages`: pages of other sites that a browser asks for
//! - `page`: the API's description and the page to try it
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail loudly")]
#![allow(clippy::print_stderr, clippy::print_stdout, reason = "tests tell what they measured")]

mod admin;
mod alerts;
mod answers;
mod application;
mod audit;
mod auth;
mod bad_input;
mod bans;
mod cli;
mod cli_rules;
mod cli_top;
mod client;
mod cluster;
#[cfg(feature = "otlp")]
mod collector;
mod connections;
mod dashboard;
mod denials;
mod deploy;
mod descriptors;
mod doctor;
mod envoy;
mod exactness;
mod forward_auth;
mod grpc;
mod incumbent;
mod json;
mod leases;
mod load;
mod metrics;
mod nodes;
mod operations;
mod overload;
mod page;
mod path_forms;
mod polite;
mod preview;
mod process;
mod production;
mod proxy;
mod proxy_answers;
mod proxy_faults;
mod proxy_smuggling;
mod proxy_streams;
mod rate_limit_client;
mod rate_limits;
mod readiness;
mod redis;
mod reload;
mod rule_files;
mod rust_client;
mod settings;
mod shutdown;
mod simulate;
mod storm;
mod supervisor;
mod top;
#[cfg(feature = "otlp")]
mod traces;
mod traffic;
mod upstream;
mod web_pages;
