//! The command line. Standard output is data; messages go to standard error.

mod api_token;
mod backend;
pub(crate) mod bans;
pub(crate) mod bench;
pub(crate) mod changes;
pub(crate) mod check;
mod command_error;
pub(crate) mod config;
pub(crate) mod doctor;
pub(crate) mod explain;
pub(crate) mod health;
mod http_client;
mod listeners;
pub(crate) mod man;
mod node;
pub(crate) mod proxy;
pub(crate) mod record;
pub(crate) mod rules;
pub(crate) mod serve;
mod signals;
pub(crate) mod simulate;
mod systemd;
mod table;
pub(crate) mod top;
pub(crate) mod violations;

use std::io::Write;
use std::process::ExitCode;

use anyhow::Context;
use checkdam_tools::simulate::attribute;
use clap::{Args, CommandFactory, Parser, Subcommand};
use serde::de::DeserializeOwned;
use serde_json::Value;

use self::backend::Backend;
pub(crate) use self::command_error::CommandError;
use self::table::printable;
pub(crate) use self::table::printable_lines;

/// Rate limiter: server, reverse proxy and command-line client
#[derive(Debug, Parser)]
#[command(
    name = "checkdam",
    version,
    arg_required_else_help = true,
    after_help = "Exit codes: 0 allowed or done, 1 denied, invalid, not found, not ready, or a problem was found, \
                  2 wrong usage, or a server or database that cannot start or be reached."
)]
pub(crate) struct Cli {
    /// Command to run
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the server
    #[command(
        after_help = "Every setting is also an environment variable (--http-listen: CHECKDAM_HTTP_LISTEN) and a key of \
                      checkdam.toml (http_listen). Flags override environment variables, which override the file. If \
                      RUNTIME_ROOT is set, envoyproxy/ratelimit's environment variables are read too. SIGHUP reloads the rules, SIGTERM starts a \
                      graceful shutdown."
    )]
    Serve(Box<serve::ServeArguments>),
    /// Run the rate limiting reverse proxy
    #[command(after_help = "Examples:\n  checkdam proxy --upstream http://127.0.0.1:3000 --rules rules.yaml\n  \
                      checkdam proxy --config checkdam.toml    ([[route]]s: path, host, upstream, domain, cost, \
                      response_bytes)\n\nRequests have the attributes method, endpoint, host, ip, and those of \
                      --header-attributes. A request is charged once, before it is forwarded; nothing is \
                      refunded if the upstream fails. Every setting is also an environment variable (--upstream: \
                      CHECKDAM_PROXY_UPSTREAM; --rules: CHECKDAM_RULES) and a key of checkdam.toml; settings under \
                      the heading Proxy go into the table [proxy]. SIGHUP reloads the rules, SIGTERM starts a graceful shutdown.")]
    Proxy(Box<proxy::ProxyArguments>),
    /// Check a request against a server's rules and charge it
    #[command(after_help = "Example: checkdam check user=42 plan=free --cost 2\n\n\
                            Exits with 0 if the request is allowed and with 1 if it is denied.")]
    Check(check::CheckArguments),
    /// Charge a request for what it used, whatever is left
    #[command(after_help = "Example: checkdam record user=42 plan=free --cost 1500\n\n\
                            Never denied: beyond a limit the bucket is in debt, and requests are denied until that is \
                            paid back. Exits with 0 if the cost was recorded.")]
    Record(record::RecordArguments),
    /// Explain which rules match a request and why, without charging it
    #[command(after_help = "Examples:\n  checkdam explain user=42 plan=free\n  \
                            checkdam explain user=42 plan=free --rules rules.yaml    (needs no server)\n\n\
                            Exits with 0 if the request would be allowed and with 1 if it would be denied.")]
    Explain(explain::ExplainArguments),
    /// Show and change the rules of a server or a database; validate rule files
    #[command(subcommand)]
    Rules(rules::RulesCommand),
    /// List denied requests, newest first
    #[command(after_help = "Examples:\n  checkdam violations --user 42 --since 1h\n  \
                            checkdam violations --ip 203.0.113.9 --since 2026-11-01T00:00:00Z --limit 1000 --json\n  \
                            checkdam violations --rule user-free --database postgres://localhost/checkdam")]
    Violations(violations::ViolationsArguments),
    /// List edits of rules, overrides and bans, with who made them, newest first
    #[command(after_help = "Examples:\n  checkdam changes --since 7d\n  \
                            checkdam changes --rule user-free --json    (with the rule before and after)\n  \
                            checkdam changes --actor alice --database postgres://localhost/checkdam\n\n\
                            Edits by the admin API and by this command line are recorded; edits in SQL are not.")]
    Changes(changes::ChangesArguments),
    /// Show the most denied subjects, live in the terminal
    #[command(after_help = "Examples:\n  checkdam top\n  checkdam top --kind allowed --window hour --once\n  \
                            checkdam top --rule user-free --json\n\n\
                            Counts are summed over the nodes that share a Redis. Counts may be overestimated; the error \
                            bound is shown. Press ? for the keys. Exits with 2 if there is no server.")]
    Top(top::TopArguments),
    /// Deny all requests of a subject, for a time or permanently
    #[command(after_help = "Examples:\n  checkdam ban user:42 --for 1h --reason 'floods the search'\n  \
                            checkdam ban ip:198.51.100.0/24 --until 2026-12-01T00:00:00Z\n  checkdam ban 'user:bot-*'")]
    Ban(bans::BanArguments),
    /// Remove a ban
    #[command(after_help = "Example: checkdam unban user:42")]
    Unban(bans::UnbanArguments),
    /// List bans
    Bans(bans::BansArguments),
    /// Replay access logs against a rule file and report what it would have denied
    #[command(after_help = "Examples:\n  checkdam simulate access.log --rules rules.yaml\n  \
                            checkdam simulate access.log*.gz --rules rules.yaml --against stricter.yaml --report out.html\n  \
                            checkdam simulate events.jsonl --rules rules.yaml --map user=auth.id --time-field at\n  \
                            checkdam simulate access.log --suggest 'ip:{ip}'\n\n\
                            Combined logs give the attributes ip, user, method, endpoint, status, bytes, referer, \
                            user_agent and host. Every bucket starts full; the clock is that of the log, so the result \
                            does not depend on the machine. Ctrl-C stops and reports the lines read so far.")]
    Simulate(Box<simulate::SimulateArguments>),
    /// Generate load on your own deployment and measure it
    #[command(after_help = "Examples:\n  checkdam bench\n  \
                            checkdam bench --rate 20000 --duration 30s --spread zipf    (latency as users see it)\n  \
                            checkdam bench --grpc --domain edge --attributes 'remote_address={key}'\n  \
                            checkdam bench http://127.0.0.1:8000 --get '/search?q={key}' --header 'X-API-Key: {key}'\n\n\
                            Requests are charged. Latencies include requests that timed out, and requests that were \
                            due but never sent, each with the time it waited. A closed loop sends the next request after the \
                            response; an open loop (--rate) sends on schedule, skips nothing, and measures latency \
                            from the scheduled time. Ctrl-C stops and reports the measurements so far. \
                            Exits with 0 if every request was sent and decided, with 1 if not, and with 2 on wrong \
                            usage or if no server answers.")]
    Bench(Box<bench::BenchArguments>),
    /// Check the store: connectivity, permissions, and settings that limits depend on
    #[command(after_help = "Examples:\n  checkdam doctor --store redis://127.0.0.1:6379\n  \
                            checkdam doctor --strict --json    (the store of CHECKDAM_STORE or checkdam.toml)\n\n\
                            Exits with 0 if there is no problem, with 1 if there is one (with --strict also if there \
                            is a warning), and with 2 on wrong usage or if connecting or logging in failed. It writes \
                            only keys named cd:{doctor:…}…, which expire within seconds.")]
    Doctor(doctor::DoctorArguments),
    /// Check whether a server is ready, for health probes
    #[command(
        after_help = "Examples:\n  checkdam health\n  checkdam health http://127.0.0.1:8082    (the admin listener, also \
                            of a proxy)\n\nExits with 0 if it is ready, with 1 if it is not (startup, shutdown, or its \
                            store is unavailable), and with 2 if no server responds."
    )]
    Health(health::HealthArguments),
    /// Show all settings, or validate and show the active ones
    #[command(subcommand)]
    Config(config::ConfigCommand),
    /// Print the manual page, or write one per command
    #[command(after_help = "Examples:\n  checkdam man | man -l -\n  checkdam man ~/.local/share/man/man1")]
    Man(man::ManArguments),
    /// Print shell completions
    #[command(after_help = "Example: checkdam completions bash > ~/.local/share/bash-completion/completions/checkdam")]
    Completions {
        /// Shell
        shell: clap_complete::Shell,
    },
}

