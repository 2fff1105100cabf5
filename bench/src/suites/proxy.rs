//! The proxy beside nginx with `limit_req`, both with kept connections to the
//! same upstream.

use crate::contest::Contest;
use crate::figures::Bound;
use crate::load::{METRICS, RequestKind, run as load};
use crate::machine::{load_core, server_core};
use crate::server::{ONE_TIER, Server};
use crate::session::{Judged, Over, Session};

const IN_FLIGHT: usize = 64;
const CHECKDAM: &str = "checkdam proxy";
const NGINX: &str = "nginx limit_req, proxy_pass";

const UPSTREAM: &str = "server { listen 127.0.0.1:PORT; keepalive_requests 1000000000;\n\
    location / { default_type text/plain; return 200 \"hello\"; } }\n";

const LIMITING: &str = "limit_req_zone $http_x_user zone=users:64m rate=1000000r/s;\n\
    upstream behind { server UPSTREAM; keepalive 128; keepalive_requests 1000000000; }\n\
    server { listen 127.0.0.1:PORT; keepalive_requests 1000000000;\n\
    location / { limit_req zone=users burst=1000000 nodelay; proxy_pass http://behind;\n\
    proxy_http_version 1.1; proxy_set_header Connection \"\"; proxy_set_header Host $host; } }\n";

pub(super) fn run(session: &mut Session) {
    let upstream = Server::nginx(load_core(), |port| UPSTREAM.replace("PORT", &port.to_string()));
    let address = upstream.address().to_string();
    let nginx =
        Server::nginx(server_core(), |port| LIMITING.replace("UPSTREAM", &address).replace("PORT", &port.to_string()));
    let checkdam = Server::proxy(ONE_TIER, upstream.address());
    let mut contest = Contest::new("requests through a proxy, 64 in flight, 100,000 users", METRICS);
    contest.add(NGINX, |length| load(nginx.target(RequestKind::Get), IN_FLIGHT, length));
    contest.add(CHECKDAM, |length| load(checkdam.target(RequestKind::Get), IN_FLIGHT, length));
    contest.note("the upstream, an nginx that returns five bytes, shares the core of the load");
    let length = session.pace().long;
    let figures = contest.run(session, length);
    session.judge(Judged {
        figures: &figures,
        metric: 0,
        what: "proxy",
        ours: CHECKDAM,
        against: "nginx limit_req with keep-alive upstream",
        theirs: NGINX,
        over: Over::Ours,
        bound: Bound::AtLeast(0.8),
        fault: None,
    });
    session.keep(figures);
}
