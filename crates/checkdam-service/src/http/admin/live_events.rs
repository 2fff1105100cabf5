//! Admin API: live traffic, once a second, as server-sent events.
//!
//! An event is serialized once for all subscribers. No subscriber is waited for: a
//! slow one misses events. A subscription ends once the token that it was made with is
//! withdrawn.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::HeaderMap;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName};
use axum::response::IntoResponse;
use checkdam_net::StreamingResponse;
use hyper::body::Frame;
use serde::Serialize;
use tokio::sync::mpsc;
use utoipa::ToSchema;

use super::Admin;
use super::rules::{AdminErrorResponses, AdminResult};
use crate::access::{AdminTokens, Caller, bearer};
use crate::app::App;
use crate::audit::AuditCounts;
use crate::http::problem::Problem;
use crate::http::wire::json;
use crate::lock;
use crate::store::StoreStatus;
use crate::telemetry::{TrafficPoint, TrafficSecond};

/// The maximum number of subscribers.
const LISTENERS_MAX: usize = 64;
/// Seconds that wait for a listener; more are missed.
const WAITING_MAX: usize = 4;
/// The maximum number of rules reported individually per second.
const RULES_MAX: usize = 100;
/// Browsers reconnect after this many milliseconds.
const GREETING: &str = "retry: 1000\n\n";

/// One second of traffic.
#[derive(Serialize, ToSchema)]
pub(super) struct Tick {
    /// When it ended, in Unix seconds.
    at: u64,
    /// Every request once.
    total: TrafficPoint,
    /// Those with traffic, busiest first, at most a hundred.
    rules: Vec<RuleTick>,
    status: TickStatus,
}

/// What passed of a rule.
#[derive(Serialize, ToSchema)]
struct RuleTick {
    rule: String,
    #[serde(flatten)]
    counts: TrafficPoint,
}

/// The state of the node.
#[derive(Serialize, ToSchema)]
struct TickStatus {
    /// Whether it is ready for requests.
    ready: bool,
    /// Whether its rules are the newest that it knows of.
    rules_current: bool,
    store: StoreStatus,
    /// Null if violations are not recorded.
    audit: Option<AuditCounts>,
    /// How many warnings /admin/v1/status has.
    warnings: usize,
}

/// The subscribers.
#[derive(Debug)]
pub struct LiveEvents {
    /// None once it is over.
    listeners: Mutex<Option<Vec<Subscriber>>>,
}

#[derive(Debug)]
struct Subscriber {
    sender: mpsc::Sender<Bytes>,
    /// What permitted the subscription; none where there are no tokens.
    credentials: Option<Credentials>,
}

/// The token of a request, and the operator that it belonged to.
struct Credentials {
    tokens: AdminTokens,
    given: Box<[u8]>,
    operator: Arc<str>,
}

impl Credentials {
    fn of(tokens: &AdminTokens, headers: &HeaderMap, caller: &Caller) -> Option<Self> {
        let given = bearer(headers).filter(|_| !tokens.is_empty())?;
        Some(Self { tokens: tokens.clone(), given: given.into(), operator: Arc::clone(&caller.name) })
    }

    fn are_valid(&self) -> bool {
        self.tokens.caller(&self.given).is_some_and(|caller| caller.name == self.operator)
    }
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Credentials({})", self.operator)
    }
}

impl Subscriber {
    fn is_permitted(&self) -> bool {
        self.credentials.as_ref().is_none_or(Credentials::are_valid)
    }
}

