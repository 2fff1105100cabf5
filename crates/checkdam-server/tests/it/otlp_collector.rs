//! A minimal OpenTelemetry collector of spans.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{TraceService, TraceServiceServer};
use opentelemetry_proto::tonic::collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse};
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
pub(crate) use opentelemetry_proto::tonic::trace::v1::Span;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use testkit::IssuedCertificate;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tonic::{Request, Response, Status};
use tower_service::Service;

/// A collector on a port of its own.
pub(crate) struct Collector {
    address: SocketAddr,
    is_tls: bool,
    taken: Arc<Mutex<Vec<ExportTraceServiceRequest>>>,
    _runtime: tokio::runtime::Runtime,
}

struct RecordingTraceService(Arc<Mutex<Vec<ExportTraceServiceRequest>>>);

#[tonic::async_trait]
impl TraceService for RecordingTraceService {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        self.0.lock().unwrap().push(request.into_inner());
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

impl Collector {
    pub(crate) fn start() -> Self {
        Self::start_with(None)
    }

    /// The same with TLS, if it is given.
    pub(crate) fn start_with(tls: Option<&IssuedCertificate>) -> Self {
        let is_tls = tls.is_some();
        let tls = tls.map(|pair| {
            let chain = CertificateDer::pem_slice_iter(pair.chain.as_bytes()).map(Result::unwrap).collect();
            let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).unwrap();
            let builder = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()));
            let builder = builder.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
            let mut config = builder.with_single_cert(chain, key).unwrap();
            config.alpn_protocols = vec![b"h2".to_vec()];
            TlsAcceptor::from(Arc::new(config))
        });
        let taken = Arc::new(Mutex::default());
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let service = TraceServiceServer::new(RecordingTraceService(Arc::clone(&taken)));
        let router = tonic::service::Routes::new(service).into_axum_router();
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (router, tls) = (router.clone(), tls.clone());
                tokio::spawn(async move {
                    let service = service_fn(move |request| {
                        let mut router = router.clone();
                        async move { Ok::<_, Infallible>(router.call(request).await.unwrap_or_else(|never| match never {})) }
                    });
                    let builder = Builder::new(TokioExecutor::new()).http2_only();
                    match tls {
                        None => drop(builder.serve_connection(TokioIo::new(stream), service).await),
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                let _ = builder.serve_connection(TokioIo::new(stream), service).await;
                            }
                        }
                    }
                });
            }
        });
        Self { address, taken, is_tls, _runtime: runtime }
    }

    pub(crate) fn url(&self) -> String {
        format!("{}://{}", if self.is_tls { "https" } else { "http" }, self.address)
    }

    /// Every span so far.
    pub(crate) fn spans(&self) -> Vec<Span> {
        let taken = self.taken.lock().unwrap();
        let resources = taken.iter().flat_map(|request| &request.resource_spans);
        resources.flat_map(|resource| &resource.scope_spans).flat_map(|scope| &scope.spans).cloned().collect()
    }

    /// Every span, once there are so many.
    pub(crate) fn wait_for(&self, count: usize) -> Vec<Span> {
        testkit::wait_until("spans", Duration::from_secs(10), || self.spans().len() >= count);
        self.spans()
    }

    /// An attribute of those who sent spans.
    pub(crate) fn resource(&self, name: &str) -> Option<String> {
        let taken = self.taken.lock().unwrap();
        let resource = taken.first()?.resource_spans.first()?.resource.clone()?;
        attribute(&resource.attributes, name)
    }
}

/// The text of an attribute.
pub(crate) fn attribute(attributes: &[KeyValue], name: &str) -> Option<String> {
    let value = attributes.iter().find(|attribute| attribute.key == name)?.value.clone()?.value?;
    Some(match value {
        Value::StringValue(text) => text,
        Value::IntValue(number) => number.to_string(),
        other => format!("{other:?}"),
    })
}
