//! Servers of our own to compare with: what the frameworks cost when nothing is
//! decided, and limitador's library behind the same frameworks. Each runs as a
//! process of its own: `bench serve NAME PORT [REDIS]`.

mod http;
mod limiter;
mod rls;

pub use limiter::{Limitador, LimitadorInMemory};

use std::net::{Ipv4Addr, SocketAddr};

/// Serves until the process is killed.
///
/// # Panics
/// If the arguments name no server, or it cannot listen: the caller reads that.
pub fn serve(arguments: &[String]) {
    let [name, port, rest @ ..] = arguments else { panic!("bench serve NAME PORT [REDIS]") };
    let port = port.parse().unwrap_or_else(|_| panic!("{port:?} is no port"));
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let redis = rest.first().map_or("", String::as_str);
    // As many threads as cores that we are pinned to.
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.unwrap_or_else(|error| panic!("no runtime: {error}"));
    runtime.block_on(async {
        match name.as_str() {
            "axum" => http::serve_bare(address).await,
            "limitador-http" => http::serve_limited(address, Limitador::on_redis(redis).await).await,
            "tonic" => rls::serve(address, rls::Echo).await,
            "limitador-grpc" => rls::serve(address, rls::Limited::new(Limitador::on_redis(redis).await)).await,
            _ => panic!("there is no server {name:?}"),
        }
    });
}
