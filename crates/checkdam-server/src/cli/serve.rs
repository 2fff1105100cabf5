//! `checkdam serve`: puts the program together and runs it until a signal.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use checkdam::RuleSet;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use crate::app::App;
use crate::config::{Config, LogFormat, Settings};
use crate::http::Server;
use crate::rulebook::{self, LoadError, RuleFile};
use crate::store::AnyStore;

/// How often the store forgets what has passed.
const MAINTAIN_EVERY: Duration = Duration::from_secs(1);

/// What `checkdam serve` takes.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The settings file [default: checkdam.toml, if there is one]
    #[arg(long, value_name = "FILE", env = "CHECKDAM_CONFIG")]
    config: Option<PathBuf>,

    #[command(flatten)]
    settings: Settings,
}

/// The rules to begin with, and where they came from.
struct Rules {
    compiled: RuleSet,
    file: Option<RuleFile>,
}

/// Serves until a signal ends it.
pub(crate) fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let config = Config::load(arguments.settings, arguments.config.as_deref())?;
    let rules = match load_rules(&config) {
        Ok(rules) => rules,
        Err(error) => {
            // The form that editors understand. Nobody is left to tell if this fails.
            let _ = writeln!(std::io::stderr(), "{error}");
            return Ok(ExitCode::from(2));
        }
    };
    crate::logging::start(config.log_level, config.log_format);
    for name in crate::config::unknown_variables() {
        tracing::warn!(name, "this variable sets nothing: see checkdam serve --help");
    }
    rulebook::remark(&rules.compiled);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start threads")?;
    runtime.block_on(serve(&config, rules))?;
    // A rule file that hangs in the file system must not hold the exit up.
    runtime.shutdown_background();
    Ok(ExitCode::SUCCESS)
}

fn load_rules(config: &Config) -> Result<Rules, LoadError> {
    let Some(path) = &config.rules else {
        return Ok(Rules {
            compiled: rulebook::compile("starter-rules.yaml".as_ref(), rulebook::STARTER)?,
            file: None,
        });
    };
    let file = RuleFile::open(path)?;
    Ok(Rules { compiled: file.compile()?, file: Some(file) })
}

async fn serve(config: &Config, rules: Rules) -> anyhow::Result<()> {
    let Rules { compiled, file } = rules;
    let count = compiled.rules().len();
    let store = match &config.redis {
        Some(options) => AnyStore::redis(options)?,
        None => AnyStore::memory(config.max_buckets),
    };
    let app = Arc::new(App::new(compiled, store, config.dialect));
    // Before anybody can know of us, so that no signal finds us unprepared.
    let stop = signals(&[SignalKind::terminate(), SignalKind::interrupt()])?;
    let reload = signals(&[SignalKind::hangup()])?;
    let server = Server::bind(&config.http_listen, Arc::clone(&app)).await.with_context(|| {
        format!("cannot listen on {}: free the address or give another with --http-listen", config.http_listen)
    })?;
    announce(config, server.address()?, count);
    match file {
        Some(file) => drop(tokio::spawn(rulebook::watch(Arc::clone(&app), file, reload))),
        None => drop(tokio::spawn(ignore(reload))),
    }
    tokio::spawn(maintain(app));
    server.run(stop, config.drain_timeout).await;
    tracing::info!("stopped");
    Ok(())
}

/// A message for each signal of these kinds.
fn signals(kinds: &[SignalKind]) -> std::io::Result<mpsc::Receiver<()>> {
    let (sender, receiver) = mpsc::channel(1);
    for kind in kinds {
        let mut arriving = signal(*kind)?;
        let sender = sender.clone();
        tokio::spawn(async move {
            while arriving.recv().await.is_some() {
                // Full means that one is already waiting to be seen.
                let _ = sender.try_send(());
            }
        });
    }
    Ok(receiver)
}

/// Without a rule file there is nothing to reload.
async fn ignore(mut reload: mpsc::Receiver<()>) {
    while reload.recv().await.is_some() {
        tracing::info!("SIGHUP ignored: the starter rules are built in; give a file with --rules");
    }
}

async fn maintain(app: Arc<App>) {
    let mut ticks = tokio::time::interval(MAINTAIN_EVERY);
    loop {
        ticks.tick().await;
        app.limiter().store().maintain();
    }
}

/// Says what runs where, as an event or as a banner for people.
fn announce(config: &Config, address: SocketAddr, rules: usize) {
    let source = config.rules.as_ref().map_or_else(|| "starter rules".to_owned(), |path| path.display().to_string());
    if config.log_format == LogFormat::Json {
        let version = env!("CARGO_PKG_VERSION");
        tracing::info!(version, listen = %address, rules, source, max_buckets = config.max_buckets, "started");
        return;
    }
    let url = format!("http://{}", reachable(address));
    let source = match config.rules {
        Some(_) => format!("{rules} from {source}, watched for changes"),
        None => format!("{rules} starter rules, built in; give your own with --rules FILE"),
    };
    let banner = format!(
        "checkdam {version}\n\
         \x20 listening  http://{address}\n\
         \x20 rules      {source}\n\
         \x20 store      {store}\n\
         \x20 try it     {url}/docs, or paste:\n\n\
         curl -i {url}/v1/check -d '{{\"attributes\": {{\"user\": \"42\", \"plan\": \"free\"}}}}'\n\n",
        version = env!("CARGO_PKG_VERSION"),
        store = config.store_text(),
    );
    // A closed standard error is no reason not to serve.
    let _ = std::io::stderr().write_all(banner.as_bytes());
}

/// An address that a client on this machine can use.
fn reachable(address: SocketAddr) -> SocketAddr {
    let host = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(host, address.port())
}
