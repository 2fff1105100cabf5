//! Event loop of `checkdam top`: separate threads wait for keys, for the server and for
//! signals; this one draws.
//!
//! crossterm reads a terminal that has hung up in a loop that never returns, so keys
//! are read on a separate thread, which ends with the process.

use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use anyhow::Context;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEvent, KeyEventKind};
use tokio::signal::unix::{SignalKind, signal};

use super::render::{RenderState, draw};
use super::server_snapshot::{ServerSnapshot, TopQuery};
use super::view_state::{KeyAction, ViewState};
use crate::cli::backend::ServerBackend;
use crate::cli::command_error::CommandError;

const ASK_EVERY: Duration = Duration::from_secs(1);

/// What the screen waits for.
enum TerminalEvent {
    Answer(Result<Box<ServerSnapshot>, CommandError>),
    Key(KeyEvent),
    Resized,
    Unreadable(std::io::Error),
    /// The terminal has hung up, or a signal ends the program.
    End,
}

/// Shows the screen until the user quits, a signal arrives, or the terminal hangs up.
/// However it ends, also by a panic, the terminal is restored.
pub(super) fn run(backend: ServerBackend, view: ViewState, first: ServerSnapshot) -> anyhow::Result<()> {
    let (sender, awaited) = channel();
    wait_for_end(sender.clone())?;
    let mut terminal = ratatui::try_init().context("cannot draw on this terminal: use --once")?;
    let done = show(&mut terminal, backend, view, first, (sender, &awaited));
    // A terminal that has hung up cannot be restored, and need not be.
    let _ = ratatui::try_restore();
    done
}

fn show(
    terminal: &mut DefaultTerminal,
    backend: ServerBackend,
    mut view: ViewState,
    first: ServerSnapshot,
    (sender, awaited): (Sender<TerminalEvent>, &Receiver<TerminalEvent>),
) -> anyhow::Result<()> {
    let (wants, query) = channel();
    let asked = view.query.clone();
    let answers = sender.clone();
    std::thread::spawn(move || fetch_every_second(&backend, asked, &query, &answers));
    std::thread::spawn(move || read_keys(&sender));
    let mut shown = RenderState { snapshot: first, trouble: None, has_colour: has_colour() };
    loop {
        terminal.draw(|frame| draw(frame, &view, &shown)).context("cannot draw on the terminal")?;
        match awaited.recv().context("the terminal threads have ended")? {
            TerminalEvent::Answer(Ok(snapshot)) if !view.is_paused => {
                (shown.snapshot, shown.trouble) = (*snapshot, None)
            }
            TerminalEvent::Answer(Ok(_)) => shown.trouble = None,
            TerminalEvent::Answer(Err(failure)) => shown.trouble = Some(failure.reason),
            TerminalEvent::Key(key) => match view.press(key) {
                KeyAction::Quit => return Ok(()),
                KeyAction::Draw => {}
                KeyAction::Ask => drop(wants.send(view.query.clone())),
            },
            TerminalEvent::Resized => {}
            TerminalEvent::Unreadable(error) => return Err(error).context("cannot read keys"),
            TerminalEvent::End => return Ok(()),
        }
    }
}

/// Reads keys while the receiver exists.
fn read_keys(sender: &Sender<TerminalEvent>) {
    loop {
        let awaited = match event::read() {
            Ok(Event::Key(key)) if key.kind != KeyEventKind::Release => TerminalEvent::Key(key),
            Ok(Event::Resize(..)) => TerminalEvent::Resized,
            Ok(_) => continue,
            Err(error) => TerminalEvent::Unreadable(error),
        };
        let is_last = matches!(awaited, TerminalEvent::Unreadable(_));
        if sender.send(awaited).is_err() || is_last {
            return;
        }
    }
}

/// Reports when the program shall end: SIGTERM, SIGHUP, or a terminal that has hung
/// up. The latter sends SIGHUP only to processes whose controlling terminal it is.
fn wait_for_end(sender: Sender<TerminalEvent>) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start threads")?;
    let (mut ended, mut hung_up) = {
        let _inside = runtime.enter();
        (signal(SignalKind::terminate())?, signal(SignalKind::hangup())?)
    };
    let poll = Poll::new().context("cannot wait for keys")?;
    let terminal = std::io::stdin().as_raw_fd();
    let registered = poll.registry().register(&mut SourceFd(&terminal), Token(0), Interest::READABLE);
    registered.context("cannot wait for keys")?;
    let also = sender.clone();
    // The send fails if the screen has ended already.
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        runtime.block_on(async {
            tokio::select! { _ = ended.recv() => {}, _ = hung_up.recv() => {} }
        });
        let _ = also.send(TerminalEvent::End);
    })?;
    std::thread::Builder::new().name("terminal".to_owned()).spawn(move || {
        wait_for_close(poll);
        let _ = sender.send(TerminalEvent::End);
    })?;
    Ok(())
}

/// Waits until a terminal is closed. Keys wake it too, once each; they are read
/// elsewhere.
fn wait_for_close(mut poll: Poll) {
    let mut events = Events::with_capacity(1);
    loop {
        match poll.poll(&mut events, None) {
            Err(error) if error.kind() != ErrorKind::Interrupted => return,
            _ if events.iter().any(|event| event.is_read_closed() || event.is_error()) => return,
            _ => {}
        }
    }
}

/// Fetches every second, and at once when the query changes, while the receiver
/// exists.
fn fetch_every_second(
    backend: &ServerBackend,
    mut asked: TopQuery,
    query: &Receiver<TopQuery>,
    answers: &Sender<TerminalEvent>,
) {
    loop {
        match query.recv_timeout(ASK_EVERY) {
            Ok(query) => asked = query,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        if answers.send(TerminalEvent::Answer(ServerSnapshot::fetch(backend, &asked).map(Box::new))).is_err() {
            return;
        }
    }
}

/// See no-color.org.
fn has_colour() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}
