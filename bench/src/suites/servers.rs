//! Checks in memory over HTTP and gRPC, one core for the server: beside the same
//! frameworks when they decide nothing, and beside nginx.

use crate::contest::Contest;
use crate::figures::{Bound, Figures};
use crate::load::{METRICS, RequestKind, run as load};
use crate::machine::server_core;
use crate::server::{ONE_TIER, Server};
use crate::session::{Judged, Over, Session};

const IN_FLIGHT: usize = 64;
const CHECKDAM: &str = "checkdam";

/// nginx that counts each user and answers by itself. What `return` says is said
/// before anything is counted, so an empty picture is the answer.
const NGINX: &str = "limit_req_zone $http_x_user zone=users:64m rate=1000000r/s;\n\
    server { listen 127.0.0.1:PORT; keepalive_requests 1000000000;\n\
    location / { limit_req zone=users burst=1000000 nodelay; empty_gif; } }\n";

pub(super) fn run(session: &mut Session) {
    let checkdam = Server::checkdam(ONE_TIER, &[]);
    let (axum, tonic) = (Server::bare("axum", None), Server::bare("tonic", None));
    let nginx = Server::nginx(server_core(), |port| NGINX.replace("PORT", &port.to_string()));
    let length = session.pace().long;

    let mut contest = Contest::new("HTTP checks in memory, 64 in flight, 100,000 users", METRICS);
    contest.add("bare axum, JSON", |length| load(axum.target(RequestKind::Check), IN_FLIGHT, length));
    contest.add(CHECKDAM, |length| load(checkdam.target(RequestKind::Check), IN_FLIGHT, length));
    contest.add("nginx limit_req, GET", |length| load(nginx.target(RequestKind::Get), IN_FLIGHT, length));
    contest.note("one core for the server, one for the load; checkdam's answers have five headers more than axum's");
    let figures = contest.run(session, length);
    judge(session, &figures, "HTTP check, memory", "bare axum, JSON", 0.85);
    session.keep(figures);

    let mut contest = Contest::new("gRPC checks in memory, 64 in flight on 4 connections, 100,000 users", METRICS);
    contest.add("bare tonic", |length| load(tonic.target(RequestKind::Grpc), IN_FLIGHT, length));
    contest.add(CHECKDAM, |length| load(checkdam.target(RequestKind::Grpc), IN_FLIGHT, length));
    let figures = contest.run(session, length);
    judge(session, &figures, "gRPC check, memory", "bare tonic", 0.9);
    session.keep(figures);
}

fn judge(session: &mut Session, figures: &Figures, what: &str, theirs: &str, least: f64) {
    session.judge(Judged {
        figures,
        metric: 0,
        what,
        ours: CHECKDAM,
        against: theirs,
        theirs,
        over: Over::Ours,
        bound: Bound::AtLeast(least),
        fault: None,
    });
}
