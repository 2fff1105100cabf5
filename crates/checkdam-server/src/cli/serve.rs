//! `checkdam serve`: puts the program together and runs it until a signal.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use checkdam::RuleSet;
use checkdam::rule_file::{self, FileOptions};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::doors::Doors;
use crate::app::App;
use crate::audit::{Audit, Writer};
use crate::config::{Config, LogFormat, Settings};
use crate::grpc;
use crate::http::{Admin, Origin, RuleSource, Server};
use crate::rulebook::{self, Book, FollowOptions, Follower, LoadError, OpenError, RuleFile, Rulebook};
use crate::store::AnyStore;

/// How long a database may take to let go of us at the end.
const DATABASE_DRAIN: Duration = Duration::from_secs(1);
/// How long a database is waited for at the start.
const DATABASE_PATIENCE: Duration = Duration::from_secs(15);
/// How long until it is asked again.
const DATABASE_PAUSE: Duration = Duration::from_secs(1);
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

/// Serves until a signal ends it.
pub(crate) fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let config = Config::load(arguments.settings, arguments.config.as_deref())?;
    let file = match config.rules.as_deref().map(|path| open_rules(path, config.files)).transpose() {
        Ok(file) => file,
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
    if !config.ignored.is_empty() {
        let names = config.ignored.join(", ");
        tracing::warn!(names, "these variables of envoyproxy/ratelimit change nothing here");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start threads")?;
    runtime.block_on(serve(&config, file))?;
    // A rule file that hangs in the file system must not hold the exit up.
    runtime.shutdown_background();
    Ok(ExitCode::SUCCESS)
}

/// A rule file, and what it says.
type Rules = (RuleFile, (RuleSet, Book));

fn open_rules(path: &Path, options: FileOptions) -> Result<Rules, LoadError> {
    let file = RuleFile::open(path, options)?;
    let loaded = file.load()?;
    Ok((file, loaded))
}

async fn serve(config: &Config, file: Option<Rules>) -> anyhow::Result<()> {
    let store = match &config.redis {
        Some(options) => AnyStore::redis(options)?,
        None => AnyStore::memory(config.max_buckets),
    };
    // Before anybody can know of us, so that no signal finds us unprepared.
    let stop = signals(&[SignalKind::terminate(), SignalKind::interrupt()])?;
    let reload = signals(&[SignalKind::hangup()])?;
    let listener = listen(&config.http_listen, "--http-listen").await?;
    let admin_listener = match &config.admin {
        Some(door) => Some(listen(&door.listen, "--admin-listen").await?),
        None => None,
    };
    let grpc_listener = match &config.grpc_listen {
        Some(address) => Some(listen(address, "--grpc-listen").await?),
        None => None,
    };
    let node = node_name(listener.local_addr()?);
    let rulebook = open_database(config, file.is_some()).await?;
    let (file, loaded) = match file {
        Some((file, loaded)) => (Some(file), loaded),
        None => (None, load_book(rulebook.as_ref()).await?),
    };
    rulebook::remark(&loaded.0, &loaded.1);
    let (count, version) = (loaded.0.rules().len(), loaded.1.version);
    let recorded = rulebook.clone().map(|rulebook| (Audit::new(&config.audit, node.clone()), rulebook));
    let (audit, writer) = match recorded {
        Some(((audit, queue), rulebook)) => {
            let audit = Arc::new(audit);
            let writer = Writer::start(&audit, queue, rulebook, config.audit);
            (Some(audit), Some(writer))
        }
        None => (None, None),
    };
    let app = Arc::new(App::new(loaded, store, config.dialect, audit));
    let rate_limits = Arc::new(grpc::RateLimits::new(Arc::clone(&app), config.rate_limits.clone()));
    let origin = Arc::new(Origin::new(&config.origin));
    let http = Server::new(listener, Arc::clone(&app), origin, Arc::clone(&rate_limits));
    let grpc = match grpc_listener {
        Some(listener) => Some(grpc::Door::new(listener, Arc::clone(&app), rate_limits).await?),
        None => None,
    };
    // Held until the end, whether or not there is a door for operators.
    let rules = Arc::new(follow(&app, file, rulebook.as_ref(), version, reload));
    let admin = admin_listener.zip(config.admin.as_ref()).map(|(listener, door)| {
        let admin = Admin {
            app: Arc::clone(&app),
            token: door.token.clone(),
            rulebook: rulebook.clone(),
            rules: Arc::clone(&rules),
            node,
            database: config.database.to_string(),
            store: config.store_text(),
            started: Instant::now(),
        };
        Server::for_admin(listener, Arc::new(admin))
    });
    let doors = Doors { http, grpc, admin };
    announce(config, &doors, count)?;
    tokio::spawn(maintain(app));
    doors.run(stop, config.drain_timeout, writer).await;
    drop(rules);
    if let Some(rulebook) = rulebook {
        // A database that hangs must not hold the exit up.
        let _ = tokio::time::timeout(DATABASE_DRAIN, rulebook.close()).await;
    }
    tracing::info!("stopped");
    Ok(())
}

async fn listen(address: &str, flag: &str) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address)
        .await
        .with_context(|| format!("cannot listen on {address}: free the address or give another with {flag}"))
}

