//! The gRPC listener: health, reflection, size limits and shutdown.

use std::convert::Infallible;
use std::future::poll_fn;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use axum::http::Request;
use bytes::Bytes;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use prost::Message;
use tokio::time::Instant;
use tonic::Code;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
use tonic_reflection::pb::{v1, v1alpha};
use tower_service::Service;

use crate::envoy_client::{RateLimitClient, RateLimitRequest, connect, of};
use crate::server_process::{PATIENCE, Server};

const SERVICE: &str = "envoy.service.ratelimit.v3.RateLimitService";

fn within<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(PATIENCE, work).await.expect("done in time") })
}

fn health_of(service: &str) -> HealthCheckRequest {
    HealthCheckRequest { service: service.to_owned() }
}

#[test]
fn health_is_told_until_the_server_leaves_and_watchers_hear_of_it() {
    let mut server = Server::start();
    within(async {
        let mut client = HealthClient::new(connect(&server).await);
        for service in ["", SERVICE, "ratelimit"] {
            let health = client.check(health_of(service)).await.unwrap().into_inner();
            assert_eq!(health.status(), ServingStatus::Serving, "{service:?}");
        }
        assert_eq!(client.check(health_of("other")).await.unwrap_err().code(), Code::NotFound);
        let mut watch = client.watch(health_of(SERVICE)).await.unwrap().into_inner();
        assert_eq!(watch.message().await.unwrap().unwrap().status(), ServingStatus::Serving);
        server.signal("TERM");
        assert_eq!(watch.message().await.unwrap().unwrap().status(), ServingStatus::NotServing);
        let health = client.check(health_of("")).await.unwrap().into_inner();
        assert_eq!(health.status(), ServingStatus::NotServing, "requests are still answered");
        assert!(watch.message().await.unwrap().is_none(), "the stream ends in order");
    });
    let start = Instant::now();
    assert_eq!(server.wait().code(), Some(0));
    assert!(start.elapsed() < Duration::from_secs(5), "watchers do not hold the exit up: {:?}", start.elapsed());
    assert!(!server.log().contains("cut"), "{}", server.log());
}

#[test]
fn reflection_shows_every_service_in_both_versions() {
    let server = Server::start();
    within(async {
        let channel = connect(&server).await;
        let ask = |message| v1::ServerReflectionRequest { host: String::new(), message_request: Some(message) };
        let requests =
            [MessageRequest::ListServices(String::new()), MessageRequest::FileContainingSymbol(SERVICE.to_owned())];
        let stream = tokio_stream::iter(requests.map(ask));
        let mut answers =
            ServerReflectionClient::new(channel.clone()).server_reflection_info(stream).await.unwrap().into_inner();
        let Some(MessageResponse::ListServicesResponse(list)) =
            answers.message().await.unwrap().unwrap().message_response
        else {
            panic!("a list of services");
        };
        let names: Vec<_> = list.service.into_iter().map(|service| service.name).collect();
        for name in [SERVICE, "grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection"] {
            assert!(names.iter().any(|known| known == name), "{name} in {names:?}");
        }
        let Some(MessageResponse::FileDescriptorResponse(files)) =
            answers.message().await.unwrap().unwrap().message_response
        else {
            panic!("a file");
        };
        assert!(!files.file_descriptor_proto.is_empty());
        let message = v1alpha::server_reflection_request::MessageRequest::ListServices(String::new());
        let old = v1alpha::ServerReflectionRequest { host: String::new(), message_request: Some(message) };
        let mut client = v1alpha::server_reflection_client::ServerReflectionClient::new(channel);
        let mut answers = client.server_reflection_info(tokio_stream::iter([old])).await.unwrap().into_inner();
        assert!(answers.message().await.unwrap().is_some());
    });
}

#[test]
fn methods_that_nobody_has_are_unimplemented() {
    let server = Server::start();
    within(async {
        let mut client = tonic::client::Grpc::new(connect(&server).await);
        for method in [format!("/{SERVICE}/Other"), format!("/{SERVICE}"), "/other.Service/Method".to_owned()] {
            client.ready().await.unwrap();
            let codec = tonic_prost::ProstCodec::<RateLimitRequest, RateLimitRequest>::default();
            let request = tonic::Request::new(RateLimitRequest::default());
            let refused = client.unary(request, method.parse().unwrap(), codec).await.unwrap_err();
            assert_eq!(refused.code(), Code::Unimplemented, "{method}: {refused:?}");
        }
    });
}

#[test]
fn a_message_beyond_four_mebibytes_and_http1_are_refused() {
    let server = Server::start();
    let mut client = RateLimitClient::of(&server);
    let long = "x".repeat(4 << 20);
    let request =
        RateLimitRequest { domain: "edge".to_owned(), descriptors: vec![of(&[("k", &long)])], hits_addend: 0 };
    let status = client.send(request).unwrap_err();
    assert_eq!(status.code(), Code::OutOfRange, "{status:?}");
    let request = RateLimitRequest { domain: "edge".to_owned(), descriptors: vec![of(&[("k", "1")])], hits_addend: 0 };
    assert!(client.send(request).is_ok(), "the connection lives on");
    let mut plain = crate::http_client::Client::connect(server.grpc_address());
    assert!(plain.send("GET", "/", "").is_err(), "HTTP/1.1 is not spoken here");
}

