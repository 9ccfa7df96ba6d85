//! An access to memory that is not there, or a division by zero, stops its block as a fault, and not the program: the signal
//! finds out whose it was, and that CUDA thread fails instead of going on.

use std::ffi::{c_int, c_void};
use std::sync::Once;

use crate::fault::{Fault, Place};
use crate::run::{ThreadContext, emulator_current_slot};
use crate::site::{Places, code_number};

/// What the processor says of an access, and of a division.
const SIGNALS: [c_int; 3] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE];

/// What was done with these signals before.
static BEFORE: std::sync::OnceLock<[libc::sigaction; SIGNALS.len()]> = std::sync::OnceLock::new();

/// Sees to it that kernels on all OS threads end so. Elsewhere than on x86-64 the program dies with them.
pub(crate) fn stop_blocks_alone() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        if cfg!(not(all(target_os = "linux", target_arch = "x86_64"))) {
            return;
        }
        // SAFETY: all zeros is a sigaction; each call reads and writes structs that live here; and the handler does what one
        // may do.
        unsafe {
            let ask = |signal| {
                let mut before: libc::sigaction = std::mem::zeroed();
                libc::sigaction(signal, std::ptr::null(), &mut before);
                before
            };
            BEFORE.get_or_init(|| SIGNALS.map(ask));
            let mut ours: libc::sigaction = std::mem::zeroed();
            ours.sa_sigaction = on_signal as *const () as usize;
            ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            for signal in SIGNALS {
                libc::sigaction(signal, &ours, std::ptr::null_mut());
            }
        }
    });
}

/// Lets the CUDA thread to which it happened go on in [`fail`]; all else goes to whoever had the signal before.
unsafe extern "C" fn on_signal(signal: c_int, info: *mut libc::siginfo_t, machine: *mut c_void) {
    // SAFETY: the system hands over live structs. The slot holds the context of the thread that runs, or of one that has run: it
    // is asked only on the stack that it names. Nothing here allocates or locks.
    unsafe {
        let context = (*emulator_current_slot()).cast::<ThreadContext>();
        let is_kernel = !context.is_null() && go_on_in_fail(&*context, signal, info, machine);
        if is_kernel {
            return;
        }
        let before = BEFORE
            .get()
            .zip(SIGNALS.iter().position(|of| *of == signal));
        let before = before.map(|(all, index)| all[index]);
        match before.map_or(libc::SIG_DFL, |before| before.sa_sigaction) {
            libc::SIG_DFL | libc::SIG_IGN => {
                // The instruction is tried again, and the program dies of it.
                let mut default: libc::sigaction = std::mem::zeroed();
                default.sa_sigaction = libc::SIG_DFL;
                libc::sigaction(signal, &default, std::ptr::null_mut());
            }
            handler => {
                type Handler = unsafe extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);
                std::mem::transmute::<usize, Handler>(handler)(signal, info, machine);
            }
        }
    }
}

/// False if the processor was on another stack than the thread's.
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
unsafe fn go_on_in_fail(
    context: &ThreadContext,
    signal: c_int,
    info: *const libc::siginfo_t,
    machine: *mut c_void,
) -> bool {
    // SAFETY: see on_signal.
    let (registers, address) = unsafe {
        let machine = &mut *machine.cast::<libc::ucontext_t>();
        (&mut machine.uc_mcontext.gregs, (*info).si_addr())
    };
    let stack = registers[libc::REG_RSP as usize] as usize;
    if !context.stack.contains(&stack) {
        return false;
    }
    let code = registers[libc::REG_RIP as usize];
    registers[libc::REG_RDI as usize] = std::ptr::from_ref(context) as i64;
    registers[libc::REG_RSI as usize] = signal.into();
    registers[libc::REG_RDX as usize] = address as i64;
    registers[libc::REG_RCX as usize] = code;
    // Below what the function that is given up may use without moving the pointer, and as a call leaves it.
    registers[libc::REG_RSP as usize] = ((stack - 128) & !15) as i64 - 8;
    registers[libc::REG_RIP as usize] = fail as *const () as i64;
    true
}

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
unsafe fn go_on_in_fail(
    _: &ThreadContext,
    _: c_int,
    _: *const libc::siginfo_t,
    _: *mut c_void,
) -> bool {
    false
}

/// Where the thread goes on, on its own stack and no longer in the signal.
unsafe extern "C-unwind" fn fail(
    context: *const ThreadContext,
    signal: c_int,
    address: usize,
    code: usize,
) -> ! {
    // SAFETY: it is the context of the running thread.
    let context = unsafe { &*context };
    let (block, thread) = (context.block_idx, context.thread);
    let place = context
        .run()
        .touching
        .get()
        .map_or_else(|| place_of(code), |site| site.place());
    context.fail(match signal {
        libc::SIGFPE => Fault::Trap {
            block,
            thread,
            message: "a division by zero, or one whose result has too many bits".into(),
            place,
        },
        _ => Fault::OutOfBounds {
            block,
            thread,
            // The processor does not tell an address that no memory can have.
            access: match address {
                0 => "address 0, or one that no memory can have".into(),
                _ => format!("address {address:#x}, where no memory is"),
            },
            place,
        },
    })
}

fn place_of(code: usize) -> Place {
    // As if it was an address to return to.
    Places::default().get(code_number(code + 1)).swap_remove(0)
}
