//! `checkdam serve`: puts the program together and runs it until a signal.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use super::node::{self, Node, Rules, listen};
use super::signals::Signals;
use crate::config::{Config, LogFormat, Settings};
use crate::http::{Origin, Server};

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
    node::run(&config, |file| serve(&config, file))
}

async fn serve(config: &Config, file: Option<Rules>) -> anyhow::Result<()> {
    // Before anybody can know of us, so that no signal finds us unprepared.
    let signals = Signals::new()?;
    let listener = listen(&config.http_listen, "--http-listen").await?;
    let node = Node::open(config, file, signals, listener.local_addr()?).await?;
    let server = Server::new(listener, Arc::clone(node.app()), Arc::new(Origin::new(&config.origin)));
    announce(config, &server, &node)?;
    node.run(|stop| server.run(stop, config.drain_timeout)).await;
    Ok(())
}

/// Says what runs where, as an event or as a banner for people.
fn announce(config: &Config, server: &Server, node: &Node) -> anyhow::Result<()> {
    let address = server.address()?;
    let admin = node.admin_address()?;
    let rules = node.app().limiter().rules().rules().len();
    let source = config.rules.as_ref().map_or_else(|| config.database.to_string(), |path| path.display().to_string());
    if config.log_format == LogFormat::Json {
        let version = env!("CARGO_PKG_VERSION");
        let admin = admin.map(tracing::field::display);
        tracing::info!(version, listen = %address, admin, rules, source, max_buckets = config.max_buckets, "started");
        return Ok(());
    }
    let url = format!("http://{}", reachable(address));
    let source = match config.rules {
        Some(_) => format!("{rules} from {source}, watched for changes"),
        None => format!("{rules} from {source}"),
    };
    let admin = admin.map_or_else(|| "off".to_owned(), |address| format!("http://{address}/admin/v1/status"));
    let banner = format!(
        "checkdam {version}\n\
         \x20 listening  http://{address}\n\
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
