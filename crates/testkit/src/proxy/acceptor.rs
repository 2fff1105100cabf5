//! The listening side of the proxy.

use std::net::{Shutdown, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use socket2::Socket;

use super::link::Links;

/// A thread that accepts connections until it is dropped. The port stays bound: Linux stops listening on a socket
/// that is shut down, and listens on it again when asked.
pub(super) struct Acceptor {
    socket: Socket,
    is_stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Acceptor {
    /// Listens on a bound socket.
    pub(super) fn start(bound: &Socket, links: Arc<Links>) -> Self {
        let socket = bound.try_clone().expect("cannot clone the proxy's socket");
        socket.listen(128).expect("cannot listen on the proxy's socket");
        let listener: TcpListener = socket.try_clone().expect("cannot clone the proxy's socket").into();
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
        Self { socket, is_stopping, thread: Some(thread.expect("cannot start the proxy's thread")) }
    }
}

impl Drop for Acceptor {
    fn drop(&mut self) {
        self.is_stopping.store(true, Ordering::Release);
        // Wakes the thread: accepting from a socket that does not listen fails.
        drop(self.socket.shutdown(Shutdown::Read));
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}
