//! libFuzzer on `fuzz_targets::forwarded_request`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz_targets::forwarded_request(data));
