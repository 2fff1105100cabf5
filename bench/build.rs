//! Compiles the messages that the bare gRPC server speaks: checkdam's own.

#[cfg(feature = "rivals")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    const PROTO: &str = "../crates/checkdam-envoy-proto/proto";
    println!("cargo::rerun-if-changed={PROTO}");
    let descriptors = protox::compile(["envoy/service/ratelimit/v3/rls.proto"], [PROTO])?;
    tonic_prost_build::configure().build_client(false).include_file("messages.rs").compile_fds(descriptors)?;
    Ok(())
}

#[cfg(not(feature = "rivals"))]
fn main() {}
