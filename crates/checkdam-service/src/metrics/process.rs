//! Process metrics, read from Linux's `/proc`. On other systems the families are empty.

use std::fs::read_to_string;

use super::text_writer::TextWriter;

/// The kernel's unit of processor time for user space (`USER_HZ`), the same on every
/// architecture.
const TICKS_PER_SECOND: f64 = 100.0;

pub(super) fn write(text: &mut TextWriter) {
    let stat = read_to_string("/proc/self/stat").unwrap_or_default();
    text.family("process_cpu_seconds_total", "Processor time of the process, user and system.")
        .optional(cpu_seconds(&stat));
    let status = read_to_string("/proc/self/status").unwrap_or_default();
    text.family("process_resident_memory_bytes", "Memory that the process holds.")
        .optional(number_after(&status, "VmRSS:").map(|kib| kib * 1024.0));
    text.family("process_open_fds", "Open file descriptors.")
        .optional(std::fs::read_dir("/proc/self/fd").ok().map(|open| open.count() as f64));
    let limits = read_to_string("/proc/self/limits").unwrap_or_default();
    text.family("process_max_fds", "The most file descriptors.").optional(number_after(&limits, "Max open files"));
    let machine = read_to_string("/proc/stat").unwrap_or_default();
    let start = number_after(&machine, "btime").zip(field(&stat, 22));
    text.family("process_start_time_seconds", "When the process started, in Unix time.")
        .optional(start.map(|(boot, ticks)| boot + ticks / TICKS_PER_SECOND));
}

fn cpu_seconds(stat: &str) -> Option<f64> {
    Some((field(stat, 14)? + field(stat, 15)?) / TICKS_PER_SECOND)
}

/// A field of the stat file by its number. The second is the program's name in
/// parentheses, which may hold anything.
fn field(stat: &str, number: usize) -> Option<f64> {
    let (_, behind) = stat.rsplit_once(") ")?;
    behind.split_whitespace().nth(number - 3)?.parse().ok()
}

/// The first number of the line that begins so.
fn number_after(text: &str, words: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(words))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_strange_name_does_not_shift_the_fields() {
        let stat = "7 (a ) b) S 1 2 3 4 5 6 7 8 9 10 150 50 0 0 20 0 9 0 12345 1 2";
        assert_eq!((cpu_seconds(stat), field(stat, 22)), (Some(2.0), Some(12_345.0)));
    }

    #[test]
    fn unlimited_is_no_number() {
        let limits = "Limit  Soft\nMax open files            1024                 524288               files\n";
        assert_eq!(number_after(limits, "Max open files"), Some(1024.0));
        assert_eq!(number_after("Max open files   unlimited  unlimited\n", "Max open files"), None);
    }
}
