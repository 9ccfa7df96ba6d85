//! Ctrl-C: the first one ends the run and keeps what is finished, the second one ends the process.

use results::judge::verdict::Exit;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

static FLAG: Mutex<Option<Arc<AtomicBool>>> = Mutex::new(None);

/// Returns whether the process was interrupted or asked to terminate since the first call of
/// [`interrupted`]; before it, either ends the process.
pub fn is_interrupted() -> bool {
    let registered = FLAG.lock().unwrap_or_else(PoisonError::into_inner);
    match &*registered {
        Some(flag) => flag.load(Ordering::Relaxed),
        None => false,
    }
}

/// Returns the flag that is set when the process is interrupted or asked to terminate after the
/// first call.
pub fn interrupted() -> io::Result<Arc<AtomicBool>> {
    let mut registered = FLAG.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = &*registered {
        return Ok(Arc::clone(known));
    }
    let is_set = Arc::new(AtomicBool::new(false));
    let exit_code = Exit::Interrupted.code().into();
    for signal in [SIGINT, SIGTERM] {
        // In this order: at the first signal the flag is not set yet.
        flag::register_conditional_shutdown(signal, exit_code, Arc::clone(&is_set))?;
        flag::register(signal, Arc::clone(&is_set))?;
    }
    *registered = Some(Arc::clone(&is_set));
    Ok(is_set)
}
