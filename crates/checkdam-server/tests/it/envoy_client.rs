//! A client of Envoy's rate limit service.

use std::time::Duration;

use tonic::transport::{Channel, Endpoint};
use tonic::{IntoRequest, Status};

use crate::server_process::Server;

pub(crate) use checkdam_envoy_proto::{
    Code as Verdict, DescriptorStatus, RateLimitDescriptor, RateLimitRequest, RateLimitResponse,
};
use checkdam_envoy_proto::{Entry, RateLimitOverride, RateLimitServiceClient};

/// A client of the service, with a connection of its own.
pub(crate) struct RateLimitClient {
    runtime: tokio::runtime::Runtime,
    client: RateLimitServiceClient<Channel>,
}

impl RateLimitClient {
    pub(crate) fn of(server: &Server) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let channel = runtime.block_on(connect(server));
        Self { runtime, client: RateLimitServiceClient::new(channel) }
    }

    pub(crate) fn send(&mut self, request: impl IntoRequest<RateLimitRequest>) -> Result<RateLimitResponse, Status> {
        self.runtime.block_on(self.client.should_rate_limit(request)).map(tonic::Response::into_inner)
    }

    /// Asks in the domain `edge`.
    pub(crate) fn ask(&mut self, descriptors: &[RateLimitDescriptor]) -> RateLimitResponse {
        let (domain, descriptors) = ("edge".to_owned(), descriptors.to_vec());
        let count = descriptors.len();
        let answer = self.send(RateLimitRequest { domain, descriptors, hits_addend: 0 }).expect("an answer");
        assert_eq!(answer.statuses.len(), count, "one status a descriptor");
        answer
    }

    /// Asks about one descriptor: its status. It speaks for the whole request.
    pub(crate) fn one(&mut self, descriptor: &RateLimitDescriptor) -> DescriptorStatus {
        let answer = self.ask(std::slice::from_ref(descriptor));
        assert_eq!(answer.overall_code, answer.statuses[0].code, "{answer:?}");
        answer.statuses[0].clone()
    }

    /// How many of so many pass.
    pub(crate) fn passing(&mut self, descriptor: &RateLimitDescriptor, count: usize) -> usize {
        (0..count).filter(|_| self.one(descriptor).code() == Verdict::Ok).count()
    }
}

/// A connection to the server's gRPC listener.
pub(crate) async fn connect(server: &Server) -> Channel {
    let endpoint = Endpoint::new(format!("http://{}", server.grpc_address())).unwrap();
    endpoint.timeout(Duration::from_secs(10)).connect().await.expect("the gRPC listener accepts connections")
}

/// A descriptor of these entries.
pub(crate) fn of(entries: &[(&str, &str)]) -> RateLimitDescriptor {
    let entry = |(key, value): &(&str, &str)| Entry { key: (*key).to_owned(), value: (*value).into() };
    RateLimitDescriptor { entries: entries.iter().map(entry).collect(), ..RateLimitDescriptor::default() }
}

/// The same, charged with so much.
pub(crate) fn costing(cost: u64, entries: &[(&str, &str)]) -> RateLimitDescriptor {
    RateLimitDescriptor { hits_addend: Some(cost), ..of(entries) }
}

/// The same, with a limit of its own.
pub(crate) fn limited(requests_per_unit: u32, unit: i32, entries: &[(&str, &str)]) -> RateLimitDescriptor {
    RateLimitDescriptor { limit: Some(RateLimitOverride { requests_per_unit, unit }), ..of(entries) }
}
