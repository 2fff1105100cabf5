//! A TCP proxy that injects network faults.
//!
//! Every connection has two directions, requests towards the server and replies
//! towards the client, and each direction has a [`Mode`] that applies to all
//! connections, open and new, from the next chunk on. Bytes that a sleeping or
//! holding direction has already read follow the new mode too.

mod acceptor;
mod faults;
mod link;
mod pump;

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};

use socket2::Socket;

use acceptor::Acceptor;
pub use faults::Mode;
use faults::{Direction, Faults};
use link::Links;

use crate::port::free_port;

/// A proxy on a loopback port of its own. Dropping it closes its connections and frees the port.
pub struct FaultProxy {
    addr: SocketAddr,
    /// Bound for the proxy's whole life, so that no other process gets the port.
    socket: Socket,
    /// Absent while new connections are refused.
    acceptor: Mutex<Option<Acceptor>>,
    links: Arc<Links>,
    faults: Arc<Faults>,
}

impl FaultProxy {
    /// Starts a proxy in front of `upstream`, which need not be up yet. It passes everything.
    #[must_use]
    pub fn start(upstream: SocketAddr) -> Self {
        let listener = (0..100)
            .find_map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, free_port())).ok())
            .expect("cannot bind a port for the proxy");
        let addr = listener.local_addr().expect("a bound listener has an address");
        let faults = Arc::new(Faults::default());
        let links = Arc::new(Links::new(upstream, Arc::clone(&faults)));
        let socket = Socket::from(listener);
        let acceptor = Mutex::new(Some(Acceptor::start(&socket, Arc::clone(&links))));
        Self { addr, socket, acceptor, links, faults }
    }

    /// Where clients connect.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// `redis://` and [`FaultProxy::addr`].
    pub fn url(&self) -> String {
        format!("redis://{}", self.addr)
    }

    /// Sets the mode of both directions.
    pub fn set(&self, mode: Mode) {
        self.set_requests(mode);
        self.set_replies(mode);
    }

    /// Sets the mode of what goes to the server.
    pub fn set_requests(&self, mode: Mode) {
        self.faults.set(Direction::Requests, mode);
    }

    /// Sets the mode of what goes to the client.
    pub fn set_replies(&self, mode: Mode) {
        self.faults.set(Direction::Replies, mode);
    }

    /// Sends new connections to another server. Open ones stay where they are.
    pub fn set_upstream(&self, upstream: SocketAddr) {
        self.links.set_upstream(upstream);
    }

    /// Refuses new connections, as a port on which nothing listens does, or accepts them again. Open ones stay.
    pub fn refuse(&self, is_refused: bool) {
        let mut acceptor = self.acceptor.lock().unwrap();
        if is_refused {
            *acceptor = None;
        } else if acceptor.is_none() {
            *acceptor = Some(Acceptor::start(&self.socket, Arc::clone(&self.links)));
        }
    }

    /// Closes every open connection in good order (FIN), losing what is in flight.
    pub fn close_all(&self) {
        self.links.close_all();
    }

    /// Aborts every open connection (RST): the client sees "connection reset by peer".
    pub fn reset_all(&self) {
        self.links.reset_all();
    }

    /// How many connections clients have opened so far.
    pub fn accepted(&self) -> u64 {
        self.links.accepted()
    }

    /// How many connections are open now: neither the client nor the proxy has closed them.
    pub fn open(&self) -> usize {
        self.links.open()
    }

    /// How many bytes have been passed on to the server.
    pub fn request_bytes(&self) -> u64 {
        self.faults.passed(Direction::Requests)
    }

    /// How many bytes have been passed on to clients.
    pub fn reply_bytes(&self) -> u64 {
        self.faults.passed(Direction::Replies)
    }

    /// How many connections [`Mode::CutAfter`] and [`Mode::CutOnce`] have cut.
    pub fn cuts(&self) -> u64 {
        self.faults.cuts()
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.refuse(true);
        self.links.shut_down();
    }
}

impl fmt::Debug for FaultProxy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("FaultProxy")
            .field("addr", &self.addr)
            .field("accepted", &self.accepted())
            .field("open", &self.open())
            .finish_non_exhaustive()
    }
}
