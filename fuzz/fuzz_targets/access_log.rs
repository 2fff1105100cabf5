//! libFuzzer on `fuzz_targets::access_log`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz_targets::access_log(data));