/// A request, as the command line gives it.
#[derive(Debug, Args)]
pub(crate) struct RequestArguments {
    /// Attributes of the request, such as user=42 plan=free
    #[arg(value_name = "ATTR=VALUE", value_parser = attribute)]
    attributes: Vec<(String, String)>,

    /// Cost of the request
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    cost: u64,

    /// Domain of the request
    #[arg(long, value_name = "DOMAIN")]
    domain: Option<String>,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

const SERVER_DEFAULT: &str = "http://127.0.0.1:8080";

impl RequestArguments {
    /// The JSON body of the request. Attributes that are given twice are sent twice: the
    /// server validates.
    fn body(&self) -> String {
        let quoted = |text: &str| serde_json::Value::from(text).to_string();
        let pairs = self.attributes.iter().map(|(name, value)| format!("{}:{}", quoted(name), quoted(value)));
        let attributes = pairs.collect::<Vec<_>>().join(",");
        let domain = self.domain.as_ref().map(|domain| format!("\"domain\":{},", quoted(domain))).unwrap_or_default();
        format!("{{{domain}\"attributes\":{{{attributes}}},\"cost\":{}}}", self.cost)
    }

    fn request(&self) -> Result<checkdam::Request<'_>, checkdam::RequestError> {
        let mut request = checkdam::Request::new().costing(self.cost);
        for (name, value) in &self.attributes {
            request.insert(name, value)?;
        }
        Ok(request.in_domain(self.domain.as_deref().unwrap_or_default()))
    }
}