impl LiveEvents {
    /// Publishes every second from now on; `store` describes the store to people.
    pub fn start(app: Arc<App>, store: String) -> Arc<Self> {
        let live = Arc::new(Self { listeners: Mutex::new(Some(Vec::new())) });
        let (telling, mut seconds) = (Arc::clone(&live), app.telemetry().traffic().seconds());
        tokio::spawn(async move {
            let mut last_s = 0;
            while seconds.changed().await.is_ok() {
                if !telling.has_listeners() {
                    continue;
                }
                let second = app.telemetry().traffic().last_second(RULES_MAX);
                // A second may pass between its notification and reading it.
                if std::mem::replace(&mut last_s, second.end_s) != second.end_s {
                    telling.publish(&Bytes::from(event(&app, &store, second)));
                }
            }
        });
        live
    }

    /// Ends all subscriptions, and rejects new ones.
    pub fn close(&self) {
        *lock(&self.listeners) = None;
    }

    fn subscribe(&self, credentials: Option<Credentials>) -> Result<EventStreamBody, Problem> {
        let mut listeners = lock(&self.listeners);
        let Some(listeners) = listeners.as_mut() else {
            return Err(Problem::busy("this node is shutting down: use another"));
        };
        listeners.retain(|listener| !listener.sender.is_closed());
        if listeners.len() >= LISTENERS_MAX {
            let detail = format!("{LISTENERS_MAX} listen already: close a dashboard, or ask /admin/v1/traffic instead");
            return Err(Problem::busy(detail));
        }
        let (sender, receiver) = mpsc::channel(WAITING_MAX);
        // There is room: nothing was sent yet.
        let _ = sender.try_send(Bytes::from_static(GREETING.as_bytes()));
        listeners.push(Subscriber { sender, credentials });
        Ok(EventStreamBody(receiver))
    }

    fn has_listeners(&self) -> bool {
        lock(&self.listeners).as_ref().is_some_and(|listeners| !listeners.is_empty())
    }

    fn publish(&self, event: &Bytes) {
        if let Some(listeners) = lock(&self.listeners).as_mut() {
            let is_there = |sent| !matches!(sent, Err(mpsc::error::TrySendError::Closed(_)));
            listeners.retain(|listener| listener.is_permitted() && is_there(listener.sender.try_send(event.clone())));
        }
    }
}

/// A second as an event.
fn event(app: &App, store: &str, second: TrafficSecond) -> Vec<u8> {
    let rules = second.rules.into_iter().map(|(rule, counts)| RuleTick { rule, counts });
    let tick = Tick {
        at: second.end_s,
        total: second.total,
        rules: rules.collect(),
        status: TickStatus {
            ready: app.readiness().is_ready(),
            rules_current: app.reload_status().error().is_none(),
            store: app.limiter().store().status(store),
            audit: app.audit().map(|audit| audit.counts()),
            warnings: app.warnings().all().len(),
        },
    };
    [b"event: tick\ndata: ".as_slice(), &json(&tick), b"\n\n"].concat()
}

/// The body of an event stream.
struct EventStreamBody(mpsc::Receiver<Bytes>);

impl hyper::body::Body for EventStreamBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.0.poll_recv(context).map(|event| event.map(|event| Ok(Frame::data(event))))
    }
}

/// Publishes traffic every second, as server-sent events named `tick`.
#[utoipa::path(get, path = "/admin/v1/live", tag = "traffic",
    responses((status = 200, description = "Events, one a second, until the token is withdrawn", body = Tick,
            content_type = "text/event-stream"),
        (status = 503, description = "Too many listen already", body = Problem,
            content_type = "application/problem+json"),
        AdminErrorResponses))]
pub(super) async fn listen(
    State(admin): State<Arc<Admin>>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
) -> AdminResult {
    let listener = admin.live.subscribe(Credentials::of(&admin.tokens, &headers, &caller))?;
    // nginx would hold events back until its buffer is full.
    let unbuffered = (HeaderName::from_static("x-accel-buffering"), "no");
    let headers = [(CONTENT_TYPE, "text/event-stream"), (CACHE_CONTROL, "no-store"), unbuffered];
    let mut response = (headers, Body::new(listener)).into_response();
    response.extensions_mut().insert(StreamingResponse);
    Ok(response)
}
