//! Checks on Redis over HTTP and gRPC: ours of three limits, beside limitador's
//! library with one limit behind the same frameworks.

use testkit::Redis;

use crate::contest::Contest;
use crate::figures::Bound;
use crate::load::{METRICS, RequestKind, run as load};
use crate::machine::{load_core, pin_process};
use crate::server::{Server, THREE_TIERS};
use crate::session::{Judged, Over, Session};

const IN_FLIGHT: usize = 64;
const CHECKDAM: &str = "checkdam, 3 tiers";
const LIMITADOR: &str = "limitador's library, 1 limit";
/// Which metrics are looked at.
const PER_SECOND: usize = 0;
const P99: usize = 2;

pub(super) fn run(session: &mut Session) {
    let redis = Redis::start();
    // The servers' core is for servers.
    pin_process(redis.pid(), load_core());
    // However slow the machine: what is decided without Redis would be no comparison.
    let checkdam = Server::checkdam(THREE_TIERS, &["--store", &redis.url(), "--store-deadline", "5s"]);
    for (name, kind, rival) in
        [("HTTP", RequestKind::Check, "limitador-http"), ("gRPC", RequestKind::Grpc, "limitador-grpc")]
    {
        let limitador = Server::bare(rival, Some(&redis));
        let mut contest = Contest::new(format!("{name} checks on Redis, 64 in flight, 100,000 users"), METRICS);
        contest.add(LIMITADOR, |length| load(limitador.target(kind), IN_FLIGHT, length));
        contest.add(CHECKDAM, |length| load(checkdam.target(kind), IN_FLIGHT, length));
        contest.note("limitador is its library (AsyncRedisStorage) behind a minimal server of ours; Redis shares the core of the load");
        let length = session.pace().long;
        let figures = contest.run(session, length);
        let (ours, theirs) = (figures.median(CHECKDAM, P99), figures.median(LIMITADOR, P99));
        session.judge(Judged {
            figures: &figures,
            metric: PER_SECOND,
            what: &format!("{name} check on Redis, 3 tiers"),
            ours: CHECKDAM,
            against: "limitador on Redis, one limit",
            theirs: LIMITADOR,
            over: Over::Ours,
            bound: Bound::AtLeast(3.0),
            fault: (ours >= theirs).then(|| format!("its p99 is not lower: {ours:.0} µs, theirs {theirs:.0} µs")),
        });
        session.keep(figures);
    }
}
