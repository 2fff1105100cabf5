//! `checkdam serve`: opens a node and its listeners, and runs until a signal.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use checkdam_net::{Listener, Protocol};
use checkdam_service::config::{Config, LogFormat, Settings};
use checkdam_service::grpc;
use checkdam_service::http::{self, respond_until_opened};
use tokio::runtime::Handle;

use super::listeners::{Listeners, access_of_listener, follow_tokens};
use super::node::{self, Node, Rules, listen, load_tls};
use super::signals::Signals;

#[derive(Debug, clap::Args)]
#[command(mut_args(|argument| match argument.get_id().as_str().starts_with("proxy_tls_") {
    true => argument.hide(true),
    false => argument,
}))]
pub(crate) struct ServeArguments {
    /// Settings file [default: checkdam.toml, if it exists]
    #[arg(long, value_name = "FILE", env = "CHECKDAM_CONFIG")]
    config: Option<PathBuf>,

    #[command(flatten)]
    settings: Settings,
}

pub(crate) fn run(arguments: ServeArguments) -> anyhow::Result<ExitCode> {
    let config = Config::load(arguments.settings, arguments.config.as_deref())?;
    node::run_with_logging(&config, |file, control| serve(&config, file, control))
}

async fn serve(config: &Config, file: Option<Rules>, control: Handle) -> anyhow::Result<()> {
    // Before the listeners open, so that no signal finds the process unprepared.
    let signals = Signals::listen(&control)?;
    let tls = load_tls("http", config.tls.http.as_ref(), Protocol::Http)?;
    let grpc_tls = load_tls("grpc", config.tls.grpc.as_ref().filter(|_| config.grpc_listen.is_some()), Protocol::Grpc)?;
    let listener = listen(&config.http_listen, "--http-listen").await?;
    let grpc_listener = match &config.grpc_listen {
        Some(address) => Some(listen(address, "--grpc-listen").await?),
        None => None,
    };
    let opening = Box::pin(Node::open(config, file, signals, listener.local_addr()?, control));
    let Some(node) = respond_until_opened(&listener, tls.as_ref(), opening).await? else { return Ok(()) };
    let app = node.app();
    let rate_limits = || grpc::EnvoyRateLimits::new(Arc::clone(app), config.rate_limits.clone());
    let access = access_of_listener(config, "http", listener.local_addr()?, config.tls.http.as_ref());
    follow_tokens(config);
    let identity = Arc::new(config.identity.clone());
    let (options, serving) = (&config.connections, Handle::current());
    let listener = Listener::new(listener, options, &serving)?.with_tls(tls);
    let json_limits = Arc::new(rate_limits());
    let http = http::server(listener, Arc::clone(app), identity, json_limits, &config.allowed_hosts, &access);
    let grpc = match grpc_listener {
        Some(listener) => {
            let access = access_of_listener(config, "grpc", listener.local_addr()?, config.tls.grpc.as_ref());
            let rate_limits = Arc::new(rate_limits().accepting_privileged(access.permits_privileged()));
            let listener = Listener::new(listener, options, &serving)?.with_tls(grpc_tls);
            Some(grpc::GrpcListener::new(listener, Arc::clone(app), rate_limits, access).await?)
        }
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
    let grpc = match &listeners.grpc {
        Some(grpc) => Some((grpc.scheme(), grpc.address()?)),
        None => None,
    };
    let scheme = listeners.http.scheme();
    let admin = node.admin_address()?;
    let rules = node.app().limiter().rules().rules().len();
    let source = config.rules.as_ref().map_or_else(|| config.database.to_string(), |path| path.display().to_string());
    if config.log_format == LogFormat::Json {
        let version = env!("CARGO_PKG_VERSION");
        let admin = admin.map(|(_, address)| tracing::field::display(address));
        let grpc = grpc.map(|(_, address)| tracing::field::display(address));
        let (tls, max_buckets) = (tls_listeners(node), config.max_buckets);
        let store = config.store_description();
        tracing::info!(version, listen = %address, grpc, admin, tls, rules, source, store, max_buckets, "started");
        return Ok(());
    }
    let url = format!("{scheme}://{}", local_address(address));
    let source = match config.rules {
        Some(_) => format!("{rules} from {source}, watched for changes"),
        None => format!("{rules} from {source}"),
    };
    let dashboard = dashboard_url(admin);
    let grpc = grpc.map_or_else(|| "off".to_owned(), |(scheme, address)| format!("{scheme}://{address} (Envoy)"));
    let banner = format!(
        "checkdam {version}\n\
         \x20 listening  {scheme}://{address}\n\
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
pub(super) fn dashboard_url(admin: Option<(&'static str, SocketAddr)>) -> String {
    let url = |(scheme, address)| format!("{scheme}://{} (dashboard)", local_address(address));
    admin.map_or_else(|| "off".to_owned(), url)
}

/// The listeners with TLS, for the log; none if there is none.
pub(super) fn tls_listeners(node: &Node) -> Option<String> {
    let names: Vec<_> = node.app().server().tls().iter().map(|tls| tls.listener()).collect();
    (!names.is_empty()).then(|| names.join(","))
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
