//! Tests of the response parser, with responses split at every size.

use super::*;

/// Reads all answers of a connection that brings these bytes so many at a time.
async fn read_all(text: &[u8], at_a_time: usize) -> Vec<Result<ParsedResponse, ErrorKind>> {
    let (mut ours, mut theirs) = tokio::io::duplex(at_a_time);
    let text = text.to_vec();
    let sending = tokio::spawn(async move {
        let _ = tokio::io::AsyncWriteExt::write_all(&mut theirs, &text).await;
    });
    let mut replies = ResponseParser::default();
    let mut read = Vec::new();
    loop {
        match replies.read(&mut ours, true).await {
            Ok(reply) => {
                let is_last = !reply.is_kept;
                read.push(Ok(reply));
                if is_last {
                    break;
                }
            }
            Err(error) => {
                read.push(Err(error.kind()));
                break;
            }
        }
    }
    drop(ours);
    sending.await.unwrap();
    read
}

fn reply(status: u16, bytes: usize, is_kept: bool, decided_by: Option<DecidedBy>) -> Result<ParsedResponse, ErrorKind> {
    Ok(ParsedResponse { status, is_kept, decided_by, bytes })
}

#[tokio::test]
async fn answers_are_read_to_their_end_however_they_are_cut() {
    let decision = "HTTP/1.1 429 Too Many Requests\r\nContent-Length: 22\r\n\r\n{\"decided_by\":\"redis\"}";
    let chunked =
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n00a\r\n0123456789\r\n0\r\nt: 1\r\n\r\n";
    let announced = "HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n";
    let closed = "HTTP/1.1 200 OK\r\nconnection: Close\r\ncontent-length: 2\r\n\r\nhi";
    let text = format!("{decision}{chunked}{announced}{closed}");
    for at_a_time in [1, 2, 7, 64, 1 << 20] {
        assert_eq!(
            read_all(text.as_bytes(), at_a_time).await,
            [
                reply(429, decision.len(), true, Some(DecidedBy::Redis)),
                reply(200, chunked.len(), true, None),
                reply(204, announced.len(), true, None),
                reply(200, closed.len(), false, None),
            ],
            "{at_a_time} at a time"
        );
    }
    let old = "HTTP/1.0 200 OK\r\n\r\nuntil the end";
    assert_eq!(read_all(old.as_bytes(), 5).await, [reply(200, old.len(), false, None)]);
}

#[tokio::test]
async fn what_is_no_answer_is_an_error() {
    for (text, kind) in [
        ("", ErrorKind::UnexpectedEof),
        ("HTTP/1.1 200 OK\r\n", ErrorKind::UnexpectedEof),
        ("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nshort", ErrorKind::UnexpectedEof),
        ("HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n", ErrorKind::InvalidData),
        ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n", ErrorKind::InvalidData),
        ("SSH-2.0-OpenSSH\r\n\r\n", ErrorKind::InvalidData),
        ("HTTP/1.1 ab OK\r\n\r\n", ErrorKind::InvalidData),
    ] {
        assert_eq!(read_all(text.as_bytes(), 1_000).await, [Err(kind)], "{text:?}");
    }
    let endless = format!("HTTP/1.1 200 OK\r\nx: {}", "y".repeat(2 * HEAD_MAX));
    assert_eq!(read_all(endless.as_bytes(), 1_000).await, [Err(ErrorKind::InvalidData)]);
}
