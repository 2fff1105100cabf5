//! Nothing outlives a test: neither a dropped guard, nor a panic, nor the death of the test process.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use testkit::{Redis, wait_until};

/// Tells a copy of this test binary to be the victim.
const VICTIM: &str = "TESTKIT_VICTIM";

fn is_gone(pid: u32, dir: &Path) -> bool {
    !Path::new(&format!("/proc/{pid}")).exists() && !dir.exists()
}

fn dir_of(server: &Redis) -> std::path::PathBuf {
    server.unix_path().parent().unwrap().to_owned()
}

#[test]
fn dropping_a_server_leaves_neither_process_nor_files() {
    let server = Redis::start();
    let (pid, dir) = (server.pid(), dir_of(&server));
    server.pause(); // A stopped process must die too.
    drop(server);
    assert!(is_gone(pid, &dir));
}

#[test]
fn a_panicking_test_leaves_neither_process_nor_files() {
    let (send, receive) = std::sync::mpsc::channel();
    let test = std::thread::spawn(move || {
        let server = Redis::start();
        send.send((server.pid(), dir_of(&server))).unwrap();
        panic!("as a failing test does");
    });
    assert!(test.join().is_err());
    let (pid, dir) = receive.recv().unwrap();
    assert!(is_gone(pid, &dir));
}

#[test]
fn a_killed_test_process_leaves_neither_process_nor_files() {
    let mut victim = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "process::victim", "--ignored", "--nocapture"])
        .env(VICTIM, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(victim.stdout.take().unwrap()).lines();
    let (pid, dir) = lines
        .map_while(Result::ok)
        .find_map(|line| {
            line.split_once("server ")?.1.split_once(' ').map(|(pid, dir)| (pid.to_owned(), dir.to_owned()))
        })
        .expect("the victim started no server");
    victim.kill().unwrap();
    victim.wait().unwrap();
    let pid = pid.parse().unwrap();
    wait_until("the orphan to be killed", Duration::from_secs(5), || is_gone(pid, Path::new(&dir)));
}

#[test]
#[ignore = "killed by a_killed_test_process_leaves_neither_process_nor_files"]
fn victim() {
    if std::env::var_os(VICTIM).is_some() {
        let server = Redis::start();
        println!("server {} {}", server.pid(), dir_of(&server).display());
        std::thread::sleep(Duration::from_secs(60));
    }
}
