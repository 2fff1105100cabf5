//! Client connections from chosen loopback addresses.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};

use socket2::{Domain, Socket, Type};

/// Connects from the address `source`. On Linux every address of 127.0.0.0/8 is local, so a test can have any number
/// of clients with different addresses.
pub fn connect_from(source: IpAddr, server: SocketAddr) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(server), Type::STREAM, None)?;
    socket.bind(&SocketAddr::new(source, 0).into())?;
    socket.connect(&server.into())?;
    Ok(socket.into())
}
