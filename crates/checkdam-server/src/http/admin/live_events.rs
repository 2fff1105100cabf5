//! Admin API: live traffic, once a second, as server-sent events.
//!
//! An event is serialized once for all subscribers. No subscriber is waited for: a
//! slow one misses events.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName};
use axum::response::IntoResponse;
use checkdam_net::StreamingResponse;
use hyper::body::Frame;
use serde::Serialize;
use tokio::sync::mpsc;
use utoipa::ToSchema;

use super::Admin;
use super::rules::{AdminErrorResponses, AdminResult};
use crate::app::App;
use crate::audit::AuditCounts;
use crate::http::problem::Problem;
use crate::http::wire::json;
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

/// A second, as it is told.
#[derive(Serialize, ToSchema)]
pub(super) struct Tick {
    /// When it ended, in Unix seconds.
    at: u64,
    /// Every request once.
    total: Counts,
    /// Those with traffic, busiest first, at most a hundred.
    rules: Vec<RuleTick>,
    status: TickStatus,
}

/// What passed.
#[derive(Serialize, ToSchema)]
struct Counts {
    /// Requests that passed.
    allowed: u32,
    /// Requests that did not.
    limited: u32,
    /// Requests that a rule in shadow would have denied.
    shadow: u32,
    /// Of those that did not pass: the banned. Bans are of no rule.
    banned: u32,
    /// Of those that did not pass: a rule refused them because its store did not answer.
    unavailable: u32,
}

/// What passed of a rule.
#[derive(Serialize, ToSchema)]
struct RuleTick {
    rule: String,
    #[serde(flatten)]
    counts: Counts,
}

/// How the node goes.
#[derive(Serialize, ToSchema)]
struct TickStatus {
    /// Whether it wants requests.
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
pub(crate) struct LiveEvents {
    /// None once it is over.
    listeners: Mutex<Option<Vec<mpsc::Sender<Bytes>>>>,
}

impl LiveEvents {
    /// Tells every second from now on; `store` says which it is, for people.
    pub(crate) fn start(app: Arc<App>, store: String) -> Arc<Self> {
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
    pub(crate) fn close(&self) {
        *self.lock() = None;
    }

    fn subscribe(&self) -> Result<EventStreamBody, Problem> {
        let mut listeners = self.lock();
        let Some(listeners) = listeners.as_mut() else {
            return Err(Problem::busy("this node is shutting down: use another".to_owned()));
        };
        listeners.retain(|listener| !listener.is_closed());
        if listeners.len() >= LISTENERS_MAX {
            let detail = format!("{LISTENERS_MAX} listen already: close a dashboard, or ask /admin/v1/traffic instead");
            return Err(Problem::busy(detail));
        }
        let (sender, receiver) = mpsc::channel(WAITING_MAX);
        // There is room: nothing was sent yet.
        let _ = sender.try_send(Bytes::from_static(GREETING.as_bytes()));
        listeners.push(sender);
        Ok(EventStreamBody(receiver))
    }

    fn has_listeners(&self) -> bool {
        self.lock().as_ref().is_some_and(|listeners| !listeners.is_empty())
    }

    fn publish(&self, event: &Bytes) {
        if let Some(listeners) = self.lock().as_mut() {
            let is_there = |told| !matches!(told, Err(mpsc::error::TrySendError::Closed(_)));
            listeners.retain(|listener| is_there(listener.try_send(event.clone())));
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Vec<mpsc::Sender<Bytes>>>> {
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A second as an event.
fn event(app: &App, store: &str, second: TrafficSecond) -> Vec<u8> {
    let rules = second.rules.into_iter().map(|(rule, point)| RuleTick { rule, counts: point.into() });
    let tick = Tick {
        at: second.end_s,
        total: second.total.into(),
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

impl From<TrafficPoint> for Counts {
    fn from(TrafficPoint { allowed, limited, shadow, banned, unavailable }: TrafficPoint) -> Self {
        Self { allowed, limited, shadow, banned, unavailable }
    }
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

/// Tells what passes, every second, as server-sent events named `tick`.
#[utoipa::path(get, path = "/admin/v1/live", tag = "traffic",
    responses((status = 200, description = "Events without end, one a second", body = Tick,
            content_type = "text/event-stream"),
        (status = 503, description = "Too many listen already", body = Problem,
            content_type = "application/problem+json"),
        AdminErrorResponses))]
pub(super) async fn listen(State(admin): State<Arc<Admin>>) -> AdminResult {
    let listener = admin.live.subscribe()?;
    // nginx would hold events back until its buffer is full.
    let unbuffered = (HeaderName::from_static("x-accel-buffering"), "no");
    let headers = [(CONTENT_TYPE, "text/event-stream"), (CACHE_CONTROL, "no-store"), unbuffered];
    let mut response = (headers, Body::new(listener)).into_response();
    response.extensions_mut().insert(StreamingResponse);
    Ok(response)
}
