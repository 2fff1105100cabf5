//! The machine: what it is, how busy it is, which cores do what.

use std::process::Command;
use std::time::Duration;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// What stands at the head of results.
#[must_use]
pub fn description() -> Vec<(&'static str, String)> {
    let cores = cores().len();
    vec![
        ("CPU", format!("{}, {cores} core{}", cpu_model(), if cores == 1 { "" } else { "s" })),
        ("Memory", memory()),
        ("Kernel", read("/proc/sys/kernel/osrelease")),
        ("Rust", said_by("rustc", &["--version"])),
        ("Redis", said_by("redis-server", &["--version"])),
        ("nginx", said_by("nginx", &["-v"])),
        ("Commit", commit()),
    ]
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

fn cpu_model() -> String {
    let text = read("/proc/cpuinfo");
    let line = text.lines().find_map(|line| line.strip_prefix("model name"));
    line.map_or("unknown", |rest| rest.trim_start_matches([' ', '\t', ':'])).to_owned()
}

fn memory() -> String {
    let text = read("/proc/meminfo");
    let kilobytes =
        text.lines().find_map(|line| line.strip_prefix("MemTotal:")?.split_whitespace().next()?.parse().ok());
    kilobytes.map_or("unknown".to_owned(), |kilobytes: f64| format!("{:.0} GiB", kilobytes / 1_048_576.0))
}

fn said_by(program: &str, arguments: &[&str]) -> String {
    let Ok(output) = Command::new(program).args(arguments).output() else { return "not found".to_owned() };
    // nginx tells its version on standard error.
    let said = if output.stdout.is_empty() { output.stderr } else { output.stdout };
    String::from_utf8_lossy(&said).lines().next().unwrap_or_default().trim().to_owned()
}

fn commit() -> String {
    let commit = said_by("git", &["rev-parse", "--short=12", "HEAD"]);
    let is_changed = !said_by("git", &["status", "--porcelain", "--untracked-files=no"]).is_empty();
    commit + if is_changed { ", with changes that are not committed" } else { "" }
}

/// The load average of the last minute.
#[must_use]
pub fn load_average() -> f64 {
    read("/proc/loadavg").split_whitespace().next().and_then(|text| text.parse().ok()).unwrap_or(f64::NAN)
}

/// How many cores others keep busy, watched for a while: unlike the load
/// average it knows nothing of the build that ended a second ago.
#[must_use]
pub fn busy_cores(watched: Duration) -> f64 {
    let before = busy_and_all();
    std::thread::sleep(watched);
    let after = busy_and_all();
    let share = (after.0 - before.0) / (after.1 - before.1).max(1.0);
    share * cores().len() as f64
}

/// Ticks that were spent on anything, and all ticks.
fn busy_and_all() -> (f64, f64) {
    let text = read("/proc/stat");
    let line = text.lines().next().unwrap_or_default();
    let ticks: Vec<f64> = line.split_whitespace().skip(1).filter_map(|text| text.parse().ok()).collect();
    let all: f64 = ticks.iter().take(8).sum();
    let idle: f64 = ticks.iter().skip(3).take(2).sum();
    (all - idle, all)
}

/// The cores that this process was given when it began.
#[must_use]
pub fn cores() -> &'static [usize] {
    static CORES: std::sync::OnceLock<Vec<usize>> = std::sync::OnceLock::new();
    CORES.get_or_init(|| {
        let set = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
        let cores: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect();
        if cores.is_empty() { vec![0] } else { cores }
    })
}

/// Where servers run.
#[must_use]
pub fn server_core() -> usize {
    cores()[0]
}

/// Where their clients run.
#[must_use]
pub fn load_core() -> usize {
    cores()[cores().len() - 1]
}

/// Keeps the calling thread, and those that it starts, on these cores.
pub fn pin_thread(to: &[usize]) {
    let mut set = CpuSet::new();
    for core in to {
        set.set(*core);
    }
    // Where it is forbidden, the results say more spread.
    let _ = sched_setaffinity(None, &set);
}

/// Keeps every thread of a process on one core.
///
/// # Panics
/// If `taskset` (util-linux) is not there.
pub fn pin_process(process: u32, core: usize) {
    let mut taskset = Command::new("taskset");
    let done = taskset.args(["-a", "-c", "-p", &core.to_string(), &process.to_string()]).output();
    let is_done = done.as_ref().is_ok_and(|output| output.status.success());
    assert!(is_done, "taskset could not pin {process}: {done:?}. Install it with: apt-get install util-linux");
}

/// Seconds of CPU that a process has used.
///
/// # Panics
/// If the process is gone.
#[must_use]
pub fn cpu_seconds(process: u32) -> f64 {
    if let Some(nanoseconds) = scheduled_ns(process) {
        return nanoseconds as f64 / 1e9;
    }
    let stat = read(&format!("/proc/{process}/stat"));
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
    let ticks = |place: usize| fields.get(place).and_then(|text| text.parse::<f64>().ok());
    match (ticks(11), ticks(12)) {
        (Some(user), Some(system)) => (user + system) / rustix::param::clock_ticks_per_second() as f64,
        _ => panic!("process {process} is gone"),
    }
}

/// Nanoseconds that the threads of a process have run, where the kernel tells:
/// its ticks are a hundredth of a second, and rounds are short.
fn scheduled_ns(process: u32) -> Option<u64> {
    let mut sum = 0;
    for thread in std::fs::read_dir(format!("/proc/{process}/task")).ok()?.flatten() {
        let text = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
        sum += text.split_whitespace().next()?.parse::<u64>().ok()?;
    }
    (sum > 0).then_some(sum)
}

/// Bytes of memory that this process holds.
///
/// # Panics
/// If there is no `/proc`.
#[must_use]
pub fn resident_bytes() -> u64 {
    let status = read("/proc/self/status");
    let line =
        status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.split_whitespace().next()?.parse::<u64>().ok());
    line.unwrap_or_else(|| panic!("/proc/self/status has no VmRSS")) * 1_024
}
