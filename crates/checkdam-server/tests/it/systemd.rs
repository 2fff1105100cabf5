//! systemd notifications: on a real socket, in order.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use testkit::Upstream;
use tokio::time::Instant;

use crate::server_process::{PATIENCE, Server, checkdam, folder, rule_file};

const RULES: &str = "rules: [{name: all, key: all, limits: [1/s]}]";

/// The next message that is not about the watchdog.
fn next(socket: &UnixDatagram) -> String {
    let start = Instant::now();
    loop {
        assert!(start.elapsed() < PATIENCE, "nothing more is said");
        let mut space = [0; 1024];
        let length = socket.recv(&mut space).expect("a message in time");
        let message = String::from_utf8(space[..length].to_vec()).unwrap();
        if message != "WATCHDOG=1\n" {
            return message;
        }
    }
}

fn hears_it_all(socket: &UnixDatagram, name: &str) {
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let rules = rule_file(RULES);
    let mut command = checkdam();
    command.args(["serve", "--http-listen", "127.0.0.1:0", "--rules", rules.to_str().unwrap()]);
    let mut server = Server::of({
        command.env("NOTIFY_SOCKET", name).env("WATCHDOG_USEC", "40000");
        command
    });
    assert_eq!(next(socket), "READY=1\nSTATUS=1 rules are active\n");
    assert_eq!(server.client().get("/readyz").status, 200, "ready is when it answers");
    for text in [RULES, "rules: 5"] {
        std::fs::write(&rules, text).unwrap();
        server.signal("HUP");
        let reloading = next(socket);
        let since = reloading.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").expect("a reload, and since when");
        assert!(since.trim().parse::<u64>().is_ok_and(|us| us > 0), "{reloading:?}");
        assert_eq!(next(socket), "READY=1\n", "also if the rules were refused");
    }
    // It lives, as told twice in each interval.
    let mut space = [0; 64];
    let length = socket.recv(&mut space).unwrap();
    assert_eq!(&space[..length], b"WATCHDOG=1\n");
    server.signal("TERM");
    assert!(next(socket).starts_with("STOPPING=1\nSTATUS=shutdown"));
    assert!(server.wait().success());
}

#[test]
fn a_socket_in_the_file_system_hears_of_the_start_reloads_life_and_the_end() {
    let path = folder().join("notify");
    hears_it_all(&UnixDatagram::bind(&path).unwrap(), path.to_str().unwrap());
}

#[test]
fn so_does_one_in_the_abstract_namespace() {
    let name = format!("checkdam-test-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    hears_it_all(&UnixDatagram::bind_addr(&address).unwrap(), &format!("@{name}"));
}

#[test]
fn the_proxy_tells_the_same_and_a_supervisor_that_is_gone_is_no_reason_to_end() {
    let path = folder().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let (rules, upstream) = (rule_file(RULES), Upstream::start());
    let to = format!("http://{}", upstream.addr());
    let mut server = Server::proxy_in(
        &[("NOTIFY_SOCKET", path.to_str().unwrap())],
        &["--rules", rules.to_str().unwrap(), "--upstream", &to],
    );
    assert_eq!(next(&socket), "READY=1\nSTATUS=1 rules are active\n");
    drop(socket);
    server.signal("HUP");
    server.wait_for_log("cannot notify the supervisor");
    assert_eq!(server.client().get("/").status, 200);
    server.signal("TERM");
    assert!(server.wait().success());
}
