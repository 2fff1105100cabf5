//! libFuzzer on `fuzz_targets::redis_reply`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz_targets::redis_reply(data));
