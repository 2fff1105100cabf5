//! Compiles the protobuf messages of the gRPC services, without protoc.

use std::error::Error;
use std::path::Path;

/// The served protobuf files; their imports are below the same folder.
const SERVICE: &str = "envoy/service/ratelimit/v3/rls.proto";

/// The number of `bytes` among protobuf's types. Values are `string`, and on the
/// wire there is no difference; but Envoy puts into them what its clients send,
/// valid UTF-8 or not, and a message that is not understood is one that passes.
const TYPE_BYTES: i32 = 12;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto");
    let mut compiler = protox::Compiler::new(["proto"])?;
    compiler.include_imports(true).open_file(SERVICE)?;
    let out = std::env::var("OUT_DIR")?;
    // What reflection shows.
    std::fs::write(Path::new(&out).join("descriptors.bin"), compiler.encode_file_descriptor_set())?;
    let mut descriptors = compiler.file_descriptor_set();
    let files = descriptors.file.iter_mut().filter(|file| file.name().ends_with("common/ratelimit/v3/ratelimit.proto"));
    let entries = files.flat_map(|file| &mut file.message_type).flat_map(|message| &mut message.nested_type);
    for field in entries.flat_map(|entry| &mut entry.field).filter(|field| field.name() == "value") {
        field.r#type = Some(TYPE_BYTES);
    }
    tonic_prost_build::configure()
        // Tests ask with it; connections are theirs.
        .build_client(true)
        .build_transport(false)
        .include_file("messages.rs")
        .compile_fds(descriptors)?;
    Ok(())
}
