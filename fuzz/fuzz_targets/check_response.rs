//! libFuzzer on `fuzz_targets::check_response`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz_targets::check_response(data));