/// The database. Rules from a file do without one: then violations are not
/// recorded.
async fn open_database(config: &Config, has_file: bool) -> anyhow::Result<Option<Rulebook>> {
    if has_file && config.audit.per_rule_and_second == 0 {
        return Ok(None);
    }
    let deadline = Instant::now() + DATABASE_PATIENCE;
    let opened = loop {
        match Rulebook::open(&config.database).await {
            // A server that starts together with us may need a moment.
            Err(error @ OpenError::Unavailable { .. }) if config.database.is_server() && Instant::now() < deadline => {
                tracing::warn!(%error, "waiting for the database");
                tokio::time::sleep(DATABASE_PAUSE).await;
            }
            opened => break opened,
        }
    };
    match opened {
        Ok(rulebook) => Ok(Some(rulebook)),
        Err(error) if has_file => {
            tracing::warn!(%error, "violations are not recorded; --audit-rate 0 asks for that without this warning");
            Ok(None)
        }
        Err(error) => Err(error).context("give another place with --database or --data-dir, or rules with --rules"),
    }
}

/// The rules in the database; on the first start the starter rules.
async fn load_book(rulebook: Option<&Rulebook>) -> anyhow::Result<(RuleSet, Book)> {
    let rulebook = rulebook.context("there are no rules: neither a file nor a database")?;
    rulebook.seed(rule_file::parse_definitions(rulebook::STARTER)?).await?;
    let book = rulebook.load().await?;
    let rules = book.compile().context("the rules in the database are not valid: mend or remove that row")?;
    Ok((rules, book))
}

/// Follows what the rules come from.
fn follow(
    app: &Arc<App>,
    file: Option<RuleFile>,
    rulebook: Option<&Rulebook>,
    version: u64,
    mut reload: mpsc::Receiver<()>,
) -> RuleSource {
    let Some(rulebook) = rulebook.filter(|_| file.is_none()) else {
        let path = file.as_ref().map(|file| file.path().display().to_string()).unwrap_or_default();
        if let Some(file) = file {
            tokio::spawn(rulebook::watch(Arc::clone(app), file, reload));
        }
        return RuleSource::File(path);
    };
    let following = Arc::clone(app);
    let apply = move |rules: RuleSet, book: Book| {
        rulebook::remark(&rules, &book);
        following.put_in_force(rules, book);
    };
    let follower = Follower::start(rulebook.clone(), version, FollowOptions::default(), apply);
    if let AnyStore::Redis(watched) = app.limiter().store() {
        let (mut hints, hint) = (watched.hints(), follower.hints());
        tokio::spawn(async move {
            while hints.recv().await.is_some() {
                hint.notify_one();
            }
        });
    }
    let hint = follower.hints();
    tokio::spawn(async move {
        while reload.recv().await.is_some() {
            tracing::info!("SIGHUP: the rulebook is looked at now");
            hint.notify_one();
        }
    });
    RuleSource::Database(follower)
}

/// What records call this node: the machine's name and our port.
fn node_name(address: SocketAddr) -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = host.trim();
    format!("{}:{}", if host.is_empty() { "node" } else { host }, address.port())
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

async fn maintain(app: Arc<App>) {
    let mut ticks = tokio::time::interval(MAINTAIN_EVERY);
    loop {
        ticks.tick().await;
        app.limiter().store().maintain();
    }
}

/// Says what runs where, as an event or as a banner for people.
fn announce(config: &Config, doors: &Doors, rules: usize) -> anyhow::Result<()> {
    let address = doors.http.address()?;
    let grpc = doors.grpc.as_ref().map(grpc::Door::address).transpose()?;
    let admin = doors.admin.as_ref().map(Server::address).transpose()?;
    let source = config.rules.as_ref().map_or_else(|| config.database.to_string(), |path| path.display().to_string());
    if config.log_format == LogFormat::Json {
        let version = env!("CARGO_PKG_VERSION");
        let admin = admin.map(tracing::field::display);
        let (grpc, max_buckets) = (grpc.map(tracing::field::display), config.max_buckets);
        tracing::info!(version, listen = %address, grpc, admin, rules, source, max_buckets, "started");
        return Ok(());
    }
    let url = format!("http://{}", reachable(address));
    let source = match config.rules {
        Some(_) => format!("{rules} from {source}, watched for changes"),
        None => format!("{rules} from {source}"),
    };
    let admin = admin.map_or_else(|| "off".to_owned(), |address| format!("http://{address}/admin/v1/status"));
    let grpc = grpc.map_or_else(|| "off".to_owned(), |address| format!("http://{address} (Envoy)"));
    let banner = format!(
        "checkdam {version}\n\
         \x20 listening  http://{address}\n\
         \x20 grpc       {grpc}\n\
         \x20 admin      {admin}\n\
         \x20 rules      {source}\n\
         \x20 store      {store}\n\
         \x20 try it     {url}/docs, or paste:\n\n\
         curl -i {url}/v1/check -d '{{\"attributes\": {{\"user\": \"42\", \"plan\": \"free\"}}}}'\n\n",
        version = env!("CARGO_PKG_VERSION"),
        store = config.store_text(),
    );
    // A closed standard error is no reason not to serve.
    let _ = std::io::stderr().write_all(banner.as_bytes());
    Ok(())
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
