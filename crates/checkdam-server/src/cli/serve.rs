//! `checkdam serve`: opens a node and its listeners, and runs until a signal.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use checkdam_net::Listener;
use tokio::runtime::Handle;

use super::listeners::Listeners;
use super::node::{self, Node, Rules, listen};
use super::signals::Signals;
use crate::client_identity::ClientIdentity;
use crate::config::{Config, LogFormat, Settings};
use crate::grpc;
use crate::http::{self, respond_until_opened};

/// What `checkdam serve` takes.
#[derive(Debug, clap::Args)]
pub(crate) struct ServeArguments {
    /// Settings file [default: checkdam.toml, if it exists]
    #[arg(long, value_name = "FILE", env = "CHECKDAM_CONFIG")]
    config: Option<PathBuf>,

    #[command(flatten)]
    settings: Settings,
}

/// Serves until a signal ends it.
pub(crate) fn run(arguments: ServeArguments) -> anyhow::Result<ExitCode> {
    let config = Config::load(arguments.settings, arguments.config.as_deref())?;
    node::run_with_logging(&config, |file, control| serve(&config, file, control))
}

async fn serve(config: &Config, file: Option<Rules>, control: Handle) -> anyhow::Result<()> {
    // Before the listeners open, so that no signal finds the process unprepared.
    let signals = Signals::listen(&control)?;
    let listener = listen(&config.http_listen, "--http-listen").await?;
    let grpc_listener = match &config.grpc_listen {
        Some(address) => Some(listen(address, "--grpc-listen").await?),
        None => None,
    };
    let opening = Box::pin(Node::open(config, file, signals, listener.local_addr()?, control));
    let Some(node) = respond_until_opened(&listener, opening).await? else { return Ok(()) };
    let app = node.app();
    let rate_limits = Arc::new(grpc::EnvoyRateLimits::new(Arc::clone(app), config.rate_limits.clone()));
    let identity = Arc::new(ClientIdentity::new(&config.identity));
    let (options, serving) = (&config.connections, Handle::current());
    let listener = Listener::new(listener, options, &serving)?;
    let http = http::server(listener, Arc::clone(app), identity, Arc::clone(&rate_limits), &config.allowed_hosts);
    let grpc = match grpc_listener {
        Some(listener) => Some(
            grpc::GrpcListener::new(Listener::new(listener, options, &serving)?, Arc::clone(app), rate_limits).await?,
        ),
        None => None,
    };
    let listeners = Listeners { http, grpc };
    log_start(config, &listeners, &node)?;
    let shutdown = config.shutdown;
    node.run(move |stop| listeners.run(stop, shutdown)).await;
    Ok(())
}

/// Says what runs where, as an event or as a banner for people.
fn log_start(config: &Config, listeners: &Listeners, node: &Node) -> anyhow::Result<()> {
    let address = listeners.http.address()?;
    let grpc = listeners.grpc.as_ref().map(grpc::GrpcListener::address).transpose()?;
    let admin = node.admin_address()?;
    let rules = node.app().limiter().rules().rules().len();
    let source = config.rules.as_ref().map_or_else(|| config.database.to_string(), |path| path.display().to_string());
    if config.log_format == LogFormat::Json {
        let version = env!("CARGO_PKG_VERSION");
        let admin = admin.map(tracing::field::display);
        let (grpc, max_buckets) = (grpc.map(tracing::field::display), config.max_buckets);
        let store = config.store_description();
        tracing::info!(version, listen = %address, grpc, admin, rules, source, store, max_buckets, "started");
        return Ok(());
    }
    let url = format!("http://{}", local_address(address));
    let source = match config.rules {
        Some(_) => format!("{rules} from {source}, watched for changes"),
        None => format!("{rules} from {source}"),
    };
    let dashboard = dashboard_url(admin);
    let grpc = grpc.map_or_else(|| "off".to_owned(), |address| format!("http://{address} (Envoy)"));
    let banner = format!(
        "checkdam {version}\n\
         \x20 listening  http://{address}\n\
         \x20 grpc       {grpc}\n\
         \x20 admin      {dashboard}\n\
         \x20 rules      {source}\n\
         \x20 store      {store}\n\
         \x20 try it     {url}/docs, or paste:\n\n\
         curl -i {url}/v1/check -d '{{\"attributes\": {{\"user\": \"42\", \"plan\": \"free\"}}}}'\n\n",
        version = env!("CARGO_PKG_VERSION"),
        store = config.store_description(),
    );
    // A closed standard error is no reason not to serve.
    let _ = std::io::stderr().write_all(banner.as_bytes());
    Ok(())
}

/// The URL of the dashboard.
pub(super) fn dashboard_url(admin: Option<SocketAddr>) -> String {
    admin.map_or_else(|| "off".to_owned(), |address| format!("http://{} (dashboard)", local_address(address)))
}

/// An address that a client on this machine can use.
fn local_address(address: SocketAddr) -> SocketAddr {
    let host = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(host, address.port())
}
