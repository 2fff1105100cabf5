//! TLS handshakes of the HTTP listener beside nginx, one core for the server.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::contest::Contest;
use crate::figures::Bound;
use crate::load::handshake::{METRICS, run as load};
use crate::machine::server_core;
use crate::server::{ONE_TIER, Server};
use crate::session::{Judged, Over, Session};

const IN_FLIGHT: usize = 32;
const CHECKDAM: &str = "checkdam";
const NGINX: &str = "nginx";

const SITE: &str = "server { listen 127.0.0.1:PORT ssl; ssl_certificate CERTIFICATE; ssl_certificate_key KEY;\n\
    ssl_protocols TLSv1.3; ssl_session_cache off; ssl_session_tickets off;\n\
    location / { return 404; } }\n";

pub(super) fn run(session: &mut Session) {
    let folder = std::env::temp_dir().join(format!("checkdam-bench-tls-{}", std::process::id()));
    let (certificate, key) = make_certificate(&folder);
    let checkdam = Server::checkdam_with_tls(ONE_TIER, &certificate, &key);
    let nginx = Server::nginx(server_core(), |port| {
        let site = SITE.replace("PORT", &port.to_string());
        site.replace("CERTIFICATE", &certificate.to_string_lossy()).replace("KEY", &key.to_string_lossy())
    });
    let mut contest = Contest::new("TLS 1.3 handshakes, 32 in flight, ECDSA P-256, X25519, no resumption", METRICS);
    contest.add(NGINX, |length| load(nginx.address(), nginx.process(), IN_FLIGHT, length));
    contest.add(CHECKDAM, |length| load(checkdam.address(), checkdam.process(), IN_FLIGHT, length));
    contest.note("each is a TCP connection, a handshake, a request that is answered with 404, and a close");
    contest.note(
        "judged by the server's CPU time: the client's part of a handshake is not cheaper than the server's, \
         so that one core of load need not fill a core of the server",
    );
    let length = session.pace().long;
    let figures = contest.run(session, length);
    session.judge(Judged {
        figures: &figures,
        metric: 3,
        what: "TLS handshake, CPU time",
        ours: CHECKDAM,
        against: "nginx",
        theirs: NGINX,
        over: Over::Theirs,
        bound: Bound::AtLeast(0.8),
        fault: None,
    });
    session.keep(figures);
    let _ = std::fs::remove_dir_all(folder);
}

/// The same for both servers, signed by its own key.
fn make_certificate(folder: &Path) -> (PathBuf, PathBuf) {
    std::fs::create_dir_all(folder).unwrap_or_else(|error| panic!("cannot make {}: {error}", folder.display()));
    let (certificate, key) = (folder.join("server.crt"), folder.join("server.key"));
    let made = Command::new(testkit::openssl())
        .args(["req", "-x509", "-nodes", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-days", "30"])
        .args(["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout"])
        .arg(&key)
        .arg("-out")
        .arg(&certificate)
        .output();
    let is_made = made.as_ref().is_ok_and(|output| output.status.success());
    assert!(is_made, "openssl cannot make a certificate: {made:?}");
    (certificate, key)
}
