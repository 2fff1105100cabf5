//! Sends one request before any load, to find configuration errors early.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::bail;
use axum::http::{Method, StatusCode};
use checkdam_tools::loadgen::{self, Endpoint, RequestFailure, RequestResult, Target};
use serde_json::Value;

use super::BenchArguments;
use crate::cli::http_client::{ApiRequest, no_tls};
use crate::cli::print_notice;
use crate::cli::table::printable;

impl BenchArguments {
    /// Sends one request before any load, so that a wrong address or request is one clear
    /// error instead of a million. Returns the first of the target's addresses that
    /// responds: that one is loaded. A check is sent as a peek, which charges nothing; a
    /// GET counts like any other.
    pub(super) fn probe(&self, target: &Target) -> anyhow::Result<Endpoint> {
        let mut failures: Vec<String> = Vec::new();
        for address in &target.addresses {
            let endpoint = self.endpoint(target, *address)?;
            let probed = if self.grpc {
                self.probe_grpc(target, endpoint.clone())
            } else {
                self.probe_http(&target.url, *address)
            };
            match probed.map_err(|error| format!("{error:#}")) {
                Ok(()) => return Ok(endpoint),
                Err(failure) if failures.contains(&failure) => {}
                Err(failure) => failures.push(failure),
            }
        }
        bail!(failures.join("; "))
    }

    fn probe_http(&self, url: &str, address: SocketAddr) -> anyhow::Result<()> {
        let mut call = match &self.get {
            Some(path) => ApiRequest::new(Method::GET, path.fill("0")),
            None => ApiRequest::new(Method::POST, "/v1/peek"),
        };
        for (name, value) in &self.header {
            call = call.header(name.clone(), value.fill("0"));
        }
        call = self.token.sign(call)?;
        if self.get.is_none() {
            call = call.body("application/json", self.body().fill("0"));
        }
        let answer = call.send_to_address(url, address, &self.tls)?;
        let said: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        match (answer.status, &self.get) {
            (StatusCode::OK, Some(_)) => Ok(()),
            (StatusCode::OK, None) if said["allowed"].is_boolean() => {
                self.warn_of_limit(!said["tiers"].as_array().is_some_and(Vec::is_empty));
                Ok(())
            }
            (status, Some(path)) => {
                if !self.quiet {
                    print_notice(&format!("{url} responds to {} with {}", path.fill("0"), status.as_u16()));
                }
                Ok(())
            }
            (StatusCode::OK | StatusCode::NOT_FOUND, None) => {
                bail!("{url} has no /v1/peek: is it a checkdam server? Use --get PATH for other servers")
            }
            (status, None) => {
                let detail = said["detail"].as_str().unwrap_or("no detail");
                bail!("{url} responds to these requests with {}: {}", status.as_u16(), printable(detail))
            }
        }
    }

    fn warn_of_limit(&self, has_limit: bool) {
        if !has_limit && !self.quiet {
            print_notice("no limit matches these requests, so all will be allowed: see --attributes and --domain");
        }
    }

    fn probe_grpc(&self, target: &Target, endpoint: Endpoint) -> anyhow::Result<()> {
        let url = &target.url;
        let request = self.grpc_request(target)?.without_cost();
        let no_service = || format!("the server at {url} is no gRPC server: is it the right port?");
        match loadgen::probe_grpc(endpoint, request, self.load.timeout.max(Duration::from_secs(1)))? {
            Ok(RequestResult { status: None, has_limit, .. }) => {
                self.warn_of_limit(has_limit != Some(false));
                Ok(())
            }
            Ok(RequestResult { status: Some(status @ 0..100), .. }) => {
                bail!("the server at {url} responds to these requests with the gRPC status {status}")
            }
            Ok(_) | Err(RequestFailure::Reset) => bail!(no_service()),
            Err(RequestFailure::Refused) => {
                bail!("cannot reach a server at {url}: start one with `checkdam serve`, or give another address")
            }
            Err(RequestFailure::Timeout) => bail!("the server at {url} did not answer in time"),
            Err(RequestFailure::Other(reason)) if target.is_tls => bail!("{}: {reason}", no_tls(url)),
            Err(RequestFailure::Other(reason)) => bail!("{}: {reason}", no_service()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Bench {
        #[command(flatten)]
        arguments: BenchArguments,
    }

    #[test]
    fn the_first_address_that_answers_is_returned() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let open = listener.local_addr().unwrap();
        let closed: SocketAddr = "127.0.0.1:1".parse().unwrap();
        let arguments = Bench::parse_from(["bench", "--get", "/"]).arguments;
        let mut target = Target::resolve("http://localhost:1", false).unwrap();
        target.addresses = vec![closed, closed];
        let refused = arguments.probe(&target).unwrap_err().to_string();
        assert_eq!(refused.matches("cannot reach a server at http://localhost:1").count(), 1, "{refused}");
        target.addresses = vec![closed, open];
        let serving = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 1_024]).unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").unwrap();
        });
        assert_eq!(arguments.probe(&target).unwrap().address(), open);
        serving.join().unwrap();
    }
}
