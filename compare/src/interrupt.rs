//! Ctrl-C: the first one ends the run and keeps what is finished, the second one ends the process.

use crate::judge::verdict::Exit;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::io;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

/// Whether the process was interrupted or asked to terminate since the first call.
pub fn interrupted() -> io::Result<Arc<AtomicBool>> {
    static FLAG: Mutex<Option<Arc<AtomicBool>>> = Mutex::new(None);
    let mut registered = FLAG.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(flag) = &*registered {
        return Ok(Arc::clone(flag));
    }
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // In this order: at the first signal the flag is not set yet.
        signal_hook::flag::register_conditional_shutdown(
            signal,
            Exit::Interrupted.code().into(),
            Arc::clone(&flag),
        )?;
        signal_hook::flag::register(signal, Arc::clone(&flag))?;
    }
    Ok(Arc::clone(registered.insert(flag)))
}
