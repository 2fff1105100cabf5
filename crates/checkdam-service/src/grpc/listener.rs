//! The gRPC listener: its services and its graceful shutdown.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use axum::Router;
use checkdam_net::{Listener, ListenerTraits, Protocol, Server, SheddingListener, SheddingPolicy, ShutdownOptions};
use tokio::sync::mpsc;
use tonic::Status;
use tonic::service::Routes;
use tonic_health::ServingStatus;
use tonic_health::pb::health_server::HealthServer;
use tonic_health::server::{HealthReporter, HealthService};

use super::fast_path::FastPath;
use super::service::EnvoyRateLimits;
use crate::access::ListenerAccess;
use crate::app::App;
use crate::trace::Traced;
use checkdam_envoy_proto::DESCRIPTORS;

/// How long health watchers have to receive the shutdown before the listener stops
/// accepting: a watch that ended before could begin again.
const HEARD: Duration = Duration::from_millis(500);
/// How often readiness is polled.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// The names in the health service: the empty one for the whole server, the
/// service's, and the name in envoyproxy/ratelimit.
const NAMES: [&str; 3] = ["", "envoy.service.ratelimit.v3.RateLimitService", "ratelimit"];

/// Requests of Envoy are shed.
const SHEDDING: SheddingPolicy = SheddingPolicy {
    listener: SheddingListener::Grpc,
    decides: |path| path.starts_with("/envoy.service.ratelimit."),
    response: || Status::unavailable("there is too much to do: nothing was charged").into_http(),
};

/// The open gRPC listener.
pub struct GrpcListener {
    app: Arc<App>,
    server: Server<Traced<FastPath>>,
    health: HealthReporter,
}

impl GrpcListener {
    pub async fn new(
        listener: Listener,
        app: Arc<App>,
        rate_limits: Arc<EnvoyRateLimits>,
        access: Arc<ListenerAccess>,
    ) -> anyhow::Result<Self> {
        let health = HealthReporter::new();
        publish(&health, ServingStatus::Serving).await;
        let others = router(&health).context("the messages cannot be described")?;
        let responder = Traced::new(Arc::clone(app.tracer()), FastPath::new(rate_limits, others, access));
        let kind =
            ListenerTraits { name: "grpc", protocol: Protocol::Grpc, shedding: Some(SHEDDING), health_paths: &[] };
        let server = Server::new(listener, Arc::clone(app.server()), responder, kind);
        Ok(Self { app, server, health })
    }

    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.server.address()
    }

    /// The scheme of its URLs.
    pub const fn scheme(&self) -> &'static str {
        self.server.scheme()
    }

    /// Serves until `stop` has a message, then reports that it is shutting down and does
    /// so as `shutdown` says, or at once after another message.
    pub async fn run(self, mut stop: mpsc::Receiver<()>, shutdown: ShutdownOptions) {
        let Self { app, server, mut health } = self;
        let (forward, stop_server) = mpsc::channel(1);
        let shutting_down = async move {
            follow_readiness(&app, &health, &mut stop).await;
            publish(&health, ServingStatus::NotServing).await;
            let _ = forward.send(()).await;
            let heard = shutdown.notice + HEARD.min(shutdown.drain / 2);
            if let Ok(Some(())) = tokio::time::timeout(heard, stop.recv()).await {
                let _ = forward.send(()).await;
            }
            end_watches(&mut health).await;
            while stop.recv().await.is_some() {
                let _ = forward.send(()).await;
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = server.run(stop_server, shutdown) => {}
            () = shutting_down => {}
        }
    }
}

/// Publishes readiness to the health service, until `stop` has a message.
async fn follow_readiness(app: &App, health: &HealthReporter, stop: &mut mpsc::Receiver<()>) {
    let mut ticks = tokio::time::interval(LOOK_EVERY);
    let mut was_ready = true;
    loop {
        tokio::select! {
            _ = stop.recv() => return,
            _ = ticks.tick() => {}
        }
        let is_ready = app.readiness().is_ready();
        if std::mem::replace(&mut was_ready, is_ready) != is_ready {
            publish(health, if is_ready { ServingStatus::Serving } else { ServingStatus::NotServing }).await;
        }
    }
}

async fn publish(health: &HealthReporter, status: ServingStatus) {
    for name in NAMES {
        health.set_service_status(name, status).await;
    }
}

/// Ends the streams of health watchers, which would delay the exit. Health checks are
/// still answered.
async fn end_watches(health: &mut HealthReporter) {
    for name in NAMES {
        health.clear_service_status(name).await;
        health.set_service_status(name, ServingStatus::NotServing).await;
    }
}

/// All services except the rate limit service, which [`FastPath`] answers. Unknown
/// methods are answered as unimplemented.
fn router(health: &HealthReporter) -> Result<Router, tonic_reflection::server::Error> {
    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    let mut routes = Routes::builder();
    routes
        .add_service(HealthServer::new(HealthService::from_health_reporter(health.clone())))
        .add_service(reflection().build_v1()?)
        .add_service(reflection().build_v1alpha()?);
    Ok(routes.routes().into_axum_router())
}
