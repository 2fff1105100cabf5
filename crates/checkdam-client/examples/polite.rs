//! Calls a rate-limited API as fast as its limit permits, without denials. Start a
//! server with `cargo run --release -- serve`, then `cargo run -p checkdam-client
//! --example polite`. Here the limited API is the server's own /v1/check; any other
//! with such headers will do.
#![allow(clippy::print_stdout)]

use bytes::Bytes;
use checkdam_client::{Polite, PoliteOptions};
use http::Request;
use http_body_util::Full;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;

const BODY: &str = r#"{"attributes": {"user": "polite", "plan": "free"}}"#;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "http://127.0.0.1:8080/v1/check".to_owned());
    let http: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
    let polite = Polite::new(PoliteOptions::default());
    let began = tokio::time::Instant::now();
    for number in 1..=150 {
        let call = || async {
            let request = Request::post(&url).header("content-type", "application/json").body(Full::from(BODY))?;
            let response = http.request(request).await?;
            Ok::<_, Box<dyn std::error::Error>>(response)
        };
        let response = polite.call(call).await.map_err(|error| error.to_string())?;
        let left = response.headers().get("x-ratelimit-remaining");
        println!("{number:3} {} left {left:?} after {:.2} s", response.status(), began.elapsed().as_secs_f64());
    }
    Ok(())
}
