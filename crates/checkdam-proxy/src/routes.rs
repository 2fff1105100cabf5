//! Routes: which upstreams a request is forwarded to, and its cost.

use std::collections::HashMap;
use std::sync::Arc;

use axum::http::Method;
use checkdam::{Pattern, Request};
use checkdam_service::config::{Costs, ProxyOptions, RouteOptions, UpstreamUrl};

use super::upstreams::{Upstream, Upstreams};

/// Every route; the first that fits a request counts.
#[derive(Debug)]
pub(super) struct RouteTable {
    all: Vec<Route>,
    upstreams: Vec<Arc<Upstream>>,
}

#[derive(Debug)]
pub(super) struct Route {
    path: Option<Pattern>,
    host: Option<String>,
    domain: String,
    costs: Costs,
    /// How many bytes of a response cost one token, if any do.
    pub(super) response_bytes: Option<u64>,
    pub(super) upstreams: Upstreams,
}

impl RouteTable {
    pub(super) fn new(options: &ProxyOptions) -> Self {
        // A server that several routes name is one upstream, with one health.
        let mut known = HashMap::new();
        let mut upstream = |url: &UpstreamUrl| {
            Arc::clone(
                known
                    .entry(url.clone())
                    .or_insert_with(|| Arc::new(Upstream::new(url.clone(), options.upstream_connections))),
            )
        };
        let route = |route: &RouteOptions| {
            let upstreams = Upstreams::new(route.upstreams.iter().map(&mut upstream).collect());
            let RouteOptions { path, host, domain, costs, response_bytes, .. } = route.clone();
            Route { path, host, domain, costs, response_bytes, upstreams }
        };
        let all = options.routes.iter().map(route).collect();
        Self { all, upstreams: known.into_values().collect() }
    }

    /// The route of a request, by its endpoint and host in their normal form.
    pub(super) fn find(&self, request: &Request<'_>) -> Option<&Route> {
        let (endpoint, host) = (request.get("endpoint").unwrap_or_default(), request.get("host"));
        self.all.iter().find(|route| {
            route.path.as_ref().is_none_or(|path| path.matches(endpoint))
                && route.host.as_deref().is_none_or(|known| Some(known) == host)
        })
    }

    pub(super) fn match_hosts(&self) -> bool {
        self.all.iter().any(|route| route.host.is_some())
    }

    pub(super) fn upstreams(&self) -> &[Arc<Upstream>] {
        &self.upstreams
    }
}

impl Route {
    /// The request in the route's domain, at the cost of its method unless it
    /// has one of its own.
    pub(super) fn charged_request(
        &self,
        request: Request<'static>,
        method: &Method,
        has_own_cost: bool,
    ) -> Request<'static> {
        let cost = if has_own_cost { request.cost() } else { self.costs.cost_of(method) };
        request.in_domain(self.domain.clone()).costing(cost)
    }
}
