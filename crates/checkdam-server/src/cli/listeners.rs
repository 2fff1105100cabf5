//! The request listeners of a server: HTTP and gRPC, opened and shut down together.

use checkdam_net::ShutdownOptions;
use checkdam_service::grpc;
use checkdam_service::http::HttpServer;
use tokio::sync::mpsc;

pub(super) struct Listeners {
    pub(super) http: HttpServer,
    pub(super) grpc: Option<grpc::GrpcListener>,
}

impl Listeners {
    /// Serves until a stop message, and then until requests in flight are answered.
    pub(super) async fn run(self, stop: mpsc::Receiver<()>, shutdown: ShutdownOptions) {
        let [http_stop, grpc_stop] = duplicate(stop);
        let grpc = async {
            if let Some(grpc) = self.grpc {
                grpc.run(grpc_stop, shutdown).await;
            }
        };
        tokio::join!(self.http.run(http_stop, shutdown), grpc);
    }
}

/// Every message to both.
fn duplicate(mut from: mpsc::Receiver<()>) -> [mpsc::Receiver<()>; 2] {
    let ((first, http), (second, grpc)) = (mpsc::channel(1), mpsc::channel(1));
    tokio::spawn(async move {
        while from.recv().await.is_some() {
            // Full means that a message is already pending, closed that the receiver has ended.
            let _ = first.try_send(());
            let _ = second.try_send(());
        }
    });
    [http, grpc]
}
