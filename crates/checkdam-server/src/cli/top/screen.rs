//! The screen: a thread asks the server, this one draws and hears keys.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use anyhow::Context;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use tokio::signal::unix::{SignalKind, signal};

use super::draw::{Shown, draw};
use super::picture::{Picture, Wanted};
use super::view::{Pressed, View};
use crate::cli::failure::Failure;
use crate::cli::keeper::ServerKeeper;

/// How often the server is asked.
const ASK_EVERY: Duration = Duration::from_secs(1);
/// How long a key is waited for before what the server said is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Shows the screen until somebody quits or ends the program. However it ends, by a
/// panic too, the terminal is as it was.
pub(super) fn run(keeper: ServerKeeper, view: View, first: Picture) -> anyhow::Result<()> {
    let is_stopped = stopped()?;
    let mut terminal = ratatui::try_init().context("this terminal cannot be drawn on: use --once")?;
    let done = show(&mut terminal, keeper, view, first, &is_stopped);
    ratatui::restore();
    done
}

fn show(
    terminal: &mut DefaultTerminal,
    keeper: ServerKeeper,
    mut view: View,
    first: Picture,
    is_stopped: &AtomicBool,
) -> anyhow::Result<()> {
    let (wants, wanted) = channel();
    let (pictures, seen) = channel();
    // It ends with the program: nothing of it is to be kept.
    let asked = view.wanted.clone();
    std::thread::spawn(move || ask(&keeper, asked, &wanted, &pictures));
    let mut shown = Shown { picture: first, trouble: None, has_colour: has_colour() };
    let mut is_due = true;
    while !is_stopped.load(Ordering::Relaxed) {
        while let Ok(answer) = seen.try_recv() {
            is_due = true;
            match answer {
                Ok(picture) if !view.is_paused => (shown.picture, shown.trouble) = (picture, None),
                Ok(_) => shown.trouble = None,
                Err(failure) => shown.trouble = Some(failure.reason),
            }
        }
        if is_due {
            terminal.draw(|frame| draw(frame, &view, &shown)).context("the terminal cannot be drawn on")?;
        }
        is_due = event::poll(LOOK_EVERY).context("keys cannot be read")?;
        if !is_due {
            continue;
        }
        let Event::Key(key) = event::read().context("keys cannot be read")? else { continue };
        if key.kind == KeyEventKind::Release {
            continue;
        }
        match view.press(key) {
            Pressed::Quit => return Ok(()),
            Pressed::Draw => {}
            Pressed::Ask => drop(wants.send(view.wanted.clone())),
        }
    }
    Ok(())
}

/// Set once the program is told to end, or its terminal goes away.
fn stopped() -> anyhow::Result<Arc<AtomicBool>> {
    let is_stopped = Arc::new(AtomicBool::new(false));
    let set = Arc::clone(&is_stopped);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start threads")?;
    let (mut ended, mut hung_up) = {
        let _inside = runtime.enter();
        (signal(SignalKind::terminate())?, signal(SignalKind::hangup())?)
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        runtime.block_on(async {
            tokio::select! { _ = ended.recv() => {}, _ = hung_up.recv() => {} }
        });
        set.store(true, Ordering::Relaxed);
    })?;
    Ok(is_stopped)
}

/// Asks every second, and at once when something else is wanted, as long as
/// anybody wants it.
fn ask(
    keeper: &ServerKeeper,
    mut asked: Wanted,
    wanted: &Receiver<Wanted>,
    pictures: &Sender<Result<Picture, Failure>>,
) {
    loop {
        match wanted.recv_timeout(ASK_EVERY) {
            Ok(wanted) => asked = wanted,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        if pictures.send(Picture::ask(keeper, &asked)).is_err() {
            return;
        }
    }
}

/// See no-color.org.
fn has_colour() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}
