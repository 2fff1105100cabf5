//! Explains connection errors and how to fix them.

use redis::RedisError;

use super::finding::Finding;
use crate::store::redis::target::Endpoint;

const LOOK: &str = "connection";

/// The finding of a successful connection.
pub(super) fn reached(endpoint: &Endpoint) -> Finding {
    let how = if endpoint.is_tls() { "over TLS, certificate verified" } else { "without TLS" };
    Finding::ok(LOOK, format!("connected as {} {how}", endpoint.user()))
}

/// The finding of a Sentinel that did not reply: it is queried without a login.
pub(super) fn explain_sentinel(error: &RedisError, endpoint: &Endpoint) -> Finding {
    if error.to_string().contains("NOAUTH") {
        let remedy = "Sentinels are asked without a login: let them answer without, and guard them by the network";
        return Finding::problem(LOOK, "the Sentinel asks for a login", remedy);
    }
    explain(error, endpoint)
}

/// What to make of one that did not.
pub(super) fn explain(error: &RedisError, endpoint: &Endpoint) -> Finding {
    let text = error.to_string();
    let says = |words: &[&str]| words.iter().any(|word| text.contains(word));
    let user = endpoint.user();
    let (seen, remedy) = if says(&["WRONGPASS", "invalid username-password", "Password authentication failed"]) {
        ("the login was refused", format!("correct the user or password in --store; the user is {user:?}"))
    } else if says(&["NOAUTH"]) {
        let remedy = "write the login into --store: redis://user:password@host:port (%-escape what URLs reserve)";
        ("the server asks for a login and --store has none", remedy.to_owned())
    } else if says(&["DB index is out of range", "invalid DB index", "SELECT is not allowed in cluster mode"]) {
        let remedy = "write a number below the server's `databases` (16 unless set) after the port in --store, or none; \
                      a cluster has none";
        ("the server has no database of that number", remedy.to_owned())
    } else if says(&["NotValidForName", "not valid for name"]) {
        let remedy = "name the server in --store as its certificate does, or have one issued for this name";
        ("the server's certificate is for another host name", remedy.to_owned())
    } else if says(&["UnknownIssuer", "CaUsedAsEndEntity", "BadSignature"]) {
        let remedy = "give the CA that signed it with --store-ca FILE (PEM)";
        ("the server's certificate is not trusted", remedy.to_owned())
    } else if says(&["Expired", "NotValidYet"]) {
        let remedy = "renew the certificate; if it is valid, correct this machine's clock";
        ("the server's certificate is not valid at this time", remedy.to_owned())
    } else if says(&["CertificateRequired", "certificate required"]) {
        ("the server wants a client certificate", "set tls-auth-clients to no or optional and use a login".to_owned())
    } else if endpoint.is_tls() && says(&["InvalidContentType", "corrupt message", "UnexpectedEof", "unexpected end"]) {
        let remedy = "write redis:// instead of rediss://, or name the server's TLS port";
        ("the server does not speak TLS on this port", remedy.to_owned())
    } else if error.is_connection_refusal() || says(&["Connection refused"]) {
        ("nothing listens there", "start the server, or correct the address in --store".to_owned())
    } else if says(&["failed to lookup", "Name or service", "nodename nor servname"]) {
        ("the host name is not known", "correct the host in --store, or the name service".to_owned())
    } else if error.is_timeout() || says(&["no answer within"]) {
        let mut remedy =
            "check the address, the network and firewalls, and whether the server is busy or stopped".to_owned();
        if endpoint.is_tls() {
            remedy.push_str("; if it does not speak TLS on this port, write redis:// instead of rediss://");
        }
        ("no answer", remedy)
    } else if says(&["LOADING", "BusyLoading"]) {
        ("the server is loading its data", "wait until it has, and run doctor again".to_owned())
    } else if says(&["BUSY"]) {
        ("a script of somebody else blocks the server", "end it with SCRIPT KILL, and find who runs it".to_owned())
    } else if !endpoint.is_tls() && (error.is_connection_dropped() || error.is_io_error()) {
        let remedy = "if the server speaks TLS on this port, write rediss://; else read its log";
        ("the server closed the connection", remedy.to_owned())
    } else {
        ("the connection failed", "read the server's log".to_owned())
    };
    Finding::problem(LOOK, format!("{seen}: {text}"), remedy)
}
