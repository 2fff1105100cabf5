//! Reads one log on its own thread: decompresses it, splits it into lines and parses
//! them.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use flate2::bufread::MultiGzDecoder;
use memchr::memrchr;

use super::combined_log_format::{CombinedLogFormat, is_combined};
use super::csv::{Csv, separator};
use super::field_mapping::FieldMapping;
use super::json_lines::JsonLines;
use super::log_chunk::{LogChunk, UnreadableLine};
use super::timestamps::check_plausible;

/// How much is read at once, and again while that is parsed.
const CHUNK: usize = 1 << 20;
const LINE_MAX: usize = 8 << 20;
/// The number of chunks queued for parsing.
const WAITING: usize = 2;
/// The maximum number of errors reported per chunk; all are counted.
const FAULTS_MAX: usize = 5;
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// How the lines of a log are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum LogFormat {
    /// Detect from the first line
    #[default]
    Auto,
    /// nginx and Apache: common, combined, and combined with a leading virtual host
    Combined,
    /// One JSON object per line
    Json,
    /// A header line, then one line per request
    Csv,
}

#[derive(Debug, Clone)]
pub(super) struct ReaderContext {
    pub(super) format: LogFormat,
    pub(super) mapping: FieldMapping,
    /// Bytes that were read, packed as they are.
    pub(super) read: Arc<AtomicU64>,
    pub(super) is_stopped: Arc<AtomicBool>,
}

/// Chunks of a log, and finally the error, if there is one.
pub(super) type ChunkResult = Result<LogChunk, String>;

/// Whether a path means standard input.
pub(super) fn is_stdin(path: &Path) -> bool {
    path == Path::new("-")
}

/// Reads a log until it ends or the receiver is dropped.
pub(super) fn start(path: &Path, shared: ReaderContext) -> std::io::Result<Receiver<ChunkResult>> {
    let raw: Box<dyn Read + Send> =
        if is_stdin(path) { Box::new(std::io::stdin()) } else { Box::new(File::open(path)?) };
    let (sender, receiver) = sync_channel(WAITING);
    std::thread::Builder::new().name("log".to_owned()).spawn(move || {
        let counted = CountingReader { raw, read: Arc::clone(&shared.read) };
        if let Err(reason) = read(counted, &shared, &sender) {
            // Fails only if the receiver was dropped.
            let _ = sender.send(Err(reason));
        }
    })?;
    Ok(receiver)
}

fn read(counted: CountingReader, shared: &ReaderContext, sender: &SyncSender<ChunkResult>) -> Result<(), String> {
    let mut packed = BufReader::with_capacity(CHUNK / 8, counted);
    let failed = |error: std::io::Error| format!("it cannot be read: {error}");
    let is_packed = packed.fill_buf().map_err(failed)?.starts_with(&GZIP);
    let mut plain: Box<dyn Read> = if is_packed { Box::new(MultiGzDecoder::new(packed)) } else { Box::new(packed) };
    let mut lines: Option<LineParser> = None;
    let mut kept: Vec<u8> = Vec::new();
    let mut line = 0;
    loop {
        let (bytes, is_end) = next_lines(&mut plain, &mut kept).map_err(failed)?;
        if bytes.len() > LINE_MAX {
            return Err(format!("line {} is longer than {LINE_MAX} bytes", line + 1));
        }
        let text = String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into());
        if lines.is_none() && !text.trim().is_empty() {
            lines = Some(LineParser::detect(shared, &text)?);
        }
        if let Some(lines) = &mut lines {
            let chunk = lines.parse_chunk(text, line);
            line += chunk.lines;
            if sender.send(Ok(chunk)).is_err() {
                return Ok(());
            }
        }
        if is_end || shared.is_stopped.load(Ordering::Relaxed) {
            return Ok(());
        }
    }
}

/// The next whole lines, and whether they are the last. What is read of the line
/// after them is kept.
fn next_lines(plain: &mut impl Read, kept: &mut Vec<u8>) -> std::io::Result<(Vec<u8>, bool)> {
    let mut bytes = Vec::with_capacity(CHUNK + kept.len());
    bytes.append(kept);
    loop {
        let more = plain.by_ref().take(CHUNK as u64).read_to_end(&mut bytes)?;
        if more == 0 || bytes.len() > LINE_MAX {
            return Ok((bytes, true));
        }
        if let Some(end) = memrchr(b'\n', &bytes) {
            kept.extend_from_slice(&bytes[end + 1..]);
            bytes.truncate(end + 1);
            return Ok((bytes, false));
        }
    }
}

/// Understands the lines of one log.
pub(super) enum LineParser {
    Combined(CombinedLogFormat),
    Json(JsonLines),
    Csv { csv: Box<Csv>, is_header_next: bool },
}

impl LineParser {
    pub(super) fn detect(shared: &ReaderContext, text: &str) -> Result<Self, String> {
        let first = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
        let mapping = shared.mapping.clone();
        let format = match shared.format {
            LogFormat::Auto if first.trim_start().starts_with('{') => LogFormat::Json,
            LogFormat::Auto if text.lines().take(20).any(is_combined) => LogFormat::Combined,
            LogFormat::Auto if first.bytes().any(|byte| byte == separator(first)) => LogFormat::Csv,
            LogFormat::Auto => {
                let shown: String = first.chars().take(80).collect();
                return Err(format!("its format is not known from {shown:?}: give it with --format"));
            }
            given => given,
        };
        match format {
            LogFormat::Json => Ok(Self::Json(JsonLines::new(mapping))),
            LogFormat::Csv => {
                Csv::new(mapping, first).map(|csv| Self::Csv { csv: Box::new(csv), is_header_next: true })
            }
            LogFormat::Combined | LogFormat::Auto => CombinedLogFormat::new(mapping).map(Self::Combined),
        }
    }

    /// Parses some lines; `line` lines precede them.
    pub(super) fn parse_chunk(&mut self, text: String, line: u64) -> LogChunk {
        let mut chunk = LogChunk::default();
        {
            let mut values = Vec::new();
            for one in text.lines() {
                chunk.lines += 1;
                if one.trim().is_empty() {
                    continue;
                }
                let read = match self {
                    Self::Combined(combined) => combined.read(one, &mut values),
                    Self::Json(json) => json.read(one, &mut values),
                    Self::Csv { is_header_next: header @ true, .. } => {
                        *header = false;
                        continue;
                    }
                    Self::Csv { csv, .. } => csv.read(one, &mut values),
                };
                match read.and_then(|read| check_plausible(read.0).map(|()| read)) {
                    Ok((at_us, cost)) => chunk.add(&text, at_us, cost, &values),
                    Err(reason) => {
                        chunk.unreadable += 1;
                        if chunk.faults.len() < FAULTS_MAX {
                            chunk.faults.push(UnreadableLine { line: line + chunk.lines, reason });
                        }
                    }
                }
                values.clear();
            }
        }
        chunk.text = text;
        chunk
    }
}

struct CountingReader {
    raw: Box<dyn Read + Send>,
    read: Arc<AtomicU64>,
}

impl Read for CountingReader {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let count = self.raw.read(into)?;
        self.read.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}
