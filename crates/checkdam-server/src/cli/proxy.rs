//! `checkdam proxy`: a rate-limiting reverse proxy.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use checkdam_net::{Listener, Protocol};
use checkdam_proxy::{Proxy, ProxyServer};
use checkdam_service::config::{Config, LogFormat, ProxyOptions, ProxySettings, Settings};
use tokio::runtime::Handle;

use super::listeners::follow_tokens;
use super::node::{self, Node, Rules, listen, load_tls};
use super::serve::{dashboard_url, tls_listeners};
use super::signals::Signals;

#[derive(Debug, clap::Args)]
#[command(mut_arg("http_listen", |argument| argument.hide(true)))]
pub(crate) struct ProxyArguments {
    /// Settings file [default: checkdam.toml, if it exists]
    #[arg(long, value_name = "FILE", env = "CHECKDAM_CONFIG")]
    config: Option<PathBuf>,

    #[command(flatten)]
    proxy: ProxySettings,

    #[command(flatten)]
    settings: Settings,
}

pub(crate) fn run(arguments: ProxyArguments) -> anyhow::Result<ExitCode> {
    let file = arguments.config.as_deref();
    let config = Config::load(arguments.settings, file)?;
    let options = ProxyOptions::load(arguments.proxy, file)?;
    node::run_with_logging(&config, |rules, control| serve(&config, &options, rules, control))
}

async fn serve(config: &Config, options: &ProxyOptions, rules: Option<Rules>, control: Handle) -> anyhow::Result<()> {
    // Before the listeners open, so that no signal finds the process unprepared.
    let signals = Signals::listen(&control)?;
    let tls = load_tls("proxy", config.tls.proxy.as_ref(), Protocol::Http)?;
    let listener = listen(&options.listen, "--listen").await?;
    let opening = Node::open(config, rules, signals, listener.local_addr()?, control);
    let Some(node) = opening.await? else { return Ok(()) };
    follow_tokens(config);
    let proxy = Proxy::start(Arc::clone(node.app()), options, &config.identity)?;
    let server = proxy.serve(Listener::new(listener, &config.connections, &Handle::current())?.with_tls(tls));
    log_start(config, options, &server, &node)?;
    let shutdown = config.shutdown;
    node.run(move |stop| server.run(stop, shutdown)).await;
    Ok(())
}

/// Says what runs where, as an event or as a banner for people.
fn log_start(config: &Config, options: &ProxyOptions, server: &ProxyServer, node: &Node) -> anyhow::Result<()> {
    let (address, admin) = (server.address()?, node.admin_address()?);
    let rules = node.app().limiter().rules().rules().len();
    let source = config.rules.as_ref().map_or_else(|| config.database.to_string(), |path| path.display().to_string());
    let version = env!("CARGO_PKG_VERSION");
    if config.log_format == LogFormat::Json {
        let admin = admin.map(|(_, address)| tracing::field::display(address));
        let (tls, routes) = (tls_listeners(node), options.routes.len());
        tracing::info!(version, proxy = %address, admin, tls, rules, source, routes, "started");
        return Ok(());
    }
    let mut banner = format!("checkdam {version}\n  proxy      {}://{address}\n", server.scheme());
    for route in &options.routes {
        let from = (
            route.host.as_deref().unwrap_or_default(),
            route.path.as_ref().map_or("/*".to_owned(), ToString::to_string),
        );
        let upstreams = route.upstreams.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        banner.push_str(&format!("  route      {}{} to {upstreams}\n", from.0, from.1));
    }
    let (admin, store) = (dashboard_url(admin), config.store_description());
    banner.push_str(&format!("  admin      {admin}\n  rules      {rules} from {source}\n  store      {store}\n\n"));
    // A closed standard error is no reason not to serve.
    let _ = std::io::stderr().write_all(banner.as_bytes());
    Ok(())
}
