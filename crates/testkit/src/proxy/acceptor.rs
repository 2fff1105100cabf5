//! The listening side of the proxy.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use super::link::Links;

/// A thread that accepts connections until it is dropped, and then frees the port.
pub(super) struct Acceptor {
    addr: SocketAddr,
    is_stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Acceptor {
    pub(super) fn start(listener: TcpListener, links: Arc<Links>) -> Self {
        let addr = listener.local_addr().expect("a bound listener has an address");
        let is_stopping = Arc::new(AtomicBool::new(false));
        let must_stop = Arc::clone(&is_stopping);
        let accept = move || {
            for client in listener.incoming() {
                if must_stop.load(Ordering::Acquire) {
                    return;
                }
                if let Ok(client) = client {
                    Links::connect(&links, client);
                }
            }
        };
        let thread = thread::Builder::new().name("proxy-accept".to_owned()).spawn(accept);
        Self { addr, is_stopping, thread: Some(thread.expect("cannot start the proxy's thread")) }
    }
}

impl Drop for Acceptor {
    fn drop(&mut self) {
        self.is_stopping.store(true, Ordering::Release);
        // Nothing but a connection wakes a thread that accepts.
        drop(TcpStream::connect(self.addr));
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}
