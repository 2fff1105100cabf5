//! The proxy's connections: a link is a client's stream, the server's stream and a thread for each direction.

use std::collections::HashMap;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use socket2::SockRef;

use super::faults::{Direction, Faults};
use super::pump::Pump;
use crate::wait::holds_within;

/// The threads need little: their buffers are on the heap, and there may be hundreds.
const STACK_BYTES: usize = 128 * 1024;
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// How long a write to a peer that does not read may go on before it looks whether the link was closed.
const WRITE_LIMIT: Duration = Duration::from_millis(100);

/// All links of one proxy.
pub(super) struct Links {
    upstream: Mutex<SocketAddr>,
    faults: Arc<Faults>,
    by_number: Mutex<HashMap<u64, Arc<Link>>>,
    accepted: AtomicU64,
    threads: AtomicUsize,
    is_shut_down: AtomicBool,
}

/// One connection through the proxy.
pub(super) struct Link {
    number: u64,
    pub(super) client: TcpStream,
    pub(super) server: TcpStream,
    is_closed: AtomicBool,
    has_client_left: AtomicBool,
    directions_left: AtomicUsize,
}

impl Links {
    pub(super) fn new(upstream: SocketAddr, faults: Arc<Faults>) -> Self {
        Self {
            upstream: Mutex::new(upstream),
            faults,
            by_number: Mutex::default(),
            accepted: AtomicU64::new(0),
            threads: AtomicUsize::new(0),
            is_shut_down: AtomicBool::new(false),
        }
    }

    /// Takes a client in. Connecting to the server happens elsewhere: a server that hangs must not stop the next
    /// client from being accepted.
    pub(super) fn connect(links: &Arc<Self>, client: TcpStream) {
        let number = links.accepted.fetch_add(1, Ordering::Relaxed);
        Self::spawn(links, move |links| {
            // A client whose server refuses sees its connection closed at once.
            if let Some(link) = links.open_link(number, client) {
                let replies = Arc::clone(&link);
                Self::spawn(links, move |links| links.run(&replies, Direction::Replies));
                links.run(&link, Direction::Requests);
            }
        });
    }

    pub(super) fn set_upstream(&self, upstream: SocketAddr) {
        *self.upstream.lock().unwrap() = upstream;
    }

    pub(super) fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }

    pub(super) fn open(&self) -> usize {
        self.lock().values().filter(|link| !link.is_over() && !link.has_client_left.load(Ordering::Acquire)).count()
    }

    pub(super) fn close_all(&self) {
        self.lock().values().for_each(|link| link.close());
        self.faults.wake();
    }

    pub(super) fn reset_all(&self) {
        self.lock().values().for_each(|link| link.reset());
        self.faults.wake();
    }

    /// Closes everything and waits for the threads.
    pub(super) fn shut_down(&self) {
        self.is_shut_down.store(true, Ordering::Release);
        holds_within(CONNECT_LIMIT, || {
            self.close_all();
            self.threads.load(Ordering::Acquire) == 0
        });
    }

    fn open_link(&self, number: u64, client: TcpStream) -> Option<Arc<Link>> {
        let upstream = *self.upstream.lock().unwrap();
        let server = TcpStream::connect_timeout(&upstream, CONNECT_LIMIT).ok()?;
        for stream in [&client, &server] {
            stream.set_nodelay(true).ok()?;
            stream.set_write_timeout(Some(WRITE_LIMIT)).ok()?;
        }
        let link = Arc::new(Link {
            number,
            client,
            server,
            is_closed: AtomicBool::new(false),
            has_client_left: AtomicBool::new(false),
            directions_left: AtomicUsize::new(2),
        });
        self.lock().insert(number, Arc::clone(&link));
        if self.is_shut_down.load(Ordering::Acquire) {
            link.close();
        }
        Some(link)
    }

    /// Carries one direction until it ends; the last one to end removes the link, which closes its sockets.
    fn run(&self, link: &Arc<Link>, direction: Direction) {
        Pump::new(link, &self.faults, direction).run();
        if link.directions_left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.lock().remove(&link.number);
        }
    }

    fn spawn(links: &Arc<Self>, work: impl FnOnce(&Arc<Self>) + Send + 'static) {
        links.threads.fetch_add(1, Ordering::AcqRel);
        let owned = Arc::clone(links);
        let run = move || {
            work(&owned);
            owned.threads.fetch_sub(1, Ordering::AcqRel);
        };
        let builder = thread::Builder::new().name("proxy-link".to_owned()).stack_size(STACK_BYTES);
        builder.spawn(run).expect("cannot start a thread for a connection");
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Arc<Link>>> {
        self.by_number.lock().unwrap()
    }
}

impl Link {
    pub(super) fn is_over(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    pub(super) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        for stream in [&self.client, &self.server] {
            drop(stream.shutdown(Shutdown::Both));
        }
    }

    /// The client has closed its side.
    pub(super) fn client_left(&self) {
        self.has_client_left.store(true, Ordering::Release);
    }

    /// With a linger time of zero, closing the socket sends RST. Shutting down the reading side only wakes its
    /// thread; shutting down the writing side would send FIN first.
    fn reset(&self) {
        self.is_closed.store(true, Ordering::Release);
        for stream in [&self.client, &self.server] {
            drop(SockRef::from(stream).set_linger(Some(Duration::ZERO)));
            drop(stream.shutdown(Shutdown::Read));
        }
    }
}
