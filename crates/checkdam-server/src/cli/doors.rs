//! The doors of a server: opened together, left together.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::audit::Writer;
use crate::grpc;
use crate::http::Server;

/// How long operators' requests under way may take when all else is done.
const ADMIN_DRAIN: Duration = Duration::from_secs(1);
/// How long what was recorded may take to be written at the end.
const AUDIT_DRAIN: Duration = Duration::from_secs(5);

/// The doors of a server.
pub(super) struct Doors {
    pub(super) http: Server,
    pub(super) grpc: Option<grpc::Door>,
    pub(super) admin: Option<Server>,
}

impl Doors {
    /// Serves until it is time to stop; then the door for operators stays open
    /// while requests drain, and what was recorded is written last.
    pub(super) async fn run(self, stop: mpsc::Receiver<()>, drain: Duration, writer: Option<Writer>) {
        let (end_admin, admin_stop) = mpsc::channel(1);
        let admin = self.admin.map(|admin| tokio::spawn(admin.run(admin_stop, ADMIN_DRAIN)));
        let [http_stop, grpc_stop] = spread(stop);
        let grpc = async {
            if let Some(grpc) = self.grpc {
                grpc.run(grpc_stop, drain).await;
            }
        };
        tokio::join!(self.http.run(http_stop, drain), grpc);
        // If it is gone, it has nothing to end.
        let _ = end_admin.send(()).await;
        if let Some(writer) = writer {
            writer.finish(Instant::now() + AUDIT_DRAIN).await;
        }
        if let Some(admin) = admin {
            let _ = admin.await;
        }
    }
}

/// Every message to both.
fn spread(mut from: mpsc::Receiver<()>) -> [mpsc::Receiver<()>; 2] {
    let ((first, http), (second, grpc)) = (mpsc::channel(1), mpsc::channel(1));
    tokio::spawn(async move {
        while from.recv().await.is_some() {
            // Full means that one is already waiting to be seen, closed that
            // nobody is left to see it.
            let _ = first.try_send(());
            let _ = second.try_send(());
        }
    });
    [http, grpc]
}