pub(crate) fn completions(shell: clap_complete::Shell) -> anyhow::Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "checkdam", &mut script);
    print(&script)?;
    Ok(ExitCode::SUCCESS)
}

/// Writes data to standard output. A reader that has seen enough, such as
/// `head`, is no error.
fn print(data: &[u8]) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(data).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// Prints the JSON of a response unchanged, on a line of its own.
fn print_json(answer: &[u8]) -> anyhow::Result<()> {
    print(&[answer, b"\n"].concat())
}

/// Writes JSON on a line of its own.
fn print_value(value: &Value) -> anyhow::Result<()> {
    print_json(value.to_string().as_bytes())
}

/// Prints a message. Nothing can be reported if standard error is closed.
fn print_notice(text: &str) {
    let _ = writeln!(std::io::stderr(), "checkdam: {}", printable_lines(text));
}

/// Prints a response as it is, or the text that `render` makes of its shown parts.
fn print_response<T: DeserializeOwned>(
    response: &Value,
    is_json: bool,
    render: impl FnOnce(T) -> anyhow::Result<String>,
) -> anyhow::Result<ExitCode> {
    if is_json {
        print_value(response)?;
    } else {
        let shown =
            T::deserialize(response).context("cannot parse the response: does the server have another version?");
        print(render(shown?)?.as_bytes())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints the result of an edit: the stored row as JSON, if given, else what was done.
fn print_edit(backend: &dyn Backend, what: &str, row: Option<Value>) -> anyhow::Result<ExitCode> {
    match row {
        Some(row) => print_value(&row)?,
        None => print(format!("{}\n", printable(what)).as_bytes())?,
    }
    print_notice(&backend.activation_notice());
    Ok(ExitCode::SUCCESS)
}

/// The time, in seconds since 1970.
fn now_unix_s() -> u64 {
    checkdam::time::unix_us() / checkdam::time::SECOND_US
}
