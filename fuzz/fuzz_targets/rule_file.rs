//! libFuzzer on `fuzz_targets::rule_file`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz_targets::rule_file(data));