/// What it is, in which pieces it comes, by which compression, and how it is answered.
type Case<'a> = (&'a str, &'a [&'a [u8]], Option<&'a str>, Code);

/// What comes in one frame is read by hand: nothing else may be answered otherwise.
#[test]
fn however_a_message_comes_it_is_answered_alike() {
    let server = Server::start();
    let message = RateLimitRequest { domain: "edge".to_owned(), descriptors: vec![of(&[("k", "1")])], hits_addend: 0 };
    let message = message.encode_to_vec();
    let framed = |flag: u8, length: usize, bytes: &[u8]| [&[flag, 0, 0, 0, length as u8], bytes].concat();
    let whole = framed(0, message.len(), &message);
    let (start, end) = whole.split_at(7);
    let twice = [whole.clone(), whole.clone()].concat();
    let cases: [Case<'_>; 10] = [
        ("whole", &[&whole], None, Code::Ok),
        ("in parts", &[start, end], None, Code::Ok),
        ("in parts, the first of which is only the prefix", &[&whole[..5], &message], None, Code::Ok),
        ("with a compression that it does not use", &[&whole], Some("identity"), Code::Ok),
        ("with a compression that we do not know", &[&whole], Some("gzip"), Code::Unimplemented),
        ("compressed", &[&framed(1, message.len(), &message)], None, Code::Internal),
        ("too short", &[&framed(0, message.len() + 1, &message)], None, Code::Internal),
        ("two at once", &[&twice], None, Code::Ok),
        ("no message", &[&framed(0, 3, &[255, 255, 255])], None, Code::Internal),
        ("nothing", &[], None, Code::Internal),
    ];
    within(async {
        let channel = connect(&server).await;
        for (about, pieces, encoding, expected) in cases {
            let joined = Bytes::from(pieces.concat());
            let frames = pieces.iter().map(|piece| Ok::<_, Infallible>(Frame::data(Bytes::copy_from_slice(piece))));
            let streamed = StreamBody::new(tokio_stream::iter(frames.collect::<Vec<_>>()));
            // With its end in the last frame, and with its end apart.
            for body in [tonic::body::Body::new(Full::new(joined)), tonic::body::Body::new(streamed)] {
                let mut request = Request::post(format!("/{SERVICE}/ShouldRateLimit"));
                if let Some(encoding) = encoding {
                    request = request.header("grpc-encoding", encoding);
                }
                let request = request.header("content-type", "application/grpc").body(body).unwrap();
                let mut channel = channel.clone();
                poll_fn(|context| Service::poll_ready(&mut channel, context)).await.unwrap();
                let response = channel.call(request).await.unwrap();
                let head = response.headers().get("grpc-status").cloned();
                let trailers = response.into_body().collect().await.unwrap().trailers().cloned();
                let status = head.or_else(|| trailers.and_then(|trailers| trailers.get("grpc-status").cloned()));
                let code = Code::from_bytes(status.expect("a status").as_bytes());
                assert_eq!(code, expected, "{about}");
            }
        }
    });
}

/// With the gRPC listener off, nothing listens there, and the rest works.
#[test]
fn the_grpc_listener_can_be_off() {
    let server = Server::with(&["--grpc-listen", "off"]);
    assert!(server.log().contains("grpc       off"), "{}", server.log());
    assert_eq!(server.client().get("/livez").status, 200);
}

/// Clients open connections long before they ask, and hear GOAWAY, not a cut.
#[test]
fn a_connection_that_asks_nothing_is_kept_and_closed_in_order() {
    const GOAWAY: u8 = 7;
    let mut server = Server::start();
    let mut idle = TcpStream::connect(server.grpc_address()).unwrap();
    idle.set_read_timeout(Some(PATIENCE)).unwrap();
    // The preface of HTTP/2 and empty settings.
    idle.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").unwrap();
    std::thread::sleep(Duration::from_millis(6_500));
    server.signal("TERM");
    let mut kinds = Vec::new();
    loop {
        let mut head = [0; 9];
        if idle.read_exact(&mut head).is_err() {
            break;
        }
        kinds.push(head[3]);
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        std::io::copy(&mut (&idle).take(length.into()), &mut std::io::sink()).unwrap();
        if head[3] == GOAWAY {
            // An answer to the ping that asks whether all has arrived; after the last GOAWAY nobody listens.
            let _ = idle.write_all(b"\0\0\x08\x06\x01\0\0\0\0\x0b\x7b\xa2\xf0\x8b\x9b\xfe\x54");
        }
    }
    assert!(kinds.contains(&GOAWAY), "the frames were {kinds:?}");
    assert_eq!(server.wait().code(), Some(0));
}
